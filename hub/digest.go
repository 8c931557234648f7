package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
)

// Digest names a file's content, in lower-case hexadecimal digits: the SHA-256 (64) of
// large files, or git's SHA-1 (40) of small ones.
type Digest string

// Valid reports whether the digest has the form of one. Nothing else becomes part of a
// path.
func (d Digest) Valid() bool {
	if len(d) != 40 && len(d) != 64 {
		return false
	}
	for i := range len(d) {
		if c := d[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// NewHash begins the hash that the digest is of, for a file of size bytes.
func (d Digest) NewHash(size int64) hash.Hash {
	if len(d) == 40 {
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", size)
		return h
	}
	return sha256.New()
}

// DigestOf is what a hash has come to.
func DigestOf(h hash.Hash) Digest { return Digest(hex.EncodeToString(h.Sum(nil))) }

// hashOf reads size bytes and returns their digest of the same kind as like.
func hashOf(like Digest, r io.Reader, size int64) (Digest, error) {
	h := like.NewHash(size)
	if _, err := io.CopyBuffer(h, onlyReader{r}, make([]byte, 1<<20)); err != nil {
		return "", err
	}
	return DigestOf(h), nil
}

// onlyReader hides what else a reader can do, so that the large buffer is used.
type onlyReader struct{ io.Reader }
