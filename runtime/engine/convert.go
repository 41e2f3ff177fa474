package engine

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"mlxcel/runtime/program"
	"mlxcel/runtime/weights"
)

// conversion makes, weight after weight, the bytes that are no file's as they are, such as those of GGUF tensors. It is
// a weight ahead of who takes them, so that both work at once.
type conversion struct {
	made  chan converted
	spare chan []byte // buffers to be used again: memory that the process already has is faster than fresh one
	taken []byte      // the buffer that next returned last
	ended chan struct{}
}

type converted struct {
	bytes []byte
	err   error
}

// convertAhead begins the conversion of the weights. It ends with the last weight, or by stop.
func convertAhead(values []*program.Value, checkpoint *weights.Checkpoint) *conversion {
	c := &conversion{made: make(chan converted), spare: make(chan []byte, 2), ended: make(chan struct{})}
	c.spare <- nil // the other one is what next gives back first
	go func() {
		for _, v := range values {
			select {
			case buffer := <-c.spare:
				bytes, err := convert(v.Weight, checkpoint, buffer)
				select {
				case c.made <- converted{bytes, err}:
				case <-c.ended:
					return
				}
			case <-c.ended:
				return
			}
		}
	}()
	return c
}

// next returns the converted parts of the next weight, one behind the other; they are valid until the next call.
func (c *conversion) next() ([]byte, error) {
	c.spare <- c.taken
	made := <-c.made
	c.taken = made.bytes
	return made.bytes, made.err
}

func (c *conversion) stop() { close(c.ended) }

// worthAThread is how many bytes take longer to make than a goroutine to start.
const worthAThread = 128 << 10

// convert makes the parts of a weight that have to be made, all at once, in the buffer if it is large enough.
func convert(w *program.Weight, checkpoint *weights.Checkpoint, buffer []byte) ([]byte, error) {
	type task struct {
		name string
		part weights.Part
		at   int64 // in the buffer
	}
	var tasks []task
	var size int64
	for _, name := range w.Tensors {
		for _, part := range checkpoint.Tensors[name].Parts {
			if part.Load != nil {
				tasks = append(tasks, task{name, part, size})
				size += part.Size
			}
		}
	}
	if int64(cap(buffer)) < size {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	var working sync.WaitGroup
	var next atomic.Int64
	failed := make([]error, max(1, min(int(size/worthAThread), len(tasks), runtime.GOMAXPROCS(0))))
	work := func(i int) {
		for failed[i] == nil {
			n := int(next.Add(1)) - 1
			if n >= len(tasks) {
				return
			}
			t := tasks[n]
			if err := t.part.Load(buffer[t.at : t.at+t.part.Size]); err != nil {
				failed[i] = fmt.Errorf("tensor %s: %w", t.name, err)
			}
		}
	}
	for i := range failed[1:] {
		working.Go(func() { work(i + 1) })
	}
	work(0)
	working.Wait()
	return buffer, errors.Join(failed...)
}
