package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
)

const bufferSize = 256 << 10

// transfer brings one file.
type transfer struct {
	*client
	file    file
	address *url.URL
	direct  atomic.Pointer[url.URL] // where address led to; it may expire
	parts   *parts
	slots   chan struct{} // connections that all transfers share
	moved   func(bytes int64)
	news    chan struct{} // says that bytes have arrived
}

// fetchFile brings what is missing of f into its part file, checks it, and gives it its final name.
func (d *download) fetchFile(ctx context.Context, f file) (err error) {
	p, err := openParts(d.place.root(), d.place.part(f), f.Size)
	if err != nil {
		return err
	}
	defer p.close()
	t := &transfer{
		client: d.client, file: f, address: d.client.fileAddress(d.model, d.commit, f.Path), parts: p, slots: d.slots,
		moved: func(n int64) { d.moved(f, n) }, news: make(chan struct{}, 1),
	}
	if p.resumed {
		d.emit(Event{Kind: EventResume, File: f.Path, Bytes: p.arrived()})
	}
	if err := t.run(ctx); err != nil {
		return err
	}
	if err := p.file.Sync(); err != nil {
		return err
	}
	p.close() // Windows renames no open files
	if err := d.place.keep(f); err != nil {
		return err
	}
	return p.remove() // the description
}

var (
	errNoRanges = errors.New("the server does not send ranges")
	errCut      = errors.New("the connection was cut")
)

// run starts over where the server cannot go on in the middle, and where what an earlier time left was damaged. Like
// everything else, that is tried maxAttempts times at most.
func (t *transfer) run(ctx context.Context) error {
	return t.again(ctx, func() (bool, error) {
		resumed := t.parts.resumed
		err := t.attempt(ctx)
		each := int64(partSize)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, errNoRanges):
			each = max(t.parts.size, 1)
		case errors.Is(err, ErrDamaged) && resumed:
		case errors.Is(err, ErrDamaged):
			if err := t.parts.remove(); err != nil {
				return false, permanent(err)
			}
			return false, permanent(fmt.Errorf("%w: it was deleted: try again, and if that does not help, tell those who run %s", err, t.base.Host))
		default:
			return false, permanent(errors.Join(err, t.parts.save(true)))
		}
		t.moved(-t.parts.arrived())
		if err := t.parts.restart(each); err != nil {
			return false, permanent(err)
		}
		return false, fmt.Errorf("%s is begun anew: %v", t.file.Path, err) // not wrapped: this is worth another attempt
	})
}

// attempt fetches all parts and computes the hash meanwhile.
func (t *transfer) attempt(ctx context.Context) error {
	tasks := []func(context.Context) error{t.fetchParts, t.digest}
	return each(ctx, len(tasks), tasks, func(ctx context.Context, task func(context.Context) error) error { return task(ctx) })
}

func (t *transfer) fetchParts(ctx context.Context) error {
	return each(ctx, cap(t.slots), t.parts.missing(), func(ctx context.Context, i int) error {
		select {
		case t.slots <- struct{}{}:
			defer func() { <-t.slots }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		buffer := make([]byte, bufferSize)
		err := t.again(ctx, func() (progress bool, err error) {
			before := t.parts.done[i].Load()
			err = t.stream(ctx, i, buffer)
			return t.parts.done[i].Load() > before, err
		})
		if err != nil {
			return err
		}
		return t.parts.save(false)
	})
}

// stream makes one request for the rest of a part and writes what comes.
func (t *transfer) stream(ctx context.Context, i int, buffer []byte) error {
	from, to := t.parts.bounds(i)
	response, err := t.get(ctx, from, to)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for from < to {
		n, err := response.Body.Read(buffer[:min(int64(len(buffer)), to-from)])
		if n > 0 {
			if _, err := t.parts.file.WriteAt(buffer[:n], from); err != nil {
				return permanent(fmt.Errorf("%s cannot be written: %w", t.file.Path, err))
			}
			from += int64(n)
			t.parts.done[i].Add(int64(n))
			t.moved(int64(n))
			t.tell()
			if err := t.parts.save(false); err != nil {
				return permanent(err)
			}
		}
		switch {
		case (err == io.EOF || err == io.ErrUnexpectedEOF) && from < to:
			return errCut
		case err != nil && err != io.EOF:
			return err
		}
	}
	if response.StatusCode == http.StatusOK && response.ContentLength < 0 { // only its end tells how long it is
		if n, err := response.Body.Read(buffer[:1]); n > 0 || err != io.EOF {
			return t.wrongLength("more")
		}
	}
	return nil
}

// get asks for a range of the file, or for all of it, and checks that the answer is just that.
func (t *transfer) get(ctx context.Context, from, to int64) (*http.Response, error) {
	address, header := t.address, http.Header{}
	direct := t.direct.Load()
	if direct != nil {
		address = direct
	}
	whole := from == 0 && to == t.file.Size
	if !whole {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	}
	response, err := t.request(ctx, http.MethodGet, address, header, allHops)
	if status := (*statusError)(nil); errors.As(err, &status) {
		switch {
		case status.status == http.StatusRequestedRangeNotSatisfiable:
			return nil, permanent(errNoRanges)
		case direct != nil && status.status/100 == 4 && status.status != http.StatusTooManyRequests:
			t.direct.CompareAndSwap(direct, nil) // it has expired, most likely
			return nil, fmt.Errorf("the address of %s has expired (%d)", t.file.Path, status.status)
		}
	}
	if err != nil {
		return nil, err
	}
	if end := response.Request.URL; !sameOrigin(end, t.base) {
		t.direct.Store(end)
	}
	if err := t.checkAnswer(response, whole, from, to); err != nil {
		response.Body.Close()
		return nil, err
	}
	return response, nil
}

func (t *transfer) checkAnswer(r *http.Response, whole bool, from, to int64) error {
	switch {
	case r.StatusCode == http.StatusPartialContent && !whole:
		want := fmt.Sprintf("bytes %d-%d/%d", from, to-1, t.file.Size)
		if got := r.Header.Get("Content-Range"); got != want {
			return permanent(fmt.Errorf("%w: the server answers with the range %q of %s, not %q", ErrDamaged, printable(got, 60), t.file.Path, want))
		}
		return nil
	case r.StatusCode == http.StatusOK && !whole:
		return permanent(errNoRanges)
	case r.StatusCode != http.StatusOK:
		return permanent(fmt.Errorf("%s answers %d where a file is wanted", t.base.Host, r.StatusCode))
	case r.ContentLength >= 0 && r.ContentLength != t.file.Size:
		return t.wrongLength(fmt.Sprint(r.ContentLength))
	}
	return nil
}

func (t *transfer) wrongLength(got string) error {
	return permanent(fmt.Errorf("%w: the server sends %s bytes of %s, not %d", ErrDamaged, got, t.file.Path, t.file.Size))
}

// tell wakes digest up.
func (t *transfer) tell() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// digest computes the hash, in order, following what has arrived. What came an earlier time is read like the rest.
func (t *transfer) digest(ctx context.Context) error {
	h, buffer := t.file.newHash(), make([]byte, bufferSize)
	for at := int64(0); at < t.file.Size; {
		end := t.parts.frontier(at)
		if end == at {
			select {
			case <-t.news:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if _, err := io.CopyBuffer(plainWriter{h}, &interruptible{ctx, io.NewSectionReader(t.parts.file, at, end-at)}, buffer); err != nil {
			return readError(t.file, err)
		}
		at = end
	}
	return t.file.check(h)
}

// plainWriter hides ReadFrom, so that CopyBuffer uses its buffer.
type plainWriter struct{ io.Writer }

func readError(f file, err error) error {
	if errors.Is(err, os.ErrClosed) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s cannot be read back: %w", f.Path, err)
}
