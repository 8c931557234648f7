package bench

import (
	"math/rand/v2"
	"strings"
)

// Ids from lowID to below highID stand for text in every vocabulary of some thousand
// tokens: bytes come before, special tokens behind.
const lowID, highID = 300, 4000

// leastPrompt is how long a prompt is at least: its first two ids are its number.
const leastPrompt = 2

// promptIDs is prompt number i. The same seed, number and size give the same one; no
// two of a seed begin alike.
func promptIDs(seed uint64, number, size int) []int32 {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	ids := make([]int32, size)
	for i := range ids {
		ids[i] = lowID + r.Int32N(highID-lowID)
	}
	const span = highID - lowID
	// The number, turned by the seed, comes first: what is kept of one prompt is of no
	// use to another.
	turned := (number + int(seed%span)) % (span * span)
	ids[0], ids[1] = int32(lowID+turned%span), int32(lowID+turned/span)
	return ids
}

// sharedPrompt is prompt number i behind some tokens that all prompts of the seed and size
// begin with; those alone where the number is -1.
func sharedPrompt(seed uint64, number, shared, size int) []int32 {
	r := rand.New(rand.NewPCG(seed, 1<<63))
	ids := make([]int32, shared, size)
	for i := range ids {
		ids[i] = lowID + r.Int32N(highID-lowID)
	}
	if number < 0 {
		return ids
	}
	return append(ids, promptIDs(seed, number, size-shared)...)
}

// promptWords is prompt number i in words, of some size tokens.
func promptWords(seed uint64, number, size int) string {
	words := [...]string{"rows", "chairs", "hall", "maya", "apples", "river", "seven", "green", "count", "box", "paper", "train", "some", "letter", "hill", "glass"}
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	var b strings.Builder
	for n := number + 1; n > 0; n /= 16 { // the number, in words
		b.WriteString(words[n%16] + ".")
	}
	for b.Len() < 4*size { // about 4 bytes a token
		b.WriteString(" " + words[r.IntN(len(words))])
	}
	return b.String()
}
