package chat_test

import (
	"fmt"

	"mlxcel/runtime/chat"
)

func ExampleTemplate_Render() {
	source := "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}" +
		"{% if add_generation_prompt %}<assistant>{% endif %}"
	t, err := chat.New(source, map[string]string{"bos_token": "<s>"})
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt, err := t.Render([]chat.Message{
		{Role: chat.System, Content: "Be brief."},
		{Role: chat.User, Content: "Hi!"},
	}, chat.Options{AddGenerationPrompt: true})
	fmt.Println(prompt, err)
	// Output:
	// <s><system>Be brief.
	// <user>Hi!
	// <assistant> <nil>
}

func ExampleSplitter() {
	s := chat.NewSplitter(chat.ThinkMarkers, "")
	for _, piece := range []string{"<th", "ink>\nEasy", ".\n</thi", "nk>\n\nFour", "."} {
		reasoning, content := s.Push(piece)
		fmt.Printf("%q %q\n", reasoning, content)
	}
	reasoning, content := s.Flush()
	fmt.Printf("%q %q\n", reasoning, content)
	// Output:
	// "" ""
	// "Easy" ""
	// "." ""
	// "" "Four"
	// "" "."
	// "" ""
}
