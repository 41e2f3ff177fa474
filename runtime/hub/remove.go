package hub

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"mlxcel/internal/held"

	"github.com/gofrs/flock"
)

// trash begins the names of what is being deleted.
const trash = ".mlxcel-removed-"

// Remove deletes a model, all its revisions, from the cache and returns how many bytes that freed. One that a process is
// downloading is left alone. The error wraps ErrNotCached if the model is not there.
func (s Settings) Remove(model string) (freed int64, err error) {
	if _, ok := modelOfFolder(repoFolder(model)); !ok {
		return 0, &NameError{Name: model, Reason: "is not the name of a model"}
	}
	cache, err := os.OpenRoot(s.Cache)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%w: %s", ErrNotCached, model)
	}
	if err != nil {
		return 0, err
	}
	defer cache.Close()
	repo := repoFolder(model)
	if info, err := cache.Lstat(repo); err != nil || !info.IsDir() {
		return 0, s.notHere(model)
	}
	release, err := s.lockAll(repo)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", model, err)
	}
	defer release()
	freed = diskUse(filepath.Join(s.Cache, repo))
	// It goes in one step, so that no half of a model is left when this is interrupted.
	if err := rename(cache, repo, trash+rand.Text()); err != nil {
		if held.Replacing(err) {
			err = errors.New("a file of it is open in another program: end that one first")
		}
		return 0, fmt.Errorf("%s: %w", model, err)
	}
	return freed, emptyTrash(cache)
}

func (s Settings) notHere(model string) error {
	err := fmt.Errorf("%w: there is no %s in %s", ErrNotCached, model, s.Cache)
	var here []string
	list, listErr := s.List()
	if listErr != nil {
		return err
	}
	for _, i := range list {
		here = append(here, i.Model)
	}
	if near := nearest(model, here); len(near) > 0 {
		return fmt.Errorf("%w; names near it are %s", err, joined(near))
	}
	return err
}

// lockAll locks every file of a model that somebody may be fetching.
func (s Settings) lockAll(repo string) (release func(), err error) {
	var locks []*flock.Flock
	release = func() {
		for _, l := range locks {
			_ = l.Close()
		}
	}
	paths, _ := filepath.Glob(filepath.Join(s.Cache, ".locks", repo, "*.lock"))
	for _, path := range paths {
		l := flock.New(path)
		ok, err := l.TryLock()
		if err == nil && !ok {
			err = errors.New("it is being downloaded: wait, or end the download first")
		}
		if err != nil {
			release()
			return nil, err
		}
		locks = append(locks, l)
	}
	return release, nil
}

// emptyTrash deletes what this and earlier calls put aside.
func emptyTrash(cache *os.Root) error {
	entries, err := fs.ReadDir(cache.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), trash) {
			if err := removeAll(cache, e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeAll deletes a file, or a folder with all that is in it; links are not followed. It waits for each file that another
// program holds.
func removeAll(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := fs.ReadDir(root.FS(), name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := removeAll(root, path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	return remove(root, name)
}
