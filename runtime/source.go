package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"mlxcel/runtime/chat"
	"mlxcel/runtime/hub"
	"mlxcel/runtime/models"
	"mlxcel/runtime/tokenizer"
	"mlxcel/runtime/weights"
)

// source is a model on disk, ready to be loaded.
type source struct {
	path       string // as errors show it
	checkpoint *weights.Checkpoint
	model      *models.Model
	tokenizer  *tokenizer.Tokenizer // nil if the checkpoint has none
	chat       chatTemplates
	eos        []int32 // tokens that end an answer
}

// openSource reads everything of a model but its weights.
func openSource(path string) (*source, error) {
	s, err := openModel(path)
	if err != nil {
		return nil, err
	}
	return s, s.readTokenizer()
}

// openModel reads what the model is, without its tokenizer.
func openModel(path string) (*source, error) {
	path = filepath.FromSlash(path)
	checkpoint, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	if name, ok := hub.SnapshotName(checkpoint.Path); ok {
		checkpoint.Name = name // the folder's own name is that of a commit
	}
	s := &source{path: path, checkpoint: checkpoint}
	if s.model, err = models.Open(checkpoint.Config, checkpoint); err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	return s, nil
}

// readTokenizer reads the tokenizer, the special tokens and the chat template. A model without a tokenizer takes and
// gives token ids only.
func (s *source) readTokenizer() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("model %s: %w", s.path, err)
		}
	}()
	c := s.checkpoint
	s.eos = s.model.Config.EOS
	if c.GenerationConfig != nil {
		var g struct {
			EOS models.TokenIDs `json:"eos_token_id"`
		}
		if err := json.Unmarshal(c.GenerationConfig, &g); err != nil {
			return fmt.Errorf("generation_config.json: %w", err)
		}
		if len(g.EOS) > 0 {
			s.eos = g.EOS
		}
	}
	switch {
	case c.GGUF != nil && len(c.GGUF.Vocab.Tokens) > 0:
		return s.readVocabulary()
	case c.TokenizerJSON != nil:
		return s.readTokenizerFiles()
	}
	return nil
}

// readTokenizerFiles reads what an MLX folder has.
func (s *source) readTokenizerFiles() error {
	c := s.checkpoint
	var err error
	if s.tokenizer, err = tokenizer.Parse(c.TokenizerJSON); err != nil {
		return err
	}
	s.chat.file = c.ChatTemplate
	if c.TokenizerConfig == nil {
		return nil
	}
	if s.chat.special, err = chat.SpecialTokens(c.TokenizerConfig); err != nil {
		return err
	}
	var f struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(c.TokenizerConfig, &f); err != nil {
		return fmt.Errorf("tokenizer_config.json: %w", err)
	}
	s.chat.field = f.ChatTemplate
	if id, ok := s.tokenizer.TokenID(s.chat.special["eos_token"]); ok && len(s.eos) == 0 {
		s.eos = []int32{id}
	}
	return nil
}

// readVocabulary makes the tokenizer of a GGUF file.
func (s *source) readVocabulary() error {
	v := s.checkpoint.GGUF.Vocab
	var err error
	s.tokenizer, err = tokenizer.FromGGUF(tokenizer.GGUFVocab{
		Model: v.Model, Pre: v.Pre, Tokens: v.Tokens, Scores: v.Scores, Types: v.TokenTypes, Merges: v.Merges,
		BOS: int32(v.BOS), EOS: int32(v.EOS), UNK: int32(v.UNK),
		AddBOS: v.AddBOS, AddEOS: v.AddEOS, AddSpacePrefix: v.AddSpacePrefix,
	})
	if err != nil {
		return err
	}
	s.chat.file, s.chat.special = s.checkpoint.ChatTemplate, map[string]string{}
	for name, id := range map[string]int{"bos_token": v.BOS, "eos_token": v.EOS, "pad_token": v.PAD, "unk_token": v.UNK} {
		if text, ok := s.tokenizer.Token(int32(id)); ok {
			s.chat.special[name] = text
		}
	}
	for _, id := range []int{v.EOS, v.EOT, v.EOM} {
		if id >= 0 && !slices.Contains(s.eos, int32(id)) {
			s.eos = append(s.eos, int32(id))
		}
	}
	return nil
}

// chatTemplates are the chat templates of a model: one, or one for conversations with tools and one for the others.
// They are compiled when they are first used, so that a broken one stands in the way of chats only.
type chatTemplates struct {
	field   json.RawMessage // of tokenizer_config.json
	file    string          // chat_template.jinja
	special map[string]string

	mu       sync.Mutex
	compiled [2]*chat.Template // without and with tools
}

func (c *chatTemplates) get(tools bool) (*chat.Template, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	if tools {
		i = 1
	}
	if c.compiled[i] == nil {
		text, err := c.source(tools)
		if err != nil {
			return nil, err
		}
		if c.compiled[i], err = chat.New(text, c.special); err != nil {
			return nil, fmt.Errorf("the model's own %w; plain text works all the same (--no-chat-template)", err)
		}
	}
	return c.compiled[i], nil
}

// source is the text of the template, or chat.ErrNoTemplate.
func (c *chatTemplates) source(tools bool) (string, error) {
	return chat.SelectTemplate(c.field, c.file, tools)
}

// exists reports whether there is a template, broken or not.
func (c *chatTemplates) exists() bool {
	_, err := c.get(false)
	return !errors.Is(err, chat.ErrNoTemplate)
}
