package decoder

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// commonHead is an engine whose forwards are those of several sequences' heads.
type commonHead struct {
	t        *testing.T
	heads    []*head
	rows     int // the most of a forward
	fails    float64
	r        *rand.Rand
	forwards int
	parts    int // of them
}

var errCommon = errors.New("the forward of several failed")

func (c *commonHead) Draft(ctx context.Context, b *model.DraftBatch) (results []model.Result, err error) {
	c.forwards++
	c.parts += len(b.Spans)
	if len(b.Spans) > 1 && len(b.Tokens) > c.rows {
		c.t.Fatalf("a forward of %d spans has %d rows", len(b.Spans), len(b.Tokens))
	}
	if len(b.Spans) > 1 && c.r.Float64() < c.fails {
		return nil, errCommon
	}
	want := b.Want
	for _, s := range b.Spans {
		i := slices.IndexFunc(c.heads, func(h *head) bool { return h.cache == s.Cache })
		if i < 0 {
			c.t.Fatal("a cache of nobody")
		}
		part := &model.DraftBatch{
			Tokens: b.Tokens[s.First : s.First+s.Rows], Hidden: b.Hidden[s.First*headWidth : (s.First+s.Rows)*headWidth],
			Spans: []model.DraftSpan{{Cache: s.Cache, At: s.At, Rows: s.Rows}},
		}
		for ; len(want) > 0 && int(want[0].Row) < s.First+s.Rows; want = want[1:] {
			w := want[0]
			w.Row -= int32(s.First)
			part.Want = append(part.Want, w)
		}
		said, err := c.heads[i].Draft(ctx, part)
		if err != nil {
			return nil, err
		}
		results = append(results, said...)
	}
	return results, nil
}

// free is a Drafting whose forwards, of so many rows at most, cost nothing.
type free int

func (f free) Rows() int                                      { return int(f) }
func (free) Seconds(rows int, alone float64) float64          { return alone }
func (free) Tokens(seconds float64, drafts, more int) float64 { return 0 }

func (free) Ran(int, int, float64, bool) {}
func (free) Learned()                    {}

// TestDraftTogether: sequences that draft together say what each says alone, where
// forwards fail, of several or of one, and where one of them is given up; and what they
// need at the same time is one forward.
func TestDraftTogether(t *testing.T) {
	t.Parallel()
	shared, parts, failed, left := 0, 0, 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 84))
		c := &commonHead{t: t, rows: 8 + r.IntN(40), r: r}
		if seed%3 == 0 {
			c.fails = .2
		}
		n := 1 + r.IntN(6)
		var list []*Sequence
		var want []Summary
		var contexts []context.Context
		var stop []context.CancelFunc
		for i := range n {
			m := newToy(t, seed*10+uint64(i))
			o := randomOptions(r, Verified, m)
			o.MaxTokens, o.PrefillRows, o.Drafts, o.Draft = 1+r.IntN(40), 1+r.IntN(20), 1+r.IntN(4), []DraftChoice{DraftMTP, DraftMTP, DraftNone}[r.IntN(3)]
			prompt := randomPrompt(r)
			ar := o
			ar.Mode = AR
			want = append(want, generate(t, m, prompt, ar, Hooks{}))
			h := &head{toy: m, text: slices.Concat(prompt, want[i].Tokens, []int32{0}), lies: r.Float64(), r: r}
			if seed%4 == 0 {
				h.fails = .1
			}
			c.heads = append(c.heads, h)
			o.Head = &HeadDrafts{Engine: c, Width: headWidth, Seconds: .05, PrefillRows: 1 + r.IntN(30)}
			if r.IntN(2) == 0 {
				o.Cost = costs(t, CostPoint{1, 1}, CostPoint{8, 1.2})
				o.Experience = NewExperience()
			}
			capacity, _ := CacheSize(len(prompt), o)
			h.cache = model.NewCountingCache(capacity)
			m.keys = nil
			s, err := NewSequence(h.cache, prompt, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			list, contexts, stop = append(list, s), append(contexts, ctx), append(stop, cancel)
		}
		gone := -1
		if seed%5 == 0 && n > 1 {
			gone = 0
		}
		for steps := 0; ; steps++ {
			var running []*Sequence
			var each []context.Context
			at := []int{}
			for i, s := range list {
				if !s.Done() {
					running, each, at = append(running, s), append(each, contexts[i]), append(at, i)
				}
			}
			if len(running) == 0 {
				break
			}
			if gone >= 0 && steps == 2 {
				stop[gone]()
			}
			drafts, before := 0, c.parts
			for i, s := range running {
				if s.Drafts() && each[i].Err() == nil {
					drafts++
				}
			}
			c.forwards = 0
			errs := DraftTogether(t.Context(), running, each, free(c.rows))
			for i, err := range errs {
				switch {
				case err == nil:
				case each[i].Err() != nil && errors.Is(err, context.Canceled):
					left++
				case errors.Is(err, errOracle):
					failed++
				default:
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			// All of them fit into one forward a draft, and one that reads.
			if most := 1 + 4*2; c.fails == 0 && seed%4 != 0 && drafts > 0 && c.rows >= 30*n && c.forwards > most {
				t.Fatalf("seed %d: %d forwards for %d sequences", seed, c.forwards, drafts)
			}
			if drafts > 1 {
				shared, parts = shared+c.forwards, parts+c.parts-before
			}
			for i, s := range running {
				b := new(model.Batch)
				s.Plan(b, 0)
				results, err := c.heads[at[i]].Forward(t.Context(), b)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Absorb(results); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, s := range list {
			got := s.Summary()
			s.Close()
			stop[i]()
			if !slices.Equal(got.Tokens, want[i].Tokens) || got.FinishReason != want[i].FinishReason {
				t.Fatalf("seed %d, sequence %d:\ntogether %v %s\nar       %v %s", seed, i, got.Tokens, got.FinishReason, want[i].Tokens, want[i].FinishReason)
			}
		}
	}
	t.Logf("%d forwards of %d parts; %d times a sequence's drafts failed, %d times it was given up", shared, parts, failed, left)
	if shared*3 > parts*2 || failed == 0 || left == 0 {
		t.Error("nothing is shown")
	}
}

// commonModel is an engine whose forwards are those of several sequences' smaller models.
type commonModel struct {
	t        *testing.T
	toys     map[*model.Cache]*toy
	rows     int // the most of a part
	forwards int
	parts    int
}

func (c *commonModel) Forward(ctx context.Context, b *model.Batch) (results []model.Result, err error) {
	c.forwards++
	c.parts += len(b.Spans)
	want := b.Want
	for _, s := range b.Spans {
		if s.Rows > c.rows {
			c.t.Fatalf("%d rows of a sequence at once", s.Rows)
		}
		part := &model.Batch{
			Tokens: b.Tokens[s.First : s.First+s.Rows], Positions: b.Positions[s.First : s.First+s.Rows],
			Spans: []model.Span{{Cache: s.Cache, Rows: s.Rows}},
		}
		for ; len(want) > 0 && int(want[0].Row) < s.First+s.Rows; want = want[1:] {
			w := want[0]
			w.Row -= int32(s.First)
			part.Want = append(part.Want, w)
		}
		said, err := c.toys[s.Cache].Forward(ctx, part)
		if err != nil {
			return nil, err
		}
		results = append(results, said...)
	}
	return results, nil
}

// TestSmallerModelTogether: one that drafts for several sequences does so in common
// forwards, reads their prompts in chunks while these are computed, and changes no text.
func TestSmallerModelTogether(t *testing.T) {
	t.Parallel()
	forwards, parts := 0, 0
	var all DrafterStats
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 85))
		c := &commonModel{t: t, toys: map[*model.Cache]*toy{}, rows: 1 + r.IntN(12)}
		var list []*Sequence
		var toys []*toy
		var want []Summary
		var each []context.Context
		for i := range 1 + r.IntN(5) {
			m := newToy(t, seed*10+uint64(i))
			o := randomOptions(r, Verified, m)
			o.MaxTokens, o.PrefillRows, o.Draft = 1+r.IntN(40), 1+r.IntN(20), DraftModel
			prompt := slices.Repeat(randomPrompt(r), 1+r.IntN(4))
			ar := o
			ar.Mode = AR
			want = append(want, generate(t, m, prompt, ar, Hooks{}))
			small := newToy(t, seed*10+uint64(i)+uint64(r.IntN(4)/3)) // mostly the same
			small.agree, small.period, small.scale = m.agree, m.period, m.scale
			cache := model.NewCountingCache(200 + r.IntN(400))
			c.toys[cache] = small
			o.NewDrafter = func() (Drafter, error) {
				return NewModelDrafter(ModelDrafts{Engine: c, Cache: cache, Seconds: .05, PrefillRows: c.rows}), nil
			}
			if r.IntN(2) == 0 {
				o.Cost = costs(t, CostPoint{1, 1}, CostPoint{8, 1.2})
			}
			capacity, _ := CacheSize(len(prompt), o)
			m.keys = nil
			s, err := NewSequence(model.NewCountingCache(capacity), prompt, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			list, toys, each = append(list, s), append(toys, m), append(each, t.Context())
		}
		for left := len(list); left > 0; {
			if errs := DraftTogether(t.Context(), list, each, free(100)); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
				t.Fatalf("seed %d: %v", seed, errs)
			}
			left = 0
			for i, s := range list {
				if s.Done() {
					continue
				}
				b := new(model.Batch)
				s.Plan(b, 0)
				results, err := toys[i].Forward(t.Context(), b)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Absorb(results); err != nil {
					t.Fatal(err)
				}
				if !s.Done() {
					left++
				}
			}
		}
		for i, s := range list {
			got := s.Summary()
			s.Close()
			if !slices.Equal(got.Tokens, want[i].Tokens) || got.FinishReason != want[i].FinishReason {
				t.Fatalf("seed %d, sequence %d:\ntogether %v %s\nar       %v %s", seed, i, got.Tokens, got.FinishReason, want[i].Tokens, want[i].FinishReason)
			}
			d := got.Stats.Drafters[ModelDrafter]
			all.Drafts, all.Accepted = all.Drafts+d.Drafts, all.Accepted+d.Accepted
		}
		if len(list) > 1 {
			forwards, parts = forwards+c.forwards, parts+c.parts
		}
	}
	t.Logf("%d forwards of %d parts; %d of %d drafts stood", forwards, parts, all.Accepted, all.Drafts)
	if forwards*3 > parts*2 || all.Accepted < 300 || all.Drafts-all.Accepted < 300 {
		t.Error("nothing is shown")
	}
}
