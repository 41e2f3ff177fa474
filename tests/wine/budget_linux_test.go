package wine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// What Windows says about the memory of a graphics adapter is understood: the loader's own test for Windows passes, on the
// adapter that Wine makes up where there is no display.
func TestVideoMemoryBudget(t *testing.T) {
	wine := testenv.Wine(t)
	program := filepath.Join(t.TempDir(), "loader.test.exe")
	build := exec.Command("go", "test", "-c", "-o", program, "mlxcel/loader")
	build.Dir, build.Env = testenv.Root(), append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	text, code := run(t, wine, program, []string{"WINE_D3D_CONFIG=renderer=no3d"}, "-test.v", "-test.run", "^TestBudget$")
	require.Zero(t, code, text)
	require.Contains(t, text, "--- PASS: TestBudget")
}
