package jinja_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/chat/jinja"
	"mlxcel/tests/testenv"
)

var update = flag.Bool("update", false, "write testdata/golden.json from what Python's Jinja2 says")

// now is the time that the tests' templates are told.
var now = time.Date(2026, 3, 5, 15, 4, 9, 123456000, time.UTC)

// rendering is what became of one template.
type rendering struct {
	Text   *string `json:"text,omitempty"`
	Error  string  `json:"error,omitempty"`
	Raised bool    `json:"raised,omitempty"`
}

func (a rendering) String() string {
	if a.Text != nil {
		return "text: " + *a.Text
	}
	return "error: " + a.Error
}

func render(source string, vars json.RawMessage) rendering {
	t, err := jinja.Compile(source)
	if err != nil {
		return rendering{Error: err.Error()}
	}
	parsed, err := jinja.ParseJSON(vars)
	if err != nil {
		return rendering{Error: err.Error()}
	}
	values := map[string]any{}
	for _, k := range parsed.(*jinja.Dict).Keys() {
		values[k], _ = parsed.(*jinja.Dict).Get(k)
	}
	text, err := t.RenderContext(context.Background(), values, jinja.Options{Now: now})
	if err != nil {
		_, raised := err.(*jinja.RaisedError)
		return rendering{Error: err.Error(), Raised: raised}
	}
	return rendering{Text: &text}
}

// agree tells whether two renderings are the same: equal text, or both
// refused, with the same words where the template chose them.
func agree(a, b rendering) bool {
	if a.Text != nil || b.Text != nil {
		return a.Text != nil && b.Text != nil && *a.Text == *b.Text
	}
	return a.Raised == b.Raised && (!a.Raised || a.Error == b.Error)
}

// constructs are the templates of testdata: the lines of constructs.txt and
// the files in templates.
func constructs(t testing.TB) (sources []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/constructs.txt")
	require.NoError(t, err)
	newlines := strings.NewReplacer("¶", "\n", "⇥", "\t", "␍", "\r")
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line != "" && !strings.HasPrefix(line, "# ") {
			sources = append(sources, newlines.Replace(line))
		}
	}
	files, err := filepath.Glob("testdata/templates/*.jinja")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		sources = append(sources, string(data))
	}
	return sources
}

func constructVars(t testing.TB) json.RawMessage {
	t.Helper()
	data, err := os.ReadFile("testdata/vars.json")
	require.NoError(t, err)
	return data
}

// oracleCase is a template with its own variables, or with the job's if Vars
// is empty.
type oracleCase struct {
	Template string          `json:"template"`
	Vars     json.RawMessage `json:"vars,omitempty"`
}

// oracle renders with Python's Jinja2.
func oracle(t testing.TB, vars json.RawMessage, cases []oracleCase) []rendering {
	t.Helper()
	job, err := json.Marshal(map[string]any{"now": now.Format("2006-01-02T15:04:05.000000"), "vars": vars, "cases": cases})
	require.NoError(t, err)
	cmd := exec.Command(testenv.Python(t), "testdata/oracle.py")
	cmd.Stdin = bytes.NewReader(job)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var results []rendering
	require.NoError(t, json.Unmarshal(out, &results))
	require.Len(t, results, len(cases))
	return results
}

// TestConstructs compares with what Jinja2 said when the goldens were made, so
// it needs no Python.
func TestConstructs(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err, "make it with: go test ./runtime/chat/jinja -run TestOracle -update")
	var goldens map[string]rendering
	require.NoError(t, json.Unmarshal(data, &goldens))
	sources, vars := constructs(t), constructVars(t)
	require.Greater(t, len(sources), 100)
	for _, source := range sources {
		want, ok := goldens[source]
		require.True(t, ok, "no golden for %q: run -run TestOracle -update", source)
		got := render(source, vars)
		if !agree(want, got) {
			t.Errorf("template %s\n jinja2 %v\n    got %v", source, want, got)
		}
	}
}

// TestOracle checks that the goldens are what Jinja2 says today.
func TestOracle(t *testing.T) {
	sources := constructs(t)
	cases := make([]oracleCase, len(sources))
	for i, s := range sources {
		cases[i].Template = s
	}
	results := oracle(t, constructVars(t), cases)
	today := map[string]rendering{}
	for i, s := range sources {
		today[s] = results[i]
	}
	if *update {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		require.NoError(t, e.Encode(today))
		require.NoError(t, os.WriteFile("testdata/golden.json", b.Bytes(), 0o644))
		return
	}
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var goldens map[string]rendering
	require.NoError(t, json.Unmarshal(data, &goldens))
	for s, want := range today {
		if have := goldens[s]; !agree(want, have) {
			t.Errorf("golden for %s is out of date\n jinja2 %v\n golden %v", s, want, have)
		}
	}
}
