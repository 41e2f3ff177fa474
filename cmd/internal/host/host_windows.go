package host

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

var (
	kernel32             = windows.NewLazySystemDLL("kernel32.dll")
	globalMemoryStatusEx = kernel32.NewProc("GlobalMemoryStatusEx")
	getProcessMemoryInfo = kernel32.NewProc("K32GetProcessMemoryInfo")
)

func system() string {
	v := windows.RtlGetVersion()
	return fmt.Sprintf("Windows %d.%d build %d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
}

func processor() string {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `HARDWARE\DESCRIPTION\System\CentralProcessor\0`, registry.QUERY_VALUE)
	if err != nil {
		return ""
	}
	defer key.Close()
	name, _, err := key.GetStringValue("ProcessorNameString")
	if err != nil {
		return ""
	}
	return name
}

func memory() (total, available int64) {
	var status struct { // MEMORYSTATUSEX
		length, load                 uint32
		totalPhys, availPhys         uint64
		totalPage, availPage         uint64
		totalVirtual, availVirtual   uint64
		availExtendedVirtualReserved uint64
	}
	status.length = uint32(unsafe.Sizeof(status))
	if ok, _, _ := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return 0, 0
	}
	return int64(status.totalPhys), int64(status.availPhys)
}

func peakMemory() int64 {
	var counters struct { // PROCESS_MEMORY_COUNTERS
		size, pageFaults                         uint32
		peakWorkingSet, workingSet               uintptr
		quotaPeakPaged, quotaPaged               uintptr
		quotaPeakNonPaged, quotaNonPaged         uintptr
		pagefileUsage, peakPagefileUsageReserved uintptr
	}
	counters.size = uint32(unsafe.Sizeof(counters))
	ok, _, _ := getProcessMemoryInfo.Call(uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&counters)), uintptr(counters.size))
	if ok == 0 {
		return 0
	}
	return int64(counters.peakWorkingSet)
}
