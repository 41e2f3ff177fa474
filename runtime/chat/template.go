package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
	"unicode"

	"mlxcel/runtime/chat/jinja"
)

// ErrNoTemplate says that a model has no chat template.
var ErrNoTemplate = errors.New("the model has no chat template, so it cannot chat: give it plain text to continue with --no-chat-template")

// TemplateError is what a template itself refuses a conversation with, in its
// author's words.
type TemplateError struct{ Message string }

func (e *TemplateError) Error() string { return e.Message }

// Template is a model's chat template. Any number of goroutines may use it.
type Template struct {
	source   string
	compiled *jinja.Template
	special  map[string]string
	// takesParts and takesText tell, once probed, which forms of content the
	// template can print.
	takesParts, takesText func() bool
}

// New compiles a chat template. special are the texts of special tokens under
// the names that templates have for them (bos_token, eos_token, …), as
// [SpecialTokens] returns them. An empty source is [ErrNoTemplate].
func New(source string, special map[string]string) (*Template, error) {
	if strings.TrimSpace(source) == "" {
		return nil, ErrNoTemplate
	}
	compiled, err := jinja.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	t := &Template{source: source, compiled: compiled, special: maps.Clone(special)}
	t.takesParts = sync.OnceValue(func() bool { return t.probe(true) })
	t.takesText = sync.OnceValue(func() bool { return t.probe(false) })
	return t, nil
}

// Options say how a conversation is rendered.
type Options struct {
	// AddGenerationPrompt ends the prompt with the start of the assistant's
	// next message.
	AddGenerationPrompt bool
	// ContinueFinalMessage leaves the last message open, for the model to go
	// on with it.
	ContinueFinalMessage bool
	// Tools is a JSON list of what the model may call, or empty.
	Tools json.RawMessage
	// Kwargs are further variables for the template, such as enable_thinking.
	// They win over the others.
	Kwargs map[string]any
	// Now is the time that a template with a date in it is told; the zero time
	// stands for the real one.
	Now time.Time
}

// Render returns the prompt for a conversation. When the template refuses it,
// the error is a [*TemplateError] (as errors.As finds it).
func (t *Template) Render(messages []Message, opts Options) (string, error) {
	if opts.ContinueFinalMessage {
		return t.renderOpen(messages, opts)
	}
	asParts := t.wantsParts(messages)
	list := make([]any, len(messages))
	for i, m := range messages {
		v, err := m.value(asParts)
		if err != nil {
			return "", fmt.Errorf("message %d: %w", i+1, err)
		}
		list[i] = v
	}
	return t.render(list, opts)
}

// wantsParts tells whether content is given to the template in parts. Most
// templates want strings, some want parts, and some take both.
func (t *Template) wantsParts(messages []Message) bool {
	for _, m := range messages {
		if len(m.Parts) > 0 {
			return t.takesParts()
		}
	}
	return len(messages) > 0 && !t.takesText() && t.takesParts()
}

// probe tells whether a message's content arrives in the prompt when it is
// given in parts, or as a string.
func (t *Template) probe(asParts bool) bool {
	const text = "mlxcel-probe"
	v, err := Message{Role: User, Content: text}.value(asParts)
	if err != nil {
		return false
	}
	prompt, err := t.render([]any{v}, Options{AddGenerationPrompt: true})
	before, _, found := strings.Cut(prompt, text)
	// A template that knows nothing of parts prints the list as it stands.
	printedList := strings.HasSuffix(before, `'text': '`) || strings.HasSuffix(before, `"text": "`)
	return err == nil && found && !printedList
}

// maxRenderTime stops a template that runs for ever on a slow machine before
// its step limit does. A real one takes less than a millisecond.
const maxRenderTime = 10 * time.Second

func (t *Template) render(messages []any, opts Options) (string, error) {
	vars := map[string]any{
		"messages":              jinja.NewList(messages...),
		"tools":                 nil,
		"documents":             nil,
		"add_generation_prompt": opts.AddGenerationPrompt,
	}
	if len(opts.Tools) > 0 {
		tools, err := jinja.ParseJSON(opts.Tools)
		if err != nil {
			return "", fmt.Errorf("tools: %w", err)
		}
		if _, ok := tools.(*jinja.List); !ok && tools != nil {
			return "", errors.New("tools: not a JSON list")
		}
		vars["tools"] = tools
	}
	for name, text := range t.special {
		vars[name] = text
	}
	maps.Copy(vars, opts.Kwargs)
	ctx, cancel := context.WithTimeout(context.Background(), maxRenderTime)
	defer cancel()
	prompt, err := t.compiled.RenderContext(ctx, vars, jinja.Options{Now: opts.Now})
	var raised *jinja.RaisedError
	if errors.As(err, &raised) {
		return "", &TemplateError{raised.Message}
	}
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return prompt, nil
}

// continueMark is put behind the last message's text to find its end in the
// prompt. The blank shows whether the template trims.
const continueMark = "\uE000mlxcel-continue\uE000 "

// renderOpen renders with the last message left open: everything that the
// template writes behind its text is cut off.
func (t *Template) renderOpen(messages []Message, opts Options) (string, error) {
	if opts.AddGenerationPrompt {
		return "", errors.New("continuing the final message and starting a new one exclude each other")
	}
	if len(messages) == 0 {
		return "", errors.New("there is no final message to continue")
	}
	messages = append([]Message(nil), messages...)
	last := &messages[len(messages)-1]
	text, ok := last.text()
	if !ok {
		return "", errors.New("the final message to continue is not only text")
	}
	last.Content, last.Parts = text+continueMark, nil
	opts.ContinueFinalMessage = false
	prompt, err := t.Render(messages, opts)
	if err != nil {
		return "", err
	}
	i := strings.LastIndex(prompt, strings.TrimSpace(continueMark))
	if i < 0 {
		return "", errors.New("the final message cannot be continued: the chat template does not print its text as it is")
	}
	if strings.HasPrefix(prompt[i:], continueMark) {
		return prompt[:i], nil
	}
	return strings.TrimRightFunc(prompt[:i], unicode.IsSpace), nil
}
