// Package loader finds a bundle, the folder of native libraries that lies beside
// the executable, and opens the backend library in it.
//
// # The bundle
//
// A bundle holds one folder per variant, which is a backend for a kind of device:
//
//	lib/native/libmlxnative.so       our own backend library    (Windows: lib\native\mlxnative.dll)
//	lib/cpu/libmlxshim.so            the backend library on MLX (Windows: lib\cpu\mlxshim.dll)
//	lib/cpu/mlx/lib/libmlx.so        MLX, which it is linked to (Windows: lib\cpu\mlx.dll)
//	lib/cpu/mlx_cpu.libs/…           what MLX is linked to      (Windows: lib\common\…)
//
// The variants cuda13 and cuda12 are for NVIDIA GPUs. They are laid out like cpu, and have NVIDIA's libraries and what
// kernels are compiled with:
//
//	lib/cuda13/mlx/include/…              (Windows: lib\cuda13\include\…)
//	lib/cuda13/nvidia/cu13/{lib,include}  (Windows: lib\nvidia\*\bin, lib\nvidia\cu13\include)
//
// They are taken where the NVIDIA driver, which comes with the system, has a GPU that they have code for.
//
// The first of these folders that exists is the bundle: Options.Bundle, the one
// that MLXCEL_BUNDLE names, lib beside the executable, lib one level above it.
// The first two count alone where given, and may as well name the folder of a
// variant, or one that contains lib. Nothing is searched in the working folder,
// in PATH or in LD_LIBRARY_PATH: libraries are opened by absolute path.
//
// # What Open does to the process
//
// A program that embeds this package should know that Open, and nothing else
// here, changes the whole process, for good:
//
//   - It loads libraries and never unloads them. For each backend a process
//     holds the library of one bundle: opening the same again returns the same,
//     another is an error.
//   - It sets the variables of the table in environment.go, unless they are set,
//     in the environment of Go and of the C runtime, as MLX reads them when it is
//     loaded; and for a GPU MLX_PTX_CACHE_DIR, a folder in the user's cache. Setting variables is not safe while other C code reads them in
//     another thread, so call Open early.
//   - On Windows it limits where every later LoadLibrary of the process searches
//     to the application's folder, System32 and the bundle's folders
//     (SetDefaultDllDirectories, AddDllDirectory).
//
// Package initialization opens and changes nothing.
package loader
