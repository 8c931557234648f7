package decodertest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/decoder"
	"windrow/model"
)

// margins runs forwards on a model and remembers how far the two best logits
// of each wanted row are apart.
type margins struct {
	*model.Model
	last []float32
}

func (m *margins) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	for i := range b.Want {
		if !b.Want[i].Bare {
			b.Want[i].TopK = 2
		}
	}
	results, err := m.Model.Forward(ctx, b)
	m.last = m.last[:0]
	for i, r := range results {
		if !b.Want[i].Bare {
			m.last = append(m.last, r.Top[0].Logit-r.Top[1].Logit)
		}
	}
	return results, err
}

// Quick are the two problems with the shortest outputs.
var Quick = []int{0, 8}

// Tiny loads the embedded model, tiny-gsm, whose traces these are.
func Tiny(t testing.TB, b backend.Backend) *model.Model {
	t.Helper()
	return tiny(t, b, maskID)
}

// tiny loads it with an id barred, or, where that is negative, none.
func tiny(t testing.TB, b backend.Backend, except int32) *model.Model {
	t.Helper()
	m, err := model.Load(b, backendtest.Tiny(t), model.Barring(vocabSize, except))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func (m *margins) generate(t *testing.T, prompt []int32, o decoder.Options, kv backend.KVType, h decoder.Hooks) decoder.Summary {
	t.Helper()
	capacity, maxRows := decoder.CacheSize(len(prompt), o)
	cache, err := m.NewCache(model.CacheOptions{Capacity: capacity, MaxRows: maxRows, DType: kv})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	sum, err := decoder.Generate(t.Context(), m, cache, prompt, o, nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// some reports whether problem i is among those to run; none means all.
func some(problems []int, i int) bool {
	return len(problems) == 0 || slices.Contains(problems, i)
}

// Run reproduces the golden traces step by step on tiny-gsm in f32, on a
// backend whose arithmetic is exact; problems are those to run, nil all. What
// may differ is a near-tie, and each one is named: an entropy (with its penalty) within 1e-3
// of the threshold or of the least, two best logits within 1e-3. Behind a
// near-tie that fell otherwise, that trace is not compared.
func Run(t *testing.T, b backend.Backend, problems []int) {
	// The mask id may be chosen, as the traces' maker let it: problem 12 has it in two
	// outputs, where only the filled flag tells it from a mask.
	m := &margins{Model: tiny(t, b, -1)}
	ties := 0
	for i, p := range Problems(t) {
		if !some(problems, i) {
			continue
		}
		for _, tr := range p.WeDLM {
			t.Run(fmt.Sprintf("%d/%s", i, tr.Name()), func(t *testing.T) {
				c := comparison{t: t, m: m, tr: tr}
				sum := m.generate(t, p.Prompt, tr.Options(), backend.KVF32, decoder.Hooks{Step: c.step})
				if c.tie != "" {
					t.Logf("near-tie: %s", c.tie)
					ties++
					return
				}
				CheckTotals(t, sum, tr)
			})
		}
	}
	// Between two f32 arithmetics with entropies equal to about 1e-5 more
	// than a few flips among 64 traces are a bug.
	if ties > 3 {
		t.Errorf("%d of 64 traces fell otherwise at a near-tie", ties)
	}
}

type comparison struct {
	t    *testing.T
	m    *margins
	tr   Trace
	at   int
	done int // tokens committed so far
	tie  string
}

func (c *comparison) step(s decoder.Step) {
	if c.tie != "" || c.t.Failed() {
		return
	}
	if c.at == len(c.tr.Steps) {
		c.t.Errorf("a step after the last of %d", c.at)
		return
	}
	want := c.tr.Steps[c.at]
	c.at++
	for i, slot := range s.Slots {
		if len(s.Slots) != len(want.Tokens) || slot.Filled == want.Mask[i] || slot.Filled && slot.Token != want.Tokens[i] {
			c.t.Errorf("step %d: window %v, want %v, masks %v", c.at, s.Slots, want.Tokens, want.Mask)
			return
		}
	}
	if c.done != want.Committed {
		c.t.Errorf("step %d: %d tokens committed before it, want %d", c.at, c.done, want.Committed)
	}
	c.done += len(s.Committed)
	if len(s.Entropy) != len(want.Entropy) {
		c.t.Errorf("step %d: %d entropies, want %d", c.at, len(s.Entropy), len(want.Entropy))
		return
	}
	for i, h := range s.Entropy {
		if d := math.Abs(float64(h - want.Entropy[i])); d > nearTie {
			c.t.Errorf("step %d: entropy %d is %v, want %v", c.at, i, h, want.Entropy[i])
		}
	}
	c.fills(s, want)
}

// fills compares what a step filled.
func (c *comparison) fills(s decoder.Step, want Step) {
	got, gold := map[int]int32{}, map[int]int32{}
	for _, f := range s.Filled {
		got[f.Slot] = f.Token
	}
	for _, f := range want.Fill {
		gold[int(f[0])] = f[1]
	}
	var masks []int // slots after the commit
	for i, slot := range s.Slots[len(s.Committed):] {
		if !slot.Filled {
			masks = append(masks, i)
		}
	}
	least := math.Inf(1)
	for k, h := range want.Entropy {
		least = min(least, float64(h)+float64(c.tr.PosPenalty)*float64(masks[k]-masks[0]))
	}
	for k, slot := range masks {
		if len(want.Entropy) == 0 {
			return
		}
		a := float64(want.Entropy[k]) + float64(c.tr.PosPenalty)*float64(slot-masks[0])
		mine, filled := got[slot]
		theirs, should := gold[slot]
		switch {
		case filled == should && mine == theirs:
		case filled != should && c.tr.EntropyThreshold != nil && math.Abs(a-float64(*c.tr.EntropyThreshold)) < nearTie:
			c.tie = fmt.Sprintf("step %d, slot %d: entropy and penalty %v, threshold %v", c.at, slot, a, *c.tr.EntropyThreshold)
		case filled != should && len(gold) == 1 && a-least < nearTie:
			c.tie = fmt.Sprintf("step %d, slot %d: entropy and penalty %v, the least is %v", c.at, slot, a, least)
		case filled && should && c.m.last[k] < nearTie:
			c.tie = fmt.Sprintf("step %d, slot %d: token %d for %d, logits %v apart", c.at, slot, mine, theirs, c.m.last[k])
		default:
			c.t.Errorf("step %d, slot %d (entropy and penalty %v, logits %v apart): filled %v with %d, want %v with %d",
				c.at, slot, a, c.m.last[k], filled, mine, should, theirs)
		}
	}
}

// RunVerified compares verified with ar on the traces' problems, token by
// token. With exact arithmetic and f32 keys and values, ar's tokens and
// verified's forwards are those of the reference, too, which feeds the last token also
// where it is known before.
func RunVerified(t *testing.T, b backend.Backend, problems []int, kv backend.KVType) {
	m := &margins{Model: Tiny(t, b)}
	golden := b.Features().Exact && kv == backend.KVF32
	for i, p := range Problems(t) {
		if !some(problems, i) {
			continue
		}
		tau := float32(0.6)
		o := Trace{Window: 16, EntropyThreshold: &tau}.Options()
		o.Mode = decoder.AR
		ar := m.generate(t, p.Prompt, o, kv, decoder.Hooks{})
		if golden && !slices.Equal(ar.Tokens, p.AR) {
			t.Errorf("problem %d: ar %v\nwant %v", i, ar.Tokens, p.AR)
		}
		o.Mode = decoder.Verified
		fed := 0
		sum := m.generate(t, p.Prompt, o, kv, decoder.Hooks{Step: func(s decoder.Step) { fed += len(s.Committed) }})
		if !slices.Equal(sum.Tokens, ar.Tokens) {
			t.Errorf("problem %d: verified %v\nar       %v", i, sum.Tokens, ar.Tokens)
		}
		if want := p.VerifiedForwards - (len(sum.Tokens) - fed); golden && (sum.Stats.Forwards != want || fed < len(sum.Tokens)-1) {
			t.Errorf("problem %d: verified took %d forwards, want %d; %d of %d tokens were fed", i, sum.Stats.Forwards, want, fed, len(sum.Tokens))
		}
	}
}
