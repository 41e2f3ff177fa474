package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"mlxcel/tests/testenv"
)

// prepareWine makes a Wine prefix, a folder that Windows programs see as drive C,
// in the cache: with a DLL that Go's programs need and Wine 8 lacks.
func (p *project) prepareWine(ctx context.Context) error {
	program, err := wine()
	if err != nil {
		return err
	}
	source := filepath.Join(p.root, "tests", "wine", "testdata", "bcryptprimitives.c")
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	version, err := capture(process(ctx, p.cache, program, "--version"))
	if err != nil {
		return p.failure(process(ctx, p.cache, program, "--version"), version, "asking Wine for its version", err)
	}
	sum := sha256.Sum256(append(text, version...))
	key, dir := hex.EncodeToString(sum[:]), testenv.WinePrefix()
	made := filepath.Join(dir, ".prepared")
	if have, err := os.ReadFile(made); err == nil && string(have) == key {
		return nil
	}
	p.say("preparing Wine in %s", dir)
	scratch, err := p.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	start, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{{program, "wineboot", "-i"}, {testenv.WineServer(), "-w"}} {
		cmd := process(start, p.cache, args[0], args[1:]...)
		cmd.Env = testenv.WineEnvironment(scratch)
		if err := p.quietly(cmd, "preparing Wine"); err != nil {
			return err
		}
	}
	system := filepath.Join(scratch, "drive_c", "windows", "system32")
	if !exists(filepath.Join(system, "kernel32.dll")) {
		return fmt.Errorf("no 64-bit system was made in %s by Wine: install its 64-bit half (Debian, Ubuntu: `apt-get install wine64`)", scratch)
	}
	if err := testenv.CompileDLL(source, filepath.Join(system, "bcryptprimitives.dll"), "advapi32.lib"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(scratch, ".prepared"), []byte(key), 0o644); err != nil {
		return err
	}
	return place(scratch, dir)
}
