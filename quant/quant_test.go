package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
)

// weights draws rows like those of models: normal values, some rows shifted,
// with outliers, constant, tiny or zero.
func weights(r *rand.Rand, rows, in int) []float32 {
	w := make([]float32, rows*in)
	for o := range rows {
		row := w[o*in : (o+1)*in]
		for i := range row {
			row[i] = float32(r.NormFloat64() * 0.02)
		}
		switch o % 7 {
		case 1:
			for i := range row {
				row[i] += 0.1
			}
		case 2:
			row[r.IntN(in)] = 3
		case 3:
			for i := range row {
				row[i] = -0.125
			}
		case 4:
			clear(row)
		case 5:
			for i := range row {
				row[i] *= 1e-5
			}
		}
	}
	return w
}

// Each weight comes back within half a step of its group, and what rounding
// scale and bias to bf16 (2⁻⁹ each) moves.
func TestAffineError(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, bits := range []int{4, 8} {
		for _, group := range []int{32, 64, 128} {
			const rows, in = 28, 256
			w := weights(r, rows, in)
			x := backend.Tensor{Name: "w", DType: backend.Affine4, Shape: []int{rows, in}, Group: group}
			if bits == 8 {
				x.DType = backend.Affine8
			}
			x.Data = make([]byte, rows*x.DType.RowBytes(in))
			x.Scales, x.Biases = make([]byte, 2*rows*in/group), make([]byte, 2*rows*in/group)
			Affine(x.Data, x.Scales, x.Biases, w, bits, group)
			if err := x.Check(); err != nil {
				t.Fatal(err)
			}
			got := make([]float32, in)
			for o := range rows {
				Row(got, &x, o)
				for g := range in / group {
					at := o*in + g*group
					low, high := w[at], w[at]
					for _, v := range w[at : at+group] {
						low, high = min(low, v), max(high, v)
					}
					edge := float64(max(abs(low), abs(high)))
					step := max(float64(high-low)/(math.Pow(2, float64(bits))-1), affineEps)
					// scale and bias are within 2⁻⁹ of themselves; q·scale spans
					// high − low, and edge/q0 may lengthen a step by a half in q0.
					limit := 0.5*step + (float64(high-low)+edge)/512 + step
					for i, v := range w[at : at+group] {
						if e := math.Abs(float64(v) - float64(got[g*group+i])); e > limit {
							t.Fatalf("%d bits, group %d: weight %v came back as %v: off by %g, want at most %g", bits, group, v, got[g*group+i], e, limit)
						}
					}
				}
			}
		}
	}
}

// The relative norm of the error on normal weights, a little above the
// measured one: a format that decodes wrongly is far off.
func TestErrorOfFormats(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	const in = 1024
	w := make([]float32, in)
	for i := range w {
		w[i] = float32(r.NormFloat64() * 0.02)
	}
	for _, tc := range []struct {
		dt    backend.DType
		group int
		limit float64
	}{
		{backend.BF16, 0, 0.002}, {backend.F16, 0, 0.0003}, {backend.F32, 0, 0},
		{backend.Q8_0, 0, 0.006}, {backend.Q4_0, 0, 0.1}, {backend.Q4_K, 0, 0.09}, {backend.Q6_K, 0, 0.025},
		{backend.Q4_1, 0, 0.09}, {backend.Q5_0, 0, 0.05}, {backend.Q5_1, 0, 0.045}, {backend.Q5_K, 0, 0.045},
		{backend.Q2_K, 0, 0.4}, {backend.Q3_K, 0, 0.2}, {backend.IQ4_NL, 0, 0.1}, {backend.IQ4_XS, 0, 0.1},
		{backend.Affine4, 32, 0.085}, {backend.Affine4, 64, 0.095}, {backend.Affine4, 128, 0.11},
		// In 8 bits the rounding of scale and bias to bf16 is most of the error.
		{backend.Affine8, 32, 0.009}, {backend.Affine8, 64, 0.01}, {backend.Affine8, 128, 0.011},
	} {
		x := encode(tc.dt, tc.group, w, 1)
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, in)
		Row(got, &x, 0)
		var diff, norm float64
		for i, v := range w {
			diff += (float64(v) - float64(got[i])) * (float64(v) - float64(got[i]))
			norm += float64(v) * float64(v)
		}
		if e := math.Sqrt(diff / norm); e > tc.limit || (e == 0) != (tc.dt == backend.F32) {
			t.Errorf("%v group %d: relative norm of the error %.4f, want at most %g", tc.dt, tc.group, e, tc.limit)
		}
	}
}

// encode makes a tensor [rows, len(w)/rows] of any format.
func encode(dt backend.DType, group int, w []float32, rows int) backend.Tensor {
	in := len(w) / rows
	x := backend.Tensor{Name: dt.String(), DType: dt, Shape: []int{rows, in}, Data: make([]byte, rows*dt.RowBytes(in)), Group: group}
	if dt.Affine() {
		x.Scales, x.Biases = make([]byte, 2*len(w)/group), make([]byte, 2*len(w)/group)
		Affine(x.Data, x.Scales, x.Biases, w, dt.Bits(), group)
	} else if !Blocks(x.Data, dt, w) {
		panic(dt)
	}
	return x
}

// What a format holds exactly survives decoding and encoding again.
func TestRoundTrips(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16, backend.Q8_0, backend.Q4_0, backend.Q6_K, backend.Q4_K,
		backend.Q4_1, backend.Q5_0, backend.Q5_1, backend.Q2_K, backend.Q3_K, backend.Q5_K, backend.IQ4_NL, backend.IQ4_XS} {
		for i := range 50 {
			w := weights(r, 7, 256)
			first := encode(dt, 0, w, 7)
			widened := make([]float32, len(w))
			for o := range 7 {
				Row(widened[o*256:], &first, o)
			}
			second := encode(dt, 0, widened, 7)
			again := make([]float32, 256)
			for o := range 7 {
				Row(again, &second, o)
				for j, v := range again {
					was := widened[o*256+j]
					// K-quants and tables choose scales anew; the others must give the same numbers.
					limit := 0.0
					if dt.BlockSize() == 256 || dt == backend.IQ4_NL {
						limit = 0.2 * float64(maximum(widened[o*256:(o+1)*256]))
					}
					if math.Abs(float64(v)-float64(was)) > limit {
						t.Fatalf("%v, try %d, row %d: %v came back as %v", dt, i, o, was, v)
					}
				}
			}
		}
	}
}

func maximum(x []float32) (m float32) {
	for _, v := range x {
		m = max(m, abs(v))
	}
	return m
}

func TestHalves(t *testing.T) {
	for h := range 1 << 16 {
		f := F16ToF32(uint16(h))
		if math.IsNaN(float64(f)) {
			continue
		}
		if back := F32ToF16(f); back != uint16(h) {
			t.Fatalf("f16 %04x widens to %v, which narrows to %04x", h, f, back)
		}
	}
}

// Not finite values must not panic, and must show in the scale.
func TestAffineNotFinite(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		w := make([]float32, 32)
		w[7] = bad
		x := encode(backend.Affine4, 32, w, 1)
		if s := binary.LittleEndian.Uint16(x.Scales); s&0x7f80 != 0x7f80 {
			t.Errorf("%v in a group: scale %04x, want it not finite", bad, s)
		}
		for _, dt := range backend.DTypes()[backend.Q8_0-backend.F32:] {
			if dt == backend.F8_E4M3 {
				continue // is read alone
			}
			encode(dt, 0, append(w, make([]float32, 224)...), 1)
		}
	}
}

// FuzzRow: no bytes make a decoder panic or leave its row, and rows do not
// depend on their neighbours.
func FuzzRow(f *testing.F) {
	for _, b := range readVectors(f).Blocks {
		f.Add(uint8(byName[b.Format]), decodeHex(f, b.Data))
	}
	f.Add(uint8(backend.Affine4), make([]byte, 20))
	f.Add(uint8(backend.Affine8), make([]byte, 36))
	f.Add(uint8(backend.F8_E4M3), make([]byte, 80))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		dt := backend.DType(kind)
		in := max(dt.BlockSize(), 32)
		unit, group := dt.RowBytes(in), 0
		if dt.Affine() {
			group = 32
			unit += 4
		}
		if dt == backend.F8_E4M3 {
			group = 20 // and one of 12
			unit += 8
		}
		if unit == 0 || len(data) < unit {
			return
		}
		rows := len(data) / unit
		x := backend.Tensor{Name: "w", DType: dt, Shape: []int{rows, in}, Group: group}
		x.Data, data = data[:rows*dt.RowBytes(in)], data[rows*dt.RowBytes(in):]
		switch {
		case dt.Affine():
			x.Scales, x.Biases = data[:2*rows], data[2*rows:4*rows]
		case dt == backend.F8_E4M3:
			x.Scales = data[:8*rows]
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		guarded := make([]float32, in+1)
		guarded[in] = 42
		for o := range rows {
			Row(guarded, &x, o)
			alone := x
			alone.Shape, alone.Data = []int{1, in}, x.Data[o*dt.RowBytes(in):(o+1)*dt.RowBytes(in)]
			switch {
			case dt.Affine():
				alone.Scales, alone.Biases = x.Scales[2*o:2*o+2], x.Biases[2*o:2*o+2]
			case dt == backend.F8_E4M3:
				alone.Scales = x.Scales[8*o : 8*o+8]
			}
			got := make([]float32, in)
			Row(got, &alone, 0)
			for i, v := range got {
				if math.Float32bits(v) != math.Float32bits(guarded[i]) && v == v {
					t.Fatalf("row %d of %d: weight %d is %v, alone %v", o, rows, i, guarded[i], v)
				}
			}
		}
		if guarded[in] != 42 {
			t.Fatal("wrote past the row")
		}
	})
}
