package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"mlxcel/internal/held"

	"github.com/gofrs/flock"
)

// place is where the files of a revision go. Paths are relative to its root, with slashes.
type place interface {
	root() *os.Root
	// has reports whether a file is there, whole. Its hash may be unknown.
	has(f file) bool
	// adopt takes a file whose contents are there under another name, or unchecked, and reports whether there was one.
	adopt(ctx context.Context, f file) (bool, error)
	// part is the path of a file while it is not whole.
	part(f file) string
	// lock is the path of the file that is locked while a file is fetched.
	lock(f file) string
	// keep gives a file that is whole and checked its final name.
	keep(f file) error
}

// cachePlace is a snapshot in the cache.
type cachePlace struct {
	cache  *os.Root
	repo   string // "models--ORG--NAME"
	commit string
	links  bool
}

// openCache makes the cache folder if there is none.
func openCache(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the folder for models cannot be made: %w", err)
	}
	return os.OpenRoot(dir)
}

// repoFolder is the name of a model's folder in the cache.
func repoFolder(model string) string { return "models--" + strings.ReplaceAll(model, "/", "--") }

func newCachePlace(cache *os.Root, model, commit string, links bool) (*cachePlace, error) {
	p := &cachePlace{cache, repoFolder(model), commit, links}
	if links && !linksWork(cache) {
		p.links = false
	}
	for _, dir := range []string{p.repo + "/blobs", p.repo + "/refs", p.snapshot(""), ".locks/" + p.repo} {
		if err := cache.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// linksWork tries to make a link.
func linksWork(cache *os.Root) bool {
	name := ".link-" + rand.Text()
	if cache.Symlink("target", name) != nil {
		return false
	}
	return remove(cache, name) == nil
}

func (p *cachePlace) root() *os.Root { return p.cache }

func (p *cachePlace) snapshot(name string) string {
	return path.Join(p.repo, "snapshots", p.commit, name)
}

func (p *cachePlace) blob(f file) string { return path.Join(p.repo, "blobs", f.Hash) }
func (p *cachePlace) part(f file) string { return p.blob(f) + ".mlxcel-part" }
func (p *cachePlace) lock(f file) string { return path.Join(".locks", p.repo, f.Hash+".lock") }
func (p *cachePlace) has(f file) bool    { return isWhole(p.cache, p.snapshot(f.Path), f) }

// isWhole reports whether there is a file of the right size. Others than whole files do not get their final names.
func isWhole(root *os.Root, name string, f file) bool {
	info, err := root.Stat(name)
	return err == nil && info.Mode().IsRegular() && (f.Size < 0 || info.Size() == f.Size)
}

// adopt uses the contents that another revision has too.
func (p *cachePlace) adopt(ctx context.Context, f file) (bool, error) {
	temporary := p.blob(f) + ".mlxcel-copy" // nobody else makes it: f is locked
	switch whole := isWhole(p.cache, p.blob(f), f); {
	case whole && p.links:
		return true, p.link(f)
	case whole:
		if err := copyFile(p.cache, p.blob(f), temporary); err != nil {
			return false, err
		}
	default:
		other, err := p.otherSnapshot(ctx, f)
		if other == "" || err != nil {
			return false, err
		}
		if err := remove(p.cache, temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		// Both names are of one file then; a disk that cannot do that gets a copy.
		if p.cache.Link(other, temporary) != nil {
			if err := copyFile(p.cache, other, temporary); err != nil {
				return false, err
			}
		}
	}
	return true, moveInto(p.cache, temporary, p.snapshot(f.Path))
}

// otherSnapshot returns where a file lies, under the same name and itself and not as a link, in the snapshot of another
// revision; "" if nowhere.
func (p *cachePlace) otherSnapshot(ctx context.Context, f file) (string, error) {
	commits, err := fs.ReadDir(p.cache.FS(), path.Join(p.repo, "snapshots"))
	if err != nil {
		return "", err
	}
	for _, commit := range commits {
		name := path.Join(p.repo, "snapshots", commit.Name(), f.Path)
		if right, err := isRight(ctx, p.cache, name, f); right || err != nil {
			return name, err
		}
	}
	return "", nil
}

// isRight reports whether a file, which is no link, has the contents that it should have.
func isRight(ctx context.Context, root *os.Root, name string, f file) (bool, error) {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
		return false, nil
	}
	in, err := root.Open(name)
	if err != nil {
		return false, err
	}
	defer in.Close()
	h := f.newHash()
	if _, err := io.Copy(h, &interruptible{ctx, in}); err != nil {
		return false, err
	}
	return f.check(h) == nil, nil
}

func (p *cachePlace) keep(f file) error {
	if !p.links {
		return moveInto(p.cache, p.part(f), p.snapshot(f.Path))
	}
	if err := rename(p.cache, p.part(f), p.blob(f)); err != nil {
		return err
	}
	return p.link(f)
}

// link makes the snapshot's relative link to a blob; one that is there is replaced in one go.
func (p *cachePlace) link(f file) error {
	up := strings.Repeat("../", 2+strings.Count(f.Path, "/"))
	temporary := path.Join(p.repo, "blobs", f.Hash+"."+rand.Text()+".mlxcel-link")
	if err := p.cache.Symlink(filepath.FromSlash(up+"blobs/"+f.Hash), temporary); err != nil {
		return err
	}
	err := moveInto(p.cache, temporary, p.snapshot(f.Path))
	if err != nil {
		_ = remove(p.cache, temporary)
	}
	return err
}

// moveInto renames, making the folder where the file goes.
func moveInto(root *os.Root, from, to string) error {
	if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	return rename(root, from, to)
}

// rename and remove wait for programs that hold a file for a moment, where that is a hindrance.

func rename(root *os.Root, from, to string) error {
	return held.Retry(held.Replacing, func() error { return root.Rename(from, to) })
}

func remove(root *os.Root, name string) error {
	return held.Retry(held.Replacing, func() error { return removeFrom(root, name) })
}

func copyFile(root *os.Root, from, to string) error {
	in, err := root.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := create(root, to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// create makes an empty file. What has its name, as a link that leads elsewhere, goes first.
func create(root *os.Root, name string) (*os.File, error) {
	if err := remove(root, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
}

// writeFile replaces a small file in one go.
func writeFile(root *os.Root, name string, text []byte) error {
	temporary := name + "." + rand.Text() + ".tmp"
	f, err := create(root, temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = rename(root, temporary, name)
	}
	if err != nil {
		_ = remove(root, temporary)
	}
	return err
}

// setRef makes a revision lead to the commit, unless it is the commit.
func (p *cachePlace) setRef(revision string) error {
	if revision == p.commit {
		return nil
	}
	name := path.Join(p.repo, "refs", revision)
	if text, err := p.cache.ReadFile(name); err == nil && string(text) == p.commit {
		return nil
	}
	if err := p.cache.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return writeFile(p.cache, name, []byte(p.commit))
}

// lockPoll is how often a lock that another process has is asked for.
const lockPoll = 100 * time.Millisecond

// tryLock locks a file, without waiting, and returns nil if another process has it.
func tryLock(p place, f file) (*flock.Flock, error) {
	name := filepath.Join(p.root().Name(), filepath.FromSlash(p.lock(f)))
	if err := p.root().MkdirAll(path.Dir(p.lock(f)), 0o755); err != nil {
		return nil, err
	}
	lock := flock.New(name, flock.SetPermissions(0o664))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("the lock %s: %w", name, err)
	}
	if !ok {
		return nil, nil
	}
	// Somebody may have removed the file just before, so that it is no lock for others.
	mine, err := lock.Stat()
	if there, thereErr := os.Stat(name); err == nil && thereErr == nil && os.SameFile(mine, there) {
		return lock, nil
	}
	return nil, lock.Unlock()
}

// waitLock waits until a file can be locked.
func waitLock(ctx context.Context, p place, f file) (*flock.Flock, error) {
	for {
		lock, err := tryLock(p, f)
		if lock != nil || err != nil {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
}
