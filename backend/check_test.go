package backend

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFinishAllowed: the result of a row that may have some ids alone is the same from a
// device's candidates as from its logits, which are asked for only where those do not do.
func TestFinishAllowed(t *testing.T) {
	const vocabulary, most = 500, 64
	r := rand.New(rand.NewPCG(1, 1))
	fetched, spared := 0, 0
	for range 2000 {
		z := make([]float32, vocabulary)
		for i := range z {
			z[i] = float32(r.IntN(60)) // with ties
		}
		bars := Bars{Limit: vocabulary - int32(r.IntN(2)), Except: int32(r.IntN(vocabulary)) - 1}
		w := Wanted{TopK: []int{0, 0, 1, 3, 64, 70}[r.IntN(6)], Logits: r.IntN(5) == 0}
		if r.IntN(4) > 0 {
			w.Allowed = NewIDSet(vocabulary)
			for range 1 << r.IntN(9) {
				w.Allowed.Add(int32(r.IntN(vocabulary)))
			}
			if !w.Allowed.any(bars, vocabulary) {
				continue
			}
		}
		want := TopOf(z, max(w.TopK, 1), bars, w.Allowed)
		got := Result{LogSumExp: 1, Top: TopOf(z, max(2, w.Candidates(most)), bars, nil)}
		got.Top = got.Top[:w.Candidates(most)]
		var logits []float32
		if w.NeedsLogits(&got, most) {
			logits = z
		}
		switch {
		case w.Allowed != nil && logits != nil:
			fetched++
		case w.Allowed != nil:
			spared++
		}
		if err := w.Finish(&got, logits, bars, most); err != nil {
			t.Fatal(err)
		}
		if got.Argmax != want[0].ID || !slices.Equal(got.Top, want[:min(w.TopK, len(want))]) || (got.Logits != nil) != w.Logits {
			t.Fatalf("%+v: argmax %d, top %v, want %v", w, got.Argmax, got.Top, want)
		}
	}
	if fetched < 100 || spared < 300 {
		t.Errorf("logits of %d rows were fetched, of %d not", fetched, spared)
	}
	bad := Result{LogSumExp: float32(math.NaN())}
	if err := new(Wanted).Finish(&bad, nil, Bars{}, most); err == nil {
		t.Error("statistics that are no numbers were taken")
	}
}
