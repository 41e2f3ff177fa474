package engine

import (
	"fmt"
	"strings"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
	"mlxcel/runtime/sample"
	"mlxcel/runtime/weights"
)

// On a GPU, memory is planned before anything is loaded: what the system does when it runs out is worse than a refusal.

// DefaultGPUMemory is the share of a GPU's free memory that a model takes at most, unless told otherwise.
const DefaultGPUMemory = 0.9

// How much mlxshim takes of a GPU at a time: it enqueues a step in pieces (kLeastPiece in mlx/context.h), dequantizes two matrices
// of a limited size (kMostMatrix in mlx/cuda/gpu.h), and keeps some memory for the next step (kMostKept in gpu.cpp).
const (
	pieceBytes  = 128 << 20 // of new values, after which a piece ends
	pieces      = 3         // two that the GPU has, and one that it has just done
	matrixBytes = 256 << 20
	keptBytes   = 256 << 20
	cublasBytes = 64 << 20 // of cuBLAS
	cacheStep   = 256      // a cache has room for a multiple of so many tokens (kStep in state.cpp)
	vectorRows  = 14       // a product with so few rows dequantizes nothing (kMostRowsInBlocks in mlx/ops_dense.cpp)
)

// workspace is the most that the temporaries of a run of the program take, of as many tokens as it is recorded for.
func workspace(p *program.Program, activation bindings.DType) int64 {
	var largest, matrix int64
	for _, op := range p.Ops {
		var made int64
		for _, v := range op.Outputs {
			made += int64(v.Type.Elements() * v.Type.DType.Size())
		}
		largest = max(largest, made)
		m, ok := op.Matrix()
		if ok && op.Code == bindings.OpLinear && m.Quant.Mode != bindings.QuantNone && op.Outputs[0].Type.Shape[0] > vectorRows {
			matrix = max(matrix, min(int64(m.Elements()*activation.Size()), matrixBytes))
		}
	}
	return pieces*(pieceBytes+largest) + 2*matrix + keptBytes + cublasBytes
}

// openContext opens the device, on a GPU with the share of its free memory as the limit.
func openContext(library *bindings.Library, o Options) (*bindings.Context, bindings.DeviceFacts, int64, error) {
	for limited := false; ; limited = true {
		c, err := library.NewContext(o.Context)
		if err != nil && o.Context.Device == bindings.DeviceCUDA {
			err = fmt.Errorf("the GPU cannot be used: %w; --device cpu computes without it", err)
		}
		if err != nil {
			return nil, bindings.DeviceFacts{}, 0, err
		}
		facts, err := c.DeviceFacts()
		if err != nil {
			_ = c.Destroy() // the first error says more
			return nil, facts, 0, err
		}
		if facts.Device != bindings.DeviceCPU && o.Available > 0 {
			facts.FreeMemory = min(facts.FreeMemory, o.Available)
		}
		if limited || facts.Device == bindings.DeviceCPU || o.Context.MemoryLimit > 0 {
			return c, facts, o.Context.MemoryLimit, nil
		}
		share := o.GPUMemory
		if share == 0 {
			share = DefaultGPUMemory
		}
		o.Context.MemoryLimit = int64(share * float64(facts.FreeMemory))
		if err := c.Destroy(); err != nil {
			return nil, facts, 0, err
		}
	}
}

// need is what a model takes of a device.
type need struct {
	weights  int64  // bytes
	elements int64  // of the weights, as numbers
	perToken int64  // bytes of keys and values
	layers   int64  // that they are of
	steps    []work // the sizes of steps to choose from, from the fastest to the smallest
}

// work is what a step takes beside weights and cache.
type work struct {
	chunk     int // prompt tokens
	workspace int64
}

// cacheRoom is how many bytes of keys and values there is room for within a limit, beside weights and a step. A layer that
// grows is held twice for a while, and in two layers at a time.
func (n need) cacheRoom(limit int64, w work) int64 {
	return max(limit-n.weights-w.workspace, 0) * n.layers / (n.layers + 2)
}

func needOf(p *program.Program, activation bindings.DType) need {
	n := need{layers: int64(max(len(p.Layers), 1))}
	packed := map[*program.Value]bool{}
	for _, v := range p.Weights {
		n.weights += int64(v.Type.Elements() * v.Weight.Resident.Size())
	}
	for _, op := range p.Ops {
		for _, m := range op.Matrices() {
			if !packed[m.Weight] {
				packed[m.Weight] = true
				n.elements += int64(m.Elements())
			}
		}
	}
	for _, l := range p.Layers {
		n.perToken += int64(l.KVHeads * (l.KeyDim + l.ValueDim) * activation.Size())
	}
	return n
}

// steps are the sizes of steps that the model may be computed in, where there is a choice also ones that take less memory.
func (l *loop) steps(choice bool) ([]work, error) {
	const leastChunk = 256
	var all []work
	for chunk := l.chunk; ; chunk /= 2 {
		limits := program.Limits{Tokens: chunk + l.most, Rows: l.most, Sequences: l.most}
		p, err := l.model.Record(l.activation, limits, sample.Features{}.Tail())
		if err != nil {
			return nil, err
		}
		w := work{chunk, workspace(p, l.activation)}
		if last := len(all) - 1; last >= 0 && w.workspace >= all[last].workspace {
			return all, nil
		}
		all = append(all, w)
		if !choice || chunk/2 < leastChunk {
			return all, nil
		}
	}
}

// leastContext is the shortest context that a model gets where none was asked for, and goodContext one for whose sake steps
// are made smaller.
const leastContext, goodContext = 1024, 8192

// fit returns how long a sequence may become within the limit: `wanted` tokens, or, where these were not asked for, as
// many as there is room for; and the steps to compute it in.
func (n need) fit(limit, free int64, wanted int, asked bool) (int, work, error) {
	good := wanted
	if !asked {
		good = min(wanted, goodContext)
	}
	var tokens int
	var step work
	for _, step = range n.steps {
		if tokens = int(n.cacheRoom(limit, step)/max(n.perToken, 1)) / cacheStep * cacheStep; tokens >= good {
			return min(tokens, wanted), step, nil
		}
	}
	if !asked && tokens >= leastContext {
		return tokens, step, nil
	}
	if !asked {
		wanted = leastContext
	}
	var remedies []string
	if tokens >= leastContext {
		remedies = append(remedies, fmt.Sprintf("a context of %d tokens (--context)", tokens))
	}
	if bits := n.bits(limit, wanted, step); bits > 0 {
		remedies = append(remedies, fmt.Sprintf("the model in %d bits", bits))
	}
	remedies = append(remedies, "--device cpu")
	return 0, step, fmt.Errorf("%w: it needs %s for weights, %s for %d tokens of context and %s to compute with, and of the %s that are free on the GPU it may take %s (--gpu-memory); what would work is %s",
		ErrNoRoom, gigabytes(n.weights), gigabytes(int64(wanted)*n.perToken), wanted, gigabytes(step.workspace),
		gigabytes(free), gigabytes(limit), strings.Join(remedies, ", or "))
}

// bits is the widest quantization with which the model and its context would fit, 0 if none.
func (n need) bits(limit int64, tokens int, step work) int {
	for _, bits := range []int{8, 6, 4, 3} {
		// A scale and a bias of 16 bits for 64 numbers are half a bit for each.
		less := n
		less.weights = n.elements * int64(2*bits+1) / 16
		if less.weights < n.weights && int64(tokens)*n.perToken <= less.cacheRoom(limit, step) {
			return bits
		}
	}
	return 0
}

func gigabytes(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

// floatType is the type to compute a model in: the device's, but on a GPU that of the model's own scales or weights, as
// mlx-lm does.
func floatType(device bindings.DeviceFacts, checkpoint *weights.Checkpoint) bindings.DType {
	if device.Device == bindings.DeviceCPU {
		return device.Activation
	}
	for _, tensor := range []string{"model.embed_tokens.scales", "model.embed_tokens.weight", "model.norm.weight"} {
		switch dtype, _, ok := checkpoint.Lookup(tensor); {
		case ok && (dtype == bindings.F16 || dtype == bindings.BF16 || dtype == bindings.F32):
			return dtype
		}
	}
	return device.Activation
}
