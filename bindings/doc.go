// Package bindings is Go's half of the C ABI in mlxshim/include/mlxshim.h, by
// which a backend library (mlxshim on MLX, or native, our own kernels) is driven.
//
// abi_gen.go is generated from the header: codes, op numbers, parameter blocks
// and one raw call per function. The rest of the package is a thin typed layer
// over it: one method per function, Go strings and slices for pointers and
// lengths, and an error for a status. The header says what each function does.
//
// # Finding the library
//
// New takes a function that answers symbols, so this package opens nothing
// itself; package loader does.
//
// # Threads
//
// MLX's streams belong to a thread. A Context and everything made from it must
// be used by the thread that created it, so a program creates it in a goroutine
// that has called runtime.LockOSThread, and stays there. A Context keeps the
// arguments of the call in progress, so that calls allocate nothing: two calls
// at once on one Context are a data race.
//
// # Memory
//
// Whatever is handed to a call only needs to live during that call; the package
// keeps it reachable and pins what parameter blocks point to. Objects of the
// library are not garbage collected: destroy them, or the Context they were
// made from.
package bindings

//go:generate go run ./gen

// Parameters of the ABI are 64 bits wide and travel as uintptr: this does not
// compile on 32-bit systems.
const _ = uint(^uintptr(0)>>63) - 1
