package engine

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/loader"
	"mlxcel/runtime/models"
	"mlxcel/runtime/program"
	"mlxcel/runtime/weights"
	"mlxcel/tests/testenv"
)

// golden is what mlx-lm computed for a model (tests/goldens/README.md).
type golden struct {
	DType string       `json:"dtype"` // that mlx-lm computed in
	Cases []goldenCase `json:"cases"`
	F32   *struct {
		Cases []goldenCase `json:"cases"`
	} `json:"f32"` // the same in f32; absent where DType is f32
}

type goldenCase struct {
	Name      string    `json:"name"`
	PromptIDs []int32   `json:"prompt_ids"`
	IDs       []int32   `json:"ids"` // greedy
	Margins   []float64 `json:"margins"`
	First     sparse    `json:"first"` // the logits that ids[0] was chosen from
	Last      sparse    `json:"last"`
}

// sparse is some of the logits of a row.
type sparse struct {
	IDs    []int     `json:"ids"`
	Logits []float64 `json:"logits"`
}

func readGolden(t testing.TB, path string) golden {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(text, &g))
	return g
}

// f32 is the run that the CPU path must equal.
func (g golden) f32() []goldenCase {
	if g.F32 != nil {
		return g.F32.Cases
	}
	return g.Cases
}

// tinyModels are the folders of the tiny golden models.
func tinyModels(t testing.TB) []string {
	paths, err := filepath.Glob(filepath.Join(testenv.Root(), "tests", "goldens", "tiny", "*", "golden.json"))
	require.NoError(t, err)
	require.Greater(t, len(paths), 30)
	for i, p := range paths {
		paths[i] = filepath.Dir(p)
	}
	return paths
}

// eachBackend runs a test on every library of the bundle, or on the GPU where tests run there.
func eachBackend(t *testing.T, test func(t *testing.T, backend string)) {
	backends := []string{"native", "mlx"}
	if testenv.Device() == "cuda" {
		backends = []string{"mlx"}
	}
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) { test(t, backend) })
	}
}

func openModel(t testing.TB, backend, path string) (*bindings.Library, *models.Model, *weights.Checkpoint) {
	loaded, err := loader.Open(loader.Options{Bundle: testenv.Bundle(t), Backend: backend, Device: testenv.Device()})
	require.NoError(t, err)
	c, err := weights.Open(path)
	require.NoError(t, err)
	m, err := models.Open(c.Config, c)
	require.NoError(t, err)
	return loaded.Library, m, c
}

// testDevice is where tests run.
func testDevice() bindings.ContextParams {
	if testenv.Device() == "cuda" {
		return bindings.ContextParams{Device: bindings.DeviceCUDA}
	}
	return bindings.ContextParams{Device: bindings.DeviceCPU}
}

// start starts an engine that computes in f32, unless the options say otherwise.
func start(t testing.TB, backend, path string, o Options) *Engine {
	if backend == "native" && testenv.Device() == "cuda" {
		t.Skip("the native library computes on the CPU")
	}
	o.Context.Device = testDevice().Device
	o.Activation = cmp.Or(o.Activation, bindings.F32)
	library, m, c := openModel(t, backend, path)
	e, err := Start(library, m, c, o)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

// forced runs tokens as one prompt in f32 and returns the logits after each of the last n of them.
func forced(t testing.TB, backend, path string, tokens []int32, n int) [][]float32 {
	return forcedIn(t, backend, path, tokens, n, bindings.F32)
}

func forcedIn(t testing.TB, backend, path string, tokens []int32, n int, activation bindings.DType) [][]float32 {
	library, m, c := openModel(t, backend, path)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l, err := newLoop(library, m, c, Options{Context: testDevice(), Activation: activation})
	require.NoError(t, err)
	defer l.destroy()

	limits := program.Limits{Tokens: len(tokens), Rows: n, Sequences: 1}
	p, err := m.Record(activation, limits, func(b *program.Builder, _ program.Step, logits *program.Value) { b.Output("logits", logits) })
	require.NoError(t, err)
	words := p.Encode(func(w *program.Weight) int64 { return l.weights.index[w.Key()] })
	handle, err := l.context.LoadProgram(l.weights.resident, l.state, words)
	require.NoError(t, err)

	var b batch
	b.reset()
	b.add(&sequence{tokens: tokens}, len(tokens), false)
	for i := len(tokens) - n; i < len(tokens); i++ {
		b.rows, b.rowSlots = append(b.rows, int32(i)), append(b.rowSlots, 0)
	}
	run := bindings.NewRun(len(p.Inputs), len(p.Outputs))
	b.set(run)
	require.NoError(t, handle.Run(run))
	flat := make([]float32, n*m.Config.Vocabulary)
	require.NoError(t, bindings.ReadInto(run.Output(0), flat))
	return slices.Collect(slices.Chunk(flat, m.Config.Vocabulary))
}

// tolerance is how far a logit may be from mlx-lm's in f32, as a share of the largest one.
//
// On MLX we issue the same products with the same f32 kernels, but joined projections and chunks change the order of
// sums, which costs some units in the last place per layer: 1e-4 is a thousand of them. native multiplies with
// activations of 16 bits, one scale a group of 32: each is off by up to 2^-16 of its group's largest, 9e-6 of it on
// average, 3e-5 of a typical one; 120 products in a row, off at random, come to 3e-4. The goldens' smallest margin
// between the two best logits is larger than both: no token is decided by it.
func tolerance(backend string) float64 {
	if backend == "native" {
		return 4e-4
	}
	return 1e-4
}

func largest(logits []float64) float64 {
	l := 1.0
	for _, v := range logits {
		l = max(l, math.Abs(v))
	}
	return l
}

func requireClose(t *testing.T, backend string, want sparse, got []float32) {
	t.Helper()
	for i, id := range want.IDs {
		require.InDelta(t, want.Logits[i], got[id], tolerance(backend)*largest(want.Logits), "logit %d", id)
	}
}

// generate runs requests and returns their answers.
func generate(t testing.TB, e *Engine, requests ...Request) [][]int32 {
	answers := make([][]int32, len(requests))
	results := make(chan Result, len(requests))
	for i, r := range requests {
		r.Accept = func(id int32, _ []float32) bool { answers[i] = append(answers[i], id); return false }
		r.Done = func(r Result) { results <- r }
		require.NoError(t, e.Submit(t.Context(), r))
	}
	for range requests {
		r := <-results
		require.NoError(t, r.Err)
		require.Equal(t, Length, r.Reason)
	}
	return answers
}

// On every tiny model, in f32, all greedy tokens are mlx-lm's and so are the logits: with one request at a time, and
// with all at once, their prompts cut into small chunks.
func TestTinyModelsEqualMLXLM(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		for _, path := range tinyModels(t) {
			t.Run(filepath.Base(path), func(t *testing.T) { testTinyModel(t, backend, path) })
		}
	})
}

func testTinyModel(t *testing.T, backend, path string) {
	g := readGolden(t, filepath.Join(path, "golden.json"))
	e := start(t, backend, path, Options{Slots: 4, Chunk: 7})
	var all []Request
	var want [][]int32
	for _, c := range g.f32() {
		r := Request{Prompt: c.PromptIDs, MaxTokens: len(c.IDs)}
		require.Equal(t, [][]int32{c.IDs}, generate(t, e, r), c.Name)
		all, want = append(all, r), append(want, c.IDs)

		n := len(c.IDs)
		rows := forced(t, backend, path, slices.Concat(c.PromptIDs, c.IDs[:n-1]), n)
		requireClose(t, backend, c.First, rows[0])
		requireClose(t, backend, c.Last, rows[n-1])
	}
	require.Equal(t, want, generate(t, e, all...), "all at once")
}

// Where mlx-lm computed in bf16 or f16, its tokens are ours wherever its own rounding cannot have decided: where the
// margin between its two best logits is more than twice the largest difference between its logits in that type and
// its logits in f32. Between the goldens' own two runs, ours must agree with both.
func TestTinyModelsInTheirOwnType(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		for _, path := range tinyModels(t) {
			g := readGolden(t, filepath.Join(path, "golden.json"))
			if g.F32 == nil || len(g.Cases) == 0 {
				continue // mlx-lm computed it in f32 only
			}
			t.Run(filepath.Base(path), func(t *testing.T) { testOwnType(t, backend, path, g) })
		}
	})
}

func testOwnType(t *testing.T, backend, path string, g golden) {
	decided := 0
	for i, own := range g.Cases {
		rounding := 0.0
		exact := g.F32.Cases[i]
		for j, v := range own.First.Logits {
			rounding = max(rounding, math.Abs(v-exact.First.Logits[j]))
		}
		n := len(own.IDs)
		rows := forced(t, backend, path, slices.Concat(own.PromptIDs, own.IDs[:n-1]), n)
		for j, v := range own.First.Logits {
			require.InDelta(t, v, rows[0][own.First.IDs[j]], rounding+tolerance(backend)*largest(own.First.Logits), "logit %d", j)
		}
		for j, row := range rows {
			if own.Margins[j] > 2*rounding {
				decided++
				best := int32(slices.Index(row, slices.Max(row)))
				require.Equal(t, own.IDs[j], best, "%s, step %d", own.Name, j)
			}
		}
	}
	require.Positive(t, decided)
}

// On a GPU a model is computed in its own type, as mlx-lm does. Both round after each op, though not everywhere at the
// same place. How far that takes the logits from those in f32 differs much between prompts, so the measure is a model's
// four prompts together: our mean square error is at most 1.25² times mlx-lm's, no logit is off by more than twice
// mlx-lm's worst, and a token is mlx-lm's where the margin between its two best logits is more than both were off.
func TestTinyModelsInTheirOwnTypeOnGPU(t *testing.T) {
	if testenv.Device() != "cuda" {
		t.Skip("tests run on the CPU, where everything is computed in f32")
	}
	for _, path := range tinyModels(t) {
		g := readGolden(t, filepath.Join(path, "golden.json"))
		if g.F32 == nil || len(g.Cases) == 0 {
			continue // mlx-lm computed it in f32 only
		}
		t.Run(filepath.Base(path), func(t *testing.T) { testOnGPU(t, path, g) })
	}
}

func testOnGPU(t *testing.T, path string, g golden) {
	activation, epsilon := bindings.BF16, 1.0/256
	if g.DType == "f16" {
		activation, epsilon = bindings.F16, 1.0/2048
	}
	var rounding, ours, theirs float64 // the worst of mlx-lm's errors; sums of squares
	for i, own := range g.Cases {
		rounding = max(rounding, epsilon*largest(own.First.Logits))
		for j, v := range own.First.Logits {
			e := math.Abs(v - g.F32.Cases[i].First.Logits[j])
			rounding, theirs = max(rounding, e), theirs+e*e
		}
	}
	var runs [][][]float32
	worst := 0.0 // of our errors
	for i, own := range g.Cases {
		n := len(own.IDs)
		rows := forcedIn(t, "mlx", path, slices.Concat(own.PromptIDs, own.IDs[:n-1]), n, activation)
		runs = append(runs, rows)
		exact := g.F32.Cases[i].First
		for j, v := range exact.Logits {
			e := math.Abs(float64(rows[0][exact.IDs[j]]) - v)
			require.LessOrEqual(t, e, 2*rounding, "%s, logit %d", own.Name, j)
			worst, ours = max(worst, e), ours+e*e
		}
	}
	decided := 0
	for i, own := range g.Cases {
		for j, row := range runs[i] {
			if own.Margins[j] > 2*(rounding+worst) {
				decided++
				best := int32(slices.Index(row, slices.Max(row)))
				require.Equal(t, own.IDs[j], best, "%s, step %d", own.Name, j)
			}
		}
	}
	t.Logf("root mean square error %.2f times mlx-lm's, %d tokens decided", math.Sqrt(ours/theirs), decided)
	require.LessOrEqual(t, ours, 1.25*1.25*theirs)
	require.Positive(t, decided)
}

// The real model, with the prompts of tests/goldens/smollm2.py.
func TestSmolLM2EqualsMLXLM(t *testing.T) {
	g := readGolden(t, filepath.Join(testenv.Root(), "tests", "goldens", "smollm2.json"))
	require.GreaterOrEqual(t, len(g.Cases), 12)
	eachBackend(t, func(t *testing.T, backend string) {
		path := testenv.Model(t)
		e := start(t, backend, path, Options{})
		for _, c := range g.Cases {
			t.Run(c.Name, func(t *testing.T) {
				if testing.Short() && len(c.PromptIDs) > 100 {
					t.Skip("the prompt is long, and the tests are run with -short")
				}
				require.Equal(t, [][]int32{c.IDs}, generate(t, e, Request{Prompt: c.PromptIDs, MaxTokens: len(c.IDs)}))
			})
		}
		c := g.Cases[1]
		rows := forced(t, backend, path, slices.Concat(c.PromptIDs, c.IDs[:len(c.IDs)-1]), len(c.IDs))
		requireClose(t, backend, c.First, rows[0])
		requireClose(t, backend, c.Last, rows[len(rows)-1])
	})
}
