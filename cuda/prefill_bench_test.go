package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/cuda/measure"
)

// prefillParts are the kinds of operations that BenchmarkPrefill measures alone.
var prefillParts = []struct {
	name string
	kind opKind
}{
	{"norms", opRMSNorm},
	{"qkv", opProject},
	{"rotation", opRotate},
	{"attention", opAttend},
	{"o-down", opProjectAdd},
	{"gate-up", opGated},
}

// BenchmarkPrefill measures a prefill of the 8B model: "of=prefill" is what a
// caller sees, "of=all" the device's time of all operations enqueued at once, the
// others that of each kind alone. Weights in bf16 are normal, as random models
// have them: products of other values take another power, and so another time.
func BenchmarkPrefill(b *testing.B) {
	needsGPU(b)
	size := shape8B
	size.noise = 18 << 30
	prefills(b, size, []backend.DType{backend.BF16, backend.Affine4}, []int{512, 2048, 8192})
}

func prefills(t testing.TB, size toyShape, types []backend.DType, rowCounts []int) {
	b, m := backendMeter(t, Options{})
	s := size.slab(m)
	data := make([]byte, min(16<<20, s.Bytes))
	measure.NormalsBF16(data, rand.New(rand.NewPCG(1, 1)), 0.02)
	m.Fill(s.Data, s.Bytes, data)
	for _, dt := range types {
		y := noiseToy(b, s, size, dt)
		y.layout.Slots = 1 << 14
		m.Run("type", dt.String(), func(m meter) {
			for _, rows := range rowCounts {
				m.Run("rows", fmt.Sprint(rows), func(m meter) { prefillTimes(m, y, rows) })
			}
		})
	}
}

func prefillTimes(m meter, y *toy, rows int) {
	kv := y.kv(m)
	defer kv.Close()
	v := values(kv, 0, rows)
	v.Want = nil
	f := y.list().rest(nil).compile(m)
	defer f.Close()
	forward := func() {
		_, err := run(f, v)
		m.Check(err)
	}
	forward()
	m.Run("of", "prefill", func(m meter) {
		for m.Loop() {
			forward()
		}
	})
	y.b.device.Context.Enter()
	defer y.b.device.Context.Leave()
	m.Check(f.set(&v, v.Spans))
	m.Check(f.settle(f.rest(false)))
	enqueued := func(name string, takes func(opKind) bool) {
		m.Run("of", name, func(m meter) {
			actions := slices.DeleteFunc(slices.Clone(f.now.actions), func(a action) bool { return !takes(a.kind) })
			m.Rounds(1, func() error {
				y.b.emit(&f.now, actions)
				return m.D.Take()
			})
		})
	}
	enqueued("all", func(opKind) bool { return true })
	for _, part := range prefillParts {
		enqueued(part.name, func(k opKind) bool { return k == part.kind })
	}
}
