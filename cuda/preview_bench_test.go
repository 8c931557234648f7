package cuda

import (
	"fmt"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cuda/emulator"
	"windrow/model"
	"windrow/synthetic"
)

// BenchmarkFirst measures the first prompt of 512 rows and the first step on a GPU, and the
// second ones: "cold" is a machine that has never run the kernels (of the second type of
// weights those that only it has), "warm" the next time there, in the same process: the driver
// has started. The command's own start to its first byte is cmd/windrow's BenchmarkFirstToken.
func BenchmarkFirst(b *testing.B) {
	needsGPU(b)
	config, _ := synthetic.ShapeConfig("qwen3-8b")
	o := Options{Preload: true, Code: b.TempDir()} // a process has one such folder
	for _, dt := range []backend.DType{backend.Affine4, backend.BF16} {
		for _, machine := range []string{"cold", "warm"} {
			b.Run(fmt.Sprintf("dtype=%v/machine=%s", dt, machine), func(b *testing.B) {
				for b.Loop() {
					firsts(b, synthetic.RandomSource(config, dt, 1), o)
				}
			})
		}
	}
}

func firsts(t testing.TB, src checkpoint.Source, o Options) {
	o.Library = emulator.Driver(t)
	start := time.Now()
	took := func(what string) {
		if b, ok := t.(*testing.B); ok {
			b.ReportMetric(float64(time.Since(start).Milliseconds()), what+"-ms")
		}
		start = time.Now()
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	took("new")
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	took("load")
	for _, which := range []string{"first", "second"} {
		c, err := m.NewCache(model.CacheOptions{Capacity: 1024, MaxRows: 512, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{512, 1, 16} {
			start = time.Now()
			x := &model.Batch{Tokens: make([]int32, rows), Positions: make([]int32, rows), Spans: []model.Span{{Cache: c, Rows: rows}}}
			for r := range rows {
				x.Positions[r] = int32(c.Base() + r)
			}
			x.Want = []model.Wanted{{Row: int32(rows - 1), TopK: 1}}
			if _, err := m.Forward(t.Context(), x); err != nil {
				t.Fatal(err)
			}
			if err := c.Commit(rows); err != nil {
				t.Fatal(err)
			}
			took(fmt.Sprintf("%s-%d", which, rows))
		}
		c.Close()
	}
}
