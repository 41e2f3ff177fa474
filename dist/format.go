package main

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// checkFormat checks that every Go file of the checkout is as gofmt writes it.
func (p *project) checkFormat(context.Context) error {
	var wrong []string
	err := filepath.WalkDir(p.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != p.root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		formatted, err := format.Source(source)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if !bytes.Equal(source, formatted) {
			relative, _ := filepath.Rel(p.root, path)
			wrong = append(wrong, relative)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("not formatted: run `gofmt -w %s`", strings.Join(wrong, " "))
	}
	return nil
}
