// Package weights reads model checkpoints and describes them in one form,
// whatever their format: MLX folders (config.json and safetensors files) and
// GGUF files, which are made to look like an MLX folder.
//
// A [Tensor] says what it is called, what its type and shape are and where its
// bytes lie; whoever loads it reads the bytes. What a GGUF file stores in another
// layout than MLX wants is described, and converted by whoever reads it. So [Open] reads headers, and of a GGUF file with Q4_0 or Q8_0 tensors also
// their scales, since the type of their biases depends on these.
package weights

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mlxcel/bindings"
	"mlxcel/internal/held"
)

// The values of [Checkpoint.Format].
const (
	FormatMLX  = "mlx"
	FormatGGUF = "gguf"
)

// Checkpoint is a model on disk.
type Checkpoint struct {
	Path   string // the folder or file that was opened, absolute
	Name   string // its base name, without ".gguf"
	Format string // FormatMLX or FormatGGUF

	// The JSON files of an MLX folder as they are, nil where there is none.
	// Config is never nil: for a GGUF file it is made from the metadata.
	Config           []byte // config.json
	GenerationConfig []byte // generation_config.json
	TokenizerJSON    []byte // tokenizer.json
	TokenizerConfig  []byte // tokenizer_config.json

	// ChatTemplate is the Jinja source of chat_template.jinja (or of
	// chat_template.json, or of the GGUF metadata), empty if there is none. One
	// in tokenizer_config.json is left to whoever reads that file.
	ChatTemplate string

	// Pooling is how vectors are made with the model, if it is an embedding model.
	Pooling Pooling

	// Tensors holds every tensor by the name that an MLX folder gives it,
	// such as "model.layers.0.self_attn.q_proj.weight". Affine quantized
	// modules have three: X.weight (U32, packed), X.scales and X.biases.
	Tensors map[string]Tensor

	// GGUF is the metadata of a GGUF file, nil for other formats.
	GGUF *GGUF
}

// Lookup returns the dtype and shape of a tensor, false if there is none of that name.
func (c *Checkpoint) Lookup(name string) (bindings.DType, []int, bool) {
	t, ok := c.Tensors[name]
	return t.DType, t.Shape, ok
}

// Tensor describes one tensor of a checkpoint. Its parts, joined in order, are
// its elements in row-major order, little endian.
type Tensor struct {
	Name  string
	DType bindings.DType
	Shape []int // empty for a scalar
	Parts []Part
}

// Part is a contiguous run of a tensor's bytes: Size bytes of a file from Offset
// on, or what is made of the file from there on as Layout says. A part without a
// path is made up by whoever loads it, for benchmarks: see [Random].
type Part struct {
	Path   string
	Layout bindings.FileLayout
	Offset int64
	Size   int64 // in bytes, of the tensor
}

// Size returns the bytes of the whole tensor.
func (t Tensor) Size() int64 {
	n := int64(t.DType.Size())
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// Read returns the bytes of the whole tensor.
func (t Tensor) Read() ([]byte, error) {
	out := make([]byte, t.Size())
	rest := out
	for _, p := range t.Parts {
		if err := p.read(rest[:p.Size], t.DType); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		rest = rest[p.Size:]
	}
	return out, nil
}

// Random reports whether the part is made up by whoever loads it.
func (p Part) Random() bool { return p.Path == "" }

// read fills dst, which has Size bytes, with the bytes of the part of a tensor of a type.
func (p Part) read(dst []byte, dtype bindings.DType) error {
	switch {
	case p.Random():
		return errors.New("the weights are made up, and only where they are loaded")
	case p.Layout != bindings.FileLayout{}:
		return p.convert(dst, dtype)
	}
	return readRange(p.Path, p.Offset, dst)
}

// Open reads the headers of a model: an MLX folder or a GGUF file.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFoundError(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the model %s cannot be read: %w", path, err)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("the model %s cannot be read: %w", path, err)
	}
	switch {
	case info.IsDir():
		return openFolder(abs)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is neither a folder nor a file: give an MLX model folder or a .gguf file", path)
	case strings.EqualFold(filepath.Ext(abs), ".gguf") || hasMagic(abs):
		return openGGUF(abs)
	default:
		return nil, fmt.Errorf("%s is no GGUF file: give a .gguf file, or the folder that holds config.json and model.safetensors", path)
	}
}

// notFoundError is the error for a path without a model; it is fs.ErrNotExist to errors.Is.
type notFoundError string

func (path notFoundError) Error() string {
	return fmt.Sprintf("there is no model at %s: check the path, or download the model", filepath.FromSlash(string(path)))
}

func (notFoundError) Unwrap() error { return fs.ErrNotExist }

// hasMagic reports whether the file starts like a GGUF file.
func hasMagic(path string) bool {
	b := make([]byte, len(ggufMagic))
	return readRange(path, 0, b) == nil && string(b) == ggufMagic
}

// openRegular opens a file for reading and returns its size in bytes.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path) // before Open, which waits on a pipe
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errors.New("it is not a regular file")
	}
	f, err := held.Open(path)
	return f, info.Size(), err
}

// readRange fills b with the bytes of a file from offset on.
func readRange(path string, offset int64, b []byte) error {
	f, err := held.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return readAt(f, offset, b)
}

// readAt fills b with the bytes of an open file from offset on.
func readAt(f *os.File, offset int64, b []byte) error {
	switch n, err := f.ReadAt(b, offset); {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return damaged(f.Name(), "the file ends before byte %d", offset+int64(len(b)))
	default:
		return fmt.Errorf("%s cannot be read: %w", f.Name(), err)
	}
}

// damaged is the error for a file whose contents contradict themselves.
func damaged(path, format string, args ...any) error {
	return fmt.Errorf("%s is damaged: %s: download it again", path, fmt.Sprintf(format, args...))
}

// lfsPointer is the start of the stand-in that git leaves for a large file.
const lfsPointer = "version https://git-lfs"

// checkPointer returns an error if a file that starts with b is such a stand-in.
func checkPointer(path string, b []byte) error {
	if strings.HasPrefix(string(b), lfsPointer) {
		return fmt.Errorf("%s is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`", path)
	}
	return nil
}

// product returns elem times all dimensions, and false if a dimension is
// negative or the result exceeds an int64.
func product(elem int64, dims []int64) (int64, bool) {
	n, zero := elem, false
	for _, d := range dims {
		switch {
		case d < 0:
			return 0, false
		case d == 0:
			zero = true
		case n > (1<<63-1)/d:
			return 0, false
		default:
			n *= d
		}
	}
	if zero {
		n = 0
	}
	return n, true
}

// ints converts dimensions that product has accepted.
func ints(dims []int64) []int {
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = int(d)
	}
	return out
}

// span is the place of one tensor in a file.
type span struct {
	name       string
	begin, end int64
}

// overlapping returns the names of two tensors that share bytes, if there are
// any. It sorts the spans by their begin.
func overlapping(spans []span) (a, b string, found bool) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	var last span
	for _, s := range spans {
		if s.begin == s.end {
			continue
		}
		if s.begin < last.end {
			return last.name, s.name, true
		}
		last = s
	}
	return "", "", false
}
