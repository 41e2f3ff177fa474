package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/runtime/sample"
)

// outcome is what a request of a crowd came to: its tokens and the bits of their logits, or of its hidden states.
type outcome struct {
	tokens []int32
	bits   []uint32
	result Result
}

// crowd are requests of all kinds, many of which begin alike.
func crowd(random *rand.Rand, n int) []Request {
	requests := make([]Request, n)
	var prompts [][]int32
	for i := range requests {
		var prompt []int32
		if len(prompts) > 0 && random.IntN(4) > 0 {
			old := prompts[random.IntN(len(prompts))]
			prompt = slices.Clone(old[:1+random.IntN(len(old))])
		}
		for range 1 + random.IntN(70) {
			prompt = append(prompt, int32(3+random.IntN(90)))
		}
		prompt = prompt[:min(len(prompt), 150)]
		prompts = append(prompts, prompt)
		requests[i] = Request{Prompt: prompt, MaxTokens: 1 + random.IntN(80)}
		if random.IntN(2) == 0 {
			requests[i].Settings = sample.Settings{Temperature: 1.2, TopP: 0.95, RepetitionPenalty: 1.1, Seed: uint64(i)}
		}
		requests[i].Logits = random.IntN(2) == 0
		if i%7 == 6 { // an embedding
			requests[i] = Request{Prompt: prompt, Hidden: func(int, []float32) {}}
		}
	}
	return requests
}

// submit asks for what a request comes to.
func submit(t testing.TB, e *Engine, ctx context.Context, r Request) <-chan outcome {
	r, ch := watched(t, r)
	require.NoError(t, e.Submit(ctx, r))
	return ch
}

// submitAll submits requests between two steps, so that they meet however busy the machine is.
func submitAll(t testing.TB, e *Engine, requests []Request) []<-chan outcome {
	requests = slices.Clone(requests)
	outcomes := make([]<-chan outcome, len(requests))
	e.waiting.Add(int64(len(requests)))
	for i, r := range requests {
		requests[i], outcomes[i] = watched(t, r)
	}
	require.NoError(t, e.do(func(l *loop) {
		for _, r := range requests {
			l.admit(t.Context(), r)
		}
	}))
	return outcomes
}

// watched is a request, and where what it comes to will be told.
func watched(t testing.TB, r Request) (Request, <-chan outcome) {
	var o outcome
	ch := make(chan outcome, 1)
	note := func(values []float32) {
		for _, v := range values {
			o.bits = append(o.bits, math.Float32bits(v))
		}
	}
	r.Accept = func(id int32, logits []float32) bool {
		o.tokens = append(o.tokens, id)
		note(logits)
		return false
	}
	if r.Hidden != nil {
		width := 0
		r.Hidden = func(position int, states []float32) {
			if position == 0 {
				o.bits = nil
			} else if len(o.bits) != position*width {
				t.Errorf("hidden states of position %d came after %d numbers of %d each", position, len(o.bits), width)
			}
			note(states)
			if position == 0 {
				width = 64 // of the tiny models
			}
		}
	}
	r.Done = func(result Result) { o.result = result; ch <- o }
	return r, ch
}

func requireSame(t testing.TB, want, got outcome, what string) {
	t.Helper()
	require.NoError(t, got.result.Err, what)
	require.Equal(t, want.tokens, got.tokens, what)
	require.True(t, slices.Equal(want.bits, got.bits), "%s: not the same bits", what)
}

// alone computes what each request comes to alone, without reuse.
func alone(t testing.TB, requests []Request) []outcome {
	e := start(t, "native", tinyPath("llama-f32-q4-g32-tied"), Options{NoReuse: true, MaxTokens: 256})
	outcomes := make([]outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = <-submit(t, e, t.Context(), r)
		require.NoError(t, outcomes[i].result.Err)
		require.Zero(t, outcomes[i].result.Cached)
	}
	require.Zero(t, e.Stats().PagesKept)
	return outcomes
}

// idle waits until nothing runs and returns how things stand then.
func idle(t testing.TB, e *Engine) Stats {
	require.Eventually(t, func() bool { s := e.Stats(); return s.Running+s.Waiting == 0 && s.PagesHeld == 0 }, 20*time.Second, time.Millisecond)
	return e.Stats()
}

// With the native library a request comes to the same bits alone and in a crowd, from the cache and without it, with
// pages enough and with so few that sequences are sent back into the queue.
func TestCrowdChangesNothing(t *testing.T) {
	requests := crowd(rand.New(rand.NewPCG(1, 2)), 60)
	want := alone(t, requests)
	for name, c := range map[string]struct {
		options Options
		tight   bool
	}{
		"roomy":    {Options{Slots: 8}, false},
		"tight":    {Options{Slots: 8, CacheTokens: 5 * pageTokens, Chunk: 32}, true},
		"tighter":  {Options{Slots: 5, CacheTokens: 4 * pageTokens, Chunk: 5}, true},
		"no reuse": {Options{Slots: 8, CacheTokens: 4 * pageTokens, NoReuse: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.MaxTokens = 256
			e := start(t, "native", tinyPath("llama-f32-q4-g32-tied"), c.options)
			cached := 0
			for i, ch := range submitAll(t, e, requests) {
				got := <-ch
				requireSame(t, want[i], got, fmt.Sprintf("request %d", i))
				cached += got.result.Cached
			}
			s := idle(t, e)
			require.Greater(t, s.StepSequences, s.Steps, "they ran together")
			require.Equal(t, c.tight, s.Preemptions > 0, "%+v", s)
			require.Equal(t, c.options.NoReuse, cached == 0)
			require.Equal(t, c.options.NoReuse, s.PagesKept == 0)
			require.LessOrEqual(t, s.PagesKept, s.Pages)
		})
	}
}

// Requests that begin alike and come at once compute what they share once, also where it is still being computed.
func TestComingAtOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		e := start(t, backend, tinyPath("llama-f32-q4-g32-tied"), Options{Slots: 5, MaxTokens: 256, Chunk: 16})
		prompt := crowd(rand.New(rand.NewPCG(14, 15)), 1)[0].Prompt
		for len(prompt) < 150 {
			prompt = append(prompt, prompt...)
		}
		prompt = prompt[:150]
		var requests []Request
		for i := range 5 {
			requests = append(requests, Request{Prompt: append(slices.Clone(prompt), int32(10+i)), MaxTokens: 3})
		}
		for i, ch := range submitAll(t, e, requests) {
			got := <-ch
			require.NoError(t, got.result.Err)
			if i > 0 {
				require.Greater(t, got.result.Cached, 150-worthWaiting, "request %d", i)
			}
		}
		require.Less(t, idle(t, e).StepTokens, uint64(150+5*(worthWaiting+4)))
	})
}

// On MLX too, where sums may be rounded differently, sequences that wait for pages come to their end.
func TestFewPagesOnMLX(t *testing.T) {
	e := start(t, "mlx", tinyPath("llama-f32-q4-g32-tied"), Options{Slots: 4, CacheTokens: 4 * pageTokens, MaxTokens: 256, Chunk: 16})
	requests := crowd(rand.New(rand.NewPCG(3, 4)), 16)
	for i, ch := range submitAll(t, e, requests) {
		got := <-ch
		require.NoError(t, got.result.Err)
		require.Len(t, got.tokens, requests[i].MaxTokens)
	}
	require.Positive(t, idle(t, e).Preemptions)
}

// A cache that is smaller than the context makes the context smaller, unless that was asked for.
func TestPagesForTheLongestSequence(t *testing.T) {
	path := tinyPath("llama-f32")
	require.Equal(t, 128, start(t, "native", path, Options{CacheTokens: 100}).Facts().MaxTokens)
	e := start(t, "native", path, Options{Slots: 3})
	require.Equal(t, 512, e.Facts().MaxTokens)
	require.Equal(t, 3*512/pageTokens, e.Stats().Pages)
	library, m, c := openModel(t, "native", path)
	_, err := Start(library, m, c, Options{Context: bindings.ContextParams{Device: bindings.DeviceCPU}, MaxTokens: 300, CacheTokens: 256})
	require.EqualError(t, err, "a context of 300 tokens does not fit in a cache for 256: make one of them shorter or the other larger")
}

// A step that fails costs nobody anything but time, wherever it comes.
func TestStepsThatFail(t *testing.T) {
	requests := crowd(rand.New(rand.NewPCG(5, 6)), 20)
	want := alone(t, requests)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 7))
		failing := map[int]bool{}
		// Not before all have come through the trial that follows, or it would be the fault of one.
		for at := 1 + random.IntN(100); at < 5000; at += 300 + random.IntN(100) {
			failing[at] = true
		}
		asked := 0
		e := start(t, "native", tinyPath("llama-f32-q4-g32-tied"), Options{
			Slots: 6, MaxTokens: 256, CacheTokens: 8 * pageTokens, Chunk: 16,
			fault: func() error {
				if asked++; failing[asked] {
					return errors.New("made up")
				}
				return nil
			},
		})
		for i, ch := range submitAll(t, e, requests) {
			requireSame(t, want[i], <-ch, fmt.Sprintf("seed %d, request %d", seed, i))
		}
		idle(t, e)
		require.NoError(t, e.Err())
		require.Greater(t, asked, 400) // twice at least
	}
}

// A request whose own steps fail ends with the error, and only that one.
func TestRequestThatFails(t *testing.T) {
	requests := crowd(rand.New(rand.NewPCG(8, 9)), 6)
	want := alone(t, requests)
	asked := 0
	e := start(t, "native", tinyPath("llama-f32-q4-g32-tied"), Options{Slots: 6, MaxTokens: 256, fault: func() error {
		if asked++; asked == 30 || asked == 31 {
			return errors.New("made up")
		}
		return nil
	}})
	outcomes := submitAll(t, e, requests)
	failed := 0
	for i, ch := range outcomes {
		got := <-ch
		if got.result.Err != nil {
			failed++
			require.Equal(t, Failed, got.result.Reason)
			require.EqualError(t, got.result.Err, "the step failed: made up")
			continue
		}
		requireSame(t, want[i], got, fmt.Sprintf("request %d", i))
	}
	require.Equal(t, 1, failed)
	idle(t, e)
}

// A lost device ends all requests, those that wait included, and the engine with them.
func TestLostDevice(t *testing.T) {
	asked := 0
	e := start(t, "native", tinyPath("llama-f32-q4-g32-tied"), Options{Slots: 2, MaxTokens: 256, fault: func() error {
		if asked++; asked > 60 { // no request has all of its tokens then
			return fmt.Errorf("made up: %w", bindings.ErrDevice)
		}
		return nil
	}})
	results := make(chan Result, 1000)
	request := Request{Prompt: []int32{1, 2, 3}, MaxTokens: 250, Accept: func(int32, []float32) bool { return false }, Done: func(r Result) { results <- r }}
	taken := 0
	var err error
	for ; err == nil && taken < cap(results); taken++ { // until no more are taken
		err = e.Submit(t.Context(), request)
	}
	require.ErrorIs(t, err, bindings.ErrDevice)
	require.Greater(t, taken, 1)
	for range taken - 1 {
		r := <-results
		require.Equal(t, Failed, r.Reason)
		require.ErrorIs(t, r.Err, bindings.ErrDevice)
		require.ErrorContains(t, r.Err, "the device is lost")
	}
	<-e.Broken()
	require.ErrorIs(t, e.Err(), bindings.ErrDevice)
	require.ErrorIs(t, e.Submit(t.Context(), Request{Prompt: []int32{1}}), bindings.ErrDevice)
	idle(t, e)
}

// Requests that are given up at any time leave no page held, and the others' answers as they are.
func TestGivingUp(t *testing.T) {
	requests := crowd(rand.New(rand.NewPCG(10, 11)), 40)
	want := alone(t, requests)
	e := start(t, "native", tinyPath("llama-f32-q4-g32-tied"), Options{Slots: 6, MaxTokens: 256, CacheTokens: 6 * pageTokens, Chunk: 8})
	var group sync.WaitGroup
	random := rand.New(rand.NewPCG(12, 13))
	for i, r := range requests {
		ctx, cancel := context.WithCancel(t.Context())
		outcomes := submit(t, e, ctx, r)
		if i%2 == 0 {
			time.AfterFunc(time.Duration(random.IntN(20_000))*time.Microsecond, cancel)
		}
		group.Go(func() {
			defer cancel()
			got := <-outcomes
			if got.result.Reason == Cancelled && i%2 == 0 {
				if !slices.Equal(got.tokens, want[i].tokens[:len(got.tokens)]) {
					t.Errorf("request %d began %v, want %v", i, got.tokens, want[i].tokens)
				}
				return
			}
			if got.result.Err != nil || !slices.Equal(got.tokens, want[i].tokens) || !slices.Equal(got.bits, want[i].bits) {
				t.Errorf("request %d: %v, %v, want %v", i, got.tokens, got.result.Err, want[i].tokens)
			}
		})
	}
	group.Wait()
	idle(t, e)
}

// The library holds no more pages than the cache counts, at any step.
func TestLibraryHoldsWhatIsCounted(t *testing.T) {
	requests := crowd(rand.New(rand.NewPCG(5, 6)), 60)
	for i := range requests {
		requests[i].Hidden = nil
	}
	e := start(t, "native", tinyPath("llama-f32-q4-g32-tied"), Options{Slots: 8, CacheTokens: 12 * pageTokens, MaxTokens: 256, Chunk: 32})
	steps := 0
	require.NoError(t, e.do(func(l *loop) {
		page := pageBytes(stateParams(l.programs[variant{limits: l.limits(1, 1, false)}].recorded, l.activation, 1, 64))
		l.fault = func() error {
			bytes, err := l.state.Bytes()
			if steps++; err == nil && bytes > int64(l.cache.used)*page {
				t.Errorf("step %d: the library holds %d pages, the cache counts %d", steps, bytes/page, l.cache.used)
			}
			return err
		}
	}))
	for _, ch := range submitAll(t, e, requests) {
		require.NoError(t, (<-ch).result.Err)
	}
	require.Greater(t, steps, 100)
}
