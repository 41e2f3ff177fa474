package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const realHeader = "../../mlxshim/include/mlxshim.h"

// The committed file must be what the header gives.
func TestUpToDate(t *testing.T) {
	want, err := generate(realHeader)
	require.NoError(t, err)
	have, err := os.ReadFile("../abi_gen.go")
	require.NoError(t, err)
	require.Equal(t, string(want), string(have), "mlxshim.h has changed: run go generate ./bindings")
}

func TestRun(t *testing.T) {
	output := filepath.Join(t.TempDir(), "abi_gen.go")
	require.NoError(t, run(realHeader, output))
	require.FileExists(t, output)
	require.Error(t, run("missing.h", output))
}

func TestParse(t *testing.T) {
	h, err := parse(`/* About the file. */
#ifndef MLXSHIM_H
#define MLXSHIM_H

#include <stdint.h>
#define MLXSHIM_EXPORT

/* ---- Section ---------------- */

/* Two words
 * and two. */
#define MLXSHIM_ONE 0x10 /* hex */
#define MLXSHIM_TWO -2

/* A block. */
typedef struct mlxshim_block {
  int64_t size;
  const char* type; /* text */
} mlxshim_block;

/* Does it. */
MLXSHIM_EXPORT int32_t mlxshim_do(const mlxshim_block* block, int64_t range) MLXSHIM_NOEXCEPT;

#endif
`)
	require.NoError(t, err)
	require.Equal(t, &header{
		constants: []constant{
			{"MLXSHIM_ONE", 16, "Two words\nand two.", "Section", "hex"},
			{"MLXSHIM_TWO", -2, "", "", ""},
		},
		structs: []structure{{"mlxshim_block", "A block.", []variable{
			{"int64_t", "size", ""}, {"const char*", "type", "text"}}}},
		functions: []function{{"mlxshim_do", "Does it.", []variable{
			{"const mlxshim_block*", "block", ""}, {"int64_t", "range", ""}}}},
	}, h)
}

// What is outside the subset must not be left out silently.
func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ text, error string }{
		{"\nint x;\n", `line 2: outside the subset that gen reads: "int x;"`},
		{"#define MLXSHIM_A B\n", `line 1: MLXSHIM_A is not an integer: "B"`},
		{"#define OTHER 1\n", "outside the subset"},
		{"typedef struct a {\n  int64_t b;\n} c;\n", "struct a is called c at its end"},
		{"typedef struct a {\n  int64_t b, c[2];\n} a;\n", "not a declaration"},
		{"MLXSHIM_EXPORT int64_t f(int64_t a) MLXSHIM_NOEXCEPT;\n", "outside the subset"},
		{"MLXSHIM_EXPORT int32_t f(void) MLXSHIM_NOEXCEPT;\n", "not a declaration"},
	} {
		_, err := parse(test.text)
		require.ErrorContains(t, err, test.error, test.text)
	}
}

func TestEmitErrors(t *testing.T) {
	for _, ctype := range []string{"double", "int", "const other*", "char**"} {
		_, err := emit(&header{functions: []function{{"mlxshim_f", "", []variable{{ctype, "a", ""}}}}})
		require.ErrorContains(t, err, "no Go type for")
	}
}
