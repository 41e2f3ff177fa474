package server

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
