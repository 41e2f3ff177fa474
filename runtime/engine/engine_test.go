package engine

import (
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/sample"
	"mlxcel/tests/testenv"
)

func tinyPath(name string) string {
	return filepath.Join(testenv.Root(), "tests", "goldens", "tiny", name)
}

func startTiny(t testing.TB, o Options) *Engine {
	return start(t, "auto", tinyPath("llama-f32-q4-g32-tied"), o)
}

// run runs one request to its end and returns tokens and result.
func run(t testing.TB, e *Engine, ctx context.Context, r Request) ([]int32, Result) {
	var tokens []int32
	accept := r.Accept
	r.Accept = func(id int32, logits []float32) bool {
		tokens = append(tokens, id)
		return accept != nil && accept(id, logits)
	}
	done := make(chan Result, 1)
	r.Done = func(r Result) { done <- r }
	require.NoError(t, e.Submit(ctx, r))
	return tokens, <-done
}

func TestSubmitRefuses(t *testing.T) {
	e := startTiny(t, Options{MaxTokens: 32})
	ignore := func(r Request) Request {
		r.Accept = func(int32, []float32) bool { return false }
		r.Done = func(Result) { t.Error("Done was called for a refused request") }
		return r
	}
	require.ErrorIs(t, e.Submit(t.Context(), ignore(Request{})), ErrEmptyPrompt)
	err := e.Submit(t.Context(), ignore(Request{Prompt: make([]int32, 32)}))
	require.ErrorIs(t, err, ErrPromptTooLong)
	require.EqualError(t, err, "the prompt is too long: 32 tokens, and the context of 32 must hold the answer too: shorten it, or give the model a larger context")
	require.EqualError(t, e.Submit(t.Context(), ignore(Request{Prompt: []int32{1, -2}})), "token -2 of the prompt is outside the vocabulary of 96: the tokenizer does not belong to the model")
	require.EqualError(t, e.Submit(t.Context(), ignore(Request{Prompt: []int32{96}})), "token 96 of the prompt is outside the vocabulary of 96: the tokenizer does not belong to the model")
	require.ErrorContains(t, e.Submit(t.Context(), ignore(Request{Prompt: []int32{1}, Settings: sample.Settings{TopP: 2}})), "top-p")
	e.Close()
	require.ErrorIs(t, e.Submit(t.Context(), ignore(Request{Prompt: []int32{1}})), ErrClosed)
	_, err = e.Memory()
	require.ErrorIs(t, err, ErrClosed)
}

func TestContextTokens(t *testing.T) {
	for _, c := range []struct {
		asked, trained, want int
		err                  string
	}{
		{0, 0, 1 << 20, ""},
		{0, 2048, 2048, ""},
		{100, 2048, 100, ""},
		{1, 2048, 0, "a context of 1 tokens is not possible, want 2 or more"},
		{4096, 2048, 0, "a context of 4096 tokens is more than the 2048 that the model was trained for"},
	} {
		n, err := contextTokens(c.asked, c.trained)
		if c.err != "" {
			require.EqualError(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, n)
	}
}

func TestReasonsToEnd(t *testing.T) {
	e := startTiny(t, Options{MaxTokens: 40})
	tokens, r := run(t, e, t.Context(), Request{Prompt: []int32{1, 2, 3}, MaxTokens: 5})
	require.Equal(t, Length, r.Reason)
	require.Len(t, tokens, 5)
	require.Equal(t, 5, r.Generated)
	require.False(t, r.FirstToken.Before(r.Started))
	require.False(t, r.Ended.Before(r.FirstToken))

	full, r := run(t, e, t.Context(), Request{Prompt: []int32{1, 2, 3}})
	require.Equal(t, Length, r.Reason, "the context is full")
	require.Len(t, full, 37)
	require.Equal(t, tokens, full[:5])

	stopped, r := run(t, e, t.Context(), Request{Prompt: []int32{1, 2, 3}, Accept: func(id int32, _ []float32) bool { return id == full[2] }})
	require.Equal(t, Stop, r.Reason)
	require.Equal(t, full[:slices.Index(full, full[2])+1], stopped)

	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, r = run(t, e, ctx, Request{Prompt: []int32{1, 2, 3}, Accept: func(int32, []float32) bool {
		if n++; n == 3 {
			cancel()
		}
		return false
	}})
	require.Equal(t, Cancelled, r.Reason)
	require.ErrorIs(t, r.Err, context.Canceled)

	again, _ := run(t, e, t.Context(), Request{Prompt: []int32{1, 2, 3}, MaxTokens: 5})
	require.Equal(t, tokens, again, "what came before leaves no trace")
}

// A conversation is computed only once: each turn reuses what the slot holds of the turns before.
func TestPrefixReuse(t *testing.T) {
	e := startTiny(t, Options{Slots: 2})
	prompt := []int32{5, 6, 7, 8, 9}
	answer, r := run(t, e, t.Context(), Request{Prompt: prompt, MaxTokens: 6})
	require.Equal(t, 0, r.Cached)

	_, r = run(t, e, t.Context(), Request{Prompt: prompt, MaxTokens: 1})
	require.Equal(t, 4, r.Cached, "the last token is computed again for its logits")

	longer := slices.Concat(prompt, answer, []int32{10, 11})
	cached, r := run(t, e, t.Context(), Request{Prompt: longer, MaxTokens: 8})
	require.GreaterOrEqual(t, r.Cached, len(prompt), "shares the prompt")
	fresh, _ := run(t, startTiny(t, Options{}), t.Context(), Request{Prompt: longer, MaxTokens: 8})
	require.Equal(t, fresh, cached)

	// Another beginning takes the other slot, and the first one is still there.
	_, r = run(t, e, t.Context(), Request{Prompt: []int32{50, 51, 52}, MaxTokens: 2})
	require.Equal(t, 0, r.Cached)
	_, r = run(t, e, t.Context(), Request{Prompt: longer, MaxTokens: 1})
	require.Equal(t, len(longer)-1, r.Cached)

	// Going back to an earlier point and on from there differently gives what a fresh start gives.
	edited := slices.Concat(prompt[:3], []int32{60, 61, 62})
	back, r := run(t, e, t.Context(), Request{Prompt: edited, MaxTokens: 8})
	require.Equal(t, 3, r.Cached)
	fresh, _ = run(t, startTiny(t, Options{}), t.Context(), Request{Prompt: edited, MaxTokens: 8})
	require.Equal(t, fresh, back)
}

// Sampled text depends on the seed and on nothing else: not on neighbours, not on chunks.
func TestSeedDecides(t *testing.T) {
	settings := sample.Settings{Temperature: 1.5, TopK: 50, TopP: 0.98, MinP: 0.001, RepetitionPenalty: 1.1, PresencePenalty: 0.2, Seed: 42}
	request := Request{Prompt: []int32{3, 1, 4, 1, 5, 9, 2, 6}, MaxTokens: 40, Settings: settings}
	first, _ := run(t, startTiny(t, Options{}), t.Context(), request)
	second, _ := run(t, startTiny(t, Options{Chunk: 3}), t.Context(), request)
	require.Equal(t, first, second)

	other := request
	other.Settings.Seed = 43
	third, _ := run(t, startTiny(t, Options{}), t.Context(), other)
	require.NotEqual(t, first, third)

	greedy := request
	greedy.Settings = sample.Settings{}
	biased := request
	biased.Settings = sample.Settings{LogitBias: map[int32]float64{17: 1000}}
	crowd := generate(t, startTiny(t, Options{Slots: 3}), greedy, request, biased, other)
	require.Equal(t, first, crowd[1])
	require.Equal(t, third, crowd[3])
	require.Equal(t, slices.Repeat([]int32{17}, 40), crowd[2], "a bias of 1000 always wins")
}

// Penalties see the token that is still on the device: with a strong one no token comes twice.
func TestPenaltiesSeeTheTokenInFlight(t *testing.T) {
	e := startTiny(t, Options{})
	tokens, _ := run(t, e, t.Context(), Request{Prompt: []int32{1, 2}, MaxTokens: 30, Settings: sample.Settings{PresencePenalty: 100}})
	seen := map[int32]bool{1: true, 2: true}
	for _, id := range tokens {
		require.False(t, seen[id], "%d came twice in %v", id, tokens)
		seen[id] = true
	}
}

// The logits that a request asks for are those of the forced run, beside a neighbour that asks for none.
func TestLogits(t *testing.T) {
	e := startTiny(t, Options{Slots: 2})
	prompt := []int32{7, 8, 9}
	neighbour := make(chan Result, 1)
	require.NoError(t, e.Submit(t.Context(), Request{
		Prompt: []int32{1, 2}, MaxTokens: 12,
		Accept: func(_ int32, logits []float32) bool {
			if logits != nil {
				t.Error("logits that nobody asked for")
			}
			return false
		},
		Done: func(r Result) { neighbour <- r },
	}))
	var rows [][]float32
	tokens, _ := run(t, e, t.Context(), Request{Prompt: prompt, MaxTokens: 8, Logits: true, Accept: func(_ int32, logits []float32) bool {
		rows = append(rows, slices.Clone(logits))
		return false
	}})
	<-neighbour
	want := forced(t, "auto", tinyPath("llama-f32-q4-g32-tied"), slices.Concat(prompt, tokens[:7]), 8)
	for i, row := range rows {
		require.InDeltaSlice(t, want[i], row, 1e-4)
		require.EqualValues(t, tokens[i], slices.Index(row, slices.Max(row)))
	}
}

func TestStages(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		text, err := start(t, backend, tinyPath("llama-f32"), Options{}).Stages(4)
		require.NoError(t, err)
		require.Greater(t, strings.Count(text, "\n"), 10)
		require.Contains(t, text, "argmax")
	})
}

// More requests than slots wait for their turn and are all answered, in order of arrival.
func TestQueue(t *testing.T) {
	e := startTiny(t, Options{Slots: 2})
	var order []int
	done := make(chan struct{}, 6)
	for i := range 6 {
		require.NoError(t, e.Submit(t.Context(), Request{
			Prompt: []int32{int32(i + 1)}, MaxTokens: 4,
			Accept: func(int32, []float32) bool { return false },
			Done:   func(Result) { order = append(order, i); done <- struct{}{} },
		}))
	}
	for range 6 {
		<-done
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, order)
}

// A sequence that starts while another with the same beginning runs takes over what that has computed, and both go on
// undisturbed.
func TestSharingWithARunningSequence(t *testing.T) {
	e := startTiny(t, Options{Slots: 3})
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	alone, _ := run(t, startTiny(t, Options{}), t.Context(), Request{Prompt: prompt, MaxTokens: 60})
	other := append(slices.Clone(prompt[:8]), 20, 21)
	otherAlone, _ := run(t, startTiny(t, Options{}), t.Context(), Request{Prompt: other, MaxTokens: 20})

	var second []int32
	var cached int
	secondDone := make(chan struct{})
	n := 0
	first, _ := run(t, e, t.Context(), Request{Prompt: prompt, MaxTokens: 60, Accept: func(int32, []float32) bool {
		if n++; n == 5 {
			go func() {
				var r Result
				second, r = run(t, e, t.Context(), Request{Prompt: other, MaxTokens: 20})
				cached = r.Cached
				close(secondDone)
			}()
		}
		return false
	}})
	<-secondDone
	require.Equal(t, alone, first)
	require.Equal(t, otherAlone, second)
	require.Equal(t, 8, cached)

	// A short common beginning with a long conversation is copied, and the conversation stays.
	short := []int32{1, 2, 3, 50}
	_, r := run(t, e, t.Context(), Request{Prompt: short, MaxTokens: 1})
	require.Equal(t, 3, r.Cached)
	_, r = run(t, e, t.Context(), Request{Prompt: slices.Concat(prompt, alone[:30]), MaxTokens: 1})
	require.Equal(t, 39, r.Cached)
}

func TestQueueLimitAndStats(t *testing.T) {
	e := startTiny(t, Options{Slots: 1, Queue: 2})
	release := make(chan struct{})
	done := make(chan Result, 8)
	request := Request{
		Prompt: []int32{1, 2}, MaxTokens: 3,
		Accept: func(int32, []float32) bool { <-release; return false }, // a test may hold the engine up
		Done:   func(r Result) { done <- r },
	}
	require.NoError(t, e.Submit(t.Context(), request))
	for e.Stats().Waiting > 0 { // until it has its slot
		time.Sleep(time.Millisecond)
	}
	errs := make(chan error, 8)
	for range 8 { // the loop is held up, so each waits for it in a goroutine of its own
		go func() { errs <- e.Submit(t.Context(), request) }()
	}
	for range 6 {
		require.ErrorIs(t, <-errs, ErrQueueFull)
	}
	close(release)
	for range 2 {
		require.NoError(t, <-errs)
	}
	for range 3 {
		require.Equal(t, Length, (<-done).Reason)
	}
	for e.Stats().Running > 0 {
		time.Sleep(time.Millisecond)
	}
	s := e.Stats()
	require.Equal(t, 0, s.Waiting)
	require.Len(t, s.Slots, 1)
	require.False(t, s.Slots[0].Busy)
	require.Zero(t, s.PagesHeld)
	require.Positive(t, s.PagesKept)
	require.GreaterOrEqual(t, s.Steps, uint64(9))
	require.GreaterOrEqual(t, s.StepTokens, s.StepSequences)
	require.NoError(t, e.Err())
}

func TestCloseEndsEverything(t *testing.T) {
	e := startTiny(t, Options{Slots: 1})
	var ended atomic.Int32
	for range 3 {
		require.NoError(t, e.Submit(t.Context(), Request{
			Prompt: []int32{1},
			Accept: func(int32, []float32) bool {
				time.Sleep(5 * time.Millisecond) // or the first fills its context before Close where this test is not scheduled for long
				return false
			},
			Done: func(r Result) {
				if r.Reason == Cancelled {
					ended.Add(1)
				}
			},
		}))
	}
	e.Close()
	e.Close()
	require.EqualValues(t, 3, ended.Load())
}

// 200 cancelled and failed runs leave no goroutine and no growing memory.
func TestRunsLeaveNothing(t *testing.T) {
	e := startTiny(t, Options{Slots: 2, MaxTokens: 256})
	round := func() {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		run(t, e, ctx, Request{Prompt: []int32{1, 2, 3, 4}, Accept: func(int32, []float32) bool {
			if n++; n == 2 {
				cancel()
			}
			return false
		}})
		cancel()
		require.Error(t, e.Submit(t.Context(), Request{Prompt: []int32{1000}}))
	}
	for range 20 {
		round()
	}
	before, err := e.Memory()
	require.NoError(t, err)
	goroutines := goruntime.NumGoroutine()
	for range 200 {
		round()
	}
	after, err := e.Memory()
	require.NoError(t, err)
	require.LessOrEqual(t, after.Active, before.Active+4096)
	for deadline := time.Now().Add(5 * time.Second); goruntime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // goroutines that are ending may take a moment
	}
	require.LessOrEqual(t, goruntime.NumGoroutine(), goroutines)
}

// Engines that are opened and closed give their memory back.
func TestCloseFreesMemory(t *testing.T) {
	keep := startTiny(t, Options{})
	run(t, keep, t.Context(), Request{Prompt: []int32{1}, MaxTokens: 2})
	before, err := keep.Memory()
	require.NoError(t, err)
	for range 5 {
		e := startTiny(t, Options{})
		run(t, e, t.Context(), Request{Prompt: []int32{1}, MaxTokens: 2})
		e.Close()
	}
	after, err := keep.Memory()
	require.NoError(t, err)
	require.LessOrEqual(t, after.Active, before.Active+4096)
}

func TestCommon(t *testing.T) {
	require.Equal(t, 0, common(nil, []int32{1}))
	require.Equal(t, 2, common([]int32{1, 2}, []int32{1, 2, 3}))
	require.Equal(t, 1, common([]int32{1, 2}, []int32{1, 3}))
}

// A model whose weights are not numbers is an error, not an answer.
func TestNotANumber(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		dir := filepath.Join(t.TempDir(), "model")
		require.NoError(t, os.CopyFS(dir, os.DirFS(tinyPath("llama-f32"))))
		path := filepath.Join(dir, "model.safetensors")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for i := len(data) - 4096; i < len(data); i += 4 { // the end of the data: some tensor
			copy(data[i:], "\x00\x00\xc0\x7f")
		}
		require.NoError(t, os.WriteFile(path, data, 0o644))
		e := start(t, backend, dir, Options{})
		for _, settings := range []sample.Settings{{}, {Temperature: 1}} {
			tokens, r := run(t, e, t.Context(), Request{Prompt: []int32{1, 2, 3}, MaxTokens: 4, Settings: settings})
			require.Empty(t, tokens)
			require.Equal(t, Failed, r.Reason)
			require.ErrorContains(t, r.Err, "its weights are damaged")
		}
	})
}
