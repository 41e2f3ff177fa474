package server

import "net/http"

// metrics are the figures at /metrics, in Prometheus's text form. Where vLLM has a figure that means the same, it is
// shown under vLLM's name too, so that dashboards and gateways made for that work here.
type metrics struct {
	requests     counter
	answers      counter
	promptTokens counter
	cachedTokens counter
	tokens       counter
	queueTime    *histogram
	firstToken   *histogram
	interToken   *histogram
	answerTime   *histogram
}

func newMetrics() *metrics {
	return &metrics{
		requests: counter{labels: []string{"route", "code"}},
		answers:  counter{labels: []string{"finished_reason"}},
		// Bounds in seconds.
		queueTime:  newHistogram(.001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120),
		firstToken: newHistogram(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120),
		interToken: newHistogram(.001, .0025, .005, .01, .02, .05, .1, .2, .5, 1, 2.5),
		answerTime: newHistogram(.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
	}
}

// showMetrics answers /metrics.
func (s *Server) showMetrics(w http.ResponseWriter, _ *http.Request) error {
	e := &exposition{}
	l, err := s.model()
	if err == nil {
		e.model = l.id
	}
	s.metrics.write(e)
	s.writeGauges(e, l)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, err = w.Write([]byte(e.text.String()))
	return err
}

func (m *metrics) write(e *exposition) {
	m.requests.write(e, "Requests by route and status.", "mlxcel_http_requests_total")
	m.answers.write(e, "Answers by the reason of their end.", "mlxcel_answers_total", "vllm:request_success_total")
	m.promptTokens.write(e, "Prompt tokens, cached ones included.", "mlxcel_prompt_tokens_total", "vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total")
	m.cachedTokens.write(e, "Prompt tokens that were not computed again.", "mlxcel_cached_tokens_total", "vllm:prefix_cache_hits_total")
	m.tokens.write(e, "Tokens of answers.", "mlxcel_tokens_total", "vllm:generation_tokens_total")
	m.queueTime.write(e, "Time from a request to its first step.", "mlxcel_queue_seconds", "vllm:request_queue_time_seconds")
	m.firstToken.write(e, "Time from a request to its first token.", "mlxcel_first_token_seconds", "vllm:time_to_first_token_seconds")
	m.interToken.write(e, "Time between tokens of an answer.", "mlxcel_inter_token_seconds", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
	m.answerTime.write(e, "Time from a request to the end of its answer.", "mlxcel_answer_seconds", "vllm:e2e_request_latency_seconds")
}

// writeGauges writes what is known of the moment. l is nil while there is no model.
func (s *Server) writeGauges(e *exposition, l *loaded) {
	gauge := func(help string, value float64, names ...string) { e.figure("gauge", help, value, names...) }
	gauge("Answers that are being made or wait.", float64(s.answers.Load()), "mlxcel_answers_open")
	kept, bytes := s.stored.size()
	gauge("Responses kept for previous_response_id.", float64(kept), "mlxcel_stored_responses")
	gauge("Bytes of the responses kept.", float64(bytes), "mlxcel_stored_bytes")
	if l == nil {
		gauge("Whether the model is loaded and works.", 0, "mlxcel_ready")
		return
	}
	gauge("Whether the model is loaded and works.", 1, "mlxcel_ready")
	stats := l.Stats()
	gauge("Answers in the batch.", float64(stats.Running), "mlxcel_running", "vllm:num_requests_running")
	gauge("Answers that wait for a place in the batch.", float64(stats.Waiting), "mlxcel_waiting", "vllm:num_requests_waiting")
	free := stats.Pages - stats.PagesHeld - stats.PagesKept
	gauge("Pages of the key-value cache, of 64 tokens each.", float64(stats.Pages), "mlxcel_kv_pages")
	gauge("Pages that answers which are being made hold.", float64(stats.PagesHeld), "mlxcel_kv_pages_used")
	gauge("Pages that are kept of answers which have ended, until they are needed.", float64(stats.PagesKept), "mlxcel_kv_pages_kept")
	gauge("Pages that hold nothing.", float64(free), "mlxcel_kv_pages_free")
	gauge("Share of the pages that are used, 0 to 1.", float64(stats.PagesHeld)/float64(max(stats.Pages, 1)),
		"mlxcel_kv_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
	count := func(help string, value uint64, names ...string) { e.figure("counter", help, float64(value), names...) }
	count("Answers that had to wait again because pages ran out.", stats.Preemptions, "mlxcel_preemptions_total", "vllm:num_preemptions_total")
	count("Steps of the engine.", stats.Steps, "mlxcel_steps_total")
	count("Sequences of all steps: divided by the steps, the mean batch.", stats.StepSequences, "mlxcel_step_sequences_total")
	count("Tokens that all steps computed.", stats.StepTokens, "mlxcel_step_tokens_total")
}
