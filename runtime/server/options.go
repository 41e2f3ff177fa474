package server

import (
	"crypto/tls"
	"log/slog"
	"time"

	"mlxcel/runtime"
)

// Options say how a server behaves. Zero values are replaced by defaults, where they are named.
type Options struct {
	Name string // the model's id for clients; default: the model's name

	Keys    []string // one of them must come with a request; none: all requests are answered
	Origins []string // of web pages that may call the server; "*": all. None: only the server's own page

	Sampling      *runtime.Sampling // what holds where a request says nothing; default: temperature 1, all else off
	MaxTokens     int               // the longest answer where a request says nothing; 0: up to the end of the context
	KeepReasoning bool              // leave reasoning in the content, with its markers
	Metrics       bool              // answer at /metrics
	Page          bool              // answer with the chat page at /

	MaxAnswers     int           // that are made or wait at once, all choices counted; default 256
	MaxBody        int64         // bytes of a request; default 16 MiB
	MaxMessages    int           // of a chat; default 4096
	MaxConnections int           // open at once; more wait to be accepted; default 1024
	HeaderTimeout  time.Duration // for the header of a request to arrive; default 10 s
	BodyTimeout    time.Duration // for the body of a request to arrive; default 60 s
	WriteTimeout   time.Duration // for a client to take what is written; default 60 s
	IdleTimeout    time.Duration // of a connection between requests; default 120 s
	KeepAlive      time.Duration // after which a stream without news gets a comment; default 10 s
	Grace          time.Duration // for running requests after the order to stop; 0: none

	StoredResponses int   // responses kept for previous_response_id; default 1024
	StoredBytes     int64 // of their text; default 64 MiB

	TLS    *tls.Config  // nil: plain HTTP
	Logger *slog.Logger // nil: no log
	Build  string       // version, shown in /props and as system_fingerprint
}

func (o Options) withDefaults() Options {
	def(&o.MaxAnswers, 256)
	def(&o.MaxBody, 16<<20)
	def(&o.MaxMessages, 4096)
	def(&o.MaxConnections, 1024)
	def(&o.HeaderTimeout, 10*time.Second)
	def(&o.BodyTimeout, 60*time.Second)
	def(&o.WriteTimeout, 60*time.Second)
	def(&o.IdleTimeout, 120*time.Second)
	def(&o.KeepAlive, 10*time.Second)
	def(&o.StoredResponses, 1024)
	def(&o.StoredBytes, 64<<20)
	if o.Sampling == nil {
		o.Sampling = &runtime.Sampling{Temperature: 1}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// def sets v where it is zero.
func def[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}
