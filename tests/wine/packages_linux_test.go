package wine

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// The tests of packages that do things in their own way on Windows pass there, too.
func TestPackages(t *testing.T) {
	packages := []string{"./cmd/internal/...", "./runtime/hub", "./runtime/weights"}
	if long() {
		packages = append(packages, "./tests/hub", "./runtime/tokenizer", "./runtime/chat/...", "./runtime/program", "./runtime/models")
	}
	wine := testenv.Wine(t)
	program, err := testenv.WineProgram()
	require.NoError(t, err)
	test := exec.Command("go", append([]string{"test", "-count=1", "-vet=off", "-exec", program}, packages...)...)
	test.Dir = testenv.Root()
	// What these tests need beside themselves is for Linux: without it they leave out what needs it.
	test.Env = append(wine.Command("").Env, "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0", "MLXCEL_TEST_STRICT=0")
	out, err := test.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "FAIL")
}
