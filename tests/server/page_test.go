package server

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server"
	"mlxcel/runtime/server/servertest"
)

// fakeServer answers with a fake model.
func fakeServer(t *testing.T, o server.Options) (url string, m *servertest.Model) {
	m = servertest.New()
	m.Script = func(prompt string, _ runtime.Request) servertest.Answer {
		switch {
		case strings.Contains(prompt, "long"):
			return servertest.Answer{Text: "word ", Endless: true, PerToken: time.Millisecond}
		case strings.Contains(prompt, "think"):
			return servertest.Answer{Text: "<think>Let me see.</think>Yes."}
		case strings.Contains(prompt, "Tools:"):
			return servertest.Answer{Text: "I look.<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Paris\"}}</tool_call>"}
		}
		return servertest.Answer{Text: "Héllo <b>世界</b>", PerToken: time.Millisecond}
	}
	o.Page, o.Metrics = true, true
	s := server.New(o)
	require.NoError(t, s.Ready(m))
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL, m
}

// The page chats, stops and regenerates with the keyboard alone, and needs nothing but the server.
func TestPage(t *testing.T) {
	url, m := fakeServer(t, server.Options{})
	b := open(t, url+"/")
	b.await(`document.getElementById("model")?.textContent === "fake-1B"`)
	b.await(`document.activeElement.id === "text"`)

	// A line break, then an answer, which is text and never HTML.
	b.typed("hello")
	b.press("Enter", 8)
	b.typed("there")
	b.press("Enter", 0)
	b.await(`document.querySelector("article.assistant .text")?.textContent === "Héllo <b>世界</b>"`)
	require.Equal(t, "hello\nthere", b.text("article.user .text"))
	b.await(`/^\d+ tokens, [\d.]+ tok\/s$/.test(document.getElementById("status").textContent)`)
	b.await(`document.activeElement.id === "text" && document.getElementById("log").getAttribute("aria-busy") === "false"`)

	// Stop, by Escape. The place is free at once.
	b.typed("a long one")
	b.press("Enter", 0)
	b.await(`document.querySelectorAll("article.assistant .text")[1]?.textContent.length > 20`)
	b.await(`document.getElementById("log").getAttribute("aria-busy") === "true" && document.getElementById("send").disabled`)
	b.press("Escape", 0)
	b.await(`document.getElementById("status").textContent.endsWith("stopped")`)
	require.Eventually(t, func() bool { return m.Active() == 0 }, 5*time.Second, 5*time.Millisecond)

	// Regenerate, from the keyboard: Tab leads there. The last answer is made anew from what came before it.
	before := len(m.Requests())
	b.press("Tab", 0) // Send
	b.press("Tab", 0) // Regenerate: Stop is disabled
	b.await(`document.activeElement.id === "again"`)
	b.press("Enter", 0)
	require.Eventually(t, func() bool { return len(m.Requests()) == before+1 }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, m.Prompt(m.Requests()[before-1]), m.Prompt(m.Last()))
	b.await(`document.querySelectorAll("article").length === 4 && !document.getElementById("stop").disabled`)
	var clicked bool
	b.eval(`(document.getElementById("stop").click(), true)`, &clicked)
	b.await(`document.getElementById("stop").disabled`)

	// Reasoning is folded away.
	b.eval(`(document.getElementById("clear").click(), true)`, &clicked)
	b.await(`document.querySelectorAll("article").length === 0`)
	b.typed("think")
	b.press("Enter", 0)
	b.await(`document.querySelector("article.assistant .text")?.textContent === "Yes."`)
	require.Contains(t, b.text("article.assistant details"), "Let me see.")
	b.await(`!document.querySelector("article.assistant details").open && !document.querySelector("article.assistant details").hidden`)

	require.Empty(t, b.console(), "no errors, nothing that could not be loaded")
}

// Assistive technology finds a role and a name for everything that can be used.
func TestPageForScreenReaders(t *testing.T) {
	url, _ := fakeServer(t, server.Options{})
	b := open(t, url+"/")
	b.await(`document.getElementById("model")?.textContent === "fake-1B"`)
	var done bool
	b.eval(`(document.querySelector("footer details").open = true)`, &done)
	var tree struct {
		Nodes []struct {
			Ignored bool
			Role    struct{ Value string }
			Name    struct{ Value string }
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	found := map[string][]string{}
	for _, n := range tree.Nodes {
		if !n.Ignored {
			found[n.Role.Value] = append(found[n.Role.Value], n.Name.Value)
		}
	}
	require.Equal(t, []string{"Conversation"}, found["log"])
	require.Len(t, found["status"], 1)
	require.Len(t, found["main"], 0, "the log takes the place of main")
	require.Subset(t, found["button"], []string{"New chat", "Send", "Stop", "Regenerate"})
	require.Subset(t, found["textbox"], []string{"Message", "System message", "API key, if the server wants one"})
	require.Subset(t, found["spinbutton"], []string{"Temperature (0 to 2; empty: the server's)"})
	for _, role := range []string{"button", "textbox", "spinbutton"} {
		require.NotContains(t, found[role], "", "a %s without a name", role)
	}
	var lang, title string
	b.eval("document.documentElement.lang", &lang)
	b.eval("document.title", &title)
	require.Equal(t, "en", lang)
	require.NotEmpty(t, title)
}

// Where a key is wanted, the page asks for it; errors are shown in words.
func TestPageWithKey(t *testing.T) {
	url, _ := fakeServer(t, server.Options{Keys: []string{"secret"}})
	b := open(t, url+"/")
	b.await(`document.getElementById("model")?.textContent.includes("API key") && document.querySelector("footer details").open`)
	b.typed("hello")
	b.press("Enter", 0)
	b.await(`document.getElementById("status").textContent.includes("the API key is missing or wrong")`)
	var done bool
	b.eval(`(document.getElementById("key").focus(), true)`, &done)
	b.typed("secret")
	b.press("Tab", 0)
	b.await(`document.getElementById("model").textContent === "fake-1B"`)
	b.eval(`(document.getElementById("again").click(), true)`, &done)
	b.await(`document.querySelector("article.assistant .text")?.textContent === "Héllo <b>世界</b>"`)
}
