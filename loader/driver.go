package loader

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A GPU is one that the NVIDIA driver lists.
type GPU struct {
	Index        int // as in "cuda:0"
	Name         string
	UUID         string // "GPU-…"
	Major, Minor int    // compute capability
	Memory       int64  // bytes in all

	luid uint64 // what Windows calls it; 0: it does not know it
}

// Capability is the compute capability as people write it.
func (g GPU) Capability() string { return fmt.Sprintf("%d.%d", g.Major, g.Minor) }

// Budget is how many more bytes of the GPU's memory the system lets this process have at the moment. Windows tells it (DXGI's
// QueryVideoMemoryInfo): it lets a process take more than that, but moves some of it to main memory then, silently, where
// it is slow. Elsewhere there is no budget, and known is false.
func (g GPU) Budget() (bytes int64, known bool) {
	m, known := budget(g.luid)
	return int64(max(m.budget, m.usage) - m.usage), known
}

// videoMemory is DXGI_QUERY_VIDEO_MEMORY_INFO: what a process may use of a GPU's memory, and what it does, in bytes.
type videoMemory struct {
	budget, usage uint64
	_             [2]uint64 // what can be and is reserved
}

// Driver is what the NVIDIA driver tells.
type Driver struct {
	CUDA    int    // the newest CUDA that it serves, 13010 for 13.1; 0: unknown
	GPUs    []GPU  // in the order of their numbers, without those that CUDA_VISIBLE_DEVICES hides
	Problem string // why there is no GPU to use, a sentence without its end; "" if there is one
	Code    Code   // the kind of Problem
}

// CUDAVersion is the CUDA version as people write it.
func (d Driver) CUDAVersion() string { return formatCUDA(d.CUDA) }

func formatCUDA(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) }

// Probe asks the NVIDIA driver for its GPUs. It loads the driver, which comes with the system, and nothing else of
// CUDA: what is built for CUDA cannot even be loaded, or not used, where there is no driver.
func Probe() Driver {
	var d Driver
	if err := d.ask(); err != nil {
		d.Problem, d.Code = err.Error(), codeOr(err, DriverBroken)
	}
	return d
}

// The driver's numbers for what is asked of a device.
const (
	attributeMajor, attributeMinor = 75, 76
	errorNoDevice                  = 100
)

// ask fills in the answers. Every function of the driver returns an int32, 0 for success.
func (d *Driver) ask() error {
	library, err := openDriver()
	if err != nil {
		return err
	}
	call := func(name string, arguments ...uintptr) error {
		address, err := symbol(library, name)
		if err != nil {
			return fmt.Errorf("the NVIDIA driver lacks the function %s: it is too old or damaged", name)
		}
		if code, _, _ := purego.SyscallN(address, arguments...); int32(code) != 0 {
			return driverError{name, int32(code)}
		}
		return nil
	}
	// Written by the driver; on the heap, where purego's calls may be given their addresses.
	out := new(struct {
		version, count, device, value int32
		memory                        uint64
		name                          [256]byte
		uuid                          [16]byte
		luid                          uint64
		nodes                         uint32
	})
	at := func(p unsafe.Pointer) uintptr { return uintptr(p) }
	defer runtime.KeepAlive(out)

	if err := call("cuDriverGetVersion", at(unsafe.Pointer(&out.version))); err != nil {
		return err
	}
	d.CUDA = int(out.version)
	if err := call("cuInit", 0); err != nil {
		return explainInit(err)
	}
	if err := call("cuDeviceGetCount", at(unsafe.Pointer(&out.count))); err != nil {
		return err
	}
	if out.count == 0 {
		return explainInit(driverError{"cuInit", errorNoDevice})
	}
	for i := range int(out.count) {
		g := GPU{Index: i}
		if err := call("cuDeviceGet", at(unsafe.Pointer(&out.device)), uintptr(i)); err != nil {
			return err
		}
		device := uintptr(out.device)
		for _, a := range []struct {
			number uintptr
			to     *int
		}{{attributeMajor, &g.Major}, {attributeMinor, &g.Minor}} {
			if err := call("cuDeviceGetAttribute", at(unsafe.Pointer(&out.value)), a.number, device); err != nil {
				return err
			}
			*a.to = int(out.value)
		}
		if err := errors.Join(
			call("cuDeviceGetName", at(unsafe.Pointer(&out.name)), uintptr(len(out.name)), device),
			call("cuDeviceTotalMem_v2", at(unsafe.Pointer(&out.memory)), device),
			call("cuDeviceGetUuid", at(unsafe.Pointer(&out.uuid)), device),
		); err != nil {
			return err
		}
		name, _, _ := strings.Cut(string(out.name[:]), "\x00")
		g.Name, g.Memory = name, int64(out.memory)
		u := out.uuid
		g.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
		// A GPU that Windows does not draw with has none.
		if runtime.GOOS == "windows" && call("cuDeviceGetLuid", at(unsafe.Pointer(&out.luid)), at(unsafe.Pointer(&out.nodes)), device) == nil {
			g.luid = out.luid
		}
		d.GPUs = append(d.GPUs, g)
	}
	return nil
}

// driverError is a call of the driver that failed.
type driverError struct {
	function string
	code     int32
}

func (e driverError) Error() string {
	return fmt.Sprintf("the NVIDIA driver's %s answers error %d", e.function, e.code)
}

// explainInit says what the usual failures of a driver's start mean.
func explainInit(err error) error {
	var e driverError
	if !errors.As(err, &e) {
		return err
	}
	visible, limited := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	switch e.code {
	case errorNoDevice:
		if limited {
			return problem{GPUHidden, fmt.Errorf("CUDA_VISIBLE_DEVICES is %q, which leaves no GPU: unset it, or name one", visible)}
		}
		return problem{GPUNone, errors.New("the NVIDIA driver finds no GPU: it may be switched off, in use by a virtual machine, or not passed to this container")}
	case 34:
		return errors.New("the NVIDIA driver is a stub for building programs: install the real one")
	case 803, 804:
		return errors.New("the NVIDIA driver's parts are of different versions: restart the machine, or install the driver again")
	case 802, 999:
		return fmt.Errorf("the NVIDIA driver does not start (error %d): restart the machine, and install the driver again if that does not help", e.code)
	}
	return fmt.Errorf("the NVIDIA driver does not start (error %d)", e.code)
}

// pick returns the GPU that the option device names ("auto", "cuda", "cuda:N", a UUID or its beginning) for a variant.
func (d Driver) pick(v variant, device string) (GPU, error) {
	if d.Problem != "" {
		return GPU{}, problem{d.Code, errors.New(d.Problem)}
	}
	if d.CUDA < v.cuda {
		return GPU{}, problem{DriverOld, fmt.Errorf("the NVIDIA driver serves CUDA up to %s, and the libraries are for CUDA %s: install driver %s or newer",
			d.CUDAVersion(), formatCUDA(v.cuda), v.driver)}
	}
	var unfit error
	for _, g := range d.GPUs {
		if !g.named(device) {
			continue
		}
		if err := g.supported(runtime.GOOS); err != nil {
			unfit = err
			continue
		}
		return g, nil
	}
	if unfit == nil {
		unfit = problem{GPUUnknown, fmt.Errorf("there is no GPU %s, only %s", device, d.list())}
	}
	return GPU{}, unfit
}

func (d Driver) list() string {
	var all []string
	for _, g := range d.GPUs {
		all = append(all, fmt.Sprintf("cuda:%d (%s, %s)", g.Index, g.Name, g.UUID))
	}
	return strings.Join(all, ", ")
}

func (g GPU) named(device string) bool {
	if number, ok := strings.CutPrefix(device, "cuda:"); ok {
		return strconv.Itoa(g.Index) == number
	}
	if isUUID(device) {
		return strings.HasPrefix(strings.ToLower(g.UUID), strings.ToLower(device))
	}
	return true
}

func isUUID(device string) bool { return len(device) > 4 && strings.EqualFold(device[:4], "GPU-") }

// Supported reports, as an error, a GPU that MLX's builds for this system have no code for.
func (g GPU) Supported() error { return g.supported(runtime.GOOS) }

// supported says whether MLX's builds have code for the GPU.
func (g GPU) supported(goos string) error {
	switch {
	case g.Major < 7 || g.Major == 7 && g.Minor < 5:
		return problem{GPUUnsupported, fmt.Errorf("the GPU %s has compute capability %s, and 7.5 or more is needed (GeForce RTX 20, GTX 16 and newer)", g.Name, g.Capability())}
	case goos == "windows" && (g.Major == 9 || g.Major == 10):
		return problem{GPUUnsupported, fmt.Errorf("MLX's Windows build has no code for the GPU %s, whose compute capability is %s: use Linux or WSL2 there", g.Name, g.Capability())}
	}
	return nil
}
