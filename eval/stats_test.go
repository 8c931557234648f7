package eval

import (
	"math"
	"testing"
)

// The expected ends are the roots of (p−x)² = z²·x(1−x)/n, solved with 40
// decimal digits.
func TestWilson(t *testing.T) {
	for _, test := range []struct {
		successes, trials int
		low, high         float64
	}{
		{0, 0, 0, 1},
		{8, 10, 0.4901624715366417, 0.9433178485456247},
		{0, 10, 0, 0.2775327998628892},
		{10, 10, 0.7224672001371107, 1},
		{1, 10, 0.017876213095072906, 0.4041500267952385},
		{498, 500, 0.985534284784823, 0.9989023694773173},
		{500, 500, 0.9923756595384478, 1},
		{17, 500, 0.02133451980853219, 0.0537713655016345},
		{1217, 1319, 0.9069946064582357, 0.9358879571061209},
	} {
		low, high := Wilson(test.successes, test.trials)
		if math.Abs(low-test.low) > 1e-12 || math.Abs(high-test.high) > 1e-12 {
			t.Errorf("Wilson(%d, %d) = %v, %v; want %v, %v", test.successes, test.trials, low, high, test.low, test.high)
		}
	}
}

// The exact values come from integer arithmetic; 121 and 59 is the textbook
// example of the test (χ² 20.67 with correction).
func TestMcNemar(t *testing.T) {
	for _, test := range []struct {
		onlyFirst, onlyThis int
		method              string
		statistic, p        float64
	}{
		{0, 0, "exact", 0, 1},
		{1, 0, "exact", 0, 1},
		{0, 5, "exact", 0, 0.0625},
		{6, 0, "exact", 0, 0.03125},
		{2, 10, "exact", 0, 0.03857421875},
		{10, 14, "exact", 0, 0.5412561893463135},
		{12, 12, "exact", 0, 1},
		{3, 21, "exact", 0, 0.0002771615982055664},
		{13, 12, "chi-squared", 0, 1},
		{20, 20, "chi-squared", 0, 1},
		{25, 0, "chi-squared", 23.04, 1.5866563039511896e-06},
		{121, 59, "chi-squared", 20.67222222222222, 5.450094825427123e-06},
		{150, 86, "chi-squared", 16.81779661016949, 4.1145622813459415e-05},
	} {
		for _, swap := range []bool{false, true} {
			a, b := test.onlyFirst, test.onlyThis
			if swap {
				a, b = b, a
			}
			got := McNemarTest(a, b)
			if got.OnlyFirst != a || got.OnlyThis != b || got.Method != test.method ||
				math.Abs(got.Statistic-test.statistic) > 1e-9 || math.Abs(got.PValue-test.p) > 1e-12 {
				t.Errorf("McNemarTest(%d, %d) = %+v, want %s %v p %v", a, b, got, test.method, test.statistic, test.p)
			}
		}
	}
	// Where the methods meet they agree to about a tenth.
	exact, approx := McNemarTest(8, 16), McNemarTest(8, 17)
	if exact.PValue < 0.1 || exact.PValue > 0.2 || approx.PValue < 0.1 || approx.PValue > 0.2 {
		t.Errorf("8:16 p %v, 8:17 p %v", exact.PValue, approx.PValue)
	}
}
