package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// SelectTemplate returns the source of the chat template that a model's files
// carry, to be given to [New]: the text of chat_template.jinja if there is any,
// else what the field chat_template of tokenizer_config.json holds. That is a
// string or a list of named templates, of which "tool_use" is for conversations
// with tools and "default" for the rest. Without a template the error is
// [ErrNoTemplate].
func SelectTemplate(field json.RawMessage, file string, tools bool) (string, error) {
	if strings.TrimSpace(file) != "" {
		return file, nil
	}
	field = bytes.TrimSpace(field)
	if len(field) == 0 || string(field) == "null" {
		return "", ErrNoTemplate
	}
	if field[0] == '"' {
		var source string
		if err := json.Unmarshal(field, &source); err != nil {
			return "", fmt.Errorf("tokenizer_config.json: chat_template: %w", err)
		}
		if strings.TrimSpace(source) == "" {
			return "", ErrNoTemplate
		}
		return source, nil
	}
	return selectNamed(field, tools)
}

func selectNamed(field json.RawMessage, tools bool) (string, error) {
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(field, &named); err != nil {
		return "", fmt.Errorf("tokenizer_config.json: chat_template is neither a string nor a list of {name, template}: %w", err)
	}
	want := []string{"default"}
	if tools {
		want = []string{"tool_use", "default"}
	}
	names := make([]string, len(named))
	for i, n := range named {
		names[i] = n.Name
	}
	for _, name := range want {
		if i := slices.Index(names, name); i >= 0 {
			return named[i].Template, nil
		}
	}
	switch len(named) {
	case 0:
		return "", ErrNoTemplate
	case 1:
		return named[0].Template, nil
	}
	return "", fmt.Errorf("tokenizer_config.json: chat_template has no template with the name \"default\", only %s", strings.Join(names, ", "))
}

// SpecialTokens returns the special tokens of a tokenizer_config.json (or
// special_tokens_map.json) under the names that templates have for them. A
// token there is a string or an object with the string as its content.
func SpecialTokens(config []byte) (map[string]string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	special := map[string]string{}
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		var token *struct{ Content string }
		var text *string
		switch {
		case len(fields[name]) == 0:
		case json.Unmarshal(fields[name], &text) == nil:
			if text != nil {
				special[name] = *text
			}
		case json.Unmarshal(fields[name], &token) == nil:
			special[name] = token.Content
		default:
			return nil, fmt.Errorf("tokenizer_config.json: %s is neither a string nor an object with its content", name)
		}
	}
	return special, nil
}
