package decoder

import (
	"errors"
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
