package main

import (
	"bytes"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tc-hib/winres"
)

// The committed object files are linked into a program by `go build` and read back. They are compared by what they mean:
// another release of Go may compress the pictures to other bytes.
func TestResourcesOfABuild(t *testing.T) {
	for _, program := range []string{"mlxcel", "mlxcel-server"} {
		t.Run(program, func(t *testing.T) {
			have, want := loadLinked(t, filepath.Join("..", "..", program)), expected(t, program)
			count := 0
			want.Walk(func(kind, id winres.Identifier, language uint16, data []byte) bool {
				count++
				built := have.Get(kind, id, language)
				if kind == winres.RT_ICON {
					a, err := png.Decode(bytes.NewReader(data))
					require.NoError(t, err)
					b, err := png.Decode(bytes.NewReader(built))
					require.NoError(t, err)
					require.Equal(t, a, b)
				} else if kind != winres.RT_GROUP_ICON { // which has the lengths of the pictures
					require.Equal(t, string(data), string(built), "run `go generate ./cmd/...`")
				}
				return true
			})
			require.Equal(t, 2+len(iconSizes)+1, count)
			manifest := string(have.Get(winres.RT_MANIFEST, winres.ID(1), english))
			require.Contains(t, manifest, ">UTF-8</activeCodePage>")
			require.Contains(t, manifest, ">true</longPathAware>")
			require.Contains(t, manifest, `level="asInvoker"`)
			require.Regexp(t, `name="`+program+`" version="\d+\.\d+\.\d+\.0"`, manifest)
		})
	}
}

// expected makes the resources of a program as its go:generate line says.
func expected(t *testing.T, program string) *winres.ResourceSet {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", program, "main.go"))
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^//go:generate go run \.\./internal/winres -name (\S+) -about "([^"]+)"$`).FindSubmatch(source)
	require.NotNil(t, line, "no go:generate line in %s", program)
	require.Equal(t, program, string(line[1]))
	set, err := resources(program, string(line[2]))
	require.NoError(t, err)
	return set
}

// loadLinked builds an empty program with the object file of a folder, and returns the resources that it has.
func loadLinked(t *testing.T, folder string) *winres.ResourceSet {
	t.Helper()
	object, err := os.ReadFile(filepath.Join(folder, objectFile))
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		objectFile: string(object), "main.go": "package main\n\nfunc main() {}\n", "go.mod": "module empty\n\ngo 1.26\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	build := exec.Command("go", "build", "-o", "empty.exe", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	exe, err := os.Open(filepath.Join(dir, "empty.exe"))
	require.NoError(t, err)
	defer exe.Close()
	set, err := winres.LoadFromEXE(exe)
	require.NoError(t, err)
	return set
}

func TestFileVersion(t *testing.T) {
	n, err := fileVersion("1.22.3-rc1")
	require.NoError(t, err)
	require.Equal(t, "1.22.3.0", dotted(n))
	_, err = fileVersion("1.2")
	require.ErrorContains(t, err, `"1.2" is not three numbers`)
}
