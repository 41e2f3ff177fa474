package loader

import (
	"errors"
	"io/fs"

	"mlxcel/bindings"
	"mlxcel/internal/held"
)

// A Code names a kind of problem in a word or two, so that it can be looked up. `mlxcel doctor` prints it.
type Code string

// The codes of what may be wrong with a bundle, with the NVIDIA driver and with GPUs.
const (
	BundleMissing  Code = "bundle-missing"
	FileMissing    Code = "file-missing"
	FileUnreadable Code = "file-unreadable"
	FileHeld       Code = "file-held"
	FileDamaged    Code = "file-damaged"
	WrongVersion   Code = "wrong-version"
	LoadRefused    Code = "load-refused"
	FolderName     Code = "folder-name"

	DriverMissing  Code = "driver-missing"
	DriverPartial  Code = "driver-partial"
	DriverOld      Code = "driver-old"
	DriverBroken   Code = "driver-broken"
	GPUNone        Code = "gpu-none"
	GPUHidden      Code = "gpu-hidden"
	GPUUnknown     Code = "gpu-unknown"
	GPUUnsupported Code = "gpu-unsupported"
)

// ExplainedCode is a code with what it means and what helps, in sentences.
type ExplainedCode struct {
	Code          Code
	Means, Remedy string
}

// Codes explains the codes, in the order in which things are looked at.
var Codes = []ExplainedCode{
	{BundleMissing, "The folder lib with the libraries is not where it belongs.",
		"Unzip the whole archive; lib must lie beside mlxcel."},
	{FileMissing, "A file of the folder lib is missing. Virus scanners put files away that they do not know.",
		"Unzip the archive again; if the file goes again, make an exception for the folder in the virus scanner."},
	{FileUnreadable, "A file of the folder lib may not be read by this user.",
		"Unzip the archive as the user who runs mlxcel, or give that user the right to read."},
	{FileHeld, "Another program holds a file of the folder lib, as a virus scanner does that looks at new files, or an unzip that still runs.",
		"Try again in a minute; if it stays, make an exception for the folder in the virus scanner."},
	{FileDamaged, "A file of the folder lib is cut short or is no library for this system: an unzip that was stopped, a full disk.",
		"Unzip the archive again."},
	{WrongVersion, "The files in the folder lib are of different releases.",
		"Delete the folder, and unzip one archive into an empty one."},
	{LoadRefused, "The system does not load a library; its own words are printed.",
		"Linux: install what is named. Windows: install updates, or ask whether a policy forbids programs in this folder."},
	{FolderName, "The folder's name has letters beyond ASCII, and its disk keeps no short names: kernels for the GPU cannot be compiled.",
		`Move mlxcel to a folder such as C:\mlxcel. Until then it computes on the CPU.`},

	{DriverMissing, "There is no NVIDIA driver.",
		"With an NVIDIA GPU, install its driver; without one, nothing: mlxcel computes on the CPU."},
	{DriverPartial, "The NVIDIA driver lacks nvcudart_hybrid64.dll, without which CUDA 13 finds no GPU.",
		"Install driver 580 or newer from nvidia.com, not through Windows Update."},
	{DriverOld, "The NVIDIA driver is older than the libraries need: 580 for CUDA 13, 550 for CUDA 12.",
		"Install a newer driver, or take the archive for CUDA 12."},
	{DriverBroken, "The NVIDIA driver is there and does not start.",
		"Restart the machine; if that does not help, install the driver again."},
	{GPUNone, "The NVIDIA driver finds no GPU.",
		"It may be switched off, in use by a virtual machine, or not passed to this container: see what nvidia-smi says."},
	{GPUHidden, "The variable CUDA_VISIBLE_DEVICES hides all GPUs.",
		"Unset it, or name a GPU in it."},
	{GPUUnknown, "There is no such GPU as --device names.",
		"Take one of those that mlxcel doctor lists."},
	{GPUUnsupported, "The libraries have no code for this GPU: it is older than compute capability 7.5 (GeForce RTX 20, GTX 16), or," +
		" on Windows, of 9.0 or 10.0 (H100, H200, B200), which MLX's Windows build leaves out.",
		"Use --device cpu, or on a GPU of 9.0 or 10.0 Linux or WSL2."},
}

// problem is a cause with the code that it is known by.
type problem struct {
	code Code
	error
}

func (p problem) Unwrap() error { return p.error }

// codeOr is the code of an error, or another where it has none.
func codeOr(err error, other Code) Code {
	var known problem
	if errors.As(err, &known) {
		return known.code
	}
	return other
}

// refused is the cause of a library that the system does not load.
func refused(err error) error {
	if held.Opening(err) {
		return err // has a code of its own
	}
	return problem{LoadRefused, err}
}

// codeOf is the code of a problem with a file of the bundle, by its cause, which may be nil.
func codeOf(cause error) Code {
	other := FileDamaged
	switch {
	case errors.Is(cause, bindings.ErrVersion):
		other = WrongVersion
	case errors.Is(cause, fs.ErrNotExist):
		other = FileMissing
	case errors.Is(cause, fs.ErrPermission):
		other = FileUnreadable
	case held.Opening(cause):
		other = FileHeld
	}
	return codeOr(cause, other)
}
