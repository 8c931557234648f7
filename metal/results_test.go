package metal

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestDecodeResults(t *testing.T) {
	var out []byte
	word := func(v uint32) { out = binary.LittleEndian.AppendUint32(out, v) }
	float := func(v float32) { word(math.Float32bits(v)) }
	// Two logits of 3, of which one may be chosen: ln 2 and 3 + ln 2.
	float(3)
	float(2)
	float(0)
	word(0)
	word(7)
	float(3)
	word(noCandidate)
	float(0)
	// A row with a NaN: only the maximum tells.
	word(0x7fc00000)
	float(2)
	float(0)
	word(0)
	word(noCandidate)
	float(0)
	word(noCandidate)
	float(0)
	results, err := decodeResults(out, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	r := results[0]
	if r.Entropy != float32(math.Ln2) || r.LogSumExp != float32(3+math.Ln2) || r.Argmax != 7 || len(r.Top) != 1 || r.Top[0].Logit != 3 {
		t.Errorf("%+v", r)
	}
	r = results[1]
	if e, l := float64(r.Entropy), float64(r.LogSumExp); !math.IsNaN(e) || !math.IsNaN(l) || r.Argmax != -1 || r.Top != nil {
		t.Errorf("%+v", r)
	}
	if _, err := decodeResults(out[:len(out)-1], 2, 2); err == nil {
		t.Error("a result that is cut off was read")
	}
}

// The device finds at most mostTop candidates, and no launch asks for others.
func TestRowResultsTakesItsTopK(t *testing.T) {
	for _, topK := range []int{-1, 0, mostTop + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d candidates were asked for", topK)
				}
			}()
			rowResults(&recorder{}, view{}, view{}, view{elem: elemF32}, 1, 100, 0, -1, topK)
		}()
	}
	var r recorder
	rowResults(&r, view{}, view{}, view{elem: elemF32}, 3, 1025, 0, -1, mostTop)
	if len(r) != 2 || r[0].groups != (size3{1, 3, 1}) || r[1].groups != (size3{3, 1, 1}) {
		t.Errorf("%+v", r)
	}
}

// recorder is an encoder that keeps what it gets.
type recorder []dispatch

func (r *recorder) dispatch(d dispatch) { *r = append(*r, d) }
