package metal

import (
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/model"
)

// TestExperts runs the suite's part for mixtures of experts; with WINDROW_SLOW in exact
// arithmetic, too.
func TestExperts(t *testing.T) {
	golden := goldenDir
	if !slow {
		golden = "" // TestGoldenMixtures has it
	}
	backendtest.RunExperts(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, false) })
	if slow {
		backendtest.RunExperts(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, true) })
	}
}

// goldenChunks runs a golden model in exact arithmetic, in one forward and in others: its
// float32 logits, and equal ones in all forwards of few rows.
func goldenChunks(t *testing.T, name string, chunks ...int) {
	b := openBackend(t, true)
	m, err := model.Load(b, backendtest.Source(t, goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var first []model.Deviation
	for _, chunk := range chunks {
		deviations, err := m.Validate(t.Context(), goldenTensors(t, name), model.ValidateOptions{KV: backend.KVF32, Chunk: chunk})
		if err != nil {
			t.Fatal(err)
		}
		if len(deviations) == 0 {
			t.Fatal("the golden file has no entries")
		}
		for i, d := range deviations {
			if !(d.RelativeNorm <= 5e-6) || d.ArgmaxEqual != 0 && d.ArgmaxEqual != d.Rows {
				t.Errorf("chunk %d: %s: relative norm %.3g, argmax equal in %d of %d rows", chunk, d.Entry, d.RelativeNorm, d.ArgmaxEqual, d.Rows)
			}
			if first != nil && chunk != 0 && d != first[i] {
				t.Errorf("chunk %d: %+v, before %+v", chunk, d, first[i])
			}
		}
		if chunk != 0 && first == nil {
			first = deviations
		}
		t.Logf("chunk %d: %s: relative norm %.3g", chunk, deviations[0].Entry, deviations[0].RelativeNorm)
	}
}

// TestGoldenMixtures compares a mixture of experts with its golden logits.
func TestGoldenMixtures(t *testing.T) { goldenChunks(t, "qwen3-moe-tiny", 0, 16, 7) }
