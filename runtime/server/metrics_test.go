package server

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/server/servertest"
)

// The text is in Prometheus's form: each family is described once, before its lines, and each line is a number.
func TestMetrics(t *testing.T) {
	f := start(t, func(o *Options, _ *servertest.Model) { o.Name = `a"b\c` })
	f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
	f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
	f.post(t, "/v1/chat/completions", `{}`)
	f.post(t, "/v1/completions", `{"prompt":"hi there","max_tokens":3}`)
	_, text := f.get(t, "/metrics")
	line := regexp.MustCompile(`^([a-z0-9_:]+)(\{[a-z_]+="([^"\\]|\\.)*"(,[a-z_]+="([^"\\]|\\.)*")*\})? [0-9.e+-]+$`)
	family, seen := "", map[string]bool{}
	for l := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if name, ok := strings.CutPrefix(l, "# HELP "); ok {
			family, _, _ = strings.Cut(name, " ")
			require.False(t, seen[family], family)
			seen[family] = true
			continue
		}
		if strings.HasPrefix(l, "# TYPE ") {
			require.Contains(t, l, "# TYPE "+family+" ")
			continue
		}
		require.Regexp(t, line, l)
		require.True(t, strings.HasPrefix(l, family), l)
	}
	for _, want := range []string{
		`mlxcel_http_requests_total{route="/v1/chat/completions",code="200"} 2`,
		`mlxcel_http_requests_total{route="/v1/chat/completions",code="400"} 1`,
		`mlxcel_answers_total{finished_reason="stop"} 2`,
		`mlxcel_answers_total{finished_reason="length"} 1`,
		`vllm:request_success_total{model_name="a\"b\\c",finished_reason="stop"} 2`,
		`mlxcel_prompt_tokens_total 50`,
		`mlxcel_cached_tokens_total 20`,
		`vllm:generation_tokens_total{model_name="a\"b\\c"} 9`,
		`mlxcel_first_token_seconds_bucket{le="0.025"} 3`,
		`mlxcel_first_token_seconds_bucket{le="0.01"} 0`,
		`vllm:time_to_first_token_seconds_count{model_name="a\"b\\c"} 3`,
		`vllm:num_requests_running{model_name="a\"b\\c"} 0`,
		`vllm:num_requests_waiting{model_name="a\"b\\c"} 0`,
		`mlxcel_ready 1`,
		`mlxcel_kv_pages 512`, `mlxcel_kv_pages_used 0`, `mlxcel_kv_pages_kept 3`, `mlxcel_kv_pages_free 509`,
		`mlxcel_inter_token_seconds_count 6`,
	} {
		require.True(t, strings.Contains(text, want+"\n"), want)
	}
}
