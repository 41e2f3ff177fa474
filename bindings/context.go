package bindings

import "unsafe"

// Library returns the library that the context was made from.
func (c *Context) Library() *Library { return c.library }

// Destroy closes the device and destroys all that was made from the context.
func (c *Context) Destroy() error { return c.check(c.contextDestroy(c.handle), -1) }

// Synchronize waits for everything enqueued.
func (c *Context) Synchronize() error { return c.check(c.synchronize(c.handle), -1) }

// DeviceFacts describe an open device. Memory is in bytes, 0 where unknown.
type DeviceFacts struct {
	Device       Device
	Index        int
	TotalMemory  int64
	FreeMemory   int64
	ComputeMajor int // CUDA compute capability, 0 on the CPU
	ComputeMinor int
	Activation   DType // the float type that this device computes fastest and safely in
}

// DeviceFacts asks what the device is.
func (c *Context) DeviceFacts() (DeviceFacts, error) {
	raw := &rawDeviceInfo{}
	raw.size = int64(unsafe.Sizeof(*raw))
	if err := c.check(c.deviceFacts(c.handle, raw), -1); err != nil {
		return DeviceFacts{}, err
	}
	return DeviceFacts{
		Device:       Device(raw.device),
		Index:        int(raw.deviceIndex),
		TotalMemory:  raw.totalMemory,
		FreeMemory:   raw.freeMemory,
		ComputeMajor: int(raw.computeMajor),
		ComputeMinor: int(raw.computeMinor),
		Activation:   DType(raw.activationDtype),
	}, nil
}

// Memory is the memory that arrays take, in bytes.
type Memory struct {
	Active int64 // in use by arrays
	Peak   int64 // the most since the last reset
	Cached int64 // freed, kept for reuse
	Host   int64 // weights in host memory that a GPU reads over the bus: 0, or something is wrong
}

// Memory asks for the memory in use.
func (c *Context) Memory() (Memory, error) {
	raw := &rawMemoryInfo{}
	raw.size = int64(unsafe.Sizeof(*raw))
	if err := c.check(c.memory(c.handle, raw), -1); err != nil {
		return Memory{}, err
	}
	return Memory{Active: raw.active, Peak: raw.peak, Cached: raw.cached, Host: raw.host}, nil
}

// ResetPeak starts a new count of the peak.
func (c *Context) ResetPeak() error { return c.check(c.memoryResetPeak(c.handle), -1) }

// Trim gives memory that is kept for reuse back to the system.
func (c *Context) Trim() error { return c.check(c.memoryTrim(c.handle), -1) }

// A File is open for reading weights.
type File struct {
	ctx    *Context
	handle int64
}

// OpenFile opens the file at an absolute path.
func (c *Context) OpenFile(path string) (File, error) {
	if err := c.check(c.fileOpen(c.handle, unsafe.StringData(path), int64(len(path)), &c.out[0]), -1); err != nil {
		return File{}, err
	}
	return File{c, c.out[0]}, nil
}

// Close closes the file; weights read from it stay.
func (f File) Close() error { return f.ctx.check(f.ctx.fileClose(f.handle), -1) }
