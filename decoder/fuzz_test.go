package decoder

import (
	"context"
	"math/rand/v2"
	"testing"

	"windrow/model"
)

// noise is an engine of arbitrary results within the contract, drawn from the
// fuzzer's bytes; it checks what it is fed.
type noise struct {
	t     *testing.T
	bytes []byte
	at    int
	mask  int32
	steps int
}

func (n *noise) next() byte {
	if len(n.bytes) == 0 {
		return 0
	}
	n.at++
	return n.bytes[n.at%len(n.bytes)] + byte(n.at/len(n.bytes))
}

func (n *noise) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	n.steps++
	cache := b.Spans[0].Cache
	if len(b.Tokens) == 0 || len(b.Tokens) > cache.MaxRows() {
		n.t.Fatalf("%d rows in a cache that takes %d", len(b.Tokens), cache.MaxRows())
	}
	at := map[int32]bool{}
	for i, p := range b.Positions {
		if int(p) < cache.Base() || int(p) >= cache.Capacity() || at[p] {
			n.t.Fatalf("positions %v behind %d of %d", b.Positions, cache.Base(), cache.Capacity())
		}
		if at[p] = true; i > 0 && b.Positions[i-1] > p && b.Tokens[i] != n.mask {
			n.t.Fatalf("a filled row behind a later one: %v at %v", b.Tokens, b.Positions)
		}
	}
	cache.Stage(len(b.Tokens))
	var results []model.Result
	for _, w := range b.Want {
		r := model.Result{Argmax: int32(n.next() % 8), Entropy: float32(n.next()) / 64}
		if w.Logits {
			for range 9 {
				r.Logits = append(r.Logits, float32(int8(n.next()))/16)
			}
		}
		results = append(results, r)
	}
	return results, nil
}

// FuzzPlanner: whatever the results, a generation ends in bounds, with as many
// permanent tokens as it says, and never chooses a barred id.
func FuzzPlanner(f *testing.F) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 8))
		results := make([]byte, 64)
		for i := range results {
			results[i] = byte(r.Uint32())
		}
		f.Add(byte(seed), byte(r.IntN(12)), byte(r.IntN(40)), byte(r.Uint32()), byte(r.Uint32()), byte(r.IntN(16)), results)
	}
	f.Fuzz(func(t *testing.T, mode, window, max, tau, lambda, flags byte, results []byte) {
		o := DefaultOptions()
		o.Mode = modes[mode%3]
		o.Window, o.MaxTokens = 1+int(window)%40, 1+int(max)
		o.EntropyThreshold, o.PosPenalty = threshold(float32(tau)/64), float32(lambda)/512
		o.Vocabulary = Vocabulary{Size: 8, MaskID: 8}
		if flags&1 != 0 {
			o.EntropyThreshold = nil
		}
		if flags&2 != 0 {
			o.Sampling = Sampling{Temperature: 0.5, TopP: 0.9, FrequencyPenalty: 1, Seed: uint64(flags)}
		}
		if flags&4 != 0 {
			o.StopIDs = []int32{3}
		}
		if flags&8 != 0 {
			o.Cost = costs(t, CostPoint{1, 1}, CostPoint{8, 1.1 + float64(tau)/64})
		}
		prompt := []int32{1, 2, 3}
		capacity, maxRows := CacheSize(len(prompt), o)
		cache := model.NewCountingCache(capacity)
		n := &noise{t: t, bytes: results, mask: 8}
		total := 0
		sum, err := Generate(t.Context(), n, cache, prompt, o, nil, Hooks{Step: func(s Step) {
			total += len(s.Committed)
			if len(s.Slots) > maxRows {
				t.Fatalf("%d rows, CacheSize says %d", len(s.Slots), maxRows)
			}
			if len(s.Committed) > 0 && len(s.Committed) > len(s.Slots) {
				t.Fatalf("%d committed of %d", len(s.Committed), len(s.Slots))
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if len(sum.Tokens) > o.MaxTokens || sum.FinishReason == FinishLength && len(sum.Tokens) != o.MaxTokens || cache.Base() != len(prompt)+total {
			t.Fatalf("%d tokens (%s) of at most %d, %d permanent", len(sum.Tokens), sum.FinishReason, o.MaxTokens, cache.Base())
		}
		// Every forward but the first commits or fills something.
		if n.steps > 2*o.MaxTokens+2 {
			t.Fatalf("%d forwards for at most %d tokens", n.steps, o.MaxTokens)
		}
		for i, x := range sum.Tokens {
			if x < 0 || x >= 8 {
				t.Fatalf("token %d is barred: %v", i, sum.Tokens)
			}
			if x == 3 && flags&4 != 0 && i != len(sum.Tokens)-1 {
				t.Fatalf("went on after a stop id: %v", sum.Tokens)
			}
		}
	})
}
