package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	self := func(f float64) float64 { return f }
	require.Equal(t, 2.0, median([]float64{3, 1, 2}, self))
	require.Equal(t, 7.0, median([]float64{7}, self))
}

func TestBenchUsage(t *testing.T) {
	p, _ := newProject(t)
	for _, args := range [][]string{{"gpu"}, {"cpu", "more"}, {"--rounds", "0"}, {"cpu", "--rounds", "x"}} {
		require.ErrorIs(t, bench(t.Context(), p, args), errUsage, "%v", args)
	}
}
