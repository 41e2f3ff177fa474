// Command winres writes what Windows wants to find in the executables: an
// application manifest, a version resource and an icon, as an object file that
// `go build` links into a program for Windows because it lies in its folder.
// The files are committed, so that a plain build has them; a test fails when
// they and this code disagree.
//
// Run it through `go generate ./cmd/...`.
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"image"
	"os"
	"strings"

	"github.com/tc-hib/winres"
	"github.com/tc-hib/winres/version"

	"mlxcel/cmd/internal/cli"
)

// objectFile is the name under which `go build` finds the resources of a program.
const objectFile = "resources_windows_amd64.syso"

func main() {
	name := flag.String("name", "", "the program's `NAME`")
	about := flag.String("about", "", "what it is, a few words")
	flag.Parse()
	if err := write(*name, *about, objectFile); err != nil {
		fmt.Fprintln(os.Stderr, "winres:", err)
		os.Exit(1)
	}
}

func write(name, about, path string) error {
	set, err := resources(name, about)
	if err != nil {
		return err
	}
	var object bytes.Buffer
	if err := set.WriteObject(&object, winres.ArchAMD64); err != nil {
		return err
	}
	return os.WriteFile(path, object.Bytes(), 0o644)
}

//go:embed app.manifest
var manifest string

const english = 0x409 // the language of the texts

// resources are those of one program.
func resources(name, about string) (*winres.ResourceSet, error) {
	number, err := fileVersion(cli.Version)
	if err != nil {
		return nil, err
	}
	set := &winres.ResourceSet{}
	text := strings.NewReplacer("NAME", name, "VERSION", dotted(number)).Replace(manifest)
	if err := set.Set(winres.RT_MANIFEST, winres.ID(1), english, []byte(text)); err != nil {
		return nil, err
	}
	info := version.Info{FileVersion: number, ProductVersion: number, Type: version.App}
	for key, value := range map[string]string{
		version.ProductName:      "mlxcel",
		version.ProductVersion:   cli.Version,
		version.FileVersion:      dotted(number),
		version.FileDescription:  about,
		version.InternalName:     name,
		version.OriginalFilename: name + ".exe",
		version.LegalCopyright:   "Apache License 2.0",
	} {
		if err := info.Set(english, key, value); err != nil {
			return nil, err
		}
	}
	set.SetVersionInfo(info)
	var sizes []image.Image
	for _, n := range iconSizes {
		sizes = append(sizes, drawIcon(n))
	}
	icon, err := winres.NewIconFromImages(sizes)
	if err != nil {
		return nil, err
	}
	return set, set.SetIcon(winres.ID(1), icon)
}

// fileVersion makes the four numbers that Windows wants of a release such as "0.1.0" or "0.2.0-rc1".
func fileVersion(release string) (number [4]uint16, err error) {
	release, _, _ = strings.Cut(release, "-")
	if n, err := fmt.Sscanf(release, "%d.%d.%d", &number[0], &number[1], &number[2]); n != 3 {
		return number, fmt.Errorf("the version %q is not three numbers: %w", release, err)
	}
	return number, nil
}

func dotted(n [4]uint16) string { return fmt.Sprintf("%d.%d.%d.%d", n[0], n[1], n[2], n[3]) }
