package jinja_test

import (
	"fmt"

	"mlxcel/runtime/chat/jinja"
)

func Example() {
	t, err := jinja.Compile("{% for m in messages %}<{{ m.role }}> {{ m.content | trim }}\n{% endfor %}")
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := jinja.ParseJSON([]byte(`[{"role": "user", "content": " Hi! "}, {"role": "assistant", "content": "Hello."}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := t.Render(map[string]any{"messages": messages})
	fmt.Print(text, err)
	// Output:
	// <user> Hi!
	// <assistant> Hello.
	// <nil>
}
