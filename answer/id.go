package answer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// idDigits is how many hexadecimal digits an id has: 96 bits.
const idDigits = 24

func randomID(int) string {
	var b [idDigits / 2]byte
	rand.Read(b[:]) // never fails
	return "call_" + hex.EncodeToString(b[:])
}

// IDs returns ids for [Options] that are the same for the same key, so that a
// request answered twice gives the same bytes. Ids must be unique in a
// conversation: key is the rendered prompt with whatever else sets the answer
// apart, such as the seed and the choice.
func IDs(key string) func(index int) string {
	sum := sha256.Sum256([]byte(key))
	return func(index int) string {
		h := sha256.Sum256(fmt.Appendf(sum[:], "/%d", index))
		return "call_" + hex.EncodeToString(h[:])[:idDigits]
	}
}
