package bindings

import (
	"encoding/json"
	"fmt"
	"runtime"
	"unsafe"
)

// A Library is a backend library that fits this program. It may be used from
// every goroutine, and is never closed.
type Library struct {
	table [functionCount]uintptr
	info  Info
}

// Info is what a library says about itself.
type Info struct {
	Backend  string       `json:"backend"`   // "mlx", "native"
	Version  string       `json:"version"`   // of the library
	BuiltFor string       `json:"built_for"` // the MLX version it was compiled against
	Loaded   string       `json:"loaded"`    // the MLX version that it found
	Devices  []DeviceName `json:"devices"`   // what it can open
}

// A DeviceName is a device that a library can open.
type DeviceName struct {
	Device string `json:"device"` // "cpu", "cuda": the String of a Device
	Index  int    `json:"index"`
	Name   string `json:"name"` // as the maker calls it, "" where unknown
}

// New checks the library whose symbols the function symbol answers: its ABI
// number, that no function is missing, the MLX version it found against the one
// it was built for, and the layout of the parameter blocks. What does not match
// is named with both values, in an error that is ErrVersion.
func New(symbol func(name string) (uintptr, error)) (*Library, error) {
	// The reason of a failure is kept per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	l := &Library{}
	c := l.caller()
	for i, name := range functionNames {
		address, err := symbol(name)
		if err != nil {
			return nil, mismatch("the backend library lacks the function %s: %v", name, err)
		}
		l.table[i] = address
		if i == fnABIVersion { // first, as only the same ABI has the same functions
			if err := c.checkABI(); err != nil {
				return nil, err
			}
		}
	}
	if err := c.readInfo(&l.info); err != nil {
		return nil, err
	}
	if err := c.checkLayout(); err != nil {
		return nil, err
	}
	return l, nil
}

// Info returns what the library said about itself when it was opened.
func (l *Library) Info() Info { return l.info }

func (l *Library) caller() *caller { return &caller{table: &l.table} }

func (c *caller) checkABI() error {
	if status := c.abiVersion(&c.out[0]); status != OK {
		return fmt.Errorf("the backend library does not tell its ABI version: %w", status)
	}
	if have := c.out[0]; have != ABIVersion {
		return mismatch("the backend library has ABI %d, but this program needs ABI %d: they are of different releases", have, ABIVersion)
	}
	return nil
}

func (c *caller) readInfo(info *Info) error {
	text, status := c.text(c.libraryInfo)
	if status != OK && status != ErrVersion {
		return c.check(status, -1)
	}
	if err := json.Unmarshal([]byte(text), info); err != nil {
		return fmt.Errorf("the backend library's description of itself is not readable: %w", err)
	}
	if status == ErrVersion || info.BuiltFor != info.Loaded {
		return mismatch("the backend library was built for MLX %s, but MLX %s is loaded", info.BuiltFor, info.Loaded)
	}
	return nil
}

func (c *caller) checkLayout() error {
	table := make([]int64, len(layout)+1) // one more shows a longer table
	if status := c.layout(&table[0], int64(len(table)), &c.out[0]); status != OK {
		return c.check(status, -1)
	}
	for i, want := range layout[:min(int64(len(layout)), max(c.out[0], 0))] {
		if table[i] != want.value {
			return mismatch("%s is %d in the backend library and %d in this program: they are of different releases", want.name, table[i], want.value)
		}
	}
	if count := c.out[0]; count != int64(len(layout)) {
		return mismatch("the backend library describes its parameter blocks by %d numbers, this program by %d: they are of different releases", count, len(layout))
	}
	return nil
}

// ContextParams choose a device.
type ContextParams struct {
	Device  Device
	Index   int // which GPU, from 0
	Threads int // CPU threads, 0: the library's choice
	// MemoryLimit is how many bytes of a GPU's memory weights and state may take, 0: all. What would take more fails
	// with ErrMemory.
	MemoryLimit int64
}

// A Context is an open device. It belongs to the thread that created it; see the
// package comment.
type Context struct {
	caller
	library *Library
	handle  int64
}

// NewContext opens a device for the calling thread, to which the goroutine must
// be locked.
func (l *Library) NewContext(p ContextParams) (*Context, error) {
	c := &Context{caller: *l.caller(), library: l}
	raw := &rawContextParams{device: int64(p.Device), deviceIndex: int64(p.Index), threads: int64(p.Threads), memoryLimit: p.MemoryLimit}
	raw.size = int64(unsafe.Sizeof(*raw))
	if err := c.check(c.contextCreate(raw, &c.handle), -1); err != nil {
		return nil, err
	}
	return c, nil
}
