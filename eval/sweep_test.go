package eval

import (
	"math"
	"strings"
	"testing"

	"windrow/decoder"
)

func TestParseGrid(t *testing.T) {
	g, err := ParseGrid(decoder.WeDLM, "8, 16", "0.1,none", "0,0.02")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range g.Settings() {
		names = append(names, s.Name())
	}
	want := "ar|wedlm W8 τ0.1 λ0|wedlm W8 τnone λ0|wedlm W8 τ0.1 λ0.02|wedlm W8 τnone λ0.02|" +
		"wedlm W16 τ0.1 λ0|wedlm W16 τnone λ0|wedlm W16 τ0.1 λ0.02|wedlm W16 τnone λ0.02"
	if got := strings.Join(names, "|"); got != want {
		t.Errorf("settings %s", got)
	}
	many := strings.Repeat("1,", 1000) + "1"
	for _, test := range []struct {
		mode                        decoder.Mode
		windows, thresholds, lambda string
		want                        string
	}{
		{decoder.AR, "8", "1", "0", `sweep in mode "ar"`},
		{decoder.WeDLM, "", "1", "0", `sweep window ""`},
		{decoder.WeDLM, "8,x", "1", "0", `sweep window "x"`},
		{decoder.WeDLM, "0", "1", "0", `sweep window "0": want a number from 1 to 4096`},
		{decoder.WeDLM, "8", "inf", "0", `sweep entropy threshold "inf"`},
		{decoder.WeDLM, "8", "1,", "0", `sweep entropy threshold ""`},
		{decoder.WeDLM, "8", "1", "-1", `sweep position penalty "-1"`},
		{decoder.WeDLM, "8", "1", "nan", `sweep position penalty "nan"`},
		{decoder.WeDLM, "8", "0.1,0.10", "0", "sweep: setting wedlm W8 τ0.1 λ0 is given twice"},
		{decoder.WeDLM, "8", many, "0", "sweep of 1001 settings: want at most 1000"},
	} {
		if _, err := ParseGrid(test.mode, test.windows, test.thresholds, test.lambda); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseGrid(%q, %.9q, %.9q, %q): %v, want %q", test.mode, test.windows, test.thresholds, test.lambda, err, test.want)
		}
	}
}

func FuzzParseGrid(f *testing.F) {
	f.Add("8,16", "0.1,none", "0,0.02")
	f.Add("8", "inf", "-1")
	f.Fuzz(func(t *testing.T, windows, thresholds, penalties string) {
		g, err := ParseGrid(decoder.Verified, windows, thresholds, penalties)
		if err != nil {
			return
		}
		if _, err := checkSettings(g.Settings()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSettingCheck(t *testing.T) {
	for _, f := range []float32{float32(math.Inf(1)), float32(math.NaN()), -1} {
		if (Setting{Mode: decoder.WeDLM, EntropyThreshold: &f}).check() == nil {
			t.Errorf("threshold %v: no error", f)
		}
		if (Setting{Mode: decoder.WeDLM, PosPenalty: f}).check() == nil {
			t.Errorf("penalty %v: no error", f)
		}
	}
}

func TestFrontier(t *testing.T) {
	report := func(name string, n int, accuracy, tokensPerForward float64) SettingReport {
		return SettingReport{Name: name, Score: Score{N: n, Accuracy: accuracy, Counts: Counts{TokensPerForward: tokensPerForward}}}
	}
	all := []SettingReport{
		report("slow and right", 10, 1, 1),
		report("faster, as right", 10, 1, 2),
		report("beaten", 10, 0.9, 2),
		report("fast", 10, 0.8, 9),
		report("equal to fast", 10, 0.8, 9),
		report("not run", 0, 0, 0),
	}
	markFrontier(all)
	for i, want := range []bool{false, true, false, true, true, false} {
		if all[i].Frontier != want {
			t.Errorf("%s: frontier %v", all[i].Name, all[i].Frontier)
		}
	}
}
