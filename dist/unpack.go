package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// unzip unpacks a whole wheel into the folder dir.
func unzip(archive, dir string) error {
	return unzipSome(archive, dir, func(name string) string { return name })
}

// unzipSome unpacks the members of a wheel for which pick returns a path, to
// that path in the folder dir.
func unzipSome(archive, dir string, pick func(name string) string) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	defer reader.Close()
	for _, member := range reader.File {
		if member.FileInfo().IsDir() {
			continue
		}
		name := pick(member.Name)
		if name == "" {
			continue
		}
		target, err := inside(dir, name)
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		if err := unzipMember(member, target); err != nil {
			return fmt.Errorf("%s: %s: %w", archive, member.Name, err)
		}
	}
	return nil
}

// unzipOne unpacks the member with the given base name from a wheel to target.
func unzipOne(archive, base, target string) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	defer reader.Close()
	for _, member := range reader.File {
		if path.Base(member.Name) == base && !member.FileInfo().IsDir() {
			return unzipMember(member, target)
		}
	}
	return fmt.Errorf("%s holds no %s", archive, base)
}

func unzipMember(member *zip.File, target string) error {
	if !member.FileInfo().Mode().IsRegular() {
		return errors.New("it is not a plain file")
	}
	content, err := member.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	return writeFile(target, content, member.FileInfo().Mode().Perm())
}

// untar unpacks the plain files of a gzipped tar archive whose path match
// accepts, flat, into the folder dir.
func untar(archive, dir string, match func(name string) bool) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	return eachMember(archive, plain, func(member *tar.Header, content io.Reader) error {
		if member.Typeflag != tar.TypeReg || !match(member.Name) {
			return nil
		}
		target, err := inside(dir, path.Base(member.Name))
		if err != nil {
			return err
		}
		if err := writeFile(target, content, 0o644); err != nil {
			return fmt.Errorf("%s: %w", member.Name, err)
		}
		return nil
	})
}

// eachMember calls f with the members of a tar archive, whose name errors begin with, until one fails.
func eachMember(archive string, plain io.Reader, f func(member *tar.Header, content io.Reader) error) error {
	members := tar.NewReader(plain)
	for {
		member, err := members.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(member, members)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
}

// inside joins dir and the name of an archive's member, and refuses names that
// lead out of dir.
func inside(dir, name string) (string, error) {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) || filepath.Clean(local) == "." {
		return "", fmt.Errorf("the member %q would be written outside its folder", name)
	}
	return filepath.Join(dir, local), nil
}

func writeFile(target string, content io.Reader, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode|0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, content); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
