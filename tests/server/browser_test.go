package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chromium returns the browser's path. $MLXCEL_CHROMIUM names another one.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("MLXCEL_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	const reason = "there is no Chromium: install it (Debian, Ubuntu: `apt-get install chromium`), or name one in $MLXCEL_CHROMIUM"
	if os.Getenv("MLXCEL_TEST_STRICT") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

// browser is a headless Chromium with one page, driven by its DevTools protocol over a pair of pipes.
type browser struct {
	t       *testing.T
	in      *os.File
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	logged  []string // what the page wrote to its console, and errors of its scripts
}

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"` // of an event
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// open starts the browser with a page.
func open(t *testing.T, url string) *browser {
	path := chromium(t)
	toBrowser, in, err := os.Pipe()
	require.NoError(t, err)
	out, fromBrowser, err := os.Pipe()
	require.NoError(t, err)
	command := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
		// Nothing but the server can be reached, so that a page that needs more does not work.
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--user-data-dir="+filepath.Join(t.TempDir(), "profile"))
	command.ExtraFiles = []*os.File{toBrowser, fromBrowser} // its descriptors 3 and 4
	require.NoError(t, command.Start())
	toBrowser.Close()
	fromBrowser.Close()
	b := &browser{t: t, in: in, waiting: map[int]chan reply{}}
	t.Cleanup(func() {
		b.send("", "Browser.close", nil) // no answer is waited for
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = command.Process.Kill()
			<-ended
		}
		in.Close()
		out.Close()
	})
	go b.read(out)
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Runtime.enable", nil, nil)
	b.call("Log.enable", nil, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	return b
}

func (b *browser) read(out *os.File) {
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m reply
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch ch := b.waiting[m.ID]; {
		case m.ID != 0 && ch != nil:
			delete(b.waiting, m.ID)
			ch <- m
		case strings.Contains(string(m.Params), `"level":"verbose"`): // advice
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Runtime.consoleAPICalled" || m.Method == "Log.entryAdded":
			b.logged = append(b.logged, string(m.Params))
		}
		b.mu.Unlock()
	}
}

// send sends a command and returns where its answer comes.
func (b *browser) send(session, method string, params any) <-chan reply {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	ch := make(chan reply, 1)
	b.waiting[b.next] = ch
	m := map[string]any{"id": b.next, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	text, _ := json.Marshal(m)
	_, _ = b.in.Write(append(text, 0)) // a browser that is gone does not answer
	return ch
}

func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	select {
	case r := <-b.send(b.session, method, params):
		require.Nil(b.t, r.Error, "%s: %+v", method, r.Error)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(r.Result, result))
		}
	case <-time.After(30 * time.Second):
		require.Fail(b.t, "the browser does not answer", method)
	}
}

// eval evaluates an expression within the page into v.
func (b *browser) eval(expression string, v any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails any
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	require.Nil(b.t, r.ExceptionDetails, expression)
	require.NoError(b.t, json.Unmarshal(r.Result.Value, v), expression)
}

// text is the text of the element that a selector finds.
func (b *browser) text(selector string) string {
	b.t.Helper()
	var text string
	b.eval(fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector), &text)
	return text
}

// await waits until an expression is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var ok bool
		b.eval("Boolean("+expression+")", &ok)
		return ok
	}, 20*time.Second, 30*time.Millisecond, expression)
}

// typed types a text where the focus is.
func (b *browser) typed(text string) {
	b.t.Helper()
	b.call("Input.insertText", map[string]any{"text": text}, nil)
}

// press presses a key: "Enter", "Tab" or "Escape". Modifiers are 8 for Shift.
func (b *browser) press(key string, modifiers int) {
	b.t.Helper()
	code := map[string]int{"Enter": 13, "Tab": 9, "Escape": 27}[key]
	event := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
	if key == "Enter" {
		event["text"] = "\r"
	}
	b.call("Input.dispatchKeyEvent", event, nil)
	event["type"] = "keyUp"
	delete(event, "text")
	b.call("Input.dispatchKeyEvent", event, nil)
}

// console is what the page complained about.
func (b *browser) console() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.logged...)
}
