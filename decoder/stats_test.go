package decoder

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestStatsAdd: every counter adds up, whatever fields there are; the extremes
// are those of steps.
func TestStatsAdd(t *testing.T) {
	var a, b, want Stats
	va, vb, vw := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem(), reflect.ValueOf(&want).Elem()
	for i := range va.NumField() {
		for _, f := range []struct {
			v reflect.Value
			n int
		}{{va.Field(i), i + 1}, {vb.Field(i), 100 * (i + 1)}, {vw.Field(i), 101 * (i + 1)}} {
			if f.v.CanInt() {
				f.v.SetInt(int64(f.n))
			} else {
				f.v.SetFloat(float64(f.n))
			}
		}
	}
	want.LeastMasks, want.MostMasks = min(a.LeastMasks, b.LeastMasks), max(a.MostMasks, b.MostMasks)
	sum := a
	sum.Add(b)
	if sum != want {
		t.Errorf("sum %+v, want %+v", sum, want)
	}
	var none Stats
	none.Add(Stats{PromptTokens: 3}) // an answer of the prefill's token alone
	none.Add(b)
	if none.LeastMasks != b.LeastMasks || none.MostMasks != b.MostMasks {
		t.Errorf("a generation without steps counts as one of no masks: %+v", none)
	}
	none.Add(Stats{PromptTokens: 3})
	if none.LeastMasks != b.LeastMasks {
		t.Errorf("a generation without steps counts as one of no masks: %+v", none)
	}
}

// TestStatsJSON pins the names that users of the reports read.
func TestStatsJSON(t *testing.T) {
	got, err := json.Marshal(Stats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	const want = `{"prompt_tokens":1,"cached_tokens":2,"tokens":3,"forwards":4,"rows":5,"drafts":6,"accepted":7,"prefill_seconds":11,"decode_seconds":12}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
