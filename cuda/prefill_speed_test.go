package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/cuda/driver"
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
	random, data := rand.New(rand.NewPCG(1, 1)), make([]byte, 16<<20)
	for i := 0; i < len(data); i += 2 {
		binary.LittleEndian.PutUint16(data[i:], uint16(math.Float32bits(float32(0.02*random.NormFloat64()))>>16))
	}
	if s.err == nil {
		s.err = d.ctx.Upload(s.slab, data)
	}
	for done := len(data); done < s.noise && s.err == nil; done *= 2 {
		s.err = d.stream.Copy(s.slab+driver.Ptr(done), s.slab, min(done, s.noise-done))
	}
	var event [2]*driver.Event
	for i := range event {
		e, err := d.ctx.NewEvent()
		if err != nil || s.err != nil {
			t.Fatal(err, s.err)
		}
		defer e.Close()
		event[i] = e
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
			h := newHost(t, y, kv, rows)
			h.run()
			var took []time.Duration
			for range 5 {
				start := time.Now()
				h.run()
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			p := h.record()
			p.plan.geometry = p.geometry()
			if err := p.make(nil); err != nil {
				t.Fatal(err)
			}
			line := fmt.Sprintf("%v, %d rows: with the host %.2f (%.2f-%.2f);", dt, rows, took[2].Seconds()*1000, took[0].Seconds()*1000, took[4].Seconds()*1000)
			for _, part := range parts {
				y := p.plan
				y.actions = slices.DeleteFunc(slices.Clone(y.actions), func(a action) bool {
					return part.kind != nil && !slices.Contains(part.kind, a.kind)
				})
				took = took[:0]
				for range 5 {
					event[0].Record(d.stream)
					b.emit(&y)
					event[1].Record(d.stream)
					if err := d.take(); err != nil {
						t.Fatal(err)
					}
					if err := d.stream.Synchronize(); err != nil {
						t.Fatal(err)
					}
					e, err := driver.Elapsed(event[0], event[1])
					if err != nil {
						t.Fatal(err)
					}
					took = append(took, e)
				}
				slices.Sort(took)
				line += fmt.Sprintf(" %s %.2f (%.2f-%.2f);", part.name, took[2].Seconds()*1000, took[0].Seconds()*1000, took[4].Seconds()*1000)
			}
			t.Log(line)
			p.forget()
			p.open = false
			kv.Close()
		}
	}
}
