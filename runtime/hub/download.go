package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultRevision is the branch that is meant where none is named.
const DefaultRevision = "main"

// Request says what to download. Only the reference is needed.
type Request struct {
	Reference
	Revision string   // branch, tag or commit; "": DefaultRevision
	Include  []string // patterns (* ? [a-z]) of files to fetch in place of those that a model needs
	Exclude  []string // patterns of files not to fetch
	LocalDir string   // folder for the files in place of the cache; "": the cache
	Parallel int      // connections at once; 0: 8

	// Progress, if not nil, is told what happens. It is called by one goroutine at a time, and should be quick.
	Progress func(Event)

	Stall   time.Duration // longest silence of a server; 0: 30 s
	Backoff time.Duration // wait before a failed request is made again, doubled with every failure; 0: 0.5 s
}

// Result is a model that is here.
type Result struct {
	Model    string
	Revision string
	Commit   string
	Path     string // folder, or GGUF file of a model that has no more
	Files    int    // that were asked for
	Bytes    int64  // of these files
	Fetched  int64  // bytes that came over the network now
}

// MaxParallel bounds Request.Parallel.
const MaxParallel = 64

// Download makes a model be here, whole and checked. What is here already is not fetched again, and what an earlier
// download left unfinished goes on. When ctx ends, the error is its cause; the same request goes on later.
func Download(ctx context.Context, s Settings, r Request) (*Result, error) {
	r.Revision = cmp.Or(r.Revision, DefaultRevision)
	r.Parallel = cmp.Or(r.Parallel, 8)
	if err := r.check(s); err != nil {
		return nil, err
	}
	client, err := newClient(s, cmp.Or(r.Stall, 30*time.Second), cmp.Or(r.Backoff, 500*time.Millisecond), r.Parallel)
	if err != nil {
		return nil, err
	}
	defer client.close()
	d := &download{
		client: client, model: r.Model, progress: r.Progress, slots: make(chan struct{}, r.Parallel),
		chosen: selection{r.Include, r.Exclude, r.File},
	}
	client.retrying = func(err error, wait time.Duration) { d.emit(Event{Kind: EventRetry, Err: err, Wait: wait}) }
	result, err := d.run(ctx, s, r)
	if err != nil {
		return nil, s.offerNames(explain(err, r.Model, r.Revision, client.base, s.Token != ""), r.Model)
	}
	return result, nil
}

func (r *Request) check(s Settings) error {
	switch {
	case s.Offline:
		return fmt.Errorf("%w, so %s cannot be downloaded: leave --offline out, or unset HF_HUB_OFFLINE", ErrOffline, r.Model)
	case !validModel(r.Model):
		return &NameError{Name: r.Model, Reason: "is not the name of a model: want ORG/NAME"}
	case r.Parallel < 1 || r.Parallel > MaxParallel:
		return fmt.Errorf("%d connections at once are not possible: want 1 to %d", r.Parallel, MaxParallel)
	}
	return checkRevision(r.Revision)
}

// offerNames adds to the error for a model that does not exist the names that are near.
func (s Settings) offerNames(err error, model string) error {
	if !errors.Is(err, errNoSuchModel) {
		return err
	}
	near := nearest(model, s.knownNames())
	near = slices.DeleteFunc(near, func(name string) bool { return name == model })
	if len(near) == 0 {
		return err
	}
	return fmt.Errorf("%w; names near it are %s", err, joined(near))
}

// download is a download in progress.
type download struct {
	client *client
	model  string
	commit string
	place  place
	chosen selection
	slots  chan struct{}

	mu       sync.Mutex
	progress func(Event)
	fetched  atomic.Int64
}

func (d *download) emit(e Event) {
	if d.progress == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress(e)
}

func (d *download) moved(f file, n int64) {
	if n > 0 {
		d.fetched.Add(n)
	}
	d.emit(Event{Kind: EventProgress, File: f.Path, Bytes: n})
}

func (d *download) run(ctx context.Context, s Settings, r Request) (*Result, error) {
	text, err := d.client.getAll(ctx, d.client.listingAddress(r.Model, r.Revision), maxListing)
	if err != nil {
		return nil, err
	}
	list, err := parseListing(text)
	if err != nil {
		return nil, err
	}
	d.commit = list.Commit
	first, err := d.chosen.first(list.Files)
	if err != nil {
		return nil, d.inModel(err)
	}

	finish, err := d.openPlace(s, r)
	if err != nil {
		return nil, err
	}
	defer d.place.root().Close()
	// The weights come last: where they are, everything else is too.
	if err := d.bring(ctx, first); err != nil {
		return nil, err
	}
	weights, err := d.weights(list.Files, first)
	if err != nil {
		return nil, d.inModel(err)
	}
	if err := d.bring(ctx, weights); err != nil {
		return nil, err
	}
	result := &Result{Model: r.Model, Revision: r.Revision, Commit: d.commit, Fetched: d.fetched.Load()}
	for _, f := range slices.Concat(first, weights) {
		result.Files++
		result.Bytes += max(f.Size, 0)
	}
	result.Path, err = finish()
	return result, err
}

func (d *download) inModel(err error) error { return fmt.Errorf("%s: %w", d.model, err) }

// openPlace opens where the files go. When they are there, finish returns the model's path.
func (d *download) openPlace(s Settings, r Request) (finish func() (string, error), err error) {
	if r.LocalDir != "" {
		p, err := newFolderPlace(r.LocalDir, d.commit)
		if err != nil {
			return nil, err
		}
		d.place = p
		return func() (string, error) { return modelPath(r.LocalDir, r.File), nil }, nil
	}
	root, err := openCache(s.Cache)
	if err != nil {
		return nil, err
	}
	p, err := newCachePlace(root, r.Model, d.commit, !s.NoLinks)
	if err != nil {
		root.Close()
		return nil, err
	}
	d.place = p
	return func() (string, error) {
		return modelPath(filepath.Join(s.Cache, filepath.FromSlash(p.snapshot(""))), r.File), p.setRef(r.Revision)
	}, nil
}

// weights chooses the files with weights, by the index if there is one among the files that are here.
func (d *download) weights(all, here []file) ([]file, error) {
	var index []byte
	for _, f := range here {
		if f.Path != indexName || len(d.chosen.include) > 0 {
			continue
		}
		if f.Size > maxIndex {
			return nil, fmt.Errorf("%s has %d bytes, more than is sensible", indexName, f.Size)
		}
		name := f.Path
		if p, ok := d.place.(*cachePlace); ok {
			name = p.snapshot(f.Path)
		}
		var err error
		if index, err = d.place.root().ReadFile(name); err != nil {
			return nil, err
		}
	}
	return d.chosen.weights(all, index)
}

// bring makes files be here.
func (d *download) bring(ctx context.Context, files []file) error {
	missing := slices.DeleteFunc(slices.Clone(files), d.place.has)
	if err := d.describe(ctx, missing); err != nil {
		return err
	}
	if err := d.checkSpace(missing); err != nil {
		return err
	}
	for _, f := range missing {
		d.emit(Event{Kind: EventFile, File: f.Path, Size: f.Size})
	}
	// What another process is fetching comes last, so that both share the work.
	var mu sync.Mutex
	var busy []file
	err := each(ctx, cap(d.slots), missing, func(ctx context.Context, f file) error {
		lock, err := tryLock(d.place, f)
		if err != nil {
			return err
		}
		if lock == nil {
			mu.Lock()
			defer mu.Unlock()
			busy = append(busy, f)
			return nil
		}
		defer lock.Close()
		return d.bringLocked(ctx, f)
	})
	if err != nil {
		return err
	}
	return each(ctx, cap(d.slots), busy, func(ctx context.Context, f file) error {
		d.emit(Event{Kind: EventWait, File: f.Path})
		lock, err := waitLock(ctx, d.place, f)
		if err != nil {
			return err
		}
		defer lock.Close()
		return d.bringLocked(ctx, f)
	})
}

// describe asks for the headers of files, whose sizes and hashes it completes.
func (d *download) describe(ctx context.Context, files []file) error {
	indices := make([]int, len(files))
	for i := range indices {
		indices[i] = i
	}
	return each(ctx, cap(d.slots), indices, func(ctx context.Context, i int) error {
		f := &files[i]
		err := d.client.again(ctx, func() (bool, error) {
			response, err := d.client.request(ctx, http.MethodHead, d.client.fileAddress(d.model, d.commit, f.Path), nil, relativeHops)
			if err != nil {
				return false, err
			}
			response.Body.Close()
			m, err := parseMetadata(response.StatusCode, response.Header)
			if err == nil {
				*f, err = m.complete(*f, d.commit)
			}
			if err != nil {
				err = permanent(fmt.Errorf("%s: %w", f.Path, err))
			}
			return false, err
		})
		return err
	})
}

// bringLocked fetches a file unless it came while the lock was waited for.
func (d *download) bringLocked(ctx context.Context, f file) error {
	there := d.place.has(f)
	if !there {
		var err error
		if there, err = d.place.adopt(ctx, f); err != nil {
			return err
		}
	}
	if !there {
		if err := d.fetchFile(ctx, f); err != nil {
			return err
		}
	}
	d.emit(Event{Kind: EventDone, File: f.Path, Size: f.Size})
	return nil
}

// reserve is what a download leaves free, in bytes.
const reserve = 64 << 20

// checkSpace compares what is to come with what is free. Where that is unknown, it trusts.
func (d *download) checkSpace(files []file) error {
	var need int64
	for _, f := range files {
		need += f.Size
		if info, err := d.place.root().Stat(d.place.part(f)); err == nil {
			need -= min(allocated(info), f.Size)
		}
	}
	folder := d.place.root().Name()
	free, ok := freeSpace(folder)
	if need == 0 || !ok || free >= need+reserve {
		return nil
	}
	return fmt.Errorf("%w: %.2f GB are needed in %s, and %.2f GB are free: free some, or set HF_HUB_CACHE or --local-dir to another disk",
		ErrNoSpace, float64(need+reserve)/1e9, folder, float64(free)/1e9)
}
