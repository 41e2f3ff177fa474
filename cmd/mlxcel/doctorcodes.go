package main

import (
	"fmt"
	"slices"
	"strings"

	"mlxcel/runtime"
)

// The codes of what doctor finds beside the bundle, the driver and the GPU, whose codes are runtime.Codes.
const (
	codeLibrary runtime.Code = "library"
	codeDevice  runtime.Code = "device-failed"
	codeNoModel runtime.Code = "model-missing"
	codeModel   runtime.Code = "model-unusable"
	codeMemory  runtime.Code = "memory-short"
)

// doctorCodes says what each code means and what helps.
var doctorCodes = append(slices.Clone(runtime.Codes), []runtime.ExplainedCode{
	{Code: codeLibrary, Means: "The library cannot be opened for a reason that has no code of its own.",
		Remedy: "Do what is printed; it may be that --backend and --device ask for what this release does not have."},
	{Code: codeDevice, Means: "The library is open and finds its device unusable.",
		Remedy: "Restart the machine, try --device cpu, and report it with what doctor prints."},
	{Code: codeNoModel, Means: "No model is named, and there is none in the folder models beside mlxcel.",
		Remedy: "Name one with -m, as in `mlxcel generate -m smollm2`, which downloads it."},
	{Code: codeModel, Means: "The model cannot be used: a file is missing or damaged, or its kind is not known.",
		Remedy: "Do what is printed; `mlxcel download NAME` completes a model that was interrupted."},
	{Code: codeMemory, Means: "The model needs more memory than is free.",
		Remedy: "Close other programs, or take a smaller model or one in fewer bits."},
}...)

// explainCodes is the list of codes, as the table in docs/windows.md.
func explainCodes() string {
	var b strings.Builder
	b.WriteString("| code | what it means | what helps |\n|---|---|---|\n")
	for _, c := range doctorCodes {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Code, c.Means, c.Remedy)
	}
	return b.String()
}
