package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Parse reads the text of a tokenizer.json. Errors name the section that is
// wrong or not supported; callers should add the name of the file.
func Parse(tokenizerJSON []byte) (*Tokenizer, error) {
	if !utf8.Valid(tokenizerJSON) {
		return nil, errors.New("a tokenizer.json must be UTF-8 text, and this is not")
	}
	f, err := readFile(string(tokenizerJSON))
	if err != nil {
		return nil, fmt.Errorf("reading tokenizer.json: %w", err)
	}
	t, err := f.build()
	if err != nil {
		return nil, fmt.Errorf("reading tokenizer.json: %w", err)
	}
	return t, nil
}

// file is a tokenizer.json cut into its sections.
type file struct {
	sections map[string]json.RawMessage
	model    *modelFile
}

func readFile(text string) (*file, error) {
	f := &file{sections: map[string]json.RawMessage{}}
	s := &scanner{src: text}
	err := s.object(func(key string) error {
		var err error
		if key == "model" {
			f.model, err = readModel(s)
			return err
		}
		value, err := s.skip()
		f.sections[key] = json.RawMessage(value)
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.peek() != 0 || s.pos != len(text) {
		return nil, s.errorf("there is text after the end")
	}
	if f.model == nil {
		return nil, errors.New("it has no \"model\"")
	}
	return f, nil
}

func (f *file) build() (*Tokenizer, error) {
	t := &Tokenizer{cache: newWordCache()}
	var err error
	if t.normalize, err = parseNormalizers(f.sections["normalizer"]); err != nil {
		return nil, err
	}
	if t.pre, err = parsePreTokenizers(f.sections["pre_tokenizer"]); err != nil {
		return nil, err
	}
	if t.post, err = parsePostProcessor(f.sections["post_processor"]); err != nil {
		return nil, err
	}
	if t.decoder, err = parseDecoder(f.sections["decoder"]); err != nil {
		return nil, err
	}
	t.model, t.vocab, err = f.model.build(t.pre.byteLevelLast() != nil)
	if err != nil {
		return nil, err
	}
	t.shareBytes()
	list, err := parseAddedTokens(f.sections["added_tokens"])
	if err != nil {
		return nil, err
	}
	if t.added, err = newAddedTokens(list, t.vocab, t.normalize); err != nil {
		return nil, err
	}
	for _, id := range t.post.around(nil) {
		if _, ok := t.vocab.token(id); !ok {
			return nil, fmt.Errorf("post_processor: it adds the id %d, which no token has", id)
		}
	}
	return t, nil
}

// byteLevelLast returns the last pre-tokenizer if it is ByteLevel.
func (list preTokenizers) byteLevelLast() *byteLevel {
	if len(list) == 0 {
		return nil
	}
	b, _ := list[len(list)-1].(*byteLevel)
	return b
}

// shareBytes saves the detour through the byte-level alphabet if the model
// can take bytes.
func (t *Tokenizer) shareBytes() {
	if b, ok := t.model.(*bpe); ok && b.rawBytes {
		t.pre.byteLevelLast().keepBytes = true
	}
}
