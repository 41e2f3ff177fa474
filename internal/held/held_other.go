//go:build !windows

package held

// Opening is never so.
func Opening(error) bool { return false }

// Replacing is never so.
func Replacing(error) bool { return false }

// Retry calls f once.
func Retry(_ func(error) bool, f func() error) error { return f() }
