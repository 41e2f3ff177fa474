package weights

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFolderPooling(t *testing.T) {
	const modules = `[
		{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
		{"idx": 1, "name": "1", "path": "pool", "type": "sentence_transformers.models.Pooling"},
		{"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]`
	for name, c := range map[string]struct {
		files map[string]string
		want  Pooling
		err   string
	}{
		"none":         {nil, PoolingNone, ""},
		"last":         {map[string]string{"modules.json": modules, "pool/config.json": `{"pooling_mode_cls_token": false, "pooling_mode_lasttoken": true}`}, PoolingLast, ""},
		"mean":         {map[string]string{"modules.json": modules, "pool/config.json": `{"pooling_mode_mean_tokens": true}`}, PoolingMean, ""},
		"a word":       {map[string]string{"modules.json": modules, "pool/config.json": `{"pooling_mode": "lasttoken"}`}, PoolingLast, ""},
		"no list":      {map[string]string{"1_Pooling/config.json": `{"pooling_mode": "mean"}`}, PoolingMean, ""},
		"cls":          {map[string]string{"1_Pooling/config.json": `{"pooling_mode_cls_token": true}`}, "cls", ""},
		"two":          {map[string]string{"1_Pooling/config.json": `{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}`}, "[mean cls]", ""},
		"no kind":      {map[string]string{"1_Pooling/config.json": `{}`}, PoolingNone, ""},
		"no pooling":   {map[string]string{"modules.json": `[{"path": "", "type": "sentence_transformers.models.Transformer"}]`}, PoolingNone, ""},
		"dense":        {map[string]string{"modules.json": `[{"path": "3", "type": "sentence_transformers.models.Dense"}]`}, "module sentence_transformers.models.Dense", ""},
		"damaged list": {map[string]string{"modules.json": `{}`}, "", "modules.json is damaged"},
		"damaged":      {map[string]string{"1_Pooling/config.json": `[]`}, "", "it holds no JSON object"},
		"wrong type":   {map[string]string{"1_Pooling/config.json": `{"pooling_mode": 3}`}, "", "config.json is damaged"},
		"outside":      {map[string]string{"modules.json": `[{"path": "../x", "type": "a.Pooling"}]`}, "", "is not inside the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				path := filepath.Join(dir, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			got, err := folderPooling(dir)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestGGUFPooling(t *testing.T) {
	for kind, want := range map[any]Pooling{
		nil: PoolingNone, uint32(0): PoolingNone, uint32(1): PoolingMean, uint32(2): "cls", uint32(3): PoolingLast, uint32(4): "rank", uint32(9): "type 9", "1": PoolingNone,
	} {
		require.Equal(t, want, ggufPooling(map[string]any{"qwen3.pooling_type": kind}, "qwen3"))
	}
}
