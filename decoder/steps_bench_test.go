package decoder

import (
	"context"
	"testing"

	"windrow/model"
)

// instant is an engine that takes no time: row by row it says what a hash of the position
// says, at a mask too, surely.
type instant struct {
	results  []model.Result
	forwards int
}

func (e *instant) letter(pos int32) int32 { return int32(mix(uint64(pos)) % 50) }

func (e *instant) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	for _, s := range b.Spans {
		s.Cache.Stage(s.Rows)
	}
	e.forwards++
	e.results = e.results[:0]
	for _, w := range b.Want {
		row := w.Row
		r := model.Result{Argmax: e.letter(b.Positions[row] + 1), Entropy: 0.1}
		if b.Tokens[row] == 99 {
			r.Argmax = e.letter(b.Positions[row])
		}
		e.results = append(e.results, r)
	}
	return e.results, nil
}

// BenchmarkSteps is the decoder's own time of a forward: planning it, and taking what it
// says.
func BenchmarkSteps(b *testing.B) {
	flat, err := NewCostModel([]CostPoint{{1, 1}, {256, 1.5}})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		mode  Mode
		cost  *CostModel
		draft DraftChoice
	}{
		{"ar", AR, nil, ""}, {"wedlm", WeDLM, nil, ""}, {"verified", Verified, nil, ""}, {"verified,auto", Verified, flat, DraftAuto},
		{"verified,lookup", Verified, flat, DraftLookup}, {"verified,none", Verified, flat, DraftNone},
	} {
		b.Run("mode="+c.name, func(b *testing.B) {
			e := &instant{}
			o := DefaultOptions()
			o.Mode, o.Window, o.MaxTokens, o.Cost = c.mode, 16, 200, c.cost
			o.Vocabulary = Vocabulary{Size: 100, MaskID: 99}
			if c.draft != "" {
				o.Draft = c.draft
			}
			prompt := make([]int32, 100)
			for i := range prompt {
				prompt[i] = int32(mix(uint64(i)) % 5000)
			}
			for b.Loop() {
				capacity, _ := CacheSize(len(prompt), o)
				if _, err := Generate(b.Context(), e, model.NewCountingCache(capacity), prompt, o, nil, Hooks{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(e.forwards), "ns/forward")
		})
	}
}
