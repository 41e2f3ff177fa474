package engine

import "golang.org/x/sys/windows"

var setThreadExecutionState = windows.NewLazySystemDLL("kernel32.dll").NewProc("SetThreadExecutionState")

// stayAwake keeps the machine from going to sleep for as long as the calling thread lives, or until it is called with
// false. The screen may go dark. Without it, Windows sleeps in the middle of a long answer that nobody touches a key in.
func stayAwake(on bool) {
	const continuous, systemRequired = 0x80000000, 1
	state := uintptr(continuous)
	if on {
		state |= systemRequired
	}
	if setThreadExecutionState.Find() == nil {
		_, _, _ = setThreadExecutionState.Call(state) // a machine that sleeps nevertheless goes on when it wakes
	}
}
