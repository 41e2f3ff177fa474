package testhub

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Fault is a way to misbehave: see Hub.Misbehave.
type Fault func(w http.ResponseWriter, r *http.Request, f *File) bool

// Contents makes a fault happen only to requests for contents.
func Contents(fault Fault) Fault {
	return func(w http.ResponseWriter, r *http.Request, f *File) bool {
		redirects := f != nil && f.LFS && !strings.HasPrefix(r.URL.Path, "/signed/") ||
			f != nil && !f.LFS && !strings.HasPrefix(r.URL.Path, "/api/resolve-cache/")
		return f != nil && r.Method == http.MethodGet && !redirects && fault(w, r, f)
	}
}

// Times makes a fault happen a number of times only.
func Times(n int, fault Fault) Fault {
	var left atomic.Int64
	left.Store(int64(n))
	return func(w http.ResponseWriter, r *http.Request, f *File) bool {
		return left.Add(-1) >= 0 && fault(w, r, f)
	}
}

// Status answers with a status.
func Status(status int, header ...string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ *File) bool {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		http.Error(w, "no", status)
		return true
	}
}

// Cut sends at most so many bytes of what was asked for, and then cuts the connection.
func Cut(bytes int64) Fault {
	return func(w http.ResponseWriter, r *http.Request, f *File) bool {
		from, to := span(r, f)
		n := min(bytes, to-from)
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Range", "bytes "+strconv.FormatInt(from, 10)+"-"+strconv.FormatInt(to-1, 10)+"/"+strconv.FormatInt(f.Size, 10))
		}
		w.Header().Set("Content-Length", strconv.FormatInt(to-from, 10))
		if r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = io.Copy(w, io.NewSectionReader(f.Content, from, n))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// span is what a request asks for.
func span(r *http.Request, f *File) (from, to int64) {
	first, last, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
	from, _ = strconv.ParseInt(first, 10, 64)
	to, err := strconv.ParseInt(last, 10, 64)
	if err != nil {
		return from, f.Size
	}
	return from, to + 1
}

// WithoutRanges answers with the whole file, whatever is asked for.
func (h *Hub) WithoutRanges() Fault {
	return func(w http.ResponseWriter, r *http.Request, f *File) bool {
		whole := r.Clone(r.Context())
		whole.Header.Del("Range")
		h.Serve(w, whole, f)
		return true
	}
}

// Instead sends other contents, with the length that they have.
func (h *Hub) Instead(other *File) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ *File) bool {
		h.Serve(w, r, other)
		return true
	}
}

// Drip sends some bytes at a time, with a pause before each.
func Drip(bytes int64, pause time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, f *File) bool {
		from, to := span(r, f)
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Range", "bytes "+strconv.FormatInt(from, 10)+"-"+strconv.FormatInt(to-1, 10)+"/"+strconv.FormatInt(f.Size, 10))
			w.WriteHeader(http.StatusPartialContent)
		}
		for from < to {
			time.Sleep(pause)
			n := min(bytes, to-from)
			if _, err := io.Copy(w, io.NewSectionReader(f.Content, from, n)); err != nil {
				return true
			}
			_ = http.NewResponseController(w).Flush()
			from += n
		}
		return true
	}
}
