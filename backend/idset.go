package backend

import "math/bits"

// IDSet is a set of token ids: bit id%64 of word id/64. Ids past its end are not in it.
type IDSet []uint64

// NewIDSet is an empty set with room for the ids below n.
func NewIDSet(n int) IDSet { return make(IDSet, (n+63)/64) }

// Add puts id in, for which there must be room.
func (s IDSet) Add(id int32) { s[id/64] |= 1 << (id % 64) }

// Has reports whether id is in.
func (s IDSet) Has(id int32) bool {
	return id >= 0 && int(id/64) < len(s) && s[id/64]>>(id%64)&1 != 0
}

// Len is how many ids are in.
func (s IDSet) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// any reports whether some id is in that bars leave.
func (s IDSet) any(bars Bars, vocabulary int) bool {
	limit := bars.Ids(vocabulary)
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			id := 64*i + bits.TrailingZeros64(w)
			if id >= limit {
				return false
			}
			if int32(id) != bars.Except {
				return true
			}
		}
	}
	return false
}
