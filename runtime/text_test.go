package runtime

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the pieces are that a text arrives in, what comes out is the text before the first stop text, and nothing
// of a stop text is ever shown.
func TestStopTextsAcrossPieces(t *testing.T) {
	for _, c := range []struct {
		text  string
		stops []string
		want  string
		stop  bool
	}{
		{"hello world", nil, "hello world", false},
		{"hello world", []string{"o w"}, "hell", true},
		{"hello world", []string{"worlds"}, "hello world", false},
		{"aaab", []string{"aab"}, "a", true},
		{"abcabd", []string{"abd"}, "abc", true},
		{"one\n\ntwo", []string{"\n\n", "\nt"}, "one", true},
		{"x END y STOP", []string{"STOP", "END"}, "x ", true},
		{"grüße 🙂 ende", []string{"🙂"}, "grüße ", true},
		{"", []string{"a"}, "", false},
		{"stop", []string{"stop"}, "", true},
		{"ab", []string{"abc", "bc"}, "ab", false},
	} {
		runes := strings.Split(c.text, "")
		for size := 1; size <= len(runes)+1; size++ {
			s := textStream{stops: c.stops}
			var got strings.Builder
			stopped := false
			for i := 0; i < len(runes) && !stopped; i += size {
				var text string
				text, stopped = s.push(strings.Join(runes[i:min(i+size, len(runes))], ""))
				got.WriteString(text)
			}
			if !stopped {
				got.WriteString(s.held)
			}
			require.Equal(t, c.want, got.String(), "%q with %q in pieces of %d", c.text, c.stops, size)
			require.Equal(t, c.stop, stopped)
		}
	}
}

// Text that cannot become a stop text is not held back.
func TestOnlyWhatMustBeHeldIsHeld(t *testing.T) {
	s := textStream{stops: []string{"END"}}
	text, _ := s.push("abc")
	require.Equal(t, "abc", text)
	text, _ = s.push("xE")
	require.Equal(t, "x", text)
	text, _ = s.push("N")
	require.Empty(t, text)
	text, _ = s.push("E")
	require.Equal(t, "EN", text)
}

func TestLogprobs(t *testing.T) {
	// Probabilities 1/8, 1/2, 1/4, 1/8.
	logits := []float32{0, float32(math.Log(4)), float32(math.Log(2)), 0}
	p, top := logprobs(logits, 2, 3)
	require.InDelta(t, math.Log(0.25), p, 1e-6)
	require.Equal(t, []int32{1, 2, 0}, []int32{top[0].Token, top[1].Token, top[2].Token})
	require.InDelta(t, math.Log(0.5), top[0].Logprob, 1e-6)
	require.InDelta(t, math.Log(0.125), top[2].Logprob, 1e-6)
	_, top = logprobs(logits, 0, 0)
	require.Empty(t, top)
	_, top = logprobs(logits, 0, 9)
	require.Len(t, top, 4)
	require.EqualValues(t, 3, top[3].Token)
}
