package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"mlxcel/tests/testenv"
)

// exe ends the names of this system's programs.
func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// python returns the system's Python 3.
func (p *project) python() (string, error) {
	path, err := exec.LookPath("python3")
	if runtime.GOOS == "windows" { // where python3 may be a link to a shop
		path, err = exec.LookPath("python")
	}
	if err != nil {
		return "", errors.New("there is no python3 on PATH: install Python 3.10 or newer with venv and pip (Debian, Ubuntu: `apt-get install python3 python3-venv python3-pip`)")
	}
	return path, nil
}

// pipDownload is the fetchFunc of wheels.
func (p *project) pipDownload(ctx context.Context, a artifact, dir string) error {
	python, err := p.python()
	if err != nil {
		return err
	}
	if process(ctx, dir, python, "-c", "import pip").Run() != nil && ctx.Err() == nil {
		return fmt.Errorf("%s has no pip: install it (Debian, Ubuntu: `apt-get install python3-pip`)", python)
	}
	args := []string{"-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--dest", dir}
	if a.Platform != "" {
		args = append(args, "--platform", a.Platform)
	}
	if a.Python != "" {
		args = append(args, "--implementation", "cp", "--python-version", a.Python)
	}
	cmd := process(ctx, dir, python, append(args, a.Name+"=="+a.Version)...)
	if output, err := capture(cmd); err != nil {
		return p.clientFailure(cmd, output, "pip", a.String(), err)
	}
	return nil
}

// A pipSet is a list of requirements that pip installs in one go.
type pipSet struct {
	pins []string
	deps bool // with what they depend on
}

// String lists the pins, exactly.
func (s pipSet) String() string { return strings.Join(s.pins, ", ") }

// names lists the packages.
func (s pipSet) names() string {
	var names []string
	for _, pin := range s.pins {
		name, _, _ := strings.Cut(pin, "==")
		names = append(names, name)
	}
	return strings.Join(slices.Compact(names), ", ")
}

// installedFile lists, in an environment, the sets that are installed in it,
// one a line. It is written after pip has succeeded.
const installedFile = ".installed"

// environment makes the named virtual environment hold at least sets and
// returns its folder of programs. It is filled further in place, and made anew
// when the pins have changed or its Python is gone.
func (p *project) environment(ctx context.Context, name string, sets ...pipSet) (bin string, err error) {
	dir := p.venv(name)
	bin = filepath.Join(dir, testenv.ScriptsFolder())
	var wanted []string
	for _, set := range sets {
		wanted = append(wanted, set.String())
	}
	var have []string
	if text, err := os.ReadFile(filepath.Join(dir, installedFile)); err == nil && exists(filepath.Join(bin, "python"+exe())) {
		have = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	if len(have) > 0 && containsAll(have, wanted) {
		return bin, nil
	}
	if len(have) == 0 || !containsAll(wanted, have) {
		have = nil
		if err := p.newEnvironment(ctx, dir); err != nil {
			return "", err
		}
	}
	for i, set := range sets {
		if slices.Contains(have, wanted[i]) {
			continue
		}
		if err := p.pipInstall(ctx, bin, set); err != nil {
			return "", err
		}
		have = append(have, wanted[i])
		if err := os.WriteFile(filepath.Join(dir, installedFile), []byte(strings.Join(have, "\n")+"\n"), 0o644); err != nil {
			return "", err
		}
	}
	return bin, nil
}

// newEnvironment makes an empty virtual environment, with pip, in dir. It
// cannot be made elsewhere and moved: its programs hold its path.
func (p *project) newEnvironment(ctx context.Context, dir string) error {
	python, err := p.python()
	if err != nil {
		return err
	}
	if process(ctx, p.cache, python, "-c", "import venv, ensurepip").Run() != nil && ctx.Err() == nil {
		return fmt.Errorf("%s cannot make virtual environments: install venv (Debian, Ubuntu: `apt-get install python3-venv`)", python)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return p.quietly(process(ctx, p.cache, python, "-m", "venv", dir), "making the Python environment "+dir)
}

func (p *project) pipInstall(ctx context.Context, bin string, set pipSet) error {
	p.say("installing %s into %s", set.names(), filepath.Dir(bin))
	args := []string{"-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--only-binary=:all:"}
	if !set.deps {
		args = append(args, "--no-deps")
	}
	cmd := process(ctx, p.cache, filepath.Join(bin, "python"), append(args, set.pins...)...)
	if output, err := capture(cmd); err != nil {
		return p.clientFailure(cmd, output, "pip", set.names(), err)
	}
	return nil
}

func containsAll(list, parts []string) bool {
	for _, part := range parts {
		if !slices.Contains(list, part) {
			return false
		}
	}
	return true
}
