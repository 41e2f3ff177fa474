package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mlxcel/tests/testenv"
)

// A project says where everything lies and what is pinned.
type project struct {
	root  string    // the checkout
	cache string    // what is fetched and built, shared by all checkouts
	lock  *lock     // pinned versions and hashes
	log   io.Writer // what dist says, one line a step
	fetch fetchFunc // the package client; tests put in their own
}

// openProject finds the checkout around the working folder and reads its lock
// file.
func openProject(log io.Writer) (*project, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	lock, err := readLock(filepath.Join(root, lockFile))
	if err != nil {
		return nil, err
	}
	p := &project{root: root, cache: testenv.CacheDir(), lock: lock, log: log}
	p.fetch = p.fetchByClient
	return p, nil
}

// findRoot returns the nearest folder with a dist/lock.json at or above the
// working folder.
func findRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, lockFile)) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside a checkout of mlxcel: change into its folder and run `go run ./dist` there", start)
		}
	}
}

// say tells the user one line.
func (p *project) say(format string, args ...any) {
	fmt.Fprintf(p.log, "dist: "+format+"\n", args...)
}

// The places in the cache and the checkout. The tests' view of the cache is
// package testenv.

func (p *project) downloads() string       { return filepath.Join(p.cache, "downloads") }
func (p *project) temporary() string       { return filepath.Join(p.cache, "tmp") }
func (p *project) venv(name string) string { return filepath.Join(p.cache, "venv", name) }
func (p *project) bin(name ...string) string {
	return filepath.Join(append([]string{p.root, "bin"}, name...)...)
}

// path is a path in the checkout.
func (p *project) path(name ...string) string {
	return filepath.Join(append([]string{p.root}, name...)...)
}

// wheelFolder is where a wheel is unpacked.
func (p *project) wheelFolder(target, name string) string {
	return filepath.Join(p.cache, "wheels", target, name+"-"+p.wheel(target, name).Version)
}

// windowsBin is the bundle that is tried under Wine.
func (p *project) windowsBin() string { return p.bin("windows") }

// buildFolder is where CMake builds the library in the named mode. Its name
// holds the path of the checkout, so that two clones do not disturb each
// other, and MLX's version.
func (p *project) buildFolder(mode string) string {
	sum := sha256.Sum256([]byte(p.root))
	key := filepath.Base(p.root) + "-" + hex.EncodeToString(sum[:6])
	return filepath.Join(p.cache, "build", key, p.lock.MLX.Version+"-"+mode)
}

// prepare makes the cache folder and keeps other dist commands waiting until
// the returned function is called: two at once would fetch everything twice
// and could replace an environment that the other one is using.
func (p *project) prepare(ctx context.Context) (release func(), err error) {
	if err := os.MkdirAll(p.cache, 0o755); err != nil {
		return nil, fmt.Errorf("the cache folder cannot be made: %w; set MLXCEL_CACHE to a folder that can be written", err)
	}
	unlock, err := lockFolder(ctx, p.cache, func() {
		p.say("waiting for another dist command that uses %s", p.cache)
	})
	if err != nil {
		return nil, err
	}
	// What an interrupted run left half done.
	if err := os.RemoveAll(p.temporary()); err != nil {
		unlock()
		return nil, err
	}
	if err := os.MkdirAll(p.temporary(), 0o755); err != nil {
		unlock()
		return nil, err
	}
	return func() {
		os.RemoveAll(p.temporary())
		unlock()
	}, nil
}

// scratch makes a folder for a result that is moved to its place when it is
// whole. It lies in the cache, so that moving it within is a rename.
func (p *project) scratch() (string, error) {
	if err := os.MkdirAll(p.temporary(), 0o755); err != nil { // setup removes it with what it left there
		return "", err
	}
	dir, err := os.MkdirTemp(p.temporary(), "")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}
