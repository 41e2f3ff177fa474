package hub

import (
	"io/fs"

	"golang.org/x/sys/windows"
)

// freeSpace returns the bytes that may still be written to a folder's disk, false if that is unknown.
func freeSpace(folder string) (int64, bool) {
	path, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return 0, false
	}
	var free uint64
	if windows.GetDiskFreeSpaceEx(path, &free, nil, nil) != nil {
		return 0, false
	}
	return int64(min(free, 1<<62)), true
}

// allocated returns the bytes that a file takes on the disk: all of them, since it is not made with holes.
func allocated(info fs.FileInfo) int64 { return info.Size() }
