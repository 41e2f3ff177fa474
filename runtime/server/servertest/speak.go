package servertest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"mlxcel/runtime"
)

// speak gives an answer out.
func (m *Model) speak(ctx context.Context, r runtime.Request, yield func(runtime.Piece, error) bool) {
	prompt := m.Prompt(r)
	a := Answer{Text: lastMessage(prompt)}
	if m.Script != nil {
		a = m.Script(prompt, r)
	}
	summary := &runtime.Summary{Finish: runtime.FinishStop, PromptTokens: len(r.Tokens), Prompt: 20 * time.Millisecond, CachedTokens: m.cached(prompt, len(r.Tokens))}
	var text text
	text.stops = r.Stop
	end := func(finish runtime.Finish, err error) {
		summary.Finish, summary.Decode = finish, time.Duration(summary.Tokens)*time.Millisecond
		yield(runtime.Piece{Token: -1, Text: text.flush(), Summary: summary}, err)
	}
	ids, _ := m.tokenizer.Encode(a.Text, false)
	decoder := m.tokenizer.NewDecoder(true)
	sleep := a.Prefill
	for i := 0; ; i++ {
		select {
		case <-time.After(sleep + a.PerToken):
		case <-ctx.Done():
			end(runtime.FinishCancelled, context.Cause(ctx))
			return
		case <-m.broken:
			end(runtime.FinishError, m.err)
			return
		}
		sleep = 0
		m.steps.Add(1)
		if a.Panic {
			panic("a bug of the model")
		}
		if i == len(ids) && a.Err != nil {
			end(runtime.FinishError, a.Err)
			return
		}
		id := m.eos
		if i < len(ids) || a.Endless {
			id = ids[i%len(ids)]
		}
		summary.Tokens++
		p := runtime.Piece{Token: id}
		m.addLogprobs(&p, r, i)
		stop := id == m.eos && !r.IgnoreEOS
		if !stop {
			spelled, _ := m.tokenizer.Token(id)
			more := decoder.Add(id)
			if slices.Contains(r.Visible, id) && more == "" {
				more = spelled
			}
			p.Text, stop = text.add(more)
		}
		if !yield(p, nil) {
			return
		}
		switch {
		case stop:
			end(runtime.FinishStop, nil)
			return
		case summary.Tokens == r.MaxTokens, len(r.Tokens)+summary.Tokens == m.Context:
			text.held += decoder.Flush()
			end(runtime.FinishLength, nil)
			return
		}
	}
}

func (m *Model) cached(prompt string, tokens int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[prompt] {
		return tokens - 1
	}
	m.seen[prompt] = true
	return 0
}

func (m *Model) addLogprobs(p *runtime.Piece, r runtime.Request, i int) {
	if !r.Logprobs {
		return
	}
	p.Logprob = -0.5 * float64(i+1)
	for n := range r.TopLogprobs {
		p.Top = append(p.Top, runtime.TokenLogprob{Token: (p.Token + int32(n)) % 256, Logprob: p.Logprob - float64(n)})
	}
}

// text holds text back that may be the beginning of a stop text.
type text struct {
	stops []string
	held  string
}

func (t *text) add(more string) (out string, stop bool) {
	t.held += more
	keep := 0
	for _, s := range t.stops {
		if i := strings.Index(t.held, s); i >= 0 {
			out, t.held = t.held[:i], ""
			return out, true
		}
		for n := 1; n < len(s) && n <= len(t.held); n++ {
			if strings.HasSuffix(t.held, s[:n]) {
				keep = max(keep, n)
			}
		}
	}
	out, t.held = t.held[:len(t.held)-keep], t.held[len(t.held)-keep:]
	return out, false
}

func (t *text) flush() string {
	held := t.held
	t.held = ""
	return held
}

// tokenizerJSON describes a tokenizer whose tokens are bytes, and special ones behind them.
func tokenizerJSON() []byte {
	vocab := map[string]int{}
	next := rune(256)
	for b := range 256 {
		c := rune(b)
		// Bytes that are no visible character are spelled as one that is, in order from U+0100 on.
		if b <= ' ' || b > '~' && b < 0xa1 || b == 0xad {
			c = next
			next++
		}
		vocab[string(c)] = b
	}
	type added struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	}
	list := []added{
		{256, "<|im_start|>", true}, {257, end, true}, {258, "<think>", false}, {259, "</think>", false}, {260, "<tool_call>", false},
		{261, "</tool_call>", false}, {262, "[TOOL_CALLS]", true}, {263, "[ARGS]", true}, {264, "<|python_tag|>", true},
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	text, _ := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": list, "normalizer": nil, "pre_tokenizer": level, "post_processor": nil, "decoder": level,
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	return text
}
