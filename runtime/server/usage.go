package server

import "mlxcel/runtime"

// usage is what an answer took, in OpenAI's form.
type usage struct {
	PromptTokens      int               `json:"prompt_tokens"`
	CompletionTokens  int               `json:"completion_tokens"`
	TotalTokens       int               `json:"total_tokens"`
	PromptDetails     promptDetails     `json:"prompt_tokens_details"`
	CompletionDetails completionDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

type completionDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// add adds another choice of the same prompt. The prompt counts once; how much of it was cached is what the first choice
// found, since the others find what that left.
func (u *usage) add(e *ending, choice int) {
	s := e.summary
	if choice == 0 {
		u.PromptDetails.CachedTokens = s.CachedTokens
	}
	u.PromptTokens = max(u.PromptTokens, s.PromptTokens)
	u.CompletionTokens += s.Tokens
	u.CompletionDetails.ReasoningTokens += e.reasoning
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}

// note keeps for the log what a request took.
func (x *exchange) note(e *ending) {
	x.answers++
	s := e.summary
	x.usage.PromptTokens += s.PromptTokens
	x.usage.PromptDetails.CachedTokens += s.CachedTokens
	x.usage.CompletionTokens += s.Tokens
	if x.first == 0 && s.Tokens > 0 {
		x.first = s.Wait + s.Prompt
	}
}

// tokenLogprob is a token with the logarithm of its probability, in the form of the chat API.
type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// chosenLogprob is the token that was chosen, with the likeliest ones.
type chosenLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

// logprobList is the "logprobs" of a choice.
type logprobList struct {
	Content []chosenLogprob `json:"content"`
	Refusal any             `json:"refusal"` // always null
}

// logprobs puts tokens into the form of the chat API; nil if there are none.
func (l *loaded) logprobs(pieces []runtime.Piece) *logprobList {
	if len(pieces) == 0 {
		return nil
	}
	list := &logprobList{}
	for _, p := range pieces {
		t := chosenLogprob{l.tokenLogprob(p.Token, p.Logprob), []tokenLogprob{}}
		for _, other := range p.Top {
			t.Top = append(t.Top, l.tokenLogprob(other.Token, other.Logprob))
		}
		list.Content = append(list.Content, t)
	}
	return list
}

// lowestLogprob stands for the logarithm of 0, which JSON cannot say.
const lowestLogprob = -9999

func (l *loaded) tokenLogprob(id int32, logprob float64) tokenLogprob {
	t := tokenLogprob{Token: l.tokenText(id), Logprob: max(logprob, lowestLogprob)}
	if raw := l.tokenBytes(id); raw != nil {
		t.Bytes = make([]int, len(raw))
		for i, b := range raw {
			t.Bytes[i] = int(b)
		}
	}
	return t
}

// tokenText is the text of a token alone, with U+FFFD where it is only a part of a character.
func (l *loaded) tokenText(id int32) string { return l.Tokenizer().Decode([]int32{id}, false) }

// tokenBytes are the bytes of a token; nil where they are not known.
func (l *loaded) tokenBytes(id int32) []byte {
	if t, ok := any(l.Tokenizer()).(interface{ TokenBytes(int32) []byte }); ok {
		return t.TokenBytes(id)
	}
	text := l.tokenText(id)
	for _, c := range text {
		if c == '\uFFFD' {
			return nil
		}
	}
	return []byte(text)
}
