package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
)

// newHash returns the function that a file's hash is of: SHA-256 of an LFS file, else git's SHA-1 of a blob.
func (f file) newHash() hash.Hash {
	if len(f.Hash) == 2*sha256.Size {
		return sha256.New()
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", f.Size)
	return h
}

// check compares the hash of what arrived.
func (f file) check(h hash.Hash) error {
	if sum := hex.EncodeToString(h.Sum(nil)); sum != f.Hash {
		return fmt.Errorf("%w: %s has the hash %s, not %s", ErrDamaged, f.Path, sum, f.Hash)
	}
	return nil
}
