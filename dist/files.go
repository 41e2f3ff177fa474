package main

import (
	"io"
	"os"
	"path/filepath"
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// place moves the file or folder at from, which is whole, to its final path to
// in the same file system, replacing what is there.
func place(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	return os.Rename(from, to)
}

// placeCopy makes to a copy of from that appears whole or not at all, also in
// another file system.
func placeCopy(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	target, err := os.CreateTemp(filepath.Dir(to), ".copy-*")
	if err != nil {
		return err
	}
	defer os.Remove(target.Name()) // nothing is there after the rename
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	if err := target.Close(); err != nil {
		return err
	}
	if err := os.Chmod(target.Name(), info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(target.Name(), to)
}

// linkOrCopy makes to the same file as from, or a copy where the file system
// cannot link them.
func linkOrCopy(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !os.IsNotExist(err) {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	return placeCopy(from, to)
}
