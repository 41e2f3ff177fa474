package loader

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPick(t *testing.T) {
	old := GPU{Index: 0, Name: "GTX 1080", UUID: "GPU-aaaa", Major: 6, Minor: 1, Memory: 8 << 30}
	first := GPU{Index: 1, Name: "RTX 2060", UUID: "GPU-bbbb", Major: 7, Minor: 5, Memory: 6 << 30}
	second := GPU{Index: 2, Name: "RTX 5090", UUID: "GPU-cccc", Major: 12, Minor: 0, Memory: 32 << 30}
	all := Driver{CUDA: 13010, GPUs: []GPU{old, first, second}}
	cuda13 := variants[0]
	for device, want := range map[string]GPU{
		"": first, "auto": first, "cuda": first, "cuda:1": first, "cuda:2": second, "GPU-cccc": second, "gpu-CC": second,
	} {
		got, err := all.pick(cuda13, device)
		require.NoError(t, err, device)
		require.Equal(t, want, got, device)
	}
	for _, c := range []struct {
		driver Driver
		device string
		want   string
	}{
		{all, "cuda:0", "the GPU GTX 1080 has compute capability 6.1, and 7.5 or more is needed (GeForce RTX 20, GTX 16 and newer)"},
		{all, "cuda:3", "there is no GPU cuda:3, only cuda:0 (GTX 1080, GPU-aaaa), cuda:1 (RTX 2060, GPU-bbbb), cuda:2 (RTX 5090, GPU-cccc)"},
		{all, "GPU-dddd", "there is no GPU GPU-dddd, only"},
		{Driver{CUDA: 12080, GPUs: all.GPUs}, "cuda", "the NVIDIA driver serves CUDA up to 12.8, and the libraries are for CUDA 13.0: install driver 580 or newer"},
		{Driver{Problem: "there is no NVIDIA driver"}, "cuda", "there is no NVIDIA driver"},
	} {
		_, err := c.driver.pick(cuda13, c.device)
		require.ErrorContains(t, err, c.want)
	}
	require.NoError(t, GPU{Major: 9}.supported("linux"))
	require.EqualError(t, GPU{Name: "H100", Major: 9}.supported("windows"), "MLX's Windows build has no code for the GPU H100, whose compute capability is 9.0: use Linux or WSL2 there")
}
