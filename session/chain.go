package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// hash names a segment: all that its keys follow from.
type hash [sha256.Size]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hash) UnmarshalText(text []byte) error {
	if len(text) != 2*len(h) {
		return fmt.Errorf("a hash of %d digits: want %d", len(text), 2*len(h))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// hashOf hashes texts, each with its length before it.
func hashOf(texts ...string) (h hash) {
	sum := sha256.New()
	for _, s := range texts {
		sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
		sum.Write([]byte(s))
	}
	sum.Sum(h[:0])
	return h
}

// root is where the chains of a salt begin.
func (o *Options) root(salt string) hash {
	return hashOf("windrow session 1", o.Fingerprint, fmt.Sprint(o.PageTokens), fmt.Sprint(o.PageBytes), salt)
}

// next is the link of a chain that follows on another by some tokens.
func (h hash) next(tokens []int32) hash {
	data := make([]byte, 0, len(h)+4*len(tokens))
	data = append(data, h[:]...)
	for _, id := range tokens {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	return sha256.Sum256(data)
}
