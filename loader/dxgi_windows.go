package loader

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

var createFactory = windows.NewLazySystemDLL("dxgi.dll").NewProc("CreateDXGIFactory1")

var (
	factory4 = windows.GUID{Data1: 0x1bc6ea02, Data2: 0xef36, Data3: 0x464f, Data4: [8]byte{0xbf, 0x0c, 0x21, 0xca, 0x39, 0xe5, 0x16, 0x8a}}
	adapter3 = windows.GUID{Data1: 0x645967a4, Data2: 0x1392, Data3: 0x4310, Data4: [8]byte{0xa7, 0x98, 0x80, 0x53, 0xce, 0x3e, 0x93, 0xfd}}
)

// The places of functions in the tables of DXGI's interfaces, as dxgi1_4.h orders them.
const (
	unknownRelease     = 2
	factoryByLUID      = 26 // IDXGIFactory4::EnumAdapterByLuid
	adapterVideoMemory = 14 // IDXGIAdapter3::QueryVideoMemoryInfo
)

// object is a COM object: a pointer to the table of its functions.
type object struct{ functions *[32]uintptr }

func (o *object) call(function int, arguments ...uintptr) bool {
	result, _, _ := syscall.SyscallN(o.functions[function], append([]uintptr{uintptr(unsafe.Pointer(o))}, arguments...)...)
	return int32(result) >= 0
}

// budget asks DXGI about the adapter with a LUID, the number that Windows gives it.
func budget(luid uint64) (m videoMemory, known bool) {
	if luid == 0 || createFactory.Find() != nil {
		return m, false
	}
	// Written by the system; on the heap, where its calls may be given their addresses.
	out := new(struct {
		factory, adapter *object
		memory           videoMemory
	})
	defer runtime.KeepAlive(out)
	if result, _, _ := createFactory.Call(uintptr(unsafe.Pointer(&factory4)), uintptr(unsafe.Pointer(&out.factory))); int32(result) < 0 {
		return m, false
	}
	defer out.factory.call(unknownRelease)
	if !out.factory.call(factoryByLUID, uintptr(luid), uintptr(unsafe.Pointer(&adapter3)), uintptr(unsafe.Pointer(&out.adapter))) {
		return m, false
	}
	defer out.adapter.call(unknownRelease)
	const firstNode, local = 0, 0
	known = out.adapter.call(adapterVideoMemory, firstNode, local, uintptr(unsafe.Pointer(&out.memory)))
	return out.memory, known
}
