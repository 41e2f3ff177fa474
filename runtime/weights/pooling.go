package weights

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// Pooling is how an embedding model makes one vector of the hidden states of all tokens.
type Pooling string

// The kinds of pooling that a vector can be made with. A Checkpoint may name another one, such as "cls".
const (
	PoolingNone Pooling = ""     // no embedding model
	PoolingMean Pooling = "mean" // the mean of all tokens
	PoolingLast Pooling = "last" // the last token
)

// maxModules bounds modules.json; sentence-transformers writes three or four.
const maxModules = 64

// folderPooling reads the files that sentence-transformers keeps beside an embedding model: modules.json lists what
// follows the model, and the folder of a pooling module holds the kind. They are absent in other models.
func folderPooling(dir string) (Pooling, error) {
	file := filepath.Join(dir, "modules.json")
	b, err := readFile(file)
	if err != nil {
		return PoolingNone, err
	}
	folder := "1_Pooling" // what it is called if nothing else is said
	if b != nil {
		var modules []struct{ Type, Path string }
		if err := json.Unmarshal(b, &modules); err != nil || len(modules) > maxModules {
			return PoolingNone, notJSON(file, err)
		}
		folder = ""
		for _, m := range modules {
			switch kind := filepath.Ext(m.Type); kind { // sentence_transformers.models.Pooling
			case ".Transformer", ".Normalize":
			case ".Pooling":
				folder = m.Path
			default:
				return Pooling("module " + m.Type), nil // such as a Dense one
			}
		}
		if folder == "" {
			return PoolingNone, nil
		}
		if !filepath.IsLocal(folder) {
			return PoolingNone, damaged(file, "the path %q of the pooling module is not inside the folder", folder)
		}
	}
	file = filepath.Join(dir, folder, "config.json")
	if b, err = readJSON(file); b == nil || err != nil {
		return PoolingNone, err
	}
	return poolingMode(file, b)
}

// poolingMode reads the settings of a pooling module.
func poolingMode(file string, b []byte) (Pooling, error) {
	var c struct {
		Mode string `json:"pooling_mode"` // newer files have a word, older ones these:
		Mean bool   `json:"pooling_mode_mean_tokens"`
		Last bool   `json:"pooling_mode_lasttoken"`
		CLS  bool   `json:"pooling_mode_cls_token"`
		Max  bool   `json:"pooling_mode_max_tokens"`
		Root bool   `json:"pooling_mode_mean_sqrt_len_tokens"`
		Rank bool   `json:"pooling_mode_weightedmean_tokens"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return PoolingNone, notJSON(file, err)
	}
	modes := []Pooling{}
	for _, m := range []struct {
		set  bool
		name Pooling
	}{
		{c.Mean, PoolingMean}, {c.Last, PoolingLast}, {c.CLS, "cls"}, {c.Max, "max"}, {c.Root, "mean_sqrt_len"}, {c.Rank, "weightedmean"},
	} {
		if m.set {
			modes = append(modes, m.name)
		}
	}
	switch {
	case c.Mode == "lasttoken":
		return PoolingLast, nil
	case c.Mode != "":
		return Pooling(c.Mode), nil
	case len(modes) == 1:
		return modes[0], nil
	case len(modes) == 0:
		return PoolingNone, nil
	}
	return Pooling(fmt.Sprint(modes)), nil // they are put one behind the other
}

// ggufPooling is the pooling that the metadata of a GGUF file states.
func ggufPooling(meta map[string]any, architecture string) Pooling {
	kind, ok := meta[architecture+".pooling_type"].(uint32)
	switch {
	case !ok || kind == 0:
		return PoolingNone
	case kind == 1:
		return PoolingMean
	case kind == 3:
		return PoolingLast
	case kind == 2:
		return "cls"
	case kind == 4:
		return "rank"
	}
	return Pooling(fmt.Sprintf("type %d", kind))
}
