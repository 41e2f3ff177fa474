package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// archiveTime is what all files in an archive are from: the same input gives the same bytes.
var archiveTime = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// An archiver writes the entries of an archive, in the order of their paths.
type archiver interface {
	folder(path string) error
	file(path string, mode os.FileMode, size int64, content io.Reader) error
	Close() error
}

// writeArchive writes a bundle to the folder out, as a zip archive for Windows and as tar.zst for Linux, and returns
// its path. Everything in it is in one folder.
func (p *project) writeArchive(ctx context.Context, b *bundle, out string) (string, error) {
	target := filepath.Join(out, b.name()+".tar.zst")
	if b.windows() {
		target = filepath.Join(out, b.name()+".zip")
	}
	p.say("writing %s", target)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(out, ".archive-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name()) // nothing is there after the rename
	defer file.Close()
	var a archiver
	if b.windows() {
		a = newZip(file)
	} else if a, err = newTar(file); err != nil {
		return "", err
	}
	if err := b.write(ctx, a); err != nil {
		return "", errors.Join(err, a.Close())
	}
	if err := errors.Join(a.Close(), file.Chmod(0o644), file.Close()); err != nil {
		return "", err
	}
	return target, os.Rename(file.Name(), target)
}

// write gives a all entries. Programs and libraries can be executed, other files not, whatever they were before.
func (b *bundle) write(ctx context.Context, a archiver) error {
	type entry struct {
		path   string
		folder bool
	}
	var entries []entry
	for path := range b.files {
		entries = append(entries, entry{path, false})
	}
	for path := range b.texts {
		entries = append(entries, entry{path, false})
	}
	for _, path := range b.folders {
		entries = append(entries, entry{path, true})
	}
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.path, y.path) })
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := b.name() + "/" + e.path
		if e.folder {
			if err := a.folder(name); err != nil {
				return err
			}
			continue
		}
		if text, made := b.texts[e.path]; made {
			if err := a.file(name, 0o644, int64(len(text)), bytes.NewReader(text)); err != nil {
				return err
			}
			continue
		}
		if err := b.writeFile(a, name, e.path); err != nil {
			return err
		}
	}
	return nil
}

func (b *bundle) writeFile(a archiver, name, path string) error {
	file, err := os.Open(b.files[path])
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if !strings.Contains(path, "/") || isSharedObject(path) {
		mode = 0o755
	}
	return a.file(name, mode, info.Size(), file)
}

func isSharedObject(path string) bool {
	base := filepath.Base(path)
	return strings.HasPrefix(path, "lib/") && (strings.HasSuffix(base, ".so") || strings.Contains(base, ".so."))
}

type zipArchive struct{ *zip.Writer }

func newZip(w io.Writer) archiver {
	z := zip.NewWriter(w)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	return zipArchive{z}
}

func (z zipArchive) folder(path string) error {
	_, err := z.CreateHeader(&zip.FileHeader{Name: path + "/", Modified: archiveTime})
	return err
}

func (z zipArchive) file(path string, mode os.FileMode, _ int64, content io.Reader) error {
	header := &zip.FileHeader{Name: path, Method: zip.Deflate, Modified: archiveTime}
	header.SetMode(mode)
	w, err := z.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

type tarArchive struct {
	*tar.Writer
	packed *zstd.Encoder
}

func newTar(w io.Writer) (archiver, error) {
	packed, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return tarArchive{tar.NewWriter(packed), packed}, nil
}

func (t tarArchive) folder(path string) error {
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: 0o755, ModTime: archiveTime})
}

func (t tarArchive) file(path string, mode os.FileMode, size int64, content io.Reader) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: int64(mode), Size: size, ModTime: archiveTime}); err != nil {
		return err
	}
	_, err := io.Copy(t, content)
	return err
}

func (t tarArchive) Close() error { return errors.Join(t.Writer.Close(), t.packed.Close()) }

// unpackArchive unpacks an archive into the empty folder dir, and returns the one folder in it.
func unpackArchive(archive, dir string) (string, error) {
	var err error
	if strings.HasSuffix(archive, ".zip") {
		err = unzipAll(archive, dir)
	} else {
		err = untarAll(archive, dir)
	}
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) != 1 || !entries[0].IsDir() {
		return "", fmt.Errorf("%s holds %d things at its top, not one folder", archive, len(entries))
	}
	return filepath.Join(dir, entries[0].Name()), nil
}

// unzipAll is unzip, with folders that are empty.
func unzipAll(archive, dir string) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	defer reader.Close()
	for _, member := range reader.File {
		if !member.FileInfo().IsDir() {
			continue
		}
		folder, err := inside(dir, member.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	return unzip(archive, dir)
}

func untarAll(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	plain, err := zstd.NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	defer plain.Close()
	return eachMember(archive, plain, func(member *tar.Header, content io.Reader) error {
		target, err := inside(dir, member.Name)
		if err != nil {
			return err
		}
		switch member.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(target, 0o755)
		case tar.TypeReg:
			err = writeFile(target, content, os.FileMode(member.Mode).Perm())
		default:
			err = errors.New("it is neither a plain file nor a folder")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", member.Name, err)
		}
		return nil
	})
}

// sortedKeys is for tables that are printed.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
