package bench

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/decoder"
	"windrow/engine"
	"windrow/models/tinygsm"
	"windrow/synthetic"
)

func TestFit(t *testing.T) {
	for _, test := range []struct {
		plan Plan
		want error
	}{
		{Plan{}, nil},
		{Plan{Prefill: []int{8}, Rows: []int{1, 8}, Context: 8, Contexts: []int{8}, Batches: []Batch{{4, 8}}}, nil},
		{Plan{Prefill: []int{16}}, &FitError{16, 1, 16}},
		{Plan{Rows: []int{1, 9}, Context: 8}, &FitError{8, 9, 16}},
		{Plan{Contexts: []int{0, 16}}, &FitError{16, 1, 16}},
		{Plan{Context: 8, Batches: []Batch{{1, 9}}}, &FitError{8, 9, 16}},
	} {
		err, want := test.plan.Fit(16), (*FitError)(nil)
		if test.want == nil != (err == nil) || errors.As(test.want, &want) && err.Error() != want.Error() {
			t.Errorf("%+v: %v, want %v", test.plan, err, test.want)
		}
	}
}

// TestRun measures the embedded model: every figure is there, once a repetition,
// and the counters are those of the answers.
func TestRun(t *testing.T) {
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	e, err := engine.Open(t.Context(), "", engine.Options{Backend: engine.CPU, Measurements: engine.Measurements{Folder: engine.NoFolder}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := &Plan{Repetitions: 2, Prefill: []int{16}, Rows: []int{1, 2}, Context: 8, Contexts: []int{0}, Batches: []Batch{{2, 3}}}
	o := decoder.Options{Window: 4, MaxTokens: 6}
	if err := p.AddModes(t.Context(), e, o, nil, true); err != nil {
		t.Fatal(err)
	}
	if err := p.AddText(t.Context(), e, "sums", []string{"What is 17 + 25?", "What is 3 + 4?"}); err != nil {
		t.Fatal(err)
	}
	var long *engine.ContextError
	if err := p.AddText(t.Context(), e, "long", []string{strings.Repeat("five rows ", 3000)}); !errors.As(err, &long) {
		t.Errorf("a long prompt: %v", err)
	}
	calls, last := 0, 0
	r, err := p.Run(t.Context(), e, func(done, total int, note string) {
		if done != calls || note == "" {
			t.Errorf("progress %d of %d, %q after %d calls", done, total, note, calls)
		}
		calls, last = calls+1, total
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls != last || calls != 2*(1+2+1+1+2*5) {
		t.Errorf("%d calls of progress, total %d", calls, last)
	}
	for name, v := range map[string]float64{"prefill": r.Prefill["16"], "step": r.StepMS["2"], "c": r.C["2"], "one row": r.OneRowMS["0"],
		"batch": r.BatchMS["2x3"], "bandwidth": r.BandwidthGBps, "share": r.OneRowBandwidth, "c(rows)": r.AutoC["1"], "bytes": float64(r.OneRowBytes)} {
		if !(v > 0) {
			t.Errorf("%s: %v", name, v)
		}
	}
	if len(r.Modes) != 5 {
		t.Fatalf("modes %+v", r.Modes)
	}
	for i, name := range []string{"ar", "wedlm", "wedlm (auto)", "verified", "verified (auto)"} {
		m := r.Modes[i]
		if m.Mode != name || m.Tokens != 12 || m.Forwards == 0 || m.Spread.Median <= 0 || m.Speedup <= 0 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := r.Modes[0]; m.Forwards != 10 || m.Rows != 10 { // the prefill gives the first token
		t.Errorf("ar: %+v", m)
	}
	var text bytes.Buffer
	if err := r.Table(&text); err != nil || !strings.Contains(text.String(), "verified (auto)") || !strings.Contains(text.String(), "2 × 3") {
		t.Errorf("%v\n%s", err, &text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(ctx, e, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestDry counts forwards of a shape without weights.
func TestDry(t *testing.T) {
	config, ok := synthetic.ShapeConfig("tiny-gsm")
	if !ok {
		t.Fatal("no shape tiny-gsm")
	}
	r, p := NewDryReport(), &Plan{Rows: []int{1, 16}, Context: 32, Prefill: []int{64}, Batches: []Batch{{4, 16}}}
	if err := r.Add(t.Context(), p, engine.Options{Backend: engine.Metal}, "tiny-gsm", synthetic.EmptySource(config, backend.BF16)); err != nil {
		t.Fatal(err)
	}
	steps := r.Models[0].Steps
	if len(steps) != 4 || steps[0].Read == 0 || steps[2].FLOPs <= 3*steps[1].FLOPs || !steps[3].Prefill {
		t.Errorf("%+v", steps)
	}
	config, ok = synthetic.ShapeConfig("qwen3.5-0.8b")
	if !ok {
		t.Fatal("no shape qwen3.5-0.8b")
	}
	if err := r.Add(t.Context(), p, engine.Options{Backend: engine.Metal}, "hybrid", synthetic.EmptySource(config, backend.BF16)); err != nil {
		t.Fatal(err)
	}
	// A step reads and writes the states of its 18 layers, beside 1.5 GB of weights.
	if s := r.Models[1].Steps[0]; s.Written < 18<<20 || s.Read < 1500e6 || s.Read > 1650e6 {
		t.Errorf("%+v", s)
	}
	config, _ = synthetic.ShapeConfig("tiny-gsm")
	p.Context = 1 << 20
	var fit *FitError
	if err := r.Add(t.Context(), p, engine.Options{}, "tiny-gsm", synthetic.EmptySource(config, backend.BF16)); !errors.As(err, &fit) {
		t.Errorf("a context that is too long: %v", err)
	}
}
