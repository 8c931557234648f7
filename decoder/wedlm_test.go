package decoder

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// randomOptions covers small windows, sharp and blunt thresholds, penalties
// that bite, stop ids, and chunks that cut the prompt.
func randomOptions(r *rand.Rand, mode Mode, m *toy) Options {
	o := toyOptions(mode, m)
	o.Window = 1 + r.IntN(9)
	o.MaxTokens = 1 + r.IntN(30)
	o.PrefillRows = 1 + r.IntN(8)
	o.PosPenalty = []float32{0, 0.02, 0.3}[r.IntN(3)]
	o.EntropyThreshold = []*float32{nil, threshold(0), threshold(0.4), threshold(1.2), threshold(2), threshold(100)}[r.IntN(6)]
	if r.IntN(2) == 0 {
		o.StopIDs = []int32{int32(r.IntN(15)), int32(r.IntN(15))}
	}
	m.agree = []float64{0.5, 0.9, 1}[r.IntN(3)]
	m.scale = []float64{0.5, 1.5, 6}[r.IntN(3)]
	return o
}

func randomPrompt(r *rand.Rand) []int32 {
	prompt := make([]int32, 1+r.IntN(12))
	for i := range prompt {
		prompt[i] = int32(r.IntN(15))
	}
	return prompt
}

// reference decodes greedily by wedlm.go's rule with nothing of it: no cache,
// slots in a map by position, the prefix computed anew in each step.
func reference(m *toy, prompt []int32, o Options) (output []int32, steps []Step) {
	text := slices.Clone(prompt)
	limit := len(prompt) + o.MaxTokens // positions from here on never exist
	filled := map[int]int32{}
	end := min(len(prompt)+o.Window, limit) // one past the window
	for {
		base := len(text)
		lead := 0
		for ; ; lead++ {
			if _, ok := filled[base+lead]; !ok || base+lead >= end {
				break
			}
		}
		end = min(end+lead, limit)
		tokens := slices.Clone(text)
		var positions []int32
		for i := range text {
			positions = append(positions, int32(i))
		}
		var masks []int
		step := Step{Base: base}
		for p := base; p < end; p++ {
			x, ok := filled[p]
			step.Slots = append(step.Slots, Slot{x, ok})
			if ok {
				tokens, positions = append(tokens, x), append(positions, int32(p))
			} else {
				masks = append(masks, p)
			}
		}
		for _, p := range masks {
			tokens, positions = append(tokens, m.mask), append(positions, int32(p))
		}
		keys := m.run(tokens, positions)
		for i := range lead {
			x := filled[base+i]
			text, output = append(text, x), append(output, x)
			step.Committed = append(step.Committed, x)
			if slices.Contains(o.StopIDs, x) || len(output) == o.MaxTokens {
				return output, append(steps, step)
			}
		}
		cost := map[int]float64{}
		least := masks[0]
		for k, p := range masks {
			r := m.result(keys[len(keys)-len(masks)+k], false)
			step.Entropy = append(step.Entropy, r.Entropy)
			cost[p] = float64(r.Entropy) + float64(o.PosPenalty)*float64(p-masks[0])
			if cost[p] < cost[least] {
				least = p
			}
		}
		for k, p := range masks {
			passes := o.EntropyThreshold != nil && cost[p] < float64(*o.EntropyThreshold)
			if !passes && p == least {
				passes = true
				for _, q := range masks {
					if q != p && o.EntropyThreshold != nil && cost[q] < float64(*o.EntropyThreshold) {
						passes = false
					}
				}
			}
			if passes {
				x := m.result(keys[len(keys)-len(masks)+k], false).Argmax
				filled[p] = x
				step.Filled = append(step.Filled, Fill{p - len(text), x})
			}
		}
		steps = append(steps, step)
	}
}

// TestWeDLMWithoutCache is fact 8 of docs/decoding.md, and by the oracle in toy
// and the checks below facts 1 to 7, on random models and options.
func TestWeDLMWithoutCache(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := newToy(t, seed)
		o := randomOptions(r, WeDLM, m)
		prompt := randomPrompt(r)
		want, wantSteps := reference(m, prompt, o)
		var steps []Step
		sum := generate(t, m, prompt, o, Hooks{Step: func(s Step) { steps = append(steps, s) }})
		if !slices.Equal(sum.Tokens, want) {
			t.Fatalf("seed %d: tokens %v, without a cache %v", seed, sum.Tokens, want)
		}
		if got, want := fmt.Sprintf("%+v", steps), fmt.Sprintf("%+v", wantSteps); got != want {
			t.Fatalf("seed %d: steps\n%s\nwithout a cache\n%s", seed, got, want)
		}
		checkFacts(t, m, o, sum, steps)
	}
}

// checkFacts checks what a summary and its steps show of docs/decoding.md's facts.
func checkFacts(t *testing.T, m *toy, o Options, sum Summary, steps []Step) {
	t.Helper()
	// Fact 1: one forward per step (generate has compared it with the engine).
	if sum.Stats.Forwards != len(steps) {
		t.Fatalf("%d forwards for %d steps", sum.Stats.Forwards, len(steps))
	}
	// Fact 5: emission lags the fill by one forward.
	if len(steps[0].Committed) != 0 {
		t.Fatalf("the first forward committed %v", steps[0].Committed)
	}
	at := map[int]int32{} // filled tokens by position
	commits, rows := 0, 0
	for i, s := range steps {
		lead, seen := 0, false
		for j, slot := range s.Slots {
			if x, ok := at[s.Base+j]; slot.Filled != ok || ok && x != slot.Token {
				t.Fatalf("step %d: slot %d is %+v, fills so far %v: fact 2, filled slots stay", i, j, slot, at)
			}
			if seen = seen || !slot.Filled; !seen {
				lead++
			}
		}
		// Fact 7: the window is W after the commit, while the budget lasts.
		last := i == len(steps)-1
		left := o.MaxTokens - commits
		if want := min(o.Window+lead, left); len(s.Slots) != want {
			t.Fatalf("step %d: %d rows, want W + p = %d of at most %d", i, len(s.Slots), o.Window+lead, left)
		}
		if len(s.Committed) > lead || !last && len(s.Committed) != lead {
			t.Fatalf("step %d: committed %v of a leading run of %d", i, s.Committed, lead)
		}
		for j, x := range s.Committed {
			// Fact 6: a stop id ends it when it leads, and only then.
			if stop := slices.Contains(o.StopIDs, x); stop && (!last || j != len(s.Committed)-1 || sum.FinishReason != FinishStop) {
				t.Fatalf("step %d: went on after stop id %d in %v", i, x, s.Committed)
			}
		}
		commits += len(s.Committed)
		rows += len(s.Slots)
		if !last && len(s.Filled) == 0 {
			t.Fatalf("step %d filled nothing", i)
		}
		for _, f := range s.Filled {
			p := s.Base + len(s.Committed) + f.Slot
			if _, ok := at[p]; ok || f.Token == m.mask || f.Token >= o.Vocabulary.Size {
				t.Fatalf("step %d: fill %+v of a filled slot or with a barred id", i, f)
			}
			at[p] = f.Token
		}
	}
	if commits != sum.Stats.Tokens || rows != sum.Stats.Rows {
		t.Fatalf("commits %d, rows %d; stats %+v", commits, rows, sum.Stats)
	}
}

// script answers forward after forward with given entropies by position; the
// token of position p is 'A' + p.
type script struct {
	t      *testing.T
	steps  []map[int32]float32
	fed    []string
	tokens map[int32]int32
}

func (s *script) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	cache := b.Spans[0].Cache
	cache.Stage(len(b.Tokens))
	if cache.Base() == 0 {
		return nil, nil // the prompt of one token
	}
	var fed string
	for i, x := range b.Tokens {
		name := string(rune('A' + b.Positions[i] - 1))
		if x == 99 {
			name = fmt.Sprintf("M%d", b.Positions[i]-1)
		}
		fed += name + " "
	}
	s.fed = append(s.fed, fed)
	if len(s.steps) == 0 {
		s.t.Fatalf("forward %d (%s) is not in the script", len(s.fed), fed)
	}
	entropy := s.steps[0]
	s.steps = s.steps[1:]
	var results []model.Result
	for _, w := range b.Want {
		p := b.Positions[w.Row] - 1
		h, ok := entropy[p]
		if !ok {
			h = 1
		}
		x, ok := s.tokens[p]
		if !ok {
			x = 'A' + p
		}
		results = append(results, model.Result{Argmax: x, Entropy: h})
	}
	return results, nil
}

func scripted(t *testing.T, o Options, s *script) Summary {
	t.Helper()
	s.t = t
	o.Vocabulary = Vocabulary{MaskID: 99}
	sum, err := Generate(context.Background(), s, model.NewCountingCache(100), []int32{1}, o, nil, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func letters(tokens []int32) string { return string(tokens) }

// TestWorkedTrace is the worked trace of the decoding rule, W 3, on to its end
// at 9 tokens.
func TestWorkedTrace(t *testing.T) {
	s := &script{steps: []map[int32]float32{
		{0: .1, 1: .1},
		{2: .1, 4: .1},
		{3: .1, 5: .1},
		{6: .1, 7: .1, 8: .1},
		{},
	}}
	o := Options{Mode: WeDLM, Window: 3, EntropyThreshold: threshold(.5), MaxTokens: 9}
	sum := scripted(t, o, s)
	want := []string{"M0 M1 M2 ", "A B M2 M3 M4 ", "C E M3 M5 ", "D E F M6 M7 M8 ", "G H I "}
	if !slices.Equal(s.fed, want) {
		t.Errorf("fed %q, want %q", s.fed, want)
	}
	if letters(sum.Tokens) != "ABCDEFGHI" || sum.FinishReason != FinishLength {
		t.Errorf("tokens %s, finish %s", letters(sum.Tokens), sum.FinishReason)
	}
	// By hand: rows 3+5+4+6+3 = 21 in 5 forwards, 9 tokens.
	st := sum.Stats
	if st.Forwards != 5 || st.Rows != 21 || st.PCache() != 9.0/21 || st.TokensPerForward() != 9.0/5 || st.MeanRows() != 21.0/5 {
		t.Errorf("stats %+v: p_cache %v, tokens per forward %v, mean rows %v", st, st.PCache(), st.TokensPerForward(), st.MeanRows())
	}
}

func TestWeDLMFallbackAndPenalty(t *testing.T) {
	base := Options{Mode: WeDLM, Window: 3, MaxTokens: 3}
	for _, c := range []struct {
		name   string
		tau    *float32
		lambda float32
		steps  []map[int32]float32
		fed    []string
	}{
		{"an equal entropy is not below", threshold(.5), 0, []map[int32]float32{{0: .5, 1: .5, 2: .25}, {0: .1, 1: .1}, {}},
			[]string{"M0 M1 M2 ", "C M0 M1 ", "A B C "}},
		{"a tie goes left", threshold(.5), 0, []map[int32]float32{{0: .7, 1: .6, 2: .6}, {0: .1, 2: .1}, {}},
			[]string{"M0 M1 M2 ", "B M0 M2 ", "A B C "}},
		{"the penalty counts from the first mask", threshold(.5), .25, []map[int32]float32{{0: .25, 1: .5, 2: .25}, {1: .25, 2: .25}, {2: .25}, {}},
			[]string{"M0 M1 M2 ", "A M1 M2 ", "B M2 ", "C "}},
		{"no threshold: one each, penalty included", nil, .25, []map[int32]float32{{0: .5, 1: .375, 2: 0}, {0: .5, 1: .25}, {2: 0}, {}},
			[]string{"M0 M1 M2 ", "A M1 M2 ", "B M2 ", "C "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := base
			o.EntropyThreshold, o.PosPenalty = c.tau, c.lambda
			s := &script{steps: c.steps}
			sum := scripted(t, o, s)
			if !slices.Equal(s.fed, c.fed) || letters(sum.Tokens) != "ABC" {
				t.Errorf("fed %q, want %q; tokens %s", s.fed, c.fed, letters(sum.Tokens))
			}
		})
	}
}

// TestStopDeeper: a stop id in slot 2 does nothing until it leads; then the
// token behind it is dropped (docs/decoding.md, fact 6).
func TestStopDeeper(t *testing.T) {
	s := &script{
		steps:  []map[int32]float32{{2: .1, 3: .1}, {0: .1}, {1: .1}, {}},
		tokens: map[int32]int32{2: 'C'},
	}
	o := Options{Mode: WeDLM, Window: 4, EntropyThreshold: threshold(.5), MaxTokens: 20, StopIDs: []int32{'C'}}
	sum := scripted(t, o, s)
	want := []string{"M0 M1 M2 M3 ", "C D M0 M1 ", "A C D M1 M4 ", "B C D M4 M5 M6 M7 "}
	if !slices.Equal(s.fed, want) {
		t.Errorf("fed %q, want %q", s.fed, want)
	}
	if letters(sum.Tokens) != "ABC" || sum.FinishReason != FinishStop {
		t.Errorf("tokens %s, finish %s: want ABC, stop", letters(sum.Tokens), sum.FinishReason)
	}
}
