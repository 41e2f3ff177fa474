package toolcall

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// parse cuts text into pieces of n bytes, 0 for one piece.
func parse(f Format, text string, n int) []Item {
	p := NewParser(f)
	var items []Item
	add := func(more []Item) {
		for _, m := range more {
			if last := len(items) - 1; m.Call == nil && last >= 0 && items[last].Call == nil {
				items[last].Text += m.Text
			} else {
				items = append(items, m)
			}
		}
	}
	if n == 0 {
		n = max(len(text), 1)
	}
	for len(text) > n {
		add(p.Push(text[:n]))
		text = text[n:]
	}
	add(p.Push(text))
	add(p.Flush())
	return items
}

// show writes items in one line: text in quotes, calls as name and arguments.
func show(items []Item) string {
	var parts []string
	for _, i := range items {
		if i.Call != nil {
			parts = append(parts, i.Call.Name+i.Call.Arguments)
		} else {
			parts = append(parts, fmt.Sprintf("%q", i.Text))
		}
	}
	return strings.Join(parts, " ")
}

var cases = []struct {
	name   string
	format Format
	text   string
	want   string
}{
	{"no format", None, `<tool_call>{"name":"f"}</tool_call>`, `"<tool_call>{\"name\":\"f\"}</tool_call>"`},
	{"empty", Hermes, "", ""},
	{"text", Hermes, "Hello, world.\n", `"Hello, world.\n"`},
	{"a part of a marker", Hermes, "a <tool_cal", `"a <tool_cal"`},
	{"one call", Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", `f{"a": 1}`},
	{"text before", Hermes, "Let me see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n", `"Let me see." f{}`},
	{"text behind", Hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\nDone.", `f{} "\nDone."`},
	{"several", Hermes, "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":{\"s\":\"}\"}}\n</tool_call>", `f{} g{"s":"}"}`},
	{"marker within a string", Hermes, `<tool_call>{"name":"f","arguments":{"s":"</tool_call> \" <tool_call>"}}</tool_call>`, `f{"s":"</tool_call> \" <tool_call>"}`},
	{"no closing marker", Hermes, `<tool_call>{"name":"f","arguments":{}}`, `f{}`},
	{"cut off", Hermes, `<tool_call>{"name":"f","argum`, `"<tool_call>{\"name\":\"f\",\"argum"`},
	{"not JSON", Hermes, "<tool_call>{name: f}</tool_call>", `"<tool_call>{name: f}</tool_call>"`},
	{"no object", Hermes, "<tool_call> f() </tool_call>", `"<tool_call> f() </tool_call>"`},
	{"no name", Hermes, `<tool_call>{"arguments":{}}</tool_call>`, `"<tool_call>{\"arguments\":{}}</tool_call>"`},
	{"arguments no object", Hermes, `<tool_call>{"name":"f","arguments":[1]}</tool_call>`, `"<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>"`},
	{"arguments in a string", Hermes, `<tool_call>{"name":"f","arguments":"{\"a\":1}"}</tool_call>`, `f{"a":1}`},
	{"no arguments", Hermes, `<tool_call>{"name":"f"}</tool_call>`, `f{}`},
	{"a malformed one and a right one", Hermes, `<tool_call>{"x"}</tool_call> <tool_call>{"name":"f"}</tool_call>`, `"<tool_call>{\"x\"}</tool_call>" f{}`},
	{"characters of several bytes", Hermes, `é世<tool_call>{"name":"f","arguments":{"s":"é世👍"}}</tool_call>`, `"é世" f{"s":"é世👍"}`},
	{"white space only", Hermes, " \n ", `" \n "`},

	{"bare", Llama3, `{"name": "f", "parameters": {"a": 1}}`, `f{"a": 1}`},
	{"bare, with white space", Llama3, "\n {\"name\": \"f\", \"parameters\": {}} \n", `f{}`},
	{"bare, several", Llama3, `{"name":"f","parameters":{}}; {"name":"g","parameters":{}}`, `f{} g{}`},
	{"tagged", Llama3, `<|python_tag|>{"name":"f","parameters":{}}`, `f{}`},
	{"text before the tag", Llama3, `I look. <|python_tag|>{"name":"f","parameters":{}}`, `"I look." f{}`},
	{"JSON that is an answer", Llama3, `{"city": "Paris"}`, `"{\"city\": \"Paris\"}"`},
	{"JSON behind text", Llama3, `So: {"name":"f","parameters":{}}`, `"So: {\"name\":\"f\",\"parameters\":{}}"`},
	{"code behind the tag", Llama3, `<|python_tag|>print(1)`, `"<|python_tag|>print(1)"`},
	{"cut off, bare", Llama3, `{"name":"f"`, `"{\"name\":\"f\""`},

	{"list", Mistral, `[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]`, `f{"a": 1} g{}`},
	{"named", Mistral, `[TOOL_CALLS]f[ARGS]{"a": 1}`, `f{"a": 1}`},
	{"named, several", Mistral, `[TOOL_CALLS]f[ARGS]{"a":1}[TOOL_CALLS]g[ARGS]{}`, `f{"a":1} g{}`},
	{"named, with id", Mistral, `[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}`, `f{}`},
	{"named, without marker", Mistral, `[TOOL_CALLS]f{"a": 1}`, `f{"a": 1}`},
	{"text before the list", Mistral, `Well. [TOOL_CALLS][{"name":"f"}]`, `"Well." f{}`},
	{"empty list", Mistral, `[TOOL_CALLS][]`, `"[TOOL_CALLS][]"`},
	{"one of a list is malformed", Mistral, `[TOOL_CALLS][{"name":"f"},{}]`, `"[TOOL_CALLS][{\"name\":\"f\"},{}]"`},
	{"no name before the arguments", Mistral, `[TOOL_CALLS][ARGS]{}`, `"[TOOL_CALLS][ARGS]{}"`},
	{"text behind the marker", Mistral, `[TOOL_CALLS] as I said {}`, `"[TOOL_CALLS] as I said {}"`},
	{"a name without end", Mistral, `[TOOL_CALLS]` + strings.Repeat("x", 700), `"[TOOL_CALLS]` + strings.Repeat("x", 700) + `"`},
}

func TestParser(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{0, 1, 2, 3, 7} {
				require.Equal(t, c.want, show(parse(c.format, c.text, n)), "in pieces of %d bytes", n)
			}
		})
	}
}

// Text that is certain does not wait for the end.
func TestParserStreams(t *testing.T) {
	p := NewParser(Hermes)
	require.Equal(t, `"Hello"`, show(p.Push("Hello ")))
	require.Equal(t, `" you"`, show(p.Push("you")))
	require.Empty(t, p.Push("<tool_call>{\"name\":\"f\"}</tool_call"[:19]))
	require.Equal(t, `f{}`, show(p.Push("\"f\"}")))
}

func TestDetect(t *testing.T) {
	for template, want := range map[string]Format{
		"":                      Hermes,
		"{{ '<tool_call>' }}":   Hermes,
		"{{ '[TOOL_CALLS]' }}":  Mistral,
		"'<|python_tag|>' + ''": Llama3,
		`Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.`: Llama3,
	} {
		require.Equal(t, want, Detect(template), template)
	}
}

// However the text is cut, the result is the same, and no text is lost that is not part of a call.
func FuzzParser(f *testing.F) {
	for _, c := range cases {
		f.Add(int(c.format), c.text, 3)
	}
	f.Fuzz(func(t *testing.T, format int, text string, n int) {
		format, n = (format%4+4)%4, max(n, 1)
		whole := show(parse(Format(format), text, 0))
		require.Equal(t, whole, show(parse(Format(format), text, n)))
		if !strings.Contains(strings.ToLower(text), "name") && format != int(Mistral) && text != "" {
			require.Equal(t, fmt.Sprintf("%q", text), whole)
		}
	})
}
