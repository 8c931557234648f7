package backendtest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/model"
)

// prompted is a model, and prompts for it.
type prompted struct {
	t    *testing.T
	m    *model.Model
	kv   backend.KVType
	rows int
	r    *rand.Rand
}

// RunPrompts checks what Features.PromptRows promises of a model: a prompt of so many
// tokens has the same bits, in results and in what is stored, whole, cut anywhere, and
// beside other prompts. It reports whether the same cuts gave other bits where nobody
// said that the rows are a prompt's: where they never do, nothing is shown.
func RunPrompts(t *testing.T, m *model.Model, kv backend.KVType, rows int) (differ bool) {
	t.Helper()
	if n := m.Backend().Features().PromptRows; n < rows {
		t.Fatalf("forwards of prompts of up to %d rows keep their bits, want %d", n, rows)
	}
	p := &prompted{t: t, m: m, kv: kv, rows: rows, r: seeded(41)}
	tokens := p.prompt(rows)
	want := p.run(tokens, nil, nil, true)
	for _, cuts := range p.cuts() {
		got := p.run(tokens, cuts, nil, true)
		p.equal(want, got, "cut at ", cuts)
		if !differ {
			got = p.run(tokens, cuts, nil, false)
			differ = !want.is(got)
		}
	}
	for _, n := range []int{1, 30, rows / 2} { // of a prompt beside it
		cuts := []int{n, rows/2 - 1}
		slices.Sort(cuts)
		p.equal(want, p.run(tokens, cuts, p.prompt(n), true), "beside another, cut at ", cuts)
	}
	return differ
}

func (p *prompted) prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = p.r.Int32N(int32(p.m.Config().VocabSize))
	}
	return ids
}

// cuts are places where a prompt is cut: by few rows and by many, at pages and not.
func (p *prompted) cuts() (list [][]int) {
	n := p.rows
	list = [][]int{{1}, {n - 1}, {n / 2}, {31, 32, 33}, {min(64, n-40), n - 20}}
	var some []int
	for at := 1 + p.r.IntN(70); at < n; at += 1 + p.r.IntN(70) {
		some = append(some, at)
	}
	return append(list, some)
}

// made is what is compared: results of some rows, and all keys and values.
type made struct {
	logits [][]float32
	pages  [][]byte
}

func (a *made) is(b *made) bool {
	for i := range a.logits {
		for j, v := range a.logits[i] {
			if math.Float32bits(v) != math.Float32bits(b.logits[i][j]) {
				return false
			}
		}
	}
	return slices.EqualFunc(a.pages, b.pages, bytes.Equal)
}

func (p *prompted) equal(want, got *made, what string, cuts []int) {
	p.t.Helper()
	for i := range want.logits {
		for j, v := range want.logits[i] {
			if math.Float32bits(v) != math.Float32bits(got.logits[i][j]) {
				p.t.Fatalf("%s%v: wanted row %d, logit %d is %v, whole %v", what, cuts, i, j, got.logits[i][j], v)
			}
		}
	}
	for i := range want.pages {
		if !bytes.Equal(want.pages[i], got.pages[i]) {
			p.t.Fatalf("%s%v: page %d has other bits", what, cuts, i)
		}
	}
}

// run runs a prompt in forwards that end at the cuts, each beside what there is of
// another prompt.
func (p *prompted) run(tokens []int32, cuts []int, other []int32, say bool) *made {
	p.t.Helper()
	var out made
	c, d := p.cache(len(tokens)), p.cache(len(tokens))
	defer c.Close()
	defer d.Close()
	from := 0
	for _, to := range append(slices.Clone(cuts), len(tokens)) {
		if to <= from {
			continue
		}
		b := new(model.Batch)
		if len(other) > 0 && d.Base() == 0 { // first, so that this one's rows lie elsewhere
			p.span(b, d, other, say)
		}
		ours := len(b.Want)
		p.span(b, c, tokens[from:to], say)
		results, err := p.m.Forward(p.t.Context(), b)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, result := range results[ours:] {
			out.logits = append(out.logits, result.Logits)
		}
		for _, s := range b.Spans {
			if err := s.Cache.Commit(s.Rows); err != nil {
				p.t.Fatal(err)
			}
		}
		from = to
	}
	for page := range len(tokens) / backend.PageTokens {
		data := make([]byte, c.PageBytes())
		if err := c.Export(page, data); err != nil {
			p.t.Fatal(err)
		}
		out.pages = append(out.pages, data)
	}
	return &out
}

// wantEvery is of how many rows one has its logits compared.
const wantEvery = 5

func (p *prompted) span(b *model.Batch, c *model.Cache, tokens []int32, say bool) {
	first := len(b.Tokens)
	for i, id := range tokens {
		b.Tokens, b.Positions = append(b.Tokens, id), append(b.Positions, int32(c.Base()+i))
		if (c.Base()+i)%wantEvery == 0 {
			b.Want = append(b.Want, model.Wanted{Row: int32(first + i), Logits: true})
		}
	}
	b.Spans = append(b.Spans, model.Span{Cache: c, First: first, Rows: len(tokens), Prompt: say})
}

func (p *prompted) cache(rows int) *model.Cache {
	p.t.Helper()
	c, err := p.m.NewCache(model.CacheOptions{Capacity: rows, MaxRows: rows, DType: p.kv})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}
