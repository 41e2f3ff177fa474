package hub

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Find returns the path of a model in the cache: its folder, or its GGUF file. It never touches the network. The error
// wraps ErrNotCached if the model, or a part of it, is not there.
func (s Settings) Find(r Reference, revision string) (string, error) {
	if err := checkRevision(revision); err != nil {
		return "", err
	}
	commit, err := s.commit(r.Model, revision)
	if err != nil {
		return "", fmt.Errorf("%w: `mlxcel download %s` gets it", err, r)
	}
	folder := filepath.Join(s.Cache, repoFolder(r.Model), "snapshots", commit)
	path := modelPath(folder, r.File)
	if err := whole(path); err != nil {
		return "", fmt.Errorf("%w, or only in part (%w): `mlxcel download %s` gets the rest", ErrNotCached, err, r)
	}
	return path, nil
}

// commit returns what a revision leads to in the cache.
func (s Settings) commit(model, revision string) (string, error) {
	if commitHash.MatchString(revision) {
		return revision, nil
	}
	text, err := readLimited(filepath.Join(s.Cache, repoFolder(model), "refs", filepath.FromSlash(revision)), 100)
	if commit := strings.TrimSpace(string(text)); err == nil && commitHash.MatchString(commit) {
		return commit, nil
	}
	return "", fmt.Errorf("%w: there is no %s (revision %s) in %s", ErrNotCached, model, revision, s.Cache)
}

// modelPath returns the path to load a model by: that of the GGUF file which the part chooses, or which is all there is,
// else the folder.
func modelPath(folder, part string) string {
	_, err := os.Stat(filepath.Join(folder, configName))
	entries, readErr := os.ReadDir(folder)
	if readErr != nil || err == nil && part == "" && hasTensors(entries) {
		return folder
	}
	var ggufs []file
	for _, e := range entries {
		if strings.EqualFold(filepath.Ext(e.Name()), ".gguf") {
			ggufs = append(ggufs, file{Path: e.Name()})
		}
	}
	chosen, err := chooseGGUF(ggufs, part)
	if err != nil {
		if part != "" {
			return filepath.Join(folder, part) // which is not there
		}
		return folder
	}
	return filepath.Join(folder, chosen[0].Path)
}

func hasTensors(entries []os.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return strings.HasSuffix(e.Name(), ".safetensors") || e.Name() == indexName
	})
}

// whole reports what a model, which may have been downloaded in part, lacks.
func whole(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errors.New(filepath.Base(path) + " is missing")
	}
	if !info.IsDir() {
		return nil
	}
	names, err := neededFiles(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(path, filepath.FromSlash(name))); err != nil {
			return errors.New(name + " is missing")
		}
	}
	return nil
}

var shardName = regexp.MustCompile(`^(model.*-)(\d+)-of-(\d+)\.safetensors$`)

// neededFiles lists what must be in a model's folder.
func neededFiles(folder string) ([]string, error) {
	needed := []string{configName}
	index, err := readLimited(filepath.Join(folder, indexName), maxIndex)
	if err == nil {
		names, err := indexFiles(index)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if err := checkPath(name); err != nil {
				return nil, err
			}
		}
		return append(needed, names...), nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	found := false
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "model") || !strings.HasSuffix(e.Name(), ".safetensors") {
			continue
		}
		found = true
		needed = append(needed, e.Name())
		if m := shardName.FindStringSubmatch(e.Name()); m != nil {
			count, err := strconv.Atoi(m[3])
			if err != nil || count > maxFiles {
				continue
			}
			for i := range count {
				needed = append(needed, fmt.Sprintf("%s%0*d-of-%s.safetensors", m[1], len(m[2]), i+1, m[3]))
			}
		}
	}
	if !found {
		return nil, errors.New("its weights are missing")
	}
	slices.Sort(needed)
	return slices.Compact(needed), nil
}

// readLimited reads a file that has at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("%s is longer than is sensible", path)
	}
	return text, err
}

// SnapshotName returns the name, "ORG/NAME", of the model whose folder in a cache this is.
func SnapshotName(folder string) (string, bool) {
	snapshots := filepath.Dir(folder)
	if !commitHash.MatchString(filepath.Base(folder)) || filepath.Base(snapshots) != "snapshots" {
		return "", false
	}
	return modelOfFolder(filepath.Base(filepath.Dir(snapshots)))
}

// modelOfFolder is the reverse of repoFolder.
func modelOfFolder(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "models--")
	model := strings.ReplaceAll(rest, "--", "/")
	return model, ok && rest != "" && strings.Count(model, "/") <= 1
}
