package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"windrow/decoder"
)

// scriptedForm is a scripted model in some format: it gets the problems in
// wrong wrong, needs more forwards, and its logits are shifted by shift at
// token 0.
type scriptedForm struct {
	scripted
	wrong    map[int]bool
	forwards int
	shift    float32
	closed   int
	forced   int // texts that are open
	fed      []int32
	broken   error
}

func (f *scriptedForm) Run(ctx context.Context, p Prompt, o decoder.Options) (decoder.Summary, error) {
	sum, err := f.scripted.Run(ctx, p, o)
	var i, j int
	fmt.Sscanf(p.Messages[len(p.Messages)-1].Content, "What is %d + %d?", &i, &j)
	if f.wrong[i] {
		sum.Text = "#### -1"
		sum.Tokens = append(sum.Tokens, 1)
	}
	sum.Stats.Forwards += f.forwards
	return sum, err
}

func (f *scriptedForm) Encode(_ context.Context, p Prompt, answer string) ([]int32, error) {
	return make([]int32, len(p.Messages[0].Content)+len(answer)), f.broken
}

func (f *scriptedForm) Force(ctx context.Context, n int) (ForcedText, error) {
	f.forced++
	return &scriptedText{f}, nil
}

func (f *scriptedForm) Close() { f.closed++ }

type scriptedText struct{ *scriptedForm }

func (t *scriptedText) Close() { t.forced-- }

func (t *scriptedText) Logits(ctx context.Context, tokens []int32) ([][]float32, error) {
	t.fed = append(t.fed, tokens...)
	rows := make([][]float32, len(tokens))
	for i := range rows {
		rows[i] = []float32{t.shift, 0}
	}
	return rows, ctx.Err()
}

func (f *scriptedForm) form(name string) Form {
	return Form{name, func(context.Context) (Variant, Size, error) { return f, Size{28e6, 16}, nil }}
}

func keptForm(name, reason string) Form {
	return Form{name, func(context.Context) (Variant, Size, error) { return nil, Size{28e6, 16}, &KeptError{reason} }}
}

func formsConfig() GSM8K {
	return GSM8K{Data: scriptedData(), Model: "scripted", Settings: []Setting{{Mode: decoder.Verified, EntropyThreshold: threshold(0.4)}}}
}

// klOfShift is the divergence of a coin from one whose first side's logit is
// larger by x: Σ ½·ln(½/q).
func klOfShift(x float64) float64 {
	q := math.Exp(x) / (1 + math.Exp(x))
	return 0.5*math.Log(0.5/q) + 0.5*math.Log(0.5/(1-q))
}

func TestCompareForms(t *testing.T) {
	source := &scriptedForm{}
	same := &scriptedForm{}
	worse := &scriptedForm{wrong: map[int]bool{1: true, 2: true, 5: true}, forwards: 2, shift: -1}
	var notes []string
	c := formsConfig()
	c.Progress = func(done, total int, note string) { notes = append(notes, fmt.Sprintf("%d/%d %s", done, total, note)) }
	r, err := CompareForms(context.Background(), source.form("bf16"),
		[]Form{same.form("same"), keptForm("kept", "rows of 48"), worse.form("worse")}, c)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteForms(&b, r, "format"); err != nil {
		t.Fatal(err)
	}
	golden(t, "forms.txt", b.Bytes())
	// The scripted model gets problem 5 wrong by itself.
	if f := r.Forms[0]; f.N != 12 || f.Correct != 11 || f.ToSource != nil || f.TokensPerForward != 8 {
		t.Errorf("source %+v", f)
	}
	if f := r.Forms[1].ToSource; f.EqualOutputs != 12 || f.Divergence.Mean != 0 || f.Divergence.SameArgmax != 1 || f.AccuracyChange != 0 {
		t.Errorf("same %+v", f)
	}
	f := r.Forms[3].ToSource
	if f.McNemar.OnlyFirst != 2 || f.McNemar.OnlyThis != 0 || f.EqualOutputs != 9 {
		t.Errorf("worse %+v", f)
	}
	if math.Abs(f.AccuracyChange+2.0/12) > 1e-6 || f.TokensPerForwardChange != -0.5 {
		t.Errorf("worse: accuracy %v, tokens per forward %v, want −2/12 and −0.5", f.AccuracyChange, f.TokensPerForwardChange)
	}
	// Every position of every prompt and answer, in chunks.
	positions := 0
	for _, p := range c.Data.Problems {
		positions += len(p.Question) + len(p.Answer)
	}
	if d := f.Divergence; d.Positions != positions || math.Abs(d.Mean-klOfShift(-1)) > 1e-8 || math.Abs(d.Max-d.Mean) > 1e-8 || d.SameArgmax != 0 {
		t.Errorf("divergence %+v, want %d positions at %g", d, positions, klOfShift(-1))
	}
	for _, s := range []*scriptedForm{source, same, worse} {
		if s.closed != 1 || s.forced != 0 || len(s.fed) != positions || len(s.calls) != 12 {
			t.Errorf("%d closed, %d texts open, %d tokens fed of %d, %d answers", s.closed, s.forced, len(s.fed), positions, len(s.calls))
		}
	}
	if got := notes[len(notes)-1]; got != "48/48 worse" {
		t.Errorf("last progress %q", got)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// Classes of a sensitivity analysis are in memory one at a time; the source
// answers once.
func TestRunSensitivity(t *testing.T) {
	source, q, k := &scriptedForm{}, &scriptedForm{}, &scriptedForm{wrong: map[int]bool{3: true}}
	kForm := Form{"k", func(context.Context) (Variant, Size, error) {
		if q.closed != 1 {
			t.Error("k is made while q is open")
		}
		return k, Size{}, nil
	}}
	c := formsConfig()
	c.Limit = 4
	r, err := RunSensitivity(context.Background(), source.form("bf16"), []Form{keptForm("embed", "tied"), q.form("q"), kForm}, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(source.calls) != 4 || len(r.Forms) != 4 || r.Forms[1].Kept != "tied" || r.Forms[3].Correct != 3 || !r.Complete {
		t.Errorf("%d answers of the source, report %+v", len(source.calls), r)
	}
}

func TestCompareFormsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source, q := &scriptedForm{}, &scriptedForm{}
	q.stopAfter, q.cancel = 3, cancel
	r, err := CompareForms(ctx, source.form("bf16"), []Form{q.form("q")}, formsConfig())
	if !errors.Is(err, context.Canceled) || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	// The source has answered four, the form three.
	if r.Complete || r.Forms[0].N != 4 || r.Forms[1].N != 3 || r.Forms[1].ToSource.N != 3 {
		t.Errorf("%+v", r.Forms)
	}
	var b bytes.Buffer
	if err := WriteForms(&b, r, "format"); err != nil || !strings.Contains(b.String(), "Interrupted") {
		t.Errorf("%v:\n%s", err, &b)
	}
}

func TestCompareFormsErrors(t *testing.T) {
	broken := errors.New("no memory")
	fails := Form{"8-bit", func(context.Context) (Variant, Size, error) { return nil, Size{}, broken }}
	ok := func() Form { return (&scriptedForm{}).form("bf16") }
	mute := &scriptedForm{broken: broken}
	two := formsConfig()
	two.Settings = append(two.Settings, Setting{Mode: decoder.AR})
	none, far := formsConfig(), formsConfig()
	none.Data, far.Offset = nil, 12
	for _, test := range []struct {
		name         string
		source, form Form
		config       GSM8K
		want         string
	}{
		{"source", fails, ok(), formsConfig(), "8-bit: no memory"},
		{"form", ok(), fails, formsConfig(), "8-bit: no memory"},
		{"encode", mute.form("bf16"), ok(), formsConfig(), "problem 0: no memory"},
		{"settings", ok(), ok(), two, "one setting"},
		{"data", ok(), ok(), none, "no data set"},
		{"offset", ok(), ok(), far, "offset 12"},
	} {
		r, err := CompareForms(context.Background(), test.source, []Form{test.form}, test.config)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if (r != nil) != (test.name == "encode") { // where the source has answered
			t.Errorf("%s: report %+v", test.name, r)
		}
	}
}
