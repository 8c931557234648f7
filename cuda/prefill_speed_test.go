package cuda

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"windrow/backend"
)

// TestPrefillTimes prints what a prefill of the 8B model takes on a GPU, as a
// caller sees it, enqueued at once, and each kind of operation alone. Weights in
// bf16 are normal, as random models have them: products of other values take
// another power, and so another time.
func TestPrefillTimes(t *testing.T) {
	if !onDevice {
		t.Skip("a benchmark: set WINDROW_CUDA_DEVICE")
	}
	b := openCUDA(t)
	defer b.Close()
	d := b.device
	d.ctx.Enter()
	defer d.ctx.Leave()
	s := &projectTimes{d: d, w: os.Stdout, shapes: benchShapes, noise: 18 << 30}
	defer s.close()
	s.open()
	data := make([]byte, 16<<20)
	normalsBF16(data, rand.New(rand.NewPCG(1, 1)), 0.02)
	if s.fill(data); s.err != nil {
		t.Fatal(s.err)
	}
	parts := []struct {
		name string
		kind []opKind
	}{
		{"all", nil},
		{"norms", []opKind{opRMSNorm}},
		{"q, k, v", []opKind{opProject}},
		{"rotation", []opKind{opRotate}},
		{"attention", []opKind{opAttend}},
		{"o, down", []opKind{opProjectAdd}},
		{"gate, up", []opKind{opGated}},
	}
	for _, dt := range []backend.DType{backend.BF16, backend.Affine4} {
		y := noiseToy(b, s, dt)
		y.layout.Slots = 1 << 14
		for _, rows := range []int{512, 2048, 8192} {
			kv := y.kv(t)
			y.angles(rows, 0)
			tokens, spans := make([]int32, rows), []backend.Span{{KV: kv, Rows: rows}}
			record := func() *pass {
				p, err := b.Begin(rows)
				if err != nil {
					t.Fatal(err)
				}
				y.begin(p)
				y.record(p, tokens, spans, nil)
				return p.(*pass)
			}
			run := func() {
				if err := record().End(); err != nil {
					t.Fatal(err)
				}
			}
			run()
			var took []time.Duration
			for range 5 {
				start := time.Now()
				run()
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			p := record()
			p.plan.geometry = p.geometry(p.values.spans)
			if err := p.make(nil); err != nil {
				t.Fatal(err)
			}
			line := fmt.Sprintf("%v, %d rows: with the host %.2f (%.2f-%.2f);", dt, rows, took[2].Seconds()*1000, took[0].Seconds()*1000, took[4].Seconds()*1000)
			for _, part := range parts {
				y := p.plan
				y.actions = slices.DeleteFunc(slices.Clone(y.actions), func(a action) bool {
					return part.kind != nil && !slices.Contains(part.kind, a.kind)
				})
				took = elapsed(t, d, 5, func() error {
					b.emit(&y)
					return d.take()
				})
				line += fmt.Sprintf(" %s %.2f (%.2f-%.2f);", part.name, took[2].Seconds()*1000, took[0].Seconds()*1000, took[4].Seconds()*1000)
			}
			t.Log(line)
			p.forget()
			p.open = false
			kv.Close()
		}
	}
}
