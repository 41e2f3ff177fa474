package server

import "mlxcel/runtime"

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
