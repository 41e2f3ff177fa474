package hub

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// folderPlace is a folder of the user's own, with notes on what was checked where the Hub's Python client has them too.
type folderPlace struct {
	folder *os.Root
	commit string
}

const folderNotes = ".cache/huggingface/download"

func newFolderPlace(dir, commit string) (*folderPlace, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the folder of --local-dir cannot be made: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	p := &folderPlace{root, commit}
	if err := root.MkdirAll(folderNotes, 0o755); err != nil {
		root.Close()
		return nil, err
	}
	return p, nil
}

func (p *folderPlace) root() *os.Root { return p.folder }

func (p *folderPlace) note(f file) string { return path.Join(folderNotes, f.Path+".metadata") }
func (p *folderPlace) part(f file) string { return path.Join(folderNotes, f.Hash+".mlxcel-part") }
func (p *folderPlace) lock(f file) string { return path.Join(folderNotes, f.Hash+".lock") }

// has believes a note that is not older than the file.
func (p *folderPlace) has(f file) bool {
	text, err := p.folder.ReadFile(p.note(f))
	if err != nil || !isWhole(p.folder, f.Path, f) {
		return false
	}
	lines := strings.Split(string(text), "\n") // commit, hash, seconds since 1970
	if len(lines) < 3 || f.Hash == "" || lines[1] != f.Hash {
		return false
	}
	noted, err := strconv.ParseFloat(lines[2], 64)
	info, statErr := p.folder.Stat(f.Path)
	return err == nil && statErr == nil && float64(info.ModTime().UnixMilli())/1e3 <= noted+1
}

// adopt reads a file that is there to see whether it is the right one.
func (p *folderPlace) adopt(ctx context.Context, f file) (bool, error) {
	right, err := isRight(ctx, p.folder, f.Path, f)
	if !right {
		return false, err
	}
	return true, p.writeNote(f)
}

func (p *folderPlace) keep(f file) error {
	if err := moveInto(p.folder, p.part(f), f.Path); err != nil {
		return err
	}
	return p.writeNote(f)
}

func (p *folderPlace) writeNote(f file) error {
	if err := p.folder.MkdirAll(path.Dir(p.note(f)), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("%s\n%s\n%.6f\n", p.commit, f.Hash, float64(time.Now().UnixMicro())/1e6)
	return writeFile(p.folder, p.note(f), []byte(text))
}

// interruptible ends with its context.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
