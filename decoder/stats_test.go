package decoder

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestStatsAdd: every counter adds up, whatever fields there are; the extremes
// are those of steps.
func TestStatsAdd(t *testing.T) {
	var a, b, want Stats
	va, vb, vw := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem(), reflect.ValueOf(&want).Elem()
	count := 0
	var fill func(a, b, want reflect.Value)
	fill = func(a, b, want reflect.Value) {
		switch a.Kind() {
		case reflect.Struct:
			for i := range a.NumField() {
				fill(a.Field(i), b.Field(i), want.Field(i))
			}
			return
		case reflect.Array:
			for i := range a.Len() {
				fill(a.Index(i), b.Index(i), want.Index(i))
			}
			return
		}
		count++
		for _, f := range []struct {
			v reflect.Value
			n int
		}{{a, count}, {b, 100 * count}, {want, 101 * count}} {
			if f.v.CanInt() {
				f.v.SetInt(int64(f.n))
			} else {
				f.v.SetFloat(float64(f.n))
			}
		}
	}
	fill(va, vb, vw)
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
	got, err := json.Marshal(Stats{1, 2, 3, 4, 5, 6, 7, Drafters{}, 8, 9, 10, 11, 12})
	const want = `{"prompt_tokens":1,"cached_tokens":2,"tokens":3,"forwards":4,"rows":5,"drafts":6,"accepted":7,"prefill_seconds":11,"decode_seconds":12}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestDraftersJSON: an object by name, which is read back as it was, and nothing that
// cannot be.
func TestDraftersJSON(t *testing.T) {
	var d Drafters
	d[LookupDrafter] = DrafterStats{Drafts: 5, Accepted: 3, Cost: 1.5}
	d[ModelDrafter] = DrafterStats{Drafts: 2, Rows: 4, Seconds: .25}
	got, err := json.Marshal(Stats{Drafters: d})
	const want = `"drafters":{"lookup":{"drafts":5,"accepted":3,"cost":1.5},"model":{"drafts":2,"accepted":0,"rows":4,"seconds":0.25}}`
	if err != nil || !strings.Contains(string(got), want) {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	var back Stats
	if err := json.Unmarshal(got, &back); err != nil || back.Drafters != d {
		t.Errorf("read back: %+v, %v", back, err)
	}
	for _, bad := range []string{`{"oracle":{}}`, `{"mask":{"drafts":1,"accepted":2}}`, `{"mask":{"rows":-1}}`, `{"mask":{"cost":-1}}`, `[]`} {
		if err := json.Unmarshal([]byte(bad), &d); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}
