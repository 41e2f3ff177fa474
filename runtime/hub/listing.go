package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

const (
	maxListing = 64 << 20 // bytes of JSON
	maxFiles   = 100_000
	maxSize    = 4 << 40 // bytes of a file
)

// file is a file of a model.
type file struct {
	Path string
	Size int64  // bytes, -1 while unknown
	Hash string // SHA-256 of an LFS file, git SHA-1 of another one, "" while unknown
}

// listing is what the Hub says of a revision.
type listing struct {
	Commit  string
	Licence string // "" if not said
	Files   []file
}

// parseListing reads the answer to a request for a revision. Paths are as the server sends them: see checkPath.
func parseListing(text []byte) (*listing, error) {
	var answer struct {
		SHA      string          `json:"sha"`
		Tags     json.RawMessage `json:"tags"`
		Siblings []struct {
			Name   string `json:"rfilename"`
			Size   *int64 `json:"size"`
			BlobID string `json:"blobId"`
			LFS    *struct {
				SHA256 string `json:"sha256"`
				Size   *int64 `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("the Hub's list of files cannot be read (is the endpoint a Hub?): %w", err)
	}
	if !commitHash.MatchString(answer.SHA) {
		return nil, errors.New("the Hub's list of files names no commit: is the endpoint a Hub?")
	}
	if len(answer.Siblings) > maxFiles {
		return nil, fmt.Errorf("the Hub lists %d files, more than the %d that are sensible", len(answer.Siblings), maxFiles)
	}
	l := &listing{Commit: answer.SHA}
	for _, s := range answer.Siblings {
		f := file{Path: s.Name, Size: -1}
		size := s.Size
		if gitHash.MatchString(s.BlobID) {
			f.Hash = s.BlobID
		}
		if s.LFS != nil {
			f.Hash = ""
			if sha256Hash.MatchString(s.LFS.SHA256) {
				f.Hash = s.LFS.SHA256
			}
			if s.LFS.Size != nil {
				size = s.LFS.Size
			}
		}
		if size != nil {
			if *size < 0 || *size > maxSize {
				return nil, fmt.Errorf("the Hub lists %q with the size %d, which is not sensible", printable(s.Name, 100), *size)
			}
			f.Size = *size
		}
		l.Files = append(l.Files, f)
	}
	l.Licence = licenceTag(answer.Tags)
	return l, nil
}

// licenceTag finds the licence among a model's tags, which may be of any type.
func licenceTag(raw json.RawMessage) string {
	var tags []string
	if json.Unmarshal(raw, &tags) != nil {
		return ""
	}
	for _, tag := range tags {
		if licence, ok := strings.CutPrefix(tag, "license:"); ok {
			return printable(licence, 60)
		}
	}
	return ""
}

var (
	gitHash    = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sha256Hash = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// metadata is what the headers of a file say.
type metadata struct {
	Commit string
	Hash   string // as in file
	Size   int64  // -1 if not said
}

// parseMetadata reads the headers that answer a HEAD request for a file. Of a file that lies elsewhere, which makes the
// answer a redirect, the linked headers tell.
func parseMetadata(status int, h http.Header) (metadata, error) {
	m := metadata{Commit: h.Get("X-Repo-Commit"), Size: -1}
	if !commitHash.MatchString(m.Commit) {
		return m, errors.New("the answer has no X-Repo-Commit header: is the endpoint a Hub, or is a proxy in the way?")
	}
	etag := h.Get("X-Linked-Etag")
	if etag == "" {
		etag = h.Get("ETag")
	}
	m.Hash = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if !gitHash.MatchString(m.Hash) && !sha256Hash.MatchString(m.Hash) {
		return m, errors.New("the answer has no hash to check the file by, in X-Linked-Etag or ETag")
	}
	length := h.Get("X-Linked-Size")
	if length == "" && status/100 != 3 {
		length = h.Get("Content-Length")
	}
	if length == "" {
		return m, nil
	}
	size, err := strconv.ParseInt(length, 10, 64)
	if err != nil || size < 0 || size > maxSize {
		return m, fmt.Errorf("the answer gives the size %q, which is not sensible", printable(length, 40))
	}
	m.Size = size
	return m, nil
}

// complete adds to f what the headers say. They and the listing may not differ.
func (m metadata) complete(f file, commit string) (file, error) {
	switch {
	case m.Commit != commit:
		return f, fmt.Errorf("it is of commit %s, not %s", m.Commit, commit)
	case f.Hash != "" && f.Hash != m.Hash:
		return f, fmt.Errorf("its hash is %s in the list of files and %s in its headers", f.Hash, m.Hash)
	case f.Size >= 0 && m.Size >= 0 && f.Size != m.Size:
		return f, fmt.Errorf("its size is %d in the list of files and %d in its headers", f.Size, m.Size)
	case f.Size < 0 && m.Size < 0:
		return f, errors.New("its size is nowhere to be found")
	}
	return file{f.Path, max(f.Size, m.Size), m.Hash}, nil
}
