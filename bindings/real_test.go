package bindings_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/loader"
	"mlxcel/tests/testenv"
)

// open returns a CPU context of the real library, for the test's goroutine.
func open(t testing.TB) *bindings.Context {
	t.Helper()
	loaded, err := loader.Open(loader.Options{Bundle: testenv.Bundle(t), Backend: "mlx"})
	require.NoError(t, err)
	runtime.LockOSThread()
	c, err := loaded.Library.NewContext(bindings.ContextParams{Device: bindings.DeviceCPU})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.Destroy() // again where the test has done it
		runtime.UnlockOSThread()
	})
	return c
}

const hidden = 4

// addNorm is the program y = rms_norm(x, weight 0) + x over up to 8 tokens.
func addNorm() []int64 {
	row := []int64{int64(bindings.F32), int64(bindings.AxisTokens), 2, 8, hidden}
	words := []int64{
		bindings.ProgramMagic, bindings.ProgramVersion,
		1, 1, 2, 1, // inputs, weights, ops, outputs
		8, 1, 1, // tokens, rows, sequences
	}
	words = append(words, row...)                             // value 0: x
	words = append(words, 0)                                  // value 1: the weight
	words = append(words, int64(bindings.OpRMSNorm), 2, 0, 1, // value 2
		1, int64(math.Float64bits(1e-6)), 1)
	words = append(words, row...)
	words = append(words, int64(bindings.OpAdd), 2, 2, 0, 0, 1) // value 3
	words = append(words, row...)
	return append(words, 3)
}

func wantAddNorm(x, w []float32) []float32 {
	y := make([]float32, len(x))
	for t := 0; t < len(x); t += hidden {
		var sum float64
		for _, v := range x[t : t+hidden] {
			sum += float64(v) * float64(v)
		}
		scale := 1 / math.Sqrt(sum/hidden+1e-6)
		for i, v := range x[t : t+hidden] {
			y[t+i] = float32(float64(v)*scale*float64(w[i])) + v
		}
	}
	return y
}

func littleEndian(values []float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func TestInfo(t *testing.T) {
	info := open(t).Library().Info()
	require.Equal(t, "mlx", info.Backend)
	require.NotEmpty(t, info.Version)
	require.Regexp(t, `^\d+\.\d+\.\d+`, info.BuiltFor)
	require.Equal(t, info.BuiltFor, info.Loaded)
	require.NotEmpty(t, info.Devices)
	require.Equal(t, bindings.DeviceCPU.String(), info.Devices[0].Device)
}

func TestRoundTrip(t *testing.T) {
	c := open(t)
	facts, err := c.DeviceFacts()
	require.NoError(t, err)
	require.Equal(t, bindings.DeviceCPU, facts.Device)
	require.Equal(t, bindings.F32, facts.Activation)

	// A weight whose first half is at an odd place in a file and whose second half
	// is in memory.
	w := []float32{0.5, -1, 2, 3}
	bytes := littleEndian(w)
	path := filepath.Join(t.TempDir(), "gewicht é.bin")
	require.NoError(t, os.WriteFile(path, append([]byte("head!"), bytes[:8]...), 0o644))
	file, err := c.OpenFile(path)
	require.NoError(t, err)
	weights, err := c.NewWeights()
	require.NoError(t, err)
	index, err := weights.Add(bindings.Weight{
		Name:     "model.norm.weight",
		DType:    bindings.F32,
		Resident: bindings.F32,
		Dims:     []int{hidden},
		Parts:    []bindings.Part{{File: file, Offset: 5, Bytes: 8}, {Data: bytes[8:]}},
	})
	require.NoError(t, err)
	require.Equal(t, 0, index)
	require.NoError(t, file.Close())
	clear(bytes) // the library has its own copy

	count, err := weights.Count()
	require.NoError(t, err)
	require.Equal(t, 1, count)
	info, err := weights.Info(0)
	require.NoError(t, err)
	require.Equal(t, bindings.WeightInfo{Name: "model.norm.weight", DType: bindings.F32, Dims: []int{hidden}, Bytes: 16}, info)

	program, err := c.LoadProgram(weights, bindings.State{}, addNorm())
	require.NoError(t, err)
	run := bindings.NewRun(1, 1)
	run.Rows, run.Sequences = 1, 1
	for tokens := 1; tokens <= 8; tokens++ { // one program serves every count
		x := make([]float32, tokens*hidden)
		for i := range x {
			x[i] = float32(i*i%7) - 2.5
		}
		run.Tokens = tokens
		bindings.SetInput(run, 0, x)
		require.NoError(t, program.Run(run))
		y := make([]float32, len(x))
		value := run.Output(0)
		require.NoError(t, bindings.ReadInto(value, y))
		require.InDeltaSlice(t, wantAddNorm(x, w), y, 1e-5)
		require.ErrorIs(t, value.Read(make([]byte, 3)), bindings.ErrArgument)
		require.NoError(t, value.Free())
		require.ErrorIs(t, value.Free(), bindings.ErrArgument)
	}

	memory, err := c.Memory()
	require.NoError(t, err)
	require.GreaterOrEqual(t, memory.Peak, memory.Active)
	require.NoError(t, c.Synchronize())
	require.NoError(t, c.Trim())
	require.NoError(t, c.ResetPeak())
	require.NoError(t, program.Destroy())
	require.NoError(t, weights.Destroy())
	require.NoError(t, c.Destroy())
	require.ErrorIs(t, c.Synchronize(), bindings.ErrArgument)
}

func TestState(t *testing.T) {
	c := open(t)
	s, err := c.NewState(bindings.StateParams{
		DType: bindings.F32, MaxSequences: 2, MaxTokens: 64,
		Layers: []bindings.Layer{{KVHeads: 1, KeyDim: 8, ValueDim: 8}, {KVHeads: 2, KeyDim: 8, ValueDim: 8, Window: 16}},
	})
	require.NoError(t, err)
	bytes, err := s.Bytes()
	require.NoError(t, err)
	require.Zero(t, bytes)
	require.NoError(t, s.Reset(1))
	require.ErrorIs(t, s.Reset(2), bindings.ErrArgument)
	require.NoError(t, s.Copy(0, 1, 0))
	require.ErrorIs(t, s.Copy(0, 1, 5), bindings.ErrArgument) // slot 0 has none
	require.NoError(t, s.Destroy())
	require.ErrorIs(t, s.Destroy(), bindings.ErrArgument)

	_, err = c.NewState(bindings.StateParams{DType: bindings.F32, MaxSequences: -1, MaxTokens: 64})
	require.ErrorIs(t, err, bindings.ErrArgument)
}

func TestProgramErrors(t *testing.T) {
	c := open(t)
	weights, err := c.NewWeights()
	require.NoError(t, err)
	_, err = weights.Add(bindings.Weight{Name: "w", DType: bindings.F32, Resident: bindings.F32,
		Dims: []int{hidden}, Parts: []bindings.Part{{Data: make([]byte, 16)}}})
	require.NoError(t, err)

	words := addNorm()
	op := len(words) - 1 - 5 - 6 // opcode of the addition
	require.EqualValues(t, bindings.OpAdd, words[op])
	words[op] = 999
	_, err = c.LoadProgram(weights, bindings.State{}, words)
	var failure *bindings.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 1, failure.Op)
	require.ErrorIs(t, err, bindings.ErrUnsupported)
	require.NotEmpty(t, failure.Message)

	_, err = c.LoadProgram(weights, bindings.State{}, addNorm()[:7])
	require.ErrorAs(t, err, &failure)
	require.Equal(t, -1, failure.Op)
	require.ErrorIs(t, err, bindings.ErrProgram)
	_, err = c.LoadProgram(weights, bindings.State{}, nil)
	require.Error(t, err)
	_, err = c.LoadProgram(bindings.Weights{}, bindings.State{}, addNorm())
	require.Error(t, err)

	program, err := c.LoadProgram(weights, bindings.State{}, addNorm())
	require.NoError(t, err)
	run := bindings.NewRun(1, 1)
	bindings.SetInput(run, 0, make([]float32, 9*hidden))
	for _, tokens := range []int{-1, 0, 9, math.MaxInt64} {
		run.Tokens, run.Rows, run.Sequences = tokens, 1, 1
		require.ErrorIs(t, program.Run(run), bindings.ErrArgument, tokens)
	}
	run = bindings.NewRun(2, 1)
	run.Tokens, run.Rows, run.Sequences = 1, 1, 1
	require.ErrorIs(t, program.Run(run), bindings.ErrArgument)
}

func TestWrongArguments(t *testing.T) {
	c := open(t)
	weights, err := c.NewWeights()
	require.NoError(t, err)
	live := weights.Handle()
	for _, handle := range []int64{0, -1, live + 1000, math.MinInt64, math.MaxInt64} {
		_, err = bindings.MakeWeights(c, handle).Count()
		require.ErrorIs(t, err, bindings.ErrArgument)
		require.ErrorIs(t, bindings.MakeContext(c, handle).Destroy(), bindings.ErrArgument)
	}
	// live is a weight set and nothing else.
	require.ErrorIs(t, bindings.MakeFile(c, live).Close(), bindings.ErrArgument)
	require.ErrorIs(t, bindings.MakeState(c, live).Reset(0), bindings.ErrArgument)
	require.ErrorIs(t, bindings.MakeProgram(c, live).Run(bindings.NewRun(0, 0)), bindings.ErrArgument)
	require.ErrorIs(t, bindings.MakeValue(c, live).Read(make([]byte, 4)), bindings.ErrArgument)
	require.ErrorIs(t, bindings.MakeContext(c, live).Trim(), bindings.ErrArgument)
	require.ErrorIs(t, bindings.MakeWeights(c, c.Handle()).Destroy(), bindings.ErrArgument)
	_, err = weights.Info(0)
	require.ErrorIs(t, err, bindings.ErrArgument)
	_, err = c.OpenFile(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, bindings.ErrIO)
	_, err = c.OpenFile("")
	require.Error(t, err)
	_, err = weights.Add(bindings.Weight{})
	require.ErrorIs(t, err, bindings.ErrArgument)
	_, err = c.Library().NewContext(bindings.ContextParams{Device: 77})
	require.Error(t, err)
}

// A context works only for the thread that made it.
func TestOtherThread(t *testing.T) {
	c := open(t)
	failure := make(chan error)
	go func() {
		runtime.LockOSThread() // and so cannot be the test's thread
		defer runtime.UnlockOSThread()
		failure <- c.Synchronize()
	}()
	require.ErrorIs(t, <-failure, bindings.ErrArgument)
	require.NoError(t, c.Synchronize())
}

func BenchmarkRealCall(b *testing.B) {
	weights, err := open(b).NewWeights()
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = weights.Count()
	}
}
