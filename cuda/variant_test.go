package cuda

import (
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
)

// variantCase is a toy model with three sequences on one backend.
type variantCase struct {
	b *Backend
	y *toy
	f *forward
	t *testing.T
}

func newVariantCase(t *testing.T, library string, variant bool, dt backend.DType, dim int) *variantCase {
	b, err := New(Options{Library: library, BatchVariant: variant})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if !hopper(b.device) {
		b.device.UseRoute(launch.RouteOwn) // rows are fewer than it is worth
	}
	y := newToyOf(t, b, dt, dim, 1, 3)
	return &variantCase{b: b, y: y, f: y.list().rest(nil).compile(t), t: t}
}

// logits are those of rows rows for each of some sequences from the first on.
func (c *variantCase) logits(rows, first, sequences int) []float32 {
	return c.logitsAt(0, rows, first, sequences)
}

// logitsAt are those behind base others, which come 31 at a time: the emulator tells what is
// read before dependency_wait() from what is written by pieces of 1,024 bytes, so that no
// step may begin with the first lines of a page.
func (c *variantCase) logitsAt(base, rows, first, sequences int) (out []float32) {
	caches := make([]backend.Storage, sequences)
	for s := range caches {
		caches[s] = c.y.kv(c.t)
		defer caches[s].Close()
	}
	for at, many := 0, 0; at < base+rows; at += many {
		var v backend.Values
		if many = rows; at < base {
			many = min(31, base-at)
		}
		for s, kv := range caches {
			for r := range many {
				v.Want = append(v.Want, backend.Wanted{Row: int32(len(v.Tokens)), TopK: 1, Logits: true})
				v.Tokens = append(v.Tokens, int32((7*(first+s)+3*(at+r))%96))
				v.Positions = append(v.Positions, int32(at+r)) // wherever the sequence is packed
			}
			v.Spans = append(v.Spans, backend.Span{Storage: kv, Base: at, First: s * many, Rows: many})
		}
		results, err := run(c.f, v)
		if err != nil {
			c.t.Fatal(err)
		}
		out = nil
		for _, r := range results {
			out = append(out, r.Logits...)
		}
	}
	return out
}

// TestBatchVariant runs three sequences of 16 rows: batch invariant, where each
// has the bits that it has alone, and not, where results are near and a second
// pass is as the first. Two sequences have 32 rows, and their bits, either way.
func TestBatchVariant(t *testing.T) { testBatchVariant(t, emulator.Driver(t)) }

// TestBatchVariantHopper does so on an emulated device of compute capability 9.0,
// checked: passes whose kernels overlap, by way of tensor maps.
func TestBatchVariantHopper(t *testing.T) {
	testBatchVariant(t, emulator.CheckedHopper(t))
}

// hopper reports whether a device takes the kernels for compute capability 9.0 alone.
func hopper(d *launch.Device) bool { return d.Info.Major == 9 && d.Info.Minor == 0 }

func testBatchVariant(t *testing.T, library string) {
	for _, of := range []struct {
		dt  backend.DType
		dim int
	}{{backend.BF16, 64}, {backend.Affine4, 64}, {backend.BF16, 128}} {
		dt := of.dt
		with, without := newVariantCase(t, library, false, dt, of.dim), newVariantCase(t, library, true, dt, of.dim)
		want := with.logits(16, 0, 3)
		for s := range 3 {
			alone := with.logits(16, s, 1)
			if err := vectors.Equal(want[s*len(alone):(s+1)*len(alone)], alone); err != nil {
				t.Errorf("%v: sequence %d has other bits alone: %v", dt, s, err)
			}
		}
		// More rows than go through the head at once: the others are as those.
		many := with.logits(16, 0, headRows/16+1)
		last := with.logits(16, headRows/16, 1)
		if err := vectors.Equal(many[:len(want)], want); err != nil {
			t.Errorf("%v: among %d sequences: %v", dt, headRows/16+1, err)
		}
		if err := vectors.Equal(many[len(many)-len(last):], last); err != nil {
			t.Errorf("%v: the last of %d sequences: %v", dt, headRows/16+1, err)
		}
		near(t, without.logits(16, 0, headRows/16+1), many)
		got := without.logits(16, 0, 3)
		if !without.f.now.wideHead() || dt.Quantized() && vectors.Equal(got, want) == nil {
			t.Errorf("%v: the kernels of invariant passes", dt)
		}
		if ran := without.b.device.Loaded("_hopper"); ran != hopper(without.b.device) {
			t.Errorf("%v: kernels of 9.0 alone ran: %t", dt, ran)
		}
		near(t, got, want)
		// Larger devices want more sequences for that.
		if of.dim == 128 && hopper(with.b.device) && with.b.device.Info.SMs <= 8 && !with.b.device.Loaded("attend_decode_hopper") {
			t.Error("attention of many rows did not run by wgmma")
		}
		if err := vectors.Equal(got, without.logits(16, 0, 3)); err != nil {
			t.Errorf("%v: a second pass: %v", dt, err)
		}
		if err := vectors.Equal(without.logits(16, 0, 2), with.logits(16, 0, 2)); err != nil {
			t.Errorf("%v: 32 rows: %v", dt, err)
		}
	}
}

// near compares logits with those of invariant passes.
func near(t *testing.T, got, want []float32) {
	t.Helper()
	exact := make([]float64, len(want))
	for i, v := range want {
		exact[i] = float64(v)
	}
	if err := vectors.Near(got, exact, 2e-2); err != nil {
		t.Errorf("far from invariant passes: %v", err)
	}
}
