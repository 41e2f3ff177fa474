package bindings

import "unsafe"

// A caller makes raw calls (see abi_gen.go). It keeps the argument list and room
// for results, because memory that a call is given must not lie on a Go stack,
// which may move, and because a caller that is used again allocates nothing.
type caller struct {
	table *[functionCount]uintptr
	args  [maxParams]uintptr
	out   [1]int64 // for the one number that many functions answer
	op    int64    // for failed_op
}

// layoutEntry is one number of the layout table, with a name for messages.
type layoutEntry struct {
	name  string
	value int64
}

// address turns p into an argument. The compiler must not see that p ends up as
// a mere number: it would leave what p points to on the stack.
func address(p unsafe.Pointer) uintptr {
	if escape.never {
		escape.to = p
	}
	return uintptr(p)
}

var escape struct {
	never bool
	to    unsafe.Pointer
}

// empty is what an empty slice's address is replaced with, since a null pointer
// is an error to the library.
var empty byte

func pointer[T any](s []T) unsafe.Pointer {
	if len(s) == 0 {
		return unsafe.Pointer(&empty)
	}
	return unsafe.Pointer(unsafe.SliceData(s))
}

// maxText bounds a text that a library may claim to have.
const maxText = 1 << 20

// text fetches a text result: get writes up to capacity bytes and the whole length.
func (c *caller) text(get func(text *byte, capacity int64, length *int64) Status) (string, Status) {
	buffer := make([]byte, 512)
	for {
		c.out[0] = 0
		status := get(&buffer[0], int64(len(buffer)), &c.out[0])
		length := min(max(c.out[0], 0), maxText)
		if length <= int64(len(buffer)) {
			return string(buffer[:length]), status
		}
		buffer = make([]byte, length)
	}
}

// check turns the status of the call just made into an error; op is the index of
// the failed op, -1 for none. It must run on the thread of that call.
func (c *caller) check(status Status, op int64) error {
	if status == OK {
		return nil
	}
	message, answer := c.text(func(text *byte, capacity int64, length *int64) Status {
		return c.lastError(0, text, capacity, length)
	})
	if answer != OK || message == "" {
		message = "the backend library failed with status " + status.Error()
	}
	return &Error{Status: status, Op: int(op), Message: message}
}
