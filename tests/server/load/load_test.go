package main

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server"
	"mlxcel/runtime/server/servertest"
)

func serve(t *testing.T, answer servertest.Answer) string {
	m := servertest.New()
	m.Script = func(string, runtime.Request) servertest.Answer { return answer }
	s := server.New(server.Options{})
	require.NoError(t, s.Ready(m))
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL
}

func TestLoad(t *testing.T) {
	url := serve(t, servertest.Answer{Text: "abcdefgh", PerToken: time.Millisecond})
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"--url", url, "--clients", "1,4", "--time", "300ms", "--tokens", "5", "--pid", strconv.Itoa(os.Getpid())}, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^\s+1 +\d+ +0 +[\d.]+ +[\d.]+ ms +[\d.]+ ms +[\d.]+ ms +[\d.]+ ms +[+-][\d.]+ MB$`, lines[1])
	require.Regexp(t, `^\s+4 +\d+ +0 `, lines[2])
}

func TestLoadTellsFailures(t *testing.T) {
	url := serve(t, servertest.Answer{Text: "a", Err: errors.New("the device is lost")})
	var out bytes.Buffer
	err := run(t.Context(), []string{"--url", url, "--clients", "2", "--time", "50ms"}, &out)
	require.ErrorContains(t, err, "requests failed")
	require.Contains(t, out.String(), "the device is lost")
}

func TestLoadStaysHereAndBounded(t *testing.T) {
	for _, args := range [][]string{
		{"--url", "http://example.com"}, {"--url", "http://192.0.2.1:80"}, {"--url", "::"}, {"--url", "http://localhost.example"},
		{"--clients", "129"}, {"--clients", "0"}, {"--clients", "x"}, {"--time", "11m"}, {"--time", "0s"}, {"--tokens", "0"}, {"--silent", "301"},
	} {
		require.Error(t, run(t.Context(), args, &bytes.Buffer{}), args)
	}
}

func TestQuantile(t *testing.T) {
	require.Zero(t, quantile(nil, .5))
	values := []time.Duration{4, 1, 3, 2}
	require.Equal(t, time.Duration(3), quantile(values, .5))
	require.Equal(t, time.Duration(4), quantile(values, .99))
	require.Equal(t, time.Duration(1), quantile(values, 0))
}
