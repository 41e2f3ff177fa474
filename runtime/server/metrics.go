package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

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
	var b strings.Builder
	s.metrics.write(&b)
	s.writeGauges(&b)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, err := w.Write([]byte(b.String()))
	return err
}

func (m *metrics) write(b *strings.Builder) {
	m.requests.write(b, "Requests by route and status.", "mlxcel_http_requests_total")
	m.answers.write(b, "Answers by the reason of their end.", "mlxcel_answers_total", "vllm:request_success_total")
	m.promptTokens.write(b, "Prompt tokens, cached ones included.", "mlxcel_prompt_tokens_total", "vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total")
	m.cachedTokens.write(b, "Prompt tokens that were not computed again.", "mlxcel_cached_tokens_total", "vllm:prefix_cache_hits_total")
	m.tokens.write(b, "Tokens of answers.", "mlxcel_tokens_total", "vllm:generation_tokens_total")
	m.queueTime.write(b, "Time from a request to its first step.", "mlxcel_queue_seconds", "vllm:request_queue_time_seconds")
	m.firstToken.write(b, "Time from a request to its first token.", "mlxcel_first_token_seconds", "vllm:time_to_first_token_seconds")
	m.interToken.write(b, "Time between tokens of an answer.", "mlxcel_inter_token_seconds", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
	m.answerTime.write(b, "Time from a request to the end of its answer.", "mlxcel_answer_seconds", "vllm:e2e_request_latency_seconds")
}

// writeGauges writes what the engine knows of the moment.
func (s *Server) writeGauges(b *strings.Builder) {
	gauge := func(help string, value float64, names ...string) { writeFigure(b, "gauge", help, value, names...) }
	gauge("Answers that are being made or wait.", float64(s.answers.Load()), "mlxcel_answers_open")
	kept, bytes := s.stored.size()
	gauge("Responses kept for previous_response_id.", float64(kept), "mlxcel_stored_responses")
	gauge("Bytes of the responses kept.", float64(bytes), "mlxcel_stored_bytes")
	l, err := s.model()
	if err != nil {
		gauge("Whether the model is loaded and works.", 0, "mlxcel_ready")
		return
	}
	gauge("Whether the model is loaded and works.", 1, "mlxcel_ready")
	stats := l.Stats()
	gauge("Answers in the batch.", float64(stats.Running), "mlxcel_running", "vllm:num_requests_running")
	gauge("Answers that wait for a place in the batch.", float64(stats.Waiting), "mlxcel_waiting", "vllm:num_requests_waiting")
	var held, most int
	for _, slot := range stats.Slots {
		if slot.Busy {
			held += slot.Tokens
		}
		most += l.Facts().MaxTokens
	}
	gauge("Tokens in the key-value cache of answers that are being made.", float64(held), "mlxcel_kv_tokens")
	gauge("Their share of what fits, 0 to 1.", float64(held)/float64(max(most, 1)), "mlxcel_kv_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
	count := func(help string, value uint64, names ...string) {
		writeFigure(b, "counter", help, float64(value), names...)
	}
	count("Steps of the engine.", stats.Steps, "mlxcel_steps_total")
	count("Sequences of all steps: divided by the steps, the mean batch.", stats.StepSequences, "mlxcel_step_sequences_total")
	count("Tokens that all steps computed.", stats.StepTokens, "mlxcel_step_tokens_total")
}

func writeFigure(b *strings.Builder, kind, help string, value float64, names ...string) {
	for _, name := range names {
		writeHead(b, name, kind, help)
		fmt.Fprintf(b, "%s %s\n", name, formatFloat(value))
	}
}

func writeHead(b *strings.Builder, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// counter is a family of numbers that only grow, by the values of its labels.
type counter struct {
	labels []string

	mu     sync.Mutex
	values map[string]float64 // by the labels as they are written
}

// add adds n to the number of the given label values, which must be few: they come from the server, not from clients.
func (c *counter) add(n float64, values ...string) {
	var text strings.Builder
	for i, l := range c.labels {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		fmt.Fprintf(&text, "%s%s=%q", separator, l, values[i])
	}
	if len(c.labels) > 0 {
		text.WriteByte('}')
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[string]float64{}
	}
	c.values[text.String()] += n
}

func (c *counter) write(b *strings.Builder, help string, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var labels []string
	for l := range c.values {
		labels = append(labels, l)
	}
	if len(c.labels) == 0 && len(labels) == 0 {
		labels = []string{""} // a counter without labels is there from the start
	}
	slices.Sort(labels)
	for _, name := range names {
		writeHead(b, name, "counter", help)
		for _, l := range labels {
			fmt.Fprintf(b, "%s%s %s\n", name, l, formatFloat(c.values[l]))
		}
	}
}

// histogram counts observations by upper bounds.
type histogram struct {
	bounds []float64

	mu     sync.Mutex
	counts []uint64 // by bound, the last one without any
	sum    float64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v) // the first bound that is at least v
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[i]++
	h.sum += v
}

func (h *histogram) write(b *strings.Builder, help string, names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		writeHead(b, name, "histogram", help)
		var total uint64
		for i, n := range h.counts {
			total += n
			bound := "+Inf"
			if i < len(h.bounds) {
				bound = formatFloat(h.bounds[i])
			}
			fmt.Fprintf(b, "%s_bucket{le=%q} %d\n", name, bound, total)
		}
		fmt.Fprintf(b, "%s_sum %s\n%s_count %d\n", name, formatFloat(h.sum), name, total)
	}
}
