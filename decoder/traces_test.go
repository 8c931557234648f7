package decoder_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"windrow/backend"
	"windrow/conformance/decodertest"
	"windrow/cpu"
	"windrow/decoder"
	"windrow/model"
)

// replay answers each forward from the trace's own step, after it has checked
// that the rows are the step's: the rule alone is tested, without a model.
type replay struct {
	t      *testing.T
	prompt int
	steps  []decodertest.Step
	at     int
}

func (r *replay) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	cache := b.Spans[0].Cache
	cache.Stage(len(b.Tokens))
	base := cache.Base()
	if base < r.prompt {
		return nil, nil
	}
	if r.at == len(r.steps) {
		r.t.Fatalf("a forward after the last of %d", r.at)
	}
	s := r.steps[r.at]
	r.at++
	if base-r.prompt != s.Committed || len(b.Tokens) != len(s.Tokens) {
		r.t.Fatalf("step %d: %d rows behind %d committed tokens, want %d behind %d", r.at, len(b.Tokens), base-r.prompt, len(s.Tokens), s.Committed)
	}
	filled := 0
	for _, m := range s.Mask {
		if !m {
			filled++
		}
	}
	for row, pos := range b.Positions {
		slot := int(pos) - base
		if slot < 0 || slot >= len(s.Tokens) || b.Tokens[row] != s.Tokens[slot] || s.Mask[slot] != (row >= filled) {
			r.t.Fatalf("step %d: rows %v at %v behind %d, want %v, masks %v", r.at, b.Tokens, b.Positions, base, s.Tokens, s.Mask)
		}
	}
	if len(b.Want) != len(s.Mask)-filled {
		r.t.Fatalf("step %d: results of rows %v wanted, want those of %d masks", r.at, b.Want, len(s.Mask)-filled)
	}
	results := make([]model.Result, len(b.Want))
	if len(s.Entropy) == 0 {
		return results, nil // the last step
	}
	lead := 0
	for lead < len(s.Mask) && !s.Mask[lead] {
		lead++
	}
	for i, w := range b.Want {
		results[i] = model.Result{Argmax: 7, Entropy: s.Entropy[i]} // 7 shows where nothing should be filled
		for _, f := range s.Fill {
			if int(f[0])+lead+base == int(b.Positions[w.Row]) {
				results[i].Argmax = f[1]
			}
		}
	}
	return results, nil
}

// TestTracesReplayed reproduces every golden trace step by step on the
// trace's own entropies.
func TestTracesReplayed(t *testing.T) {
	for i, p := range decodertest.Problems(t) {
		for _, tr := range p.WeDLM {
			t.Run(fmt.Sprintf("%d/%s", i, tr.Name()), func(t *testing.T) {
				r := &replay{t: t, prompt: len(p.Prompt), steps: tr.Steps}
				sum, err := decoder.Generate(t.Context(), r, model.NewCountingCache(1000), p.Prompt, tr.Options(), nil, decoder.Hooks{})
				if err != nil {
					t.Fatal(err)
				}
				decodertest.CheckTotals(t, sum, tr)
			})
		}
	}
}

// exactCPU is the CPU in f32, and the problems that it is to run: plain Go
// kernels take minutes for all, so there that needs WINDROW_SLOW=1.
func exactCPU(t *testing.T) (b backend.Backend, problems []int) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: the replayed traces test the rule")
	}
	b, err := cpu.New(cpu.Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if b.Features().Kernels == "go" && os.Getenv("WINDROW_SLOW") != "1" {
		problems = decodertest.Quick
		t.Log("left out: most golden traces, minutes with kernels in plain Go: set WINDROW_SLOW=1")
	}
	return b, problems
}

// TestTraces reproduces the golden traces step by step on the real model.
func TestTraces(t *testing.T) {
	b, problems := exactCPU(t)
	decodertest.Run(t, b, problems)
}

// TestTracesVerified: ar gives the golden ids, and verified gives ar's, in as
// many forwards as the reference's verified mode took.
func TestTracesVerified(t *testing.T) {
	b, problems := exactCPU(t)
	decodertest.RunVerified(t, b, problems, backend.KVF32)
}
