package cli

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/windows"
)

// Exit ends the process with a code, at once. Nothing of the libraries runs any more: on Windows an ordinary end stops
// all threads wherever they are and then calls every DLL, and one that waits for its own threads crashes or hangs there.
func Exit(code int) {
	_ = windows.TerminateProcess(windows.CurrentProcess(), uint32(code))
	os.Exit(code)
}

// endOnInterrupt makes Ctrl-C, and a console that is closed, end the process by [Exit] where no part of the program deals
// with them: what Windows does by itself is an ordinary end, which a thread of a library may keep from ending.
func endOnInterrupt() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	go func() {
		for {
			select {
			case <-signals:
				if handlers.Load() == 0 {
					Exit(ExitInterrupted)
				}
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(stopped)
	}
}
