package model_test

import (
	"fmt"
	"os"
	"testing"

	"windrow/backend"
	"windrow/cpu"
	"windrow/model"
	"windrow/synthetic"
)

// BenchmarkHybrid is decoding in a published shape, with random weights of 4 bits: steps
// of some rows, which are kept, so that each folds in what the last one logged, or not.
// WINDROW_SHAPE names the shape, "qwen3.5-0.8b" by default.
func BenchmarkHybrid(b *testing.B) {
	name := os.Getenv("WINDROW_SHAPE")
	if name == "" {
		name = "qwen3.5-0.8b"
	}
	config, ok := synthetic.ShapeConfig(name)
	if !ok {
		b.Fatalf("no shape %s", name)
	}
	m := open(b, synthetic.RandomSource(config, backend.Affine4, 1), cpu.Options{})
	for i := range 8 {
		rows, kept := []int{1, 2, 4, 16}[i/2], i%2 == 0
		b.Run(fmt.Sprintf("%d rows, kept %v", rows, kept), func(b *testing.B) {
			c, err := m.NewCache(model.CacheOptions{Capacity: 4096, MaxRows: 512, DType: backend.KVBF16})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			forward(b, m, withoutResults(batch(part{c, ids(1, 512)})))
			commit(b, c, 512)
			for b.Loop() {
				if c.Base()+rows > 4096 {
					b.Fatal("too many steps for the cache")
				}
				x := batch(part{c, ids(c.Base(), rows)})
				for i := range x.Want {
					x.Want[i] = model.Wanted{Row: int32(i)}
				}
				forward(b, m, x)
				if kept {
					commit(b, c, rows)
				}
			}
		})
	}
}

func withoutResults(b *model.Batch) *model.Batch {
	b.Want = nil
	return b
}
