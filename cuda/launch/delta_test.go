package launch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"windrow/backend"
)

// TestDeltaShares: each of several devices carries in what its heads have, by the rule of
// backend.StateShape.KeyHead, and all of them together carry out what was there, and
// nothing else.
func TestDeltaShares(t *testing.T) {
	const log = 4
	for _, whole := range []backend.StateShape{
		{KeyHeads: 6, ValueHeads: 12, KeyDim: 24, ValueDim: 17, Conv: 4},
		{KeyHeads: 6, ValueHeads: 18, KeyDim: 5, ValueDim: 33, Conv: 2, Tiled: true},
		{KeyHeads: 6, ValueHeads: 6, KeyDim: 32, ValueDim: 16, Conv: 1},
	} {
		for _, devices := range []int{1, 2, 3, 6} {
			for _, p := range []backend.Place{{From: 0, End: 3}, {From: 2, End: 2}, {From: 9, End: 13}} {
				what := fmt.Sprintf("%+v on %d, %+v", whole, devices, p)
				theirs := make([]byte, whole.Exported(p))
				for i := range len(theirs) / 4 {
					binary.LittleEndian.PutUint32(theirs[4*i:], uint32(i+1))
				}
				again := make([]byte, len(theirs))
				mine := whole
				mine.KeyHeads, mine.ValueHeads = whole.KeyHeads/devices, whole.ValueHeads/devices
				for rank := range devices {
					s := DeltaShare{DeltaShape{mine}, rank, devices}
					fixed, byLog := s.Size()
					own := make([]byte, 4*(fixed+log*byLog))
					s.Carry(own, theirs, log, p, true)
					part := make([]byte, mine.Exported(p))
					DeltaShare{DeltaShape{mine}, 0, 1}.Carry(own, part, log, p, false)
					if !bytes.Equal(part, shareOfStates(whole, rank, devices, p, theirs)) {
						t.Errorf("%s: device %d has not what its heads have", what, rank)
					}
					s.Carry(own, again, log, p, false)
				}
				if !bytes.Equal(again, theirs) {
					t.Errorf("%s: other bytes when all carry out again", what)
				}
			}
		}
	}
}

// shareOfStates picks what a device's heads have of a layer's exported states.
func shareOfStates(s backend.StateShape, rank, devices int, p backend.Place, exported []byte) (part []byte) {
	has := func(keyHead int) bool { return keyHead*devices/s.KeyHeads == rank }
	heads := func(n, width int, has func(head int) bool) {
		for head := range n {
			if has(head) {
				part = append(part, exported[:4*width]...)
			}
			exported = exported[4*width:]
		}
	}
	ofValue := func(head int) bool { return has(s.KeyHead(head)) }
	heads(s.ValueHeads, s.KeyDim*s.ValueDim, ofValue)
	for range p.End - p.From {
		heads(s.KeyHeads, s.KeyDim, has)
		heads(s.ValueHeads, s.ValueDim, ofValue)
		heads(s.ValueHeads, 1, ofValue)
	}
	for range p.End - s.RawFrom(p.From) {
		heads(s.KeyHeads, s.KeyDim, has)
		heads(s.KeyHeads, s.KeyDim, has)
		heads(s.ValueHeads, s.ValueDim, ofValue)
	}
	return part
}
