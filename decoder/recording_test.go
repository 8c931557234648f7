package decoder_test

import (
	"compress/gzip"
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"testing"

	"windrow/conformance/decodertest"
)

var update = flag.Bool("update", false, "record anew what the masks of tiny-gsm say")

// TestRecordings: what was recorded is what the model says.
func TestRecordings(t *testing.T) {
	b, problems := exactCPU(t)
	own, foreign := decodertest.Recordings(t)
	all := slices.Concat(own, foreign)
	if *update {
		for i := range all {
			all[i] = decodertest.Record(t, b, all[i].Prompt)
		}
		f, err := os.Create("../conformance/decodertest/recordings.json.gz")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
		if err := json.NewEncoder(z).Encode(all); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	if problems == nil {
		problems = []int{0, 8, 15, 19}
	}
	other, masks := 0, 0
	for _, i := range problems {
		got, want := decodertest.Record(t, b, all[i].Prompt), all[i]
		if !slices.Equal(got.Answer, want.Answer) || len(got.Masks) != len(want.Masks) {
			t.Errorf("%d: answer %v, want %v", i, got.Answer, want.Answer)
			continue
		}
		for p, said := range got.Masks {
			for j, x := range said {
				masks++
				y := want.Masks[p][j]
				if x.Token != y.Token { // two logits that are nearly the same
					other++
				}
				if math.Abs(float64(x.Entropy-y.Entropy)) > 2e-3 {
					t.Errorf("%d, behind token %d, mask %d: entropy %v, want %v", i, p, j, x.Entropy, y.Entropy)
				}
			}
		}
	}
	if other > masks/1000 {
		t.Errorf("%d of %d masks say something else", other, masks)
	}
}
