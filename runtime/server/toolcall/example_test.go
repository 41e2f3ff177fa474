package toolcall_test

import (
	"fmt"

	"mlxcel/runtime/server/toolcall"
)

func ExampleParser() {
	p := toolcall.NewParser(toolcall.Hermes)
	items := p.Push("Let me see. <tool_call>{\"name\": \"weather\", \"argu")
	items = append(items, p.Push("ments\": {\"city\": \"Paris\"}}</tool_call>")...)
	items = append(items, p.Flush()...)
	for _, i := range items {
		if i.Call != nil {
			fmt.Println("call:", i.Call.Name, i.Call.Arguments)
		} else {
			fmt.Println("text:", i.Text)
		}
	}
	// Output:
	// text: Let me see.
	// call: weather {"city": "Paris"}
}
