package bindings

import "fmt"

// A Status is what every function of the ABI returns. The failures are errors, so
// that errors.Is(err, bindings.ErrMemory) tells them apart.
type Status int32

// Error returns the status in a word: "argument", "memory".
func (s Status) Error() string { return nameOf(statusNames[:], int64(s), "status") }

// A Device is a kind of processor.
type Device int64

func (d Device) String() string { return nameOf(deviceNames[:], int64(d), "device") }

// A QuantMode is how the values of a quantized weight are coded.
type QuantMode int64

func (m QuantMode) String() string { return nameOf(quantModeNames[:], int64(m), "quant") }

// An Axis is what the first dimension of a value in a program counts.
type Axis int64

func (a Axis) String() string { return nameOf(axisNames[:], int64(a), "axis") }

// An Op is an operation of a program; its String is the name in the header, in
// lower case: "rms_norm".
type Op int64

func (o Op) String() string { return nameOf(opNames[:], int64(o), "op") }

func nameOf(names []string, code int64, kind string) string {
	if code < 0 || code >= int64(len(names)) || names[code] == "" {
		return fmt.Sprintf("%s(%d)", kind, code)
	}
	return names[code]
}

// An Error is a failed call: it unwraps to its Status.
type Error struct {
	Status  Status
	Op      int    // the index of the op that is wrong or failed, -1 where it is none
	Message string // one sentence of the library
}

func (e *Error) Error() string {
	if e.Op >= 0 {
		return fmt.Sprintf("op %d: %s", e.Op, e.Message)
	}
	return e.Message
}

// Unwrap returns the status, for errors.Is.
func (e *Error) Unwrap() error { return e.Status }

// mismatch is the error for a library that is not the one this program was built for.
func mismatch(format string, args ...any) error {
	return &Error{Status: ErrVersion, Op: -1, Message: fmt.Sprintf(format, args...)}
}
