package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestPackages(t *testing.T) {
	out := t.TempDir()
	write(t, "zipped", out, "mlxcel-1.2.3-windows-amd64-cuda13-full.zip")
	var log bytes.Buffer
	p := &project{root: t.TempDir(), log: &log}
	require.NoError(t, packagesCommand(t.Context(), p, []string{"--out", out, "--url", "https://example.org/v1.2.3/", "--home", "https://example.org"}))

	const sum = "71571b067bc261f7acc4ba54b90563d223ccfa7bab8b82c928d45fb4a427c0e1"
	url := "https://example.org/v1.2.3/mlxcel-1.2.3-windows-amd64-cuda13-full.zip"
	var scoop map[string]any
	data, err := os.ReadFile(filepath.Join(out, "scoop", "mlxcel-cuda13-full.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &scoop))
	require.Equal(t, "1.2.3", scoop["version"])
	require.Equal(t, "mlxcel-1.2.3-windows-amd64-cuda13-full", scoop["extract_dir"])
	require.Equal(t, map[string]any{"64bit": map[string]any{"url": url, "hash": sum}}, scoop["architecture"])

	winget := filepath.Join(out, "winget", "mlxcel.mlxcel.cuda13-full", "mlxcel.mlxcel.cuda13-full")
	for suffix, kind := range map[string]string{"": "version", ".installer": "installer", ".locale.en-US": "defaultLocale"} {
		data, err := os.ReadFile(winget + suffix + ".yaml")
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, yaml.Unmarshal(data, &fields), "%s", data)
		require.Equal(t, kind, fields["ManifestType"])
		require.Equal(t, "mlxcel.mlxcel.cuda13-full", fields["PackageIdentifier"])
		require.Equal(t, "1.2.3", fields["PackageVersion"])
		if kind == "installer" {
			installer := fields["Installers"].([]any)[0].(map[string]any)
			require.Equal(t, url, installer["InstallerUrl"])
			require.Equal(t, strings.ToUpper(sum), installer["InstallerSha256"])
			nested := fields["NestedInstallerFiles"].([]any)[1].(map[string]any)
			require.Equal(t, `mlxcel-1.2.3-windows-amd64-cuda13-full\mlxcel-server.exe`, nested["RelativeFilePath"])
		}
	}
}

func TestPackagesRefused(t *testing.T) {
	out := t.TempDir()
	for name, args := range map[string][]string{
		"no address":  {"--out", out, "--home", "https://example.org"},
		"plain http":  {"--out", out, "--home", "https://example.org", "--url", "http://example.org"},
		"no archives": {"--out", out, "--home", "https://example.org", "--url", "https://example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, packagesCommand(t.Context(), &project{root: t.TempDir(), log: &bytes.Buffer{}}, args))
		})
	}
}
