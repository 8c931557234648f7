package engine

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"windrow/decoder"
	"windrow/tokenizer"
)

// TestCalibrate: what is measured is kept, and the next start begins with it; a file that
// cannot be is as none.
func TestCalibrate(t *testing.T) {
	m := Measurements{Folder: t.TempDir(), Build: "test"}
	e := priced(t, openTiny(t, Options{Threads: 1, Measurements: m}))
	if e.Calibration() != nil {
		t.Fatal("there is a calibration before the first")
	}
	var prompts [][]int32
	for _, q := range []string{"Tom has 3 pens. How many pens are there in 4 boxes?", "A hall has 5 rows with 9 chairs in each row. How many chairs are there?"} {
		ids, err := e.Encode(t.Context(), Prompt{Messages: []tokenizer.Message{{Role: "user", Content: q}}})
		if err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, ids)
	}
	last := 0
	got, err := e.Calibrate(t.Context(), "two", prompts, decoder.Options{MaxTokens: 40}, func(done, total int) {
		if done != last+1 || done > total {
			t.Errorf("%d of %d done after %d", done, total, last)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	best := 0.0
	for _, x := range got.Trials {
		best = max(best, x.Rate)
	}
	if got.Known.Classes[0].Seen < 5 || got.Known.Classes[0].Rate() < .8 || best < 1.2 || got.EntropyThreshold == nil || got.Prompts != 2 || last%2 != 0 {
		t.Errorf("%+v", got)
	}
	next := openTiny(t, Options{Threads: 1, Measurements: m})
	kept := next.Calibration()
	if kept == nil || *kept.EntropyThreshold != *got.EntropyThreshold || next.experience.Known().Classes[0].Seen != min(200, got.Known.Classes[0].Seen) {
		t.Fatalf("%+v, want %+v", kept, got)
	}
	if o := next.Defaults(decoder.Options{}); *o.EntropyThreshold != *got.EntropyThreshold || o.PosPenalty != *got.PosPenalty {
		t.Errorf("τ %v, λ %v, kept are %v and %v", *o.EntropyThreshold, o.PosPenalty, *got.EntropyThreshold, *got.PosPenalty)
	}
	if o := next.Defaults(decoder.Options{Mode: decoder.WeDLM}); *o.EntropyThreshold != .4 {
		t.Errorf("wedlm, whose text depends on it, has τ %v", *o.EntropyThreshold)
	}
	files, err := filepath.Glob(filepath.Join(m.Folder, learnedKind+"-*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "{}", `{"key":"test; x","value":{}}`, strings.Replace(string(good), `"version": 1`, `"version": 2`, 1), string(good[:len(good)/2])} {
		if err := os.WriteFile(files[0], []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		var notes []string
		e := openTiny(t, Options{Threads: 1, Measurements: m, Note: func(line string) { notes = append(notes, line) }})
		if c := e.Calibration(); c != nil {
			t.Errorf("%q was taken for %+v", bad, c)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], files[0]) || strings.Contains(notes[0], "\n") {
			t.Errorf("%.20q is ignored with %q, want one line", bad, notes)
		}
	}
	if _, err := e.Calibrate(t.Context(), "none", nil, decoder.Options{}, nil); !errors.Is(err, ErrEmptyPrompt) {
		t.Errorf("no prompts: %v", err)
	}
}

// TestLearned: what answers showed is kept when the engine is closed, and beside it what
// was calibrated; the next start begins with both, under the same key alone.
func TestLearned(t *testing.T) {
	m := Measurements{Folder: t.TempDir(), Build: "test"}
	open := func(o Options) *Engine {
		o.Measurements = m
		return priced(t, openTiny(t, o))
	}
	e := open(Options{Threads: 1})
	prompt, err := e.Encode(t.Context(), Prompt{Messages: []tokenizer.Message{{Role: "user", Content: "A hall has 5 rows with 9 chairs in each row. How many chairs are there?"}}})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(e *Engine) {
		for range 8 {
			if _, err := e.Answer(t.Context(), prompt, e.Adaptive(t.Context(), e.Defaults(decoder.Options{MaxTokens: 60})), decoder.Hooks{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	answer(e)
	if files, _ := filepath.Glob(filepath.Join(m.Folder, learnedKind+"-*")); len(files) != 0 {
		t.Errorf("%v before a minute is over", files)
	}
	seen := e.experience.Known()
	e.Close()
	next := open(Options{Threads: 1})
	got := next.experience.Known()
	for i, c := range got.Classes {
		if want := seen.Classes[i]; math.Abs(c.Rate()-want.Rate()) > 1e-9 || c.Seen != min(200, want.Seen) {
			t.Errorf("class %d: %+v, want %+v", i, c, want)
		}
	}
	if len(got.Masks) == 0 || got.Masks[0].Seen == 0 || got.Saved != max(seen.Saved, decoder.NewExperience().Known().Saved) {
		t.Errorf("%+v, want %+v", got, seen)
	}
	if other := open(Options{Threads: 1, Exact: true}).experience.Known(); other.Classes[0].Seen != 0 {
		t.Errorf("%+v was learned of another arithmetic", other)
	}
	c, err := next.Calibrate(t.Context(), "one", [][]int32{prompt}, decoder.Options{MaxTokens: 40}, nil)
	if err != nil {
		t.Fatal(err)
	}
	next.Close()
	last := open(Options{Threads: 1})
	answer(last)
	last.Close()
	if kept := open(Options{Threads: 1}).Calibration(); kept == nil || !kept.Time.Equal(c.Time) {
		t.Errorf("%+v, want %+v", kept, c)
	}
}

// FuzzLearned: whatever a file holds is not used, or can be.
func FuzzLearned(f *testing.F) {
	f.Add([]byte(`{"key":"k","value":{"version":1,"known":{"classes":[{"seen":1,"stood":1}],"saved":3}}}`))
	f.Add([]byte(`{"key":"k","value":{"version":1,"calibration":{"entropy_threshold":0.4,"pos_penalty":0.02},"known":{"classes":null}}}`))
	x := decoder.NewExperience()
	if good, err := json.Marshal(measurement{"k", mustMarshal(f, learned{learnedVersion, x.Known(), &Calibration{Known: x.Known()}})}); err == nil {
		f.Add(good)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var l learned
		if !parseMeasurement(data, "k", &l) || !l.usable() {
			return
		}
		if err := decoder.NewExperience().Learn(l.Known); err != nil {
			t.Error(err)
		}
		if l.Calibration != nil {
			_ = l.Calibration.String()
		}
	})
}

func mustMarshal(t testing.TB, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
