package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	configName = "config.json"
	indexName  = "model.safetensors.index.json"

	maxIndex = 64 << 20 // bytes of JSON
	maxSmall = 1 << 30  // bytes of a file that holds no weights
)

// never lists the endings of files that hold programs for Python to run when they are read, as all pickles may.
var never = []string{".bin", ".ckpt", ".dill", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}

// small lists what a model needs beside its weights, and what says what it is.
var small = globs{
	"*.json", "*.jinja", "additional_chat_templates/*.jinja", "*.txt", "tokenizer.model", "*.tiktoken",
	"README.md", "LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*",
}

// globs are patterns for whole paths, in which * and ? also stand for a slash, as in the Hub's Python client.
type globs []string

func (g globs) match(name string) bool {
	for _, pattern := range g {
		if compileGlob(pattern).MatchString(name) {
			return true
		}
	}
	return false
}

// compileGlob makes a regular expression of *, ? and [a-z] or [!a-z]. A pattern that ends with a slash means all below.
func compileGlob(pattern string) *regexp.Regexp {
	if strings.HasSuffix(pattern, "/") {
		pattern += "*"
	}
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteByte('.')
		case '[':
			class, ok := globClass(pattern[i:])
			if !ok {
				b.WriteString(`\[`)
				continue
			}
			b.WriteString(class.expression)
			i += class.length - 1
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	b.WriteString(`\z`)
	compiled, err := regexp.Compile(b.String())
	if err != nil { // a class like [z-a], or bytes that are no UTF-8: the pattern means itself
		return regexp.MustCompile(`\A` + regexp.QuoteMeta(strings.ToValidUTF8(pattern, "?")) + `\z`)
	}
	return compiled
}

type class struct {
	expression string
	length     int // of the pattern
}

// globClass translates the class that a pattern begins with.
func globClass(pattern string) (class, bool) {
	inside := 1
	if strings.HasPrefix(pattern[inside:], "!") {
		inside++
	}
	if inside >= len(pattern) {
		return class{}, false
	}
	end := strings.IndexByte(pattern[inside+1:], ']') // a first ] is a member
	if end < 0 {
		return class{}, false
	}
	end += inside + 1
	members := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(pattern[inside:end])
	if inside == 2 {
		members = "^" + members
	}
	return class{"[" + members + "]", end + 1}, true
}

// selection chooses which files of a model to fetch.
type selection struct {
	include, exclude globs
	part             string // of the GGUF file's name
}

// allowed reports whether the exclusions, and caution, let a file pass.
func (s selection) allowed(name string) bool {
	return !slices.Contains(never, strings.ToLower(path.Ext(name))) && !s.exclude.match(name)
}

// first returns the files to fetch before the weights are known: all that are asked for by pattern, else the small ones.
func (s selection) first(all []file) ([]file, error) {
	patterns := s.include
	if len(patterns) == 0 {
		patterns = small
	}
	var chosen []file
	for _, f := range all {
		byDefault := len(s.include) == 0
		if !s.allowed(f.Path) || !patterns.match(f.Path) || byDefault && !atTop(f.Path) {
			continue
		}
		if byDefault && f.Size > maxSmall {
			return nil, fmt.Errorf("%q has %d bytes, more than such a file should have: leave it out with --exclude", printable(f.Path, 100), f.Size)
		}
		chosen = append(chosen, f)
	}
	if len(chosen) == 0 && len(s.include) > 0 {
		return nil, errors.New("no file of the model matches --include (and what --exclude leaves): `mlxcel info` lists the files")
	}
	return chosen, checkPaths(chosen)
}

// atTop reports whether a file lies where a model's files lie.
func atTop(name string) bool {
	return !strings.Contains(name, "/") || strings.HasPrefix(name, "additional_chat_templates/")
}

// weights returns the files with weights. The index is that of the safetensors files, nil if there is none.
func (s selection) weights(all []file, index []byte) ([]file, error) {
	if len(s.include) > 0 {
		return nil, nil // patterns say it all
	}
	var tensors, ggufs []file
	for _, f := range all {
		switch {
		case strings.Contains(f.Path, "/"):
		case strings.HasSuffix(f.Path, ".safetensors"):
			tensors = append(tensors, f)
		case strings.HasSuffix(strings.ToLower(f.Path), ".gguf"):
			ggufs = append(ggufs, f)
		}
	}
	var chosen []file
	var err error
	switch {
	case s.part == "" && index != nil:
		chosen, err = indexed(all, index)
	case s.part == "" && len(tensors) > 0:
		chosen = slices.DeleteFunc(tensors, func(f file) bool { return !strings.HasPrefix(f.Path, "model") })
		if len(chosen) == 0 {
			err = errors.New("the model has no model*.safetensors: it may be an adapter, which cannot be used by itself")
		}
	case len(ggufs) > 0:
		chosen, err = chooseGGUF(ggufs, s.part)
	case s.part != "":
		err = fmt.Errorf("the model has no GGUF file: leave out %q", ":"+s.part)
	default:
		err = errors.New("the model has no weights as safetensors or GGUF, the only forms that are used: look for a conversion in mlx-community")
	}
	if err != nil {
		return nil, err
	}
	chosen = slices.DeleteFunc(chosen, func(f file) bool { return !s.allowed(f.Path) })
	return chosen, checkPaths(chosen)
}

// indexed returns the files that an index names.
func indexed(all []file, index []byte) ([]file, error) {
	names, err := indexFiles(index)
	if err != nil {
		return nil, err
	}
	byName := map[string]file{}
	for _, f := range all {
		byName[f.Path] = f
	}
	var chosen []file
	for _, name := range names {
		f, ok := byName[name]
		if !ok || !strings.HasSuffix(name, ".safetensors") {
			return nil, fmt.Errorf("%s names %q, which is no safetensors file of the model: tell those who published it", indexName, printable(name, 100))
		}
		chosen = append(chosen, f)
	}
	return chosen, nil
}

// indexFiles lists the files that an index names, sorted.
func indexFiles(index []byte) ([]string, error) {
	var parsed struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(index, &parsed); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", indexName, err)
	}
	var names []string
	for _, name := range parsed.WeightMap {
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("%s names no files", indexName)
	}
	return names, nil
}

// chooseGGUF returns the only file whose name has the part, or that is that name.
func chooseGGUF(ggufs []file, part string) ([]file, error) {
	var names []string
	var found []file
	for _, f := range ggufs {
		names = append(names, printable(f.Path, 100))
		if strings.EqualFold(f.Path, part) {
			return []file{f}, nil
		}
		if strings.Contains(strings.ToLower(f.Path), strings.ToLower(part)) {
			found = append(found, f)
		}
	}
	if len(found) == 1 {
		return found, nil
	}
	what := "has several GGUF files"
	if part != "" {
		what = fmt.Sprintf("has %d GGUF files with %q in their name", len(found), part)
	}
	return nil, fmt.Errorf("the model %s: choose one by a part of its name, as in ORG/NAME:Q4_K_M; there are %s", what, strings.Join(names[:min(len(names), 12)], ", "))
}
