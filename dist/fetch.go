package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A fetchFunc makes a registry's client put the file of a into the empty
// folder dir.
type fetchFunc func(ctx context.Context, a artifact, dir string) error

// fetchByClient is the fetchFunc of real life. Which registry the client asks
// is its user's configuration, not ours.
func (p *project) fetchByClient(ctx context.Context, a artifact, dir string) error {
	switch a.Client {
	case "npm":
		return p.npmPack(ctx, a, dir)
	case "pip-source":
		return p.pipSource(ctx, a, dir)
	}
	return p.pipDownload(ctx, a, dir)
}

// download returns the path of a's file in the cache, fetching it when it is
// missing, half finished or changed.
func (p *project) download(ctx context.Context, a artifact) (string, error) {
	path := filepath.Join(p.downloads(), a.File)
	wrong := a.check(path)
	if wrong == nil {
		return path, nil
	}
	if !errors.Is(wrong, fs.ErrNotExist) {
		p.say("the file of %s in the cache is incomplete or changed", a)
	}
	p.say("fetching %s (%d MB)", a, (a.Size+500_000)/1_000_000)
	dir, err := p.scratch()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := p.fetch(ctx, a, dir); err != nil {
		return "", err
	}
	fetched := filepath.Join(dir, a.File)
	if err := a.check(fetched); err != nil {
		return "", fmt.Errorf("%s did not fetch the pinned file of %s: %w; run the command again, and if that does not help, the registry in use serves another file than the one pinned in %s",
			a.Client, a, err, lockFile)
	}
	return path, place(fetched, path)
}

// check compares the file at path with the lock.
func (a artifact) check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() != a.Size {
		return fmt.Errorf("%s has %d bytes, not %d", a.File, info.Size(), a.Size)
	}
	return checkHash(path, a.SHA256)
}

func checkHash(path, want string) error {
	_, sum, err := hashFile(path)
	if err != nil {
		return err
	}
	if sum != want {
		return fmt.Errorf("%s has sha256 %s, not %s", filepath.Base(path), sum, want)
	}
	return nil
}

// hashFile returns the size and the hexadecimal SHA-256 of a file.
func hashFile(path string) (size int64, sum string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	hash := sha256.New()
	if size, err = io.Copy(hash, file); err != nil {
		return 0, "", err
	}
	return size, hex.EncodeToString(hash.Sum(nil)), nil
}

func hashText(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
