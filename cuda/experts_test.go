package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/cuda/emulator"
	"windrow/decoder"
	"windrow/model"
	"windrow/synthetic"
)

// TestExperts runs the suite's part for mixtures of experts in both arithmetics.
func TestExperts(t *testing.T) {
	if testing.Short() && !emulator.OnGPU {
		t.Skip("the suite for mixtures on the emulator: leave -short out") // TestExpertsVerified runs some
	}
	for name, exact := range map[string]bool{"exact": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			backendtest.RunExperts(t, goldenDir, func(t *testing.T) backend.Backend { return openBackend(t, exact) })
		})
	}
}

// smallMixture is a model of random weights with experts.
func smallMixture() *checkpoint.Config {
	c := small(true)
	c.Architecture, c.HiddenSize = "qwen3_moe", 128
	c.Experts = &checkpoint.Experts{Count: 12, PerToken: 3, InnerSize: 128, Renormalise: true, Step: 1}
	return c
}

// verifiedIsAR compares the modes' answers to random prompts that repeat themselves.
func verifiedIsAR(t *testing.T, m *model.Model) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 9))
	forwards, all := 0, float32(math.Inf(1))
	for range 2 {
		prompt := make([]int32, 5+r.IntN(20))
		for i := range prompt {
			prompt[i] = int32(r.IntN(900))
		}
		// What repeats is guessed: windows have filled slots.
		prompt = append(prompt, prompt...)
		answer := func(mode decoder.Mode) decoder.Summary {
			c, err := m.NewCache(model.CacheOptions{Capacity: 120, MaxRows: 64, DType: backend.KVBF16})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			o := decoder.DefaultOptions()
			o.Mode, o.Window, o.MaxTokens, o.EntropyThreshold = mode, 8, 20, &all
			o.Draft = decoder.DraftAuto
			s, err := decoder.Generate(t.Context(), m, c, prompt, o, nil, decoder.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		ar, verified := answer(decoder.AR), answer(decoder.Verified)
		if !slices.Equal(ar.Tokens, verified.Tokens) || len(ar.Tokens) == 0 {
			t.Errorf("verified %v\nar       %v", verified.Tokens, ar.Tokens)
		}
		forwards += verified.Stats.Forwards
	}
	t.Logf("%d forwards", forwards)
}

// TestExpertsVerified: verified's tokens are ar's, in default arithmetic, and steps of
// one row, of a window, and of a prompt are graphs and launches of the same bits.
func TestExpertsVerified(t *testing.T) {
	b := openBackend(t, false)
	defer b.Close()
	m, err := model.Load(b, synthetic.RandomSource(smallMixture(), backend.Affine4, 5), model.Barring(1200, 5))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	verifiedIsAR(t, m)
	// Of a step of one row: the step block, embedding and head besides.
	c, err := m.NewCache(model.CacheOptions{Capacity: 120, MaxRows: 64, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	forwardAll(t, m, c, 0, 1)
	if n, most := b.(*Backend).Launches(), 8*smallMixture().Layers+6; n > most {
		t.Errorf("a step is %d launches, want at most %d", n, most)
	} else {
		t.Logf("a step is %d launches", n)
	}
}
