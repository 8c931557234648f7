package engine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"windrow/decoder"
	"windrow/tokenizer"
)

// TestCalibrate: what is measured is kept, and the next start begins with it; a file that
// cannot be is as none.
func TestCalibrate(t *testing.T) {
	m := Measurements{Folder: t.TempDir(), Build: "test"}
	e := openTiny(t, Options{Threads: 1, Measurements: m})
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
	files, err := filepath.Glob(filepath.Join(m.Folder, calibrationKind+"-*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	for _, bad := range []string{"", "{}", `{"key":"test; x","value":{}}`} {
		if err := os.WriteFile(files[0], []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if c := openTiny(t, Options{Threads: 1, Measurements: m}).Calibration(); c != nil {
			t.Errorf("%q was taken for %+v", bad, c)
		}
	}
	if _, err := e.Calibrate(t.Context(), "none", nil, decoder.Options{}, nil); !errors.Is(err, ErrEmptyPrompt) {
		t.Errorf("no prompts: %v", err)
	}
}

// FuzzCalibration: whatever a file holds is no calibration, or one that can be used.
func FuzzCalibration(f *testing.F) {
	f.Add([]byte(`{"key":"k","value":{"entropy_threshold":0.4,"pos_penalty":0.02,"known":{"classes":[{"seen":1,"stood":1}]}}}`))
	f.Add([]byte(`{"key":"k","value":{"known":{"classes":null}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Calibration
		if parseMeasurement(data, "k", &c) && c.usable() {
			_ = c.String()
			if err := decoder.NewExperience().Learn(c.Known); err != nil {
				t.Error(err)
			}
		}
	})
}
