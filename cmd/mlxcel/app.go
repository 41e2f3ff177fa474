package main

import (
	"context"
	"iter"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/serve"
	"mlxcel/runtime"
)

// app is what the commands share. Its functions are those of package runtime, or a test's.
type app struct {
	open         func(runtime.Options) (engine, error)
	probeDriver  func() runtime.Driver
	inspectModel func(path string) (*runtime.Inspection, error)
	defaultModel func() (string, error)
	lines        func(cli.Streams) lineReader
}

// engine is what the commands use of a runtime.Runtime.
type engine interface {
	Library() runtime.Library
	Attempts() []runtime.Attempt
	Device() (runtime.DeviceFacts, error)
	LoadModel(path string, o runtime.ModelOptions) (model, error)
	LoadRandom(shape string, bits int, o runtime.ModelOptions) (model, error)
	Close() error
}

// model is what the commands use of a runtime.Model.
type model interface {
	Name() string
	HasTokenizer() bool
	HasChatTemplate() bool
	Facts() runtime.Facts
	Memory() (runtime.Memory, error)
	Stages(tokens int) (string, error)
	PromptTokens(runtime.Request) ([]int32, error)
	Generate(context.Context, runtime.Request) iter.Seq2[runtime.Piece, error]
}

func newApp() *app {
	return &app{
		open: func(o runtime.Options) (engine, error) {
			r, err := runtime.Open(o)
			if err != nil {
				return nil, err
			}
			return realEngine{r}, nil
		},
		probeDriver:  runtime.ProbeDriver,
		inspectModel: runtime.Inspect,
		defaultModel: runtime.DefaultModel,
		lines:        newLineReader,
	}
}

// realEngine is a runtime.Runtime whose models are of the interface type.
type realEngine struct{ *runtime.Runtime }

func (e realEngine) LoadModel(path string, o runtime.ModelOptions) (model, error) {
	m, err := e.Runtime.LoadModel(path, o)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (e realEngine) LoadRandom(shape string, bits int, o runtime.ModelOptions) (model, error) {
	m, err := e.Runtime.LoadRandom(shape, bits, o)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// program is the table of commands.
func (a *app) program() *cli.Program {
	return &cli.Program{
		Name:  "mlxcel",
		About: "mlxcel runs language models on this machine.",
		Commands: []cli.Command{
			{
				Name: "generate", Aliases: []string{"gen"}, Short: "answer one prompt",
				Usage: "-p PROMPT [flags]", Long: generateHelp, Example: generateExample, Flags: a.generate,
			},
			{
				Name: "chat", Short: "talk with a model",
				Usage: "[flags]", Long: chatHelp, Example: chatExample, Flags: a.chat,
			},
			{
				Name: "inspect", Short: "tell what a model is and how much memory it needs",
				Usage: "[-m MODEL] [flags]", Long: inspectHelp, Example: inspectExample, Flags: a.inspect,
			},
			{
				Name: "bench", Short: "measure how fast a model is on this machine",
				Usage: "[-m MODEL | --random SHAPE] [flags]", Long: benchHelp, Example: benchExample, Flags: a.bench,
			},
			{
				Name: "download", Aliases: []string{"pull"}, Short: "get a model by name from the Hugging Face Hub",
				Usage: "NAME [flags]", Long: downloadHelp, Example: downloadExample, MaxArgs: 1, Flags: a.download,
			},
			{
				Name: "list", Aliases: []string{"ls"}, Short: "list the downloaded models",
				Usage: "[flags]", Long: listHelp, Flags: a.list,
			},
			{
				Name: "info", Short: "tell about a model, downloaded or not",
				Usage: "NAME [flags]", Long: infoHelp, Example: infoExample, MaxArgs: 1, Flags: a.info,
			},
			{
				Name: "rm", Short: "delete downloaded models",
				Usage: "NAME... [flags]", Long: removeHelp, MaxArgs: maxRemoved, Flags: a.remove,
			},
			{
				Name: "doctor", Short: "check that everything needed is there, and say what to do if not",
				Usage: "[flags]", Long: doctorHelp, Flags: a.doctor,
			},
			{
				Name: "selftest", Short: "check what this machine computes and how fast, and write a report",
				Usage: "[flags]", Long: selftestHelp, Example: selftestExample, Flags: a.selftest,
			},
			serve.Command("serve", nil),
		},
		Aliases: map[string]string{
			"ctx-size":       "context",
			"n-predict":      "max-tokens",
			"repeat-penalty": "repetition-penalty",
			"ssl-cert-file":  "tls-cert",
			"ssl-key-file":   "tls-key",
			"system-prompt":  "system",
			"temperature":    "temp",
		},
	}
}
