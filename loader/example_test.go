package loader_test

import (
	"errors"
	"fmt"

	"mlxcel/loader"
)

// A program that finds no bundle can show what was tried, as `mlxcel doctor` does.
func ExampleOpen() {
	_, err := loader.Open(loader.Options{Bundle: "/no/such/folder"})
	var open *loader.OpenError
	if errors.As(err, &open) {
		fmt.Println(len(open.Attempts), "places tried")
		fmt.Println(open.Remedy)
	}
	// Output:
	// 6 places tried
	// unzip the whole archive, as the folder lib must lie beside mlxcel, or in a clone of the repository run `go run ./dist demo`
}
