package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

// packagesCommand writes the descriptions by which scoop and winget install the archives for Windows in a folder.
func packagesCommand(ctx context.Context, p *project, args []string) error {
	flags := flag.NewFlagSet("packages", flag.ContinueOnError)
	out := flags.String("out", p.path("out"), "the folder with the archives, in which the folders scoop and winget are made")
	url := flags.String("url", "", "the address below which the archives can be downloaded")
	home := flags.String("home", "", "the address of the project")
	if err := parseFlags(p, flags, args); err != nil {
		return err
	}
	if !strings.HasPrefix(*url, "https://") || !strings.HasPrefix(*home, "https://") {
		p.say("packages needs --url and --home, addresses that begin with https://")
		return errUsage
	}
	archives, err := filepath.Glob(filepath.Join(*out, "mlxcel-*-"+windowsTarget+"-*.zip"))
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return fmt.Errorf("%s has no archive for Windows: make one by `go run ./dist bundle --target %s`", *out, windowsTarget)
	}
	for _, archive := range archives {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		described, err := describePackage(archive, strings.TrimSuffix(*url, "/"), *home)
		if err != nil {
			return err
		}
		for path, text := range described.files() {
			path = filepath.Join(*out, filepath.FromSlash(path))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
			p.say("wrote %s", path)
		}
	}
	return nil
}

// A windowsPackage is what package managers want to know about an archive.
type windowsPackage struct {
	Version, Variant string
	URL, Home        string
	SHA256           string // hexadecimal
	Folder           string // the one that everything in the archive is in
}

var archiveName = regexp.MustCompile(`^mlxcel-(.+)-` + windowsTarget + `-([a-z0-9-]+)\.zip$`)

func describePackage(archive, url, home string) (windowsPackage, error) {
	name := filepath.Base(archive)
	parts := archiveName.FindStringSubmatch(name)
	if parts == nil {
		return windowsPackage{}, fmt.Errorf("%s is not named as `dist bundle` names archives", archive)
	}
	_, sum, err := hashFile(archive)
	if err != nil {
		return windowsPackage{}, err
	}
	return windowsPackage{
		Version: parts[1], Variant: parts[2], URL: url + "/" + name, Home: home,
		SHA256: sum, Folder: strings.TrimSuffix(name, ".zip"),
	}, nil
}

// describedAs is what package managers show.
const describedAs = "Runs language models on your own machine: command line, chat, and a server that speaks OpenAI's API"

// wingetVersion is the version of winget's manifest format; from this one on a program can say that it needs the files
// beside it.
const wingetVersion = "1.9.0"

// winget wants three files for a version of a package.
var wingetFiles = map[string]*template.Template{
	"": template.Must(template.New("").Parse(`PackageIdentifier: {{.ID}}
PackageVersion: {{.Version}}
DefaultLocale: en-US
ManifestType: version
ManifestVersion: {{.Format}}
`)),
	".installer": template.Must(template.New("").Parse(`PackageIdentifier: {{.ID}}
PackageVersion: {{.Version}}
Platform:
- Windows.Desktop
MinimumOSVersion: 10.0.18362.0
InstallerType: zip
NestedInstallerType: portable
NestedInstallerFiles:
- RelativeFilePath: {{.Folder}}\mlxcel.exe
  PortableCommandAlias: mlxcel
- RelativeFilePath: {{.Folder}}\mlxcel-server.exe
  PortableCommandAlias: mlxcel-server
ArchiveBinariesDependOnPath: true
Installers:
- Architecture: x64
  InstallerUrl: {{.URL}}
  InstallerSha256: {{.Upper}}
ManifestType: installer
ManifestVersion: {{.Format}}
`)),
	".locale.en-US": template.Must(template.New("").Parse(`PackageIdentifier: {{.ID}}
PackageVersion: {{.Version}}
PackageLocale: en-US
Publisher: mlxcel
PackageName: mlxcel ({{.Variant}})
PackageUrl: {{.Home}}
License: Apache-2.0
ShortDescription: "{{.Description}}"
ManifestType: defaultLocale
ManifestVersion: {{.Format}}
`)),
}

// files are the descriptions by their paths, with slashes.
func (w windowsPackage) files() map[string]string {
	type architecture struct {
		URL  string `json:"url"`
		Hash string `json:"hash"`
	}
	scoop, err := json.MarshalIndent(struct {
		Version      string                  `json:"version"`
		Description  string                  `json:"description"`
		Homepage     string                  `json:"homepage"`
		License      string                  `json:"license"`
		Architecture map[string]architecture `json:"architecture"`
		ExtractDir   string                  `json:"extract_dir"`
		Bin          []string                `json:"bin"`
	}{
		w.Version, describedAs, w.Home, "Apache-2.0",
		map[string]architecture{"64bit": {w.URL, w.SHA256}}, w.Folder, []string{"mlxcel.exe", "mlxcel-server.exe"},
	}, "", "    ")
	if err != nil {
		panic(err) // strings only
	}
	id := "mlxcel.mlxcel." + w.Variant
	files := map[string]string{"scoop/mlxcel-" + w.Variant + ".json": string(scoop) + "\n"}
	for suffix, text := range wingetFiles {
		var b bytes.Buffer
		if err := text.Execute(&b, struct {
			windowsPackage
			ID, Upper, Format, Description string
		}{w, id, strings.ToUpper(w.SHA256), wingetVersion, describedAs}); err != nil {
			panic(err) // the templates are constants
		}
		files["winget/"+id+"/"+id+suffix+".yaml"] = b.String()
	}
	return files
}
