package cuda

import (
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
	positions := small(true)
	positions.MaxPositions = 2048
	for _, c := range []struct {
		name   string
		config *checkpoint.Config
		dt     backend.DType
	}{{"bf16", positions, backend.BF16}, {"affine4", positions, backend.Affine4}, {"experts", smallMixture(), backend.BF16}} {
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
				cache, err := m.NewCache(model.CacheOptions{Capacity: 200, MaxRows: 512, DType: backend.KVBF16})
				if err != nil {
					t.Fatal(err)
				}
				var all []model.Result
				for _, rows := range []int{60, 1, 16} {
					all = append(all, forwardAll(t, m, cache, cache.Base(), rows)...)
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
