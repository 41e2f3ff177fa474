package cli

import (
	"fmt"
	"slices"
	"strings"
)

// Choice is a flag whose value is one of a few words.
type Choice struct {
	value   *string
	allowed []string
}

// NewChoice makes a flag that is the first of the words unless set.
func NewChoice(value *string, allowed ...string) *Choice {
	*value = allowed[0]
	return &Choice{value, allowed}
}

// Set takes a word.
func (c *Choice) Set(word string) error {
	if !slices.Contains(c.allowed, word) {
		return fmt.Errorf("want %s", strings.Join(c.allowed, ", "))
	}
	*c.value = word
	return nil
}

// String returns the word.
func (c *Choice) String() string { return *c.value }

// Type names the value in the help.
func (c *Choice) Type() string { return strings.Join(c.allowed, "|") }
