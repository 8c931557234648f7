package decoder

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"windrow/model"
)

// toy is a deterministic language model for tests. A row's state is a hash of
// its token, its position and the sum of the states that it sees: all of the
// cache and the earlier rows, so masks and order are really modelled and a key
// that saw a mask differs from one that did not. Logits mix a part that only
// the target position knows (drafts agree on it) with a part of the state.
//
// As an engine it is also an oracle: every forward checks what it is fed.
type toy struct {
	t     testing.TB
	vocab int
	mask  int32
	seed  uint64
	// agree is the share of the logits that the position alone decides; scale
	// multiplies all: with it entropies fall.
	agree, scale float64
	// period, where not 0, is after how many positions the part that they decide repeats.
	period uint64

	keys     []toyKey // by physical slot, the last forward's rows included
	forwards int
	maxRows  int // the most rows of one decode forward
	rows     int // of all forwards
	// failAt fails that forward, counted from 1, after it has spoilt the
	// scratch; stop is called before.
	failAt int
	stop   func()
}

type toyKey struct {
	token, pos int32
	state      uint64
}

var errToy = errors.New("the forward was cut off")

func mix(words ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, w := range words {
		h ^= w
		h *= 0xff51afd7ed558ccd
		h ^= h >> 32
		h *= 0xc4ceb9fe1a85ec53
		h ^= h >> 29
	}
	return h
}

// unit maps a hash to [-1, 1).
func unit(h uint64) float64 { return float64(int64(h)) / (1 << 63) }

// state is what a row becomes that sees the states whose sum is given.
func (m *toy) state(token, pos int32, sum uint64) uint64 {
	return mix(m.seed, uint64(token), uint64(pos), sum)
}

// logits are a row's: of the next position, or of its own at a mask.
func (m *toy) logits(k toyKey) []float32 {
	target := uint64(k.pos) + 1
	if k.token == m.mask {
		target--
	}
	if m.period > 0 {
		target %= m.period
	}
	scale := m.scale * []float64{1, 3, 8}[mix(m.seed, target, 7)%3]
	z := make([]float32, m.vocab)
	for v := range z {
		z[v] = float32(scale * (m.agree*unit(mix(m.seed, target, uint64(v), 1)) + (1-m.agree)*unit(mix(k.state, uint64(v), 2))))
	}
	return z
}

// result is what an engine says of logits; ids from limit on and except are barred.
func result(z []float32, limit, except int32, logits bool) model.Result {
	r := model.Result{Argmax: -1}
	best, sum := math.Inf(-1), 0.0
	for _, v := range z {
		best = max(best, float64(v))
	}
	for _, v := range z {
		sum += math.Exp(float64(v) - best)
	}
	var entropy float64
	for i, v := range z {
		p := math.Exp(float64(v)-best) / sum
		if p > 0 {
			entropy -= p * math.Log(p)
		}
		if int32(i) == except || int32(i) >= limit {
			continue
		}
		if r.Argmax < 0 || v > z[r.Argmax] {
			r.Argmax = int32(i)
		}
	}
	r.Entropy, r.LogSumExp = float32(entropy), float32(best+math.Log(sum))
	if logits {
		r.Logits = z
	}
	return r
}

// run computes rows behind a prefix, without any cache.
func (m *toy) run(tokens, positions []int32) []toyKey {
	keys := make([]toyKey, len(tokens))
	var sum uint64
	for i := range tokens {
		keys[i] = toyKey{tokens[i], positions[i], m.state(tokens[i], positions[i], sum)}
		sum += keys[i].state
	}
	return keys
}

func (m *toy) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	m.t.Helper()
	m.forwards++
	if len(b.Spans) != 1 || b.Spans[0].First != 0 || b.Spans[0].Rows != len(b.Tokens) || len(b.Positions) != len(b.Tokens) || len(b.Tokens) == 0 {
		m.t.Fatalf("forward %d: batch %+v is not one full span", m.forwards, b)
	}
	cache := b.Spans[0].Cache
	base := cache.Base()
	m.verify(cache)
	m.keys = m.keys[:base]
	seen := map[int32]bool{}
	masks := false
	previous := int32(base - 1)
	for i, pos := range b.Positions {
		isMask := b.Tokens[i] == m.mask
		if isMask && !masks {
			previous, masks = int32(base-1), true
		}
		if pos <= previous || seen[pos] || isMask != masks {
			m.t.Fatalf("forward %d: rows %v at %v behind %d: want filled slots ascending, then masks ascending", m.forwards, b.Tokens, b.Positions, base)
		}
		seen[pos], previous = true, pos
	}
	if len(seen) > 0 && !seen[int32(base)] {
		m.t.Fatalf("forward %d: positions %v behind %d leave out the first slot", m.forwards, b.Positions, base)
	}
	for i, w := range b.Want {
		if int(w.Row) >= len(b.Tokens) || i > 0 && w.Row <= b.Want[i-1].Row {
			m.t.Fatalf("forward %d: wanted rows %v of %d", m.forwards, b.Want, len(b.Tokens))
		}
	}
	var sum uint64
	for _, k := range m.keys {
		sum += k.state
	}
	for i, token := range b.Tokens {
		k := toyKey{token, b.Positions[i], m.state(token, b.Positions[i], sum)}
		sum += k.state
		m.keys = append(m.keys, k)
	}
	if m.forwards == m.failAt {
		for i := base; i < len(m.keys); i++ {
			m.keys[i].state = 0xdead // half-written scratch
		}
		if m.stop != nil {
			m.stop()
			return nil, ctx.Err()
		}
		return nil, errToy
	}
	cache.Stage(len(b.Tokens))
	b.RunDeferred()
	m.rows += len(b.Tokens)
	m.maxRows = max(m.maxRows, len(b.Tokens))
	var results []model.Result
	for _, w := range b.Want {
		results = append(results, m.wanted(m.keys[base+int(w.Row)], w))
	}
	return results, nil
}

// wanted is the result of a row, of which some ids may be allowed alone.
func (m *toy) wanted(k toyKey, w model.Wanted) model.Result {
	r := m.result(k, w.Logits)
	z := m.logits(k)
	var ids []int32
	for id := range int32(m.vocab - 1) {
		if id != m.mask && (w.Allowed == nil || w.Allowed.Has(id)) {
			ids = append(ids, id)
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(z[b], z[a]) })
	if w.Allowed != nil {
		if len(ids) == 0 {
			m.t.Fatalf("forward %d: row %d allows nothing", m.forwards, w.Row)
		}
		r.Argmax = ids[0]
	}
	for _, id := range ids[:min(w.TopK, len(ids))] {
		r.Top = append(r.Top, model.Candidate{ID: id, Logit: z[id]})
	}
	return r
}

// result is that of a row.
func (m *toy) result(k toyKey, logits bool) model.Result {
	return result(m.logits(k), int32(m.vocab-1), m.mask, logits)
}

// verify compares the permanent keys with a fresh causal prefill: fact 3 of
// docs/decoding.md.
func (m *toy) verify(cache *model.Cache) {
	m.t.Helper()
	base := cache.Base()
	if base > len(m.keys) {
		m.t.Fatalf("forward %d: %d tokens permanent, %d written", m.forwards, base, len(m.keys))
	}
	var sum uint64
	for i, k := range m.keys[:base] {
		if k.token == m.mask {
			m.t.Fatalf("forward %d: slot %d is permanent and of a mask", m.forwards, i)
		}
		if want := (toyKey{k.token, int32(i), m.state(k.token, int32(i), sum)}); k != want {
			m.t.Fatalf("forward %d: permanent slot %d is %+v, a fresh prefill gives %+v", m.forwards, i, k, want)
		}
		sum += k.state
	}
}

// verifyEnd checks the contract of Generate's return.
func (m *toy) verifyEnd(cache *model.Cache, prompt, tokens []int32) {
	m.t.Helper()
	m.verify(cache)
	all := slices.Concat(prompt, tokens)
	for i, k := range m.keys[:cache.Base()] {
		if k.token != all[i] {
			m.t.Fatalf("permanent token %d is %d, want %d of prompt + tokens", i, k.token, all[i])
		}
	}
}

// newToy has vocabulary 0..14, mask 15, and one id past the tokenizer's size.
func newToy(t testing.TB, seed uint64) *toy {
	return &toy{t: t, vocab: 17, mask: 15, seed: seed, agree: 0.9, scale: 1.5}
}

func toyOptions(mode Mode, m *toy) Options {
	o := DefaultOptions()
	o.Mode, o.MaxTokens, o.Window = mode, 24, 6
	o.Vocabulary = Vocabulary{Size: int32(m.vocab - 1), MaskID: m.mask}
	return o
}

func threshold(tau float32) *float32 { return &tau }

// generate runs on a fresh cache of exactly the needed size.
func generate(t testing.TB, m *toy, prompt []int32, o Options, h Hooks) Summary {
	t.Helper()
	capacity, maxRows := CacheSize(len(prompt), o)
	cache := model.NewCountingCache(capacity)
	m.keys, m.forwards, m.maxRows, m.rows = nil, 0, 0, 0
	sum, err := Generate(context.Background(), m, cache, prompt, o, nil, h)
	if err != nil {
		t.Fatalf("generate: %v", err)
	}
	m.verifyEnd(cache, prompt, sum.Tokens)
	if m.maxRows > maxRows {
		t.Fatalf("a forward of %d rows, CacheSize says at most %d", m.maxRows, maxRows)
	}
	if len(sum.Tokens) > o.MaxTokens || sum.Stats.Tokens != len(sum.Tokens) {
		t.Fatalf("%d tokens (stats say %d), max %d", len(sum.Tokens), sum.Stats.Tokens, o.MaxTokens)
	}
	if sum.Stats.Rows != m.rows-len(prompt) {
		t.Fatalf("stats say %d rows, the engine saw %d", sum.Stats.Rows, m.rows-len(prompt))
	}
	if prefills := (len(prompt) + o.prefillRows() - 1) / o.prefillRows(); sum.Stats.Forwards != m.forwards-prefills {
		t.Fatalf("stats say %d forwards, the engine saw %d after %d of prefill", sum.Stats.Forwards, m.forwards-prefills, prefills)
	}
	return sum
}
