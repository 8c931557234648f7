package cuda

import (
	"os"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cuda/emulator"
	"windrow/model"
	"windrow/synthetic"
)

// TestPreview: what prompts and steps launch is on its way before they are asked for, and
// gives what it gives without.
func TestPreview(t *testing.T) {
	if os.Getenv("WINDROW_CUDA_DEVICE") != "" {
		testPreview(t)
		return
	}
	for _, capability := range []string{"8.0", "9.0"} {
		t.Run(capability, func(t *testing.T) {
			if capability == "8.0" && testing.Short() {
				t.Skip("a second kind of device: leave -short out")
			}
			t.Setenv("WINDROW_EMULATED_CC", capability)
			testPreview(t)
		})
	}
}

func testPreview(t *testing.T) {
	positions := small(true)
	positions.MaxPositions = 2048
	mixture := smallMixture()
	mixture.MaxPositions = 2048
	for _, c := range []struct {
		name   string
		config *checkpoint.Config
		dt     backend.DType
	}{{"bf16", positions, backend.BF16}, {"affine4", positions, backend.Affine4}, {"experts", mixture, backend.BF16}} {
		t.Run(c.name, func(t *testing.T) {
			var first []model.Result
			for _, preload := range []bool{false, true} {
				b, err := New(Options{Library: emulator.Driver(t), Preload: preload})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
				m, err := model.Load(b, synthetic.RandomSource(c.config, c.dt, 5))
				if err != nil {
					t.Fatal(err)
				}
				before := b.device.Kernels()
				cache, err := m.NewCache(model.CacheOptions{Capacity: 600, MaxRows: 512, DType: backend.KVBF16})
				if err != nil {
					t.Fatal(err)
				}
				var all []model.Result
				passes := []int{512, 1, 16}
				if b.device.Info.Major != 9 {
					passes = append(passes, 60) // on Hopper what is translated whole comes with the first such prompt
				}
				for _, rows := range passes {
					all = append(all, previewed(t, m, cache, rows)...)
				}
				after := b.device.Kernels()
				if !preload {
					first = all
					if before != 0 || after == 0 {
						t.Errorf("%d kernels without a preview, %d behind it", before, after)
					}
					continue
				}
				if before == 0 || after != before {
					t.Errorf("%d kernels were on their way, and %d more were needed", before, after-before)
				}
				for i := range all {
					if all[i].Argmax != first[i].Argmax || all[i].Entropy != first[i].Entropy {
						t.Fatalf("row %d: %+v, without a preview %+v", i, all[i], first[i])
					}
				}
			}
		})
	}
}

// previewed runs rows of a prompt, or of a step, and makes them permanent; of a prompt the
// last row is wanted.
func previewed(t *testing.T, m *model.Model, c *model.Cache, rows int) []model.Result {
	t.Helper()
	prompt, base := rows > 32, c.Base()
	b := &model.Batch{Spans: []model.Span{{Cache: c, Rows: rows, Prompt: prompt}}}
	for r := range rows {
		b.Tokens = append(b.Tokens, int32((base+r)*37%m.Config().VocabSize))
		b.Positions = append(b.Positions, int32(base+r))
		if !prompt || r == rows-1 {
			b.Want = append(b.Want, model.Wanted{Row: int32(r), TopK: 1})
		}
	}
	results, err := m.Forward(t.Context(), b)
	if err == nil {
		err = c.Commit(rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// TestPreviewClosed: a backend may be closed while kernels are on their way, and a closed
// one is told of nothing.
func TestPreviewClosed(t *testing.T) {
	b, err := New(Options{Library: emulator.Driver(t), Preload: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(b, synthetic.RandomSource(small(true), backend.BF16, 5))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.Preview(new(backend.Program))
	m.Close()
}
