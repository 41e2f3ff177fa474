// Package host tells about the machine and the process. What cannot be found out is 0 or "".
package host

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// Facts describe the machine. Memory is in bytes.
type Facts struct {
	System    string // the operating system and its version
	CPU       string // the processor's name
	Threads   int    // that may run at once
	Features  []string
	Total     int64 // memory
	Available int64 // memory that programs can have without swapping
}

// Look returns the facts of this machine.
func Look() Facts {
	f := Facts{System: system(), CPU: processor(), Threads: runtime.NumCPU(), Features: features()}
	f.Total, f.Available = memory()
	return f
}

// PeakMemory returns the most memory, in bytes, that this process has had resident.
func PeakMemory() int64 { return peakMemory() }

// features returns those instruction sets of the processor that matter for matrices.
func features() []string {
	var have []string
	for _, f := range []struct {
		has  bool
		name string
	}{
		{cpu.X86.HasAVX, "avx"},
		{cpu.X86.HasAVX2, "avx2"},
		{cpu.X86.HasFMA, "fma"},
		{cpu.X86.HasF16C, "f16c"},
		{cpu.X86.HasAVX512F, "avx512f"},
		{cpu.X86.HasAVX512BW, "avx512bw"},
		{cpu.X86.HasAVX512VL, "avx512vl"},
		{cpu.X86.HasAVX512VNNI, "avx512vnni"},
		{cpu.X86.HasAVX512BF16, "avx512bf16"},
		{cpu.X86.HasAVXVNNI, "avxvnni"},
		{cpu.X86.HasAMXTile, "amx"},
		{cpu.ARM64.HasASIMD, "neon"},
		{cpu.ARM64.HasASIMDDP, "dotprod"},
		{cpu.ARM64.HasASIMDHP, "fp16"},
		{cpu.ARM64.HasSVE, "sve"},
		{cpu.ARM64.HasSVE2, "sve2"},
	} {
		if f.has {
			have = append(have, f.name)
		}
	}
	return have
}
