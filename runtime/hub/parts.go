package hub

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	partSize = 16 << 20
	maxNote  = 4 << 20 // bytes of the description of a file's parts

	saveEvery = time.Second
)

// parts is a file of which some ranges have arrived. What it knows outlives the process in a small file beside it.
type parts struct {
	size, each int64          // bytes of the file, and of every part but the last
	done       []atomic.Int64 // bytes that have arrived of each part, from its beginning on

	root    *os.Root
	name    string // of the file
	file    *os.File
	resumed bool // whether some of it is from an earlier time

	mu    sync.Mutex
	saved time.Time
}

// partsNote is the form of parts on disk.
type partsNote struct {
	Size int64   `json:"size"`
	Each int64   `json:"part_size"`
	Done []int64 `json:"done"`
}

// openParts goes on with a file, or makes it.
func openParts(root *os.Root, name string, size int64) (*parts, error) {
	p := &parts{size: size, root: root, name: name, saved: time.Now()}
	if p.resume() {
		return p, nil
	}
	return p, p.restart(partSize)
}

// resume opens a file whose description fits.
func (p *parts) resume() bool {
	info, err := p.root.Lstat(p.name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != p.size || p.size == 0 {
		return false
	}
	note, err := p.readNote()
	if err != nil || note.check(p.size) != nil {
		return false
	}
	if p.file, err = p.root.OpenFile(p.name, os.O_RDWR, 0); err != nil {
		return false
	}
	p.each, p.resumed, p.done = note.Each, true, make([]atomic.Int64, len(note.Done))
	for i, n := range note.Done {
		p.done[i].Store(n)
	}
	return true
}

func (p *parts) noteName() string { return p.name + ".json" }

func (p *parts) readNote() (note partsNote, err error) {
	info, err := p.root.Stat(p.noteName())
	if err != nil {
		return note, err
	}
	if info.Size() > maxNote {
		return note, errors.New("it is too long")
	}
	text, err := p.root.ReadFile(p.noteName())
	if err != nil {
		return note, err
	}
	return note, json.Unmarshal(text, &note)
}

// check reports a description that is not one of a file of size bytes.
func (n partsNote) check(size int64) error {
	bad := errors.New("it does not fit the file")
	if n.Size != size || n.Each < min(partSize, size) || int64(len(n.Done)) != countParts(size, n.Each) {
		return bad
	}
	for i, done := range n.Done {
		if done < 0 || done > lengthOfPart(i, size, n.Each) {
			return bad
		}
	}
	return nil
}

func countParts(size, each int64) int64 { return (size + each - 1) / each }

func lengthOfPart(i int, size, each int64) int64 { return min(each, size-int64(i)*each) }

// restart begins an empty file whose parts have `each` bytes.
func (p *parts) restart(each int64) error {
	p.close()
	p.each, p.resumed, p.done = each, false, make([]atomic.Int64, countParts(p.size, each))
	if err := p.remove(); err != nil {
		return err
	}
	var err error
	if p.file, err = create(p.root, p.name); err != nil {
		return err
	}
	return p.file.Truncate(p.size)
}

// bounds are the first byte of a part that is missing, and the end of the part.
func (p *parts) bounds(i int) (from, to int64) {
	start := int64(i) * p.each
	return start + p.done[i].Load(), start + lengthOfPart(i, p.size, p.each)
}

// missing lists the parts that are not whole.
func (p *parts) missing() []int {
	var list []int
	for i := range p.done {
		if from, to := p.bounds(i); from < to {
			list = append(list, i)
		}
	}
	return list
}

// arrived counts the bytes that are there.
func (p *parts) arrived() (n int64) {
	for i := range p.done {
		n += p.done[i].Load()
	}
	return n
}

// frontier returns how far the bytes from `at` on are there without a gap.
func (p *parts) frontier(at int64) int64 {
	for at < p.size {
		from, to := p.bounds(int(at / p.each))
		at = max(at, from)
		if from < to {
			break
		}
	}
	return at
}

// save writes the description, unless that was done just before and need not be now.
func (p *parts) save(now bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !now && time.Since(p.saved) < saveEvery {
		return nil
	}
	p.saved = time.Now()
	note := partsNote{p.size, p.each, make([]int64, len(p.done))}
	for i := range p.done {
		note.Done[i] = p.done[i].Load()
	}
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return writeFile(p.root, p.noteName(), text)
}

func (p *parts) close() {
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// remove deletes the file and its description. A description without the file, or the file without it, is worth nothing.
func (p *parts) remove() error {
	p.close()
	for _, name := range slices.Backward([]string{p.name, p.noteName()}) {
		if err := remove(p.root, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
