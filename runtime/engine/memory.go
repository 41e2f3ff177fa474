package engine

import (
	"fmt"
	"strings"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
	"mlxcel/runtime/weights"
)

// On a GPU, memory is planned before anything is loaded: what the system does when it runs out is worse than a refusal.

// DefaultGPUMemory is the share of a GPU's free memory that a model takes at most, unless told otherwise.
const DefaultGPUMemory = 0.9

// workspace is what is left for the temporaries of a step: dequantized matrices, attention scores, logits.
const workspace = 2 << 30

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

// cacheRoom is how many bytes of keys and values there is room for within a limit, beside the weights. A cache that grows
// holds the old one and the new one for a while, 1.8 times its final size in all.
func cacheRoom(limit, weights int64) int64 { return max(limit-workspace-weights, 0) * 5 / 9 }

// need is what a model takes of a device.
type need struct {
	weights  int64 // bytes
	elements int64 // of the weights, as numbers
	perToken int64 // bytes of keys and values
}

func needOf(p *program.Program, activation bindings.DType) need {
	var n need
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

// fit returns how long a sequence may become within the limit: `wanted` tokens, or, where these were not asked for, as
// many as there is room for. A cache that grows holds the old one and the new one for a while, 1.8 times its final size
// in all.
func (n need) fit(limit, free int64, wanted int, asked bool) (int, error) {
	tokens := int(cacheRoom(limit, n.weights) / max(n.perToken, 1))
	if tokens >= wanted {
		return wanted, nil
	}
	const least = 1024
	if !asked && tokens >= least {
		return tokens, nil
	}
	if !asked {
		wanted = least
	}
	var remedies []string
	if tokens >= least {
		remedies = append(remedies, fmt.Sprintf("a context of %d tokens (--context)", tokens))
	}
	if bits := n.bits(limit, wanted); bits > 0 {
		remedies = append(remedies, fmt.Sprintf("the model in %d bits", bits))
	}
	remedies = append(remedies, "--device cpu")
	return 0, fmt.Errorf("%w: it needs %s for weights, %s for %d tokens of context and %s to compute with, and of the %s that are free on the GPU it may take %s (--gpu-memory); what would work is %s",
		ErrNoRoom, gigabytes(n.weights), gigabytes(int64(wanted)*n.perToken*9/5), wanted, gigabytes(workspace),
		gigabytes(free), gigabytes(limit), strings.Join(remedies, ", or "))
}

// bits is the widest quantization with which the model and its context would fit, 0 if none.
func (n need) bits(limit int64, tokens int) int {
	for _, bits := range []int{8, 6, 4, 3} {
		// A scale and a bias of 16 bits for 64 numbers are half a bit for each.
		weights := n.elements * int64(2*bits+1) / 16
		if weights < n.weights && weights+workspace+int64(tokens)*n.perToken*9/5 <= limit {
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
