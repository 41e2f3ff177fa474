package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParts(t *testing.T) {
	p, log := newProject(t)
	var ran []string
	pass := func(name string, err error) func(context.Context) error {
		return func(context.Context) error {
			ran = append(ran, name)
			return err
		}
	}
	err := p.report(p.runParts(t.Context(), []part{
		{name: "first", run: pass("first", errors.New("broken"))},
		{name: "second", run: pass("second", nil)},
		{name: "third", run: pass("third", errors.New("no network")), vital: true},
		{name: "fourth", run: pass("fourth", nil)},
	}))
	require.EqualError(t, err, "not passed: first, third, fourth")
	require.Equal(t, []string{"first", "second", "third"}, ran)
	require.Regexp(t, `first +FAILED`, log.String())
	require.Regexp(t, `second +ok`, log.String())
	require.Regexp(t, `fourth +not run`, log.String())
	require.Contains(t, log.String(), "\nparts: 1 passed, 3 failed\n")

	log.Reset()
	require.NoError(t, p.report(p.runParts(t.Context(), []part{{name: "only", run: pass("only", nil)}})))
	require.Contains(t, log.String(), "\nparts: 1 passed, 0 failed\n")
}

func TestFuzzTargets(t *testing.T) {
	listing := "FuzzA\nFuzzB\nok  \tmlxcel/one\t0.012s\n?   \tmlxcel/two\t[no test files]\nok  \tmlxcel/three\t0.010s\nFuzzC\nok  \tmlxcel/four\t0.003s\n"
	require.Equal(t, []fuzzTarget{
		{"mlxcel/one", "FuzzA"}, {"mlxcel/one", "FuzzB"}, {"mlxcel/four", "FuzzC"},
	}, parseFuzzTargets(listing))
}

func TestCheckFormat(t *testing.T) {
	p, _ := newProject(t)
	write(t, "package good\n", p.root, "a", "good.go")
	write(t, "package   ignored\n", p.root, "a", "testdata", "x.go")
	require.NoError(t, p.checkFormat(t.Context()))
	write(t, "package   bad\n", p.root, "a", "bad.go")
	require.ErrorContains(t, p.checkFormat(t.Context()), "gofmt -w a/bad.go")
	write(t, "package", p.root, "a", "bad.go")
	require.ErrorContains(t, p.checkFormat(t.Context()), "bad.go")
}
