package serve

import (
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/models"
	"mlxcel/runtime"
	"mlxcel/runtime/server"
)

// options are the flags of the server.
type options struct {
	library runtime.Options
	model   runtime.ModelOptions
	named   models.Flags
	server  server.Options

	host, keyFile string
	port          int
	keys          []string
	cert, certKey string
	sampling      runtime.Sampling
	reasoning     string
	noPage        bool
	noMetrics     bool
	maxBody       int
	logFormat     string
	verbose       bool
	quiet         bool
}

func (o *options) define(f *pflag.FlagSet) {
	o.named.Define(f)
	f.StringVar(&o.host, "host", "127.0.0.1", "`ADDRESS` to listen on; 0.0.0.0 or :: for all of the machine's")
	f.IntVar(&o.port, "port", 8080, "`PORT` to listen on; 0: any that is free")
	f.StringVar(&o.server.Name, "alias", "", "`ID` of the model for clients; default: its name")

	f.StringArrayVar(&o.keys, "api-key", nil, "`KEY` that clients must send; may be repeated; those of $MLXCEL_API_KEY, separated by commas, count too")
	f.StringVar(&o.keyFile, "api-key-file", "", "`FILE` with more keys, one a line")
	f.StringArrayVar(&o.server.Origins, "cors-origin", nil, "`ORIGIN` of web pages that may call the server, such as https://chat.example; may be repeated; *: all")
	f.StringVar(&o.cert, "tls-cert", "", "`FILE` with a certificate (PEM), to answer over HTTPS")
	f.StringVar(&o.certKey, "tls-key", "", "`FILE` with the certificate's key (PEM)")

	f.IntVarP(&o.model.ContextTokens, "context", "c", 0, "longest prompt and answer together, in `TOKENS`; default: what the model was trained for")
	f.IntVar(&o.model.Slots, "parallel", 8, "`NUMBER` of answers that are made at once; more wait")
	f.IntVar(&o.model.CacheTokens, "cache-tokens", 0, "room for keys and values of so many `TOKENS`, of all answers together and of those that have ended; default: for all --parallel answers, in at most half of the free memory")
	f.BoolVar(&o.model.NoReuse, "no-prefix-cache", false, "compute every prompt from its beginning, also where another one began alike")
	f.IntVar(&o.server.MaxAnswers, "queue", 256, "`NUMBER` of answers that are made or wait at once; more are refused with 503")
	f.IntVar(&o.model.ChunkTokens, "prefill-chunk", 0, "prompt `TOKENS` computed between two tokens of running answers; default: a good number for the device")

	f.IntVarP(&o.server.MaxTokens, "max-tokens", "n", 0, "longest answer in `TOKENS` where a request says nothing; 0: up to the end of the context")
	f.Float64Var(&o.sampling.Temperature, "temp", 1, "temperature `T` where a request says nothing; 0: always the most likely token")
	f.IntVar(&o.sampling.TopK, "top-k", 0, "the `K` most likely tokens only, where a request says nothing; 0: all")
	f.Float64Var(&o.sampling.TopP, "top-p", 1, "the most likely tokens that have probability `P` together, where a request says nothing; 1: all")
	f.Float64Var(&o.sampling.MinP, "min-p", 0, "the tokens that have `P` times the probability of the likeliest, where a request says nothing; 0: all")
	f.Float64Var(&o.sampling.RepetitionPenalty, "repetition-penalty", 1, "make tokens seen before less likely by `FACTOR`, where a request says nothing; 1: do not")
	f.Var(cli.NewChoice(&o.reasoning, "auto", "none"), "reasoning", "auto: put the model's reasoning into reasoning_content; none: leave it in the text")

	f.IntVar(&o.maxBody, "max-body", 16, "largest request in `MEGABYTES`")
	f.IntVar(&o.server.MaxMessages, "max-messages", 4096, "`NUMBER` of messages that a chat may have")
	f.IntVar(&o.server.MaxConnections, "max-connections", 1024, "`NUMBER` of connections that may be open at once; more wait")
	f.DurationVar(&o.server.HeaderTimeout, "header-timeout", 10*time.Second, "`TIME` for the header of a request to arrive")
	f.DurationVar(&o.server.BodyTimeout, "body-timeout", time.Minute, "`TIME` for the body of a request to arrive")
	f.DurationVar(&o.server.WriteTimeout, "write-timeout", time.Minute, "`TIME` for a client to take what is written")
	f.DurationVar(&o.server.IdleTimeout, "idle-timeout", 2*time.Minute, "`TIME` that a connection may stay open between requests")
	f.DurationVar(&o.server.KeepAlive, "keep-alive", 10*time.Second, "`TIME` without news after which a stream gets a comment")
	f.DurationVar(&o.server.Grace, "grace", 30*time.Second, "`TIME` that running requests have to end after SIGTERM or Ctrl-C; a second one ends at once")
	f.BoolVar(&o.noPage, "no-page", false, "no chat page at /")
	f.BoolVar(&o.noMetrics, "no-metrics", false, "no figures at /metrics")

	f.IntVar(&o.library.Threads, "threads", 0, "`NUMBER` of CPU threads; default: the library's choice")
	f.StringVar(&o.library.Bundle, "bundle", "", "`FOLDER` with the libraries; default: $MLXCEL_BUNDLE, or the folder lib beside the program")
	f.Var(cli.NewChoice(&o.library.Backend, "auto", "native", "mlx"), "backend", "library to compute with")
	f.StringVar(&o.library.Device, "device", "auto", "`DEVICE` to compute on: auto, cpu, cuda, cuda:N for one of several GPUs, or a GPU's UUID")
	f.Float64Var(&o.library.GPUMemory, "gpu-memory", runtime.DefaultGPUMemory, "`SHARE` of a GPU's free memory that the model may take")
	f.Var(cli.NewChoice(&o.logFormat, "text", "json"), "log-format", "form of the log on stderr")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "log warnings and errors only")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log more, such as connections that misbehave; never what anyone wrote")
}

// check reports a value that is out of range, and completes the options of the server.
func (o *options) check() error {
	for _, n := range []struct {
		flag      string
		value     int
		low, high int
	}{
		{"port", o.port, 0, 65535},
		{"context", o.model.ContextTokens, 0, 1 << 30},
		{"parallel", o.model.Slots, 1, 4096},
		{"cache-tokens", o.model.CacheTokens, 0, 1 << 30},
		{"queue", o.server.MaxAnswers, 1, 1 << 20},
		{"prefill-chunk", o.model.ChunkTokens, 0, 1 << 20},
		{"max-tokens", o.server.MaxTokens, 0, 1 << 30},
		{"max-body", o.maxBody, 1, 4096},
		{"max-messages", o.server.MaxMessages, 1, 1 << 20},
		{"max-connections", o.server.MaxConnections, 1, 1 << 20},
		{"threads", o.library.Threads, 0, 4096},
	} {
		if n.value < n.low || n.value > n.high {
			return cli.Usagef("--%s is %d, want %d to %d", n.flag, n.value, n.low, n.high)
		}
	}
	for flag, d := range map[string]time.Duration{
		"header-timeout": o.server.HeaderTimeout, "body-timeout": o.server.BodyTimeout, "write-timeout": o.server.WriteTimeout,
		"idle-timeout": o.server.IdleTimeout, "keep-alive": o.server.KeepAlive,
	} {
		if d <= 0 {
			return cli.Usagef("--%s is %s, want more than 0, such as 30s", flag, d)
		}
	}
	if o.server.Grace < 0 {
		return cli.Usagef("--grace is %s, want 0 or more", o.server.Grace)
	}
	if o.library.GPUMemory <= 0 || o.library.GPUMemory > 1 {
		return cli.Usagef("--gpu-memory is %v, want more than 0 and at most 1", o.library.GPUMemory)
	}
	if err := runtime.CheckDevice(o.library.Device); err != nil {
		return cli.Usagef("%v", err)
	}
	if err := o.sampling.Check(0); err != nil {
		return cli.Usagef("%v", err)
	}
	if (o.cert == "") != (o.certKey == "") {
		return cli.Usagef("--tls-cert and --tls-key are of use together only")
	}
	o.server.Sampling = &o.sampling
	o.server.KeepReasoning = o.reasoning == "none"
	o.server.Page, o.server.Metrics = !o.noPage, !o.noMetrics
	o.server.MaxBody = int64(o.maxBody) << 20
	o.model.Queue = o.server.MaxAnswers // the server refuses first, with a status
	return nil
}

// level is the least important kind of line that is logged.
func (o *options) level() slog.Level {
	switch {
	case o.quiet:
		return slog.LevelWarn
	case o.verbose:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func (o *options) address() string { return net.JoinHostPort(o.host, strconv.Itoa(o.port)) }
