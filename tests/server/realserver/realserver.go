// Package realserver starts the server with the default model on the real library, for tests.
package realserver

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server"
	"mlxcel/tests/testenv"
)

// Server is one that listens on loopback.
type Server struct {
	URL   string
	Model *runtime.Model
	Stop  func() error // ends it, and returns how it ended; the end of the test does so, too
}

// Start starts one. The test is skipped where library or model are missing.
func Start(t *testing.T, options runtime.ModelOptions) *Server {
	t.Helper()
	rt, err := runtime.Open(runtime.Options{Bundle: testenv.Bundle(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	m, err := rt.LoadModel(testenv.Model(t), options)
	require.NoError(t, err)
	s := server.New(server.Options{Grace: time.Second})
	require.NoError(t, s.Ready(m))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	r := &Server{URL: "http://" + l.Addr().String(), Model: m, Stop: sync.OnceValue(func() error { cancel(); return <-ended })}
	t.Cleanup(func() { require.NoError(t, r.Stop()) })
	return r
}
