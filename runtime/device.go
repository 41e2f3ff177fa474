package runtime

import (
	stdruntime "runtime"

	"mlxcel/bindings"
	"mlxcel/loader"
	"mlxcel/runtime/engine"
)

// Types of other packages that results of this one have.
type (
	Facts       = engine.Facts         // what [Model.Facts] tells
	Stats       = engine.Stats         // what [Model.Stats] tells
	Memory      = bindings.Memory      // what [Model.Memory] tells
	LibraryInfo = bindings.Info        // what a library says about itself
	DeviceName  = bindings.DeviceName  // a device in it
	DeviceFacts = bindings.DeviceFacts // what [Runtime.Device] tells
	OpenError   = loader.OpenError     // why [Open] failed: what was tried, and a remedy
	Attempt     = loader.Attempt       // a path that Open looked at
	Driver      = loader.Driver        // what [ProbeDriver] tells
	GPU         = loader.GPU           // one that the driver lists
	Code        = loader.Code          // a kind of problem, to look it up

	ExplainedCode = loader.ExplainedCode // a Code with what it means and what helps
)

// DeviceCPU is the Device of a processor.
const DeviceCPU = bindings.DeviceCPU

// DriverMissing is the code of a machine without an NVIDIA driver.
const DriverMissing = loader.DriverMissing

// Codes explains the codes.
var Codes = loader.Codes

// ProbeDriver asks the NVIDIA driver of this machine for its GPUs. It opens no library of the bundle.
func ProbeDriver() Driver { return loader.Probe() }

// Attempts returns the paths that Open looked at, and what came of each.
func (r *Runtime) Attempts() []Attempt { return r.loaded.Attempts }

// Device opens the device for a moment and returns what it is.
func (r *Runtime) Device() (facts DeviceFacts, err error) {
	stdruntime.LockOSThread() // to which a context belongs
	defer stdruntime.UnlockOSThread()
	c, err := r.loaded.Library.NewContext(r.contextParams(r.loaded))
	if err != nil {
		return DeviceFacts{}, err
	}
	if facts, err = c.DeviceFacts(); err != nil {
		_ = c.Destroy() // the first error says more
		return DeviceFacts{}, err
	}
	if available := available(r.loaded); available > 0 {
		facts.FreeMemory = min(facts.FreeMemory, available)
	}
	return facts, c.Destroy()
}

// available is how many bytes of the GPU's memory the system lets this process have, 0 where it does not say.
func available(l *loader.Loaded) int64 {
	if bytes, known := l.GPU.Budget(); known && l.Device != DeviceCPU {
		return max(bytes, 1)
	}
	return 0
}
