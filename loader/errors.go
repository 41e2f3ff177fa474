package loader

import (
	"fmt"
	"strings"
)

// An Attempt is one path that Open looked at and what came of it: what the
// system answered, or what was found there.
type Attempt struct {
	Path, Result string
}

// An OpenError says why no backend library is open. It unwraps to its cause, which
// is bindings.ErrVersion for libraries of different releases.
type OpenError struct {
	Code     Code      // the kind of problem
	Problem  string    // one sentence with the file and the system's words
	Remedy   string    // what to do about it
	Attempts []Attempt // everything tried, in order
	Err      error     // the cause, if it is an error
}

func (e *OpenError) Error() string { return e.Problem + "; " + e.Remedy }

func (e *OpenError) Unwrap() error { return e.Err }

// remedy is what helps against a missing or damaged bundle.
const remedy = "unzip the whole archive, as the folder lib must lie beside mlxcel," +
	" or in a clone of the repository run `go run ./dist demo`"

// A search is an Open in progress: it notes what was tried.
type search struct {
	attempts []Attempt
	driver   *Driver // asked once, where a variant wants a GPU
	noGPU    string  // why a variant for GPUs that is there is not used
	skipped  []*OpenError
}

func (s *search) note(path, format string, args ...any) {
	s.attempts = append(s.attempts, Attempt{path, fmt.Sprintf(format, args...)})
}

// fail makes the error for path and notes it.
func (s *search) fail(path string, cause error, format string, args ...any) error {
	problem := fmt.Sprintf(format, args...)
	s.note(path, "%s", problem)
	code, help := codeOf(cause), remedy
	switch code {
	case FolderName:
		help = "move mlxcel to a folder with a plain name, or use --device cpu"
	case FileHeld:
		help = "try again in a minute; if it stays, make an exception for the folder in the virus scanner"
	}
	return &OpenError{Code: code, Problem: problem, Remedy: help, Attempts: s.attempts, Err: cause}
}

// notFound makes the error for a search that found no file to open.
func (s *search) notFound() error {
	var tried []string
	for _, a := range s.attempts {
		tried = append(tried, fmt.Sprintf("%s (%s)", a.Path, a.Result))
	}
	return &OpenError{
		Code:     BundleMissing,
		Problem:  "no backend library found: tried " + strings.Join(tried, ", "),
		Remedy:   remedy,
		Attempts: s.attempts,
	}
}
