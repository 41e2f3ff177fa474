package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// modelFile is the "model" section of a tokenizer.json: its small fields by
// JSON, its lists by the scanner.
type modelFile struct {
	Type         string   `json:"type"`
	UnkToken     *string  `json:"unk_token"`
	UnkID        *int     `json:"unk_id"` // Unigram
	FuseUnk      bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
	Dropout      *float64 `json:"dropout"`
	Prefix       *string  `json:"continuing_subword_prefix"`
	Suffix       *string  `json:"end_of_word_suffix"`
	MaxChars     *int     `json:"max_input_chars_per_word"` // WordPiece

	texts  []string
	ids    []int32
	scores []float64   // only of a vocabulary written as a list
	merges []mergeFile // by rank
}

type mergeFile struct{ left, right string }

// readModel reads the "model" section.
func readModel(s *scanner) (*modelFile, error) {
	m := &modelFile{}
	small := []byte{'{'}
	err := s.object(func(key string) error {
		switch key {
		case "vocab":
			return m.readVocab(s)
		case "merges":
			return m.readMerges(s)
		}
		value, err := s.skip()
		if err != nil {
			return err
		}
		name, err := json.Marshal(key)
		if err != nil {
			return err
		}
		if len(small) > 1 {
			small = append(small, ',')
		}
		small = append(append(append(small, name...), ':'), value...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := json.Unmarshal(append(small, '}'), m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if m.texts == nil {
		return nil, errors.New("model: it has no \"vocab\"")
	}
	return m, nil
}

func (m *modelFile) readVocab(s *scanner) error {
	if s.peek() == '[' {
		return m.readScoredVocab(s)
	}
	m.texts = make([]string, 0, s.left()/64)
	m.ids = make([]int32, 0, s.left()/64)
	return s.object(func(text string) error {
		id, err := s.int32()
		m.texts = append(m.texts, text)
		m.ids = append(m.ids, id)
		return err
	})
}

// readScoredVocab reads [["text", score], …], where the place is the id.
func (m *modelFile) readScoredVocab(s *scanner) error {
	m.texts = []string{}
	return s.array(func() error {
		if err := s.expect('['); err != nil {
			return err
		}
		text, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(','); err != nil {
			return err
		}
		score, err := s.float()
		if err != nil {
			return err
		}
		m.ids = append(m.ids, int32(len(m.texts)))
		m.texts = append(m.texts, text)
		m.scores = append(m.scores, score)
		return s.expect(']')
	})
}

// readMerges reads ["left right", …] or [["left", "right"], …].
func (m *modelFile) readMerges(s *scanner) error {
	m.merges = make([]mergeFile, 0, s.left()/32)
	return s.array(func() error {
		if s.peek() != '[' {
			text, err := s.str()
			if err != nil {
				return err
			}
			merge, err := splitMerge(text)
			m.merges = append(m.merges, merge)
			return err
		}
		var merge mergeFile
		n := 0
		err := s.array(func() error {
			text, err := s.str()
			switch n++; n {
			case 1:
				merge.left = text
			case 2:
				merge.right = text
			}
			return err
		})
		if err == nil && n != 2 {
			err = s.errorf("merge %d has %d parts instead of 2", len(m.merges), n)
		}
		m.merges = append(m.merges, merge)
		return err
	})
}
