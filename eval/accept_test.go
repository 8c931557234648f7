package eval

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
)

func TestAccept(t *testing.T) {
	for _, test := range []struct {
		name     string
		form     *scriptedForm
		limits   AcceptLimits
		accepted bool
		reasons  string
	}{
		{"same", &scriptedForm{}, AcceptLimits{}, true, ""},
		{"worse", &scriptedForm{wrong: map[int]bool{1: true}}, AcceptLimits{1, 5}, false, "loses 8.33 points of accuracy, 7.33 more than the 1 allowed"},
		{"allowed", &scriptedForm{wrong: map[int]bool{1: true}}, AcceptLimits{8.34, 5}, true, ""},
		// Two forwards an answer become three: a third fewer tokens.
		{"slower", &scriptedForm{forwards: 1}, AcceptLimits{1, 5}, false, "loses 33.33 % of the tokens per forward, 28.33 more than the 5 allowed"},
		{"both", &scriptedForm{forwards: 2, wrong: map[int]bool{1: true}}, AcceptLimits{}, false, "accuracy"},
		{"better", &scriptedForm{forwards: -1}, AcceptLimits{}, true, ""},
	} {
		a, err := Accept(context.Background(), (&scriptedForm{}).form("bf16"), test.form.form("4-bit"), test.limits, formsConfig())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(a.Reasons, "; "); a.Accepted != test.accepted || !strings.Contains(got, test.reasons) || (got == "") != test.accepted {
			t.Errorf("%s: accepted %v, %q, want %v, %q", test.name, a.Accepted, got, test.accepted, test.reasons)
		}
		var b bytes.Buffer
		if err := WriteAcceptance(&b, a); err != nil {
			t.Fatal(err)
		}
		if test.name == "worse" {
			golden(t, "accept.txt", b.Bytes())
		}
	}
	a, err := Accept(context.Background(), (&scriptedForm{}).form("bf16"), keptForm("4-bit", "rows of 48"), AcceptLimits{}, formsConfig())
	if err != nil || a.Accepted || len(a.Reasons) != 1 {
		t.Errorf("kept: %+v, %v", a, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cut := &scriptedForm{}
	cut.stopAfter, cut.cancel = 1, cancel
	if a, err = Accept(ctx, (&scriptedForm{}).form("bf16"), cut.form("4-bit"), AcceptLimits{100, 100}, formsConfig()); err == nil || a.Accepted {
		t.Errorf("interrupted: %+v, %v", a, err)
	}
}

// The interval holds the difference, shrinks with the pairs, and stays within
// what is possible.
func TestPairedInterval(t *testing.T) {
	for _, test := range []struct {
		onlyFirst, onlyThis, n int
		low, high              float64
	}{
		{0, 0, 0, -1, 1},
		// b* = c* = ½ of m = 502: ±1.96·√1/502.
		{0, 0, 500, -0.0039043, 0.0039043},
		{10, 4, 500, -0.0270373, 0.0031329},
		{1, 0, 1, -1, 0.5101009},
	} {
		low, high := pairedInterval(test.onlyFirst, test.onlyThis, test.n)
		if math.Abs(low-test.low) > 1e-7 || math.Abs(high-test.high) > 1e-7 {
			t.Errorf("%d and %d of %d: %.7f to %.7f, want %.7f to %.7f", test.onlyFirst, test.onlyThis, test.n, low, high, test.low, test.high)
		}
	}
}
