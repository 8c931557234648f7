package decoder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// machine is a constraint of a few states: which tokens each allows, and where they
// lead. Every state allows some; the end is allowed in those that accept.
type machine struct {
	next  [][]int // [state][token]; negative: not allowed
	state int
	ended bool
}

var errEnded = errors.New("the text has ended")

func (m *machine) Mask(dst []uint64) error {
	clear(dst)
	if m.ended {
		return errEnded
	}
	for id, to := range m.next[m.state] {
		if to >= 0 {
			dst[id/64] |= 1 << (id % 64)
		}
	}
	return nil
}

func (m *machine) Allowed(token int32) bool {
	return !m.ended && token >= 0 && int(token) < len(m.next[m.state]) && m.next[m.state][token] >= 0
}

func (m *machine) Advance(token int32) bool {
	if !m.Allowed(token) {
		return false
	}
	m.state = m.next[m.state][token]
	m.ended = token == machineEnd
	return true
}

func (m *machine) Clone() Constraint {
	y := *m
	return &y
}

// machineEnd ends a machine's text.
const machineEnd = 3

// newMachine makes one of random states over the toy's tokenizer.
func newMachine(r *rand.Rand, tokens int) *machine {
	m := &machine{}
	states := 1 + r.IntN(5)
	for range states {
		to := make([]int, tokens)
		for id := range to {
			if to[id] = -1; r.IntN(3) == 0 && id != machineEnd || id == machineEnd && r.IntN(3) == 0 {
				to[id] = r.IntN(states)
			}
		}
		to[4+r.IntN(tokens-4)] = r.IntN(states)
		m.next = append(m.next, to)
	}
	return m
}

// constrainedByHand decodes greedily without cache, window or sequence: the largest
// allowed logit each time.
func constrainedByHand(m *toy, prompt []int32, o Options) (output []int32) {
	at := o.Constraint.Clone()
	for len(output) < o.MaxTokens && !slices.Contains(output, machineEnd) {
		text := slices.Concat(prompt, output)
		positions := make([]int32, len(text))
		for i := range positions {
			positions[i] = int32(i)
		}
		keys := m.run(text, positions)
		z := m.logits(keys[len(keys)-1])
		best := int32(-1)
		for id, v := range z[:m.vocab-1] {
			if at.Allowed(int32(id)) && int32(id) != m.mask && (best < 0 || v > z[best]) {
				best = int32(id)
			}
		}
		at.Advance(best)
		output = append(output, best)
	}
	return output
}

// TestConstrained: under a constraint ar takes the best allowed token each time, and
// verified gives ar's output at any window, greedy and sampled, drafts being held to it.
func TestConstrained(t *testing.T) {
	drafts, accepted, ended := 0, 0, 0
	for seed := range uint64(900) {
		r := rand.New(rand.NewPCG(seed, 77))
		m := newToy(t, seed)
		prompt := randomPrompt(r)
		o := toyOptions(AR, m)
		o.MaxTokens, o.StopIDs = 1+r.IntN(40), []int32{machineEnd}
		if seed%3 == 2 {
			o.Sampling = Sampling{Temperature: 0.9, TopP: 0.9, RepetitionPenalty: 1.2, Seed: seed}
		}
		o.Constraint = newMachine(r, m.vocab-2)
		want := generate(t, m, prompt, o, Hooks{})
		at := o.Constraint.Clone()
		for i, x := range want.Tokens {
			if !at.Advance(x) {
				t.Fatalf("seed %d: token %d of %v is not allowed", seed, i, want.Tokens)
			}
		}
		if seed%3 != 2 {
			if byHand := constrainedByHand(m, prompt, o); !slices.Equal(want.Tokens, byHand) {
				t.Fatalf("seed %d: ar %v, by hand %v", seed, want.Tokens, byHand)
			}
		}
		if want.FinishReason == FinishStop {
			ended++
		}
		for _, window := range []int{2, 5, 12} {
			o.Mode, o.Window = Verified, window
			got := generate(t, m, prompt, o, Hooks{})
			if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
				t.Fatalf("seed %d, window %d: verified %v (%s), ar %v (%s)", seed, window, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
			}
			drafts, accepted = drafts+got.Stats.Drafts, accepted+got.Stats.Accepted
		}
		if fresh := o.Constraint.(*machine); fresh.state != 0 || fresh.ended {
			t.Fatal("the caller's constraint was moved")
		}
	}
	if accepted < 500 || drafts-accepted < 50 || ended < 50 {
		t.Fatalf("%d of %d drafts accepted, %d texts ended: nothing is shown", accepted, drafts, ended)
	}
}

// opening is a machine that lets anything pass for a while, and then one token alone: what
// a budget of thinking does. It gives masks as it always did; told, it also says where it
// is open.
type opening struct {
	free, forced int // tokens left of each
	only         int32
}

func (x *opening) Mask(dst []uint64) error {
	clear(dst)
	for i := range dst {
		if dst[i] = ^uint64(0); x.free == 0 && x.forced > 0 {
			dst[i] = 0
		}
	}
	if x.free == 0 && x.forced > 0 {
		dst[x.only/64] = 1 << (x.only % 64)
	}
	return nil
}

func (x *opening) Allowed(token int32) bool { return x.free > 0 || x.forced == 0 || token == x.only }

func (x *opening) Advance(token int32) bool {
	if !x.Allowed(token) {
		return false
	}
	if x.free > 0 {
		x.free--
	} else {
		x.forced = max(0, x.forced-1)
	}
	return true
}

func (x *opening) Clone() Constraint {
	y := *x
	return &y
}

// told is an opening that says where it is open.
type told struct{ opening }

func (x *told) Open() bool { return x.free > 0 || x.forced == 0 }

func (x *told) Clone() Constraint {
	y := *x
	return &y
}

// asksNoLogits is a toy of which neither logits nor certain ids are asked for.
type asksNoLogits struct{ *toy }

func (m asksNoLogits) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	b.RunDeferred()
	for i, w := range b.Want {
		if w.Logits || w.Allowed != nil || w.TopK > 1 && b.Tokens[w.Row] != m.mask {
			m.t.Fatalf("row %d of %d asks for %+v", i, len(b.Tokens), w)
		}
	}
	return m.toy.Forward(ctx, b)
}

// TestOpen: where anything may follow, or one token alone, a device is asked for no more
// than without a constraint, and the output is that of masks; greedy and sampled, with
// logprobs, in ar and in verified.
func TestOpen(t *testing.T) {
	stood := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 78))
		m := newToy(t, seed)
		prompt := randomPrompt(r)
		o := toyOptions(AR, m)
		o.MaxTokens = 1 + r.IntN(30)
		masks := opening{r.IntN(12), 1 + r.IntN(3), int32(4 + r.IntN(m.vocab-6))}
		o.Constraint = &masks
		sampled := seed%3 == 2
		if sampled {
			o.Sampling = Sampling{Temperature: 0.9, TopP: 0.9, RepetitionPenalty: 1.2, Seed: seed}
		}
		want := generate(t, m, prompt, o, Hooks{})
		n := 2
		o.Logprobs = &n
		_, said := likely(t, m, m, prompt, o)
		o.Constraint = &told{masks}
		for _, window := range []int{0, 2, 8} {
			if o.Mode = AR; window > 0 {
				o.Mode, o.Window = Verified, window
			}
			if tokens, again := likely(t, m, m, prompt, o); !slices.Equal(tokens, want.Tokens) || fmt.Sprint(again) != fmt.Sprint(said) {
				t.Fatalf("seed %d, window %d: %v %v, by masks %v %v", seed, window, tokens, again, want.Tokens, said)
			}
			if sampled {
				continue
			}
			free := o
			free.Logprobs = nil
			tokens, _ := likely(t, asksNoLogits{m}, m, prompt, free)
			if !slices.Equal(tokens, want.Tokens) {
				t.Fatalf("seed %d, window %d: %v, by masks %v", seed, window, tokens, want.Tokens)
			}
			stood++
		}
		if at := masks.free; at < len(want.Tokens) && want.Tokens[at] != masks.only {
			t.Fatalf("seed %d: %v, want %d at %d", seed, want.Tokens, masks.only, at)
		}
	}
	if stood < 300 {
		t.Fatalf("%d runs", stood)
	}
}

// A place that nothing may follow ends a generation with an error that says so.
func TestStuck(t *testing.T) {
	m := newToy(t, 1)
	o := toyOptions(AR, m)
	nowhere := newMachine(rand.New(rand.NewPCG(1, 1)), m.vocab-2)
	nowhere.ended = true
	o.Constraint = nowhere
	s, err := NewSequence(model.NewCountingCache(100), []int32{1}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.forward(t.Context(), m); !errors.Is(err, errEnded) {
		t.Errorf("error %v, want %v", err, errEnded)
	}
	o.Mode = WeDLM
	bad := (*OptionError)(nil)
	if err := o.Validate(); !errors.As(err, &bad) || bad.Option != "constraint" {
		t.Errorf("wedlm under a constraint: %v", err)
	}
}
