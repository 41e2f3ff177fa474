package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mlxcel/internal/held"
)

const indexName = "model.safetensors.index.json"

// maxJSON bounds the JSON files that are read into memory; the largest
// tokenizer.json files known have some 35 MB.
const maxJSON = 256 << 20

// openFolder reads an MLX model folder.
func openFolder(dir string) (*Checkpoint, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("the model folder %s cannot be read, check its permissions: %w", dir, err)
	}
	c := &Checkpoint{Path: dir, Name: filepath.Base(dir), Format: FormatMLX}

	files := []struct {
		name string
		to   *[]byte
	}{
		{"config.json", &c.Config},
		{"generation_config.json", &c.GenerationConfig},
		{"tokenizer.json", &c.TokenizerJSON},
		{"tokenizer_config.json", &c.TokenizerConfig},
	}
	for _, f := range files {
		b, err := readJSON(filepath.Join(dir, f.name))
		if err != nil {
			return nil, err
		}
		*f.to = b
	}
	if c.Config == nil {
		return nil, noConfig(dir)
	}

	var err error
	if c.ChatTemplate, err = chatTemplate(dir); err != nil {
		return nil, err
	}
	if c.Pooling, err = folderPooling(dir); err != nil {
		return nil, err
	}
	if c.Tensors, err = readShards(dir); err != nil {
		return nil, err
	}
	return c, nil
}

// noConfig says what is wrong with a folder that has no config.json.
func noConfig(dir string) error {
	if ggufs, _ := filepath.Glob(filepath.Join(escape(dir), "*.gguf")); len(ggufs) > 0 {
		return fmt.Errorf("%s has no config.json: give the GGUF file itself, %s", dir, ggufs[0])
	}
	return fmt.Errorf("%s has no config.json: give a folder that holds an MLX model, or download the model again", dir)
}

// readFile returns a file's contents, nil if there is no such file.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !info.Mode().IsRegular() { // a pipe would be waited for, a device has no end
		err = errors.New("it is not a regular file")
	}
	if err == nil && info.Size() > maxJSON {
		err = fmt.Errorf("its %d bytes are more than the %d that are sensible", info.Size(), maxJSON)
	}
	var b []byte
	if err == nil {
		b, err = held.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	return b, checkPointer(path, b)
}

// readJSON is readFile for a file that holds one JSON object.
func readJSON(path string) ([]byte, error) {
	b, err := readFile(path)
	if b == nil || err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(b, &object); err != nil || object == nil {
		return nil, notJSON(path, err)
	}
	return b, nil
}

// notJSON is the error for a file that should hold a JSON object. A nil err
// stands for the JSON value null.
func notJSON(path string, err error) error {
	if err == nil {
		return damaged(path, "it holds no JSON object")
	}
	return fmt.Errorf("%s is damaged: it holds no JSON object of the right form (%w): download it again", path, err)
}

// chatTemplate returns the folder's chat template, "" if it has no file for it.
func chatTemplate(dir string) (string, error) {
	b, err := readFile(filepath.Join(dir, "chat_template.jinja"))
	if b != nil || err != nil {
		return string(b), err
	}
	path := filepath.Join(dir, "chat_template.json")
	if b, err = readFile(path); b == nil || err != nil {
		return "", err
	}
	var file struct {
		Template string `json:"chat_template"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return "", notJSON(path, err)
	}
	return file.Template, nil
}

// readShards reads the headers of all weight files of a folder.
func readShards(dir string) (map[string]Tensor, error) {
	weightMap, err := readIndex(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	if weightMap == nil {
		files, err = globShards(dir)
	} else {
		files, err = indexShards(dir, weightMap)
	}
	if err != nil {
		return nil, err
	}

	all := map[string]Tensor{}
	for _, file := range files {
		tensors, err := readSafetensors(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		for name, t := range tensors {
			if other, twice := all[name]; twice {
				return nil, fmt.Errorf("tensor %q is in %s and in %s: remove the file that does not belong to the model", name, other.Parts[0].Path, t.Parts[0].Path)
			}
			all[name] = t
		}
	}
	for name, file := range weightMap {
		if t, ok := all[name]; !ok || filepath.Base(t.Parts[0].Path) != filepath.Base(file) {
			return nil, fmt.Errorf("tensor %q is not in %s, where %s says it is: download the model again", name, filepath.Join(dir, file), indexName)
		}
	}
	return all, nil
}

// readIndex returns the file of each tensor that the index names, nil if there
// is no index.
func readIndex(dir string) (map[string]string, error) {
	path := filepath.Join(dir, indexName)
	b, err := readFile(path)
	if b == nil || err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, notJSON(path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, damaged(path, "it names no tensors in \"weight_map\"")
	}
	return index.WeightMap, nil
}

// indexShards returns the files that an index names, sorted.
func indexShards(dir string, weightMap map[string]string) ([]string, error) {
	seen := map[string]bool{}
	for _, file := range weightMap {
		if seen[file] {
			continue
		}
		if !filepath.IsLocal(file) || filepath.Base(file) != file {
			return nil, damaged(filepath.Join(dir, indexName), "it names the file %q, which is not in the same folder", file)
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return nil, missingShard(dir, file, "named by "+indexName)
		}
		seen[file] = true
	}
	files := make([]string, 0, len(seen))
	for file := range seen {
		files = append(files, file)
	}
	slices.Sort(files)
	return files, nil
}

var shardName = regexp.MustCompile(`^(model.*-)(\d+)-of-(\d+)\.safetensors$`)

// globShards returns the weight files of a folder without an index, sorted. If
// their names count them, none may be missing.
func globShards(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(escape(dir), "model*.safetensors"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no model*.safetensors: download the model's weights", dir)
	}
	var files []string
	for _, p := range paths {
		files = append(files, filepath.Base(p))
	}
	for _, file := range files {
		m := shardName.FindStringSubmatch(file)
		if m == nil {
			continue
		}
		count, err := strconv.Atoi(m[3])
		if err != nil {
			continue
		}
		for i := 1; i <= count; i++ {
			want := fmt.Sprintf("%s%0*d-of-%s.safetensors", m[1], len(m[2]), i, m[3])
			if !slices.Contains(files, want) {
				return nil, missingShard(dir, want, "one of "+m[3])
			}
		}
	}
	return files, nil
}

func missingShard(dir, file, why string) error {
	return fmt.Errorf("%s, %s, is missing: download the rest of the model", filepath.Join(dir, file), why)
}

// escape quotes the characters that filepath.Glob takes as a pattern.
func escape(dir string) string {
	if filepath.Separator == '\\' { // Windows knows no escapes, nor * and ? in names
		return strings.ReplaceAll(dir, "[", "?")
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
