// Command gen writes Go's half of the C ABI, bindings/abi_gen.go, from
// mlxshim/include/mlxshim.h. The header is the single source: a test fails
// when the committed file and the header disagree.
//
// Run it through `go generate ./bindings`.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	header := flag.String("header", "../mlxshim/include/mlxshim.h", "the C header to read")
	output := flag.String("o", "abi_gen.go", "the Go file to write")
	flag.Parse()
	if err := run(*header, *output); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(header, output string) error {
	source, err := generate(header)
	if err != nil {
		return err
	}
	return os.WriteFile(output, source, 0o644)
}

// generate returns the formatted Go file for the header at path.
func generate(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	h, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return emit(h)
}
