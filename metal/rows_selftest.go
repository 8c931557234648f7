package metal

import (
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend/vectors"
)

func init() {
	registerSelfTest("rms norm", checkRMSNorm)
	registerSelfTest("rms norm of wanted rows", checkRMSNormWanted)
	registerSelfTest("convert", checkConvert)
	registerSelfTest("columns", checkColumns)
}

// rowWidths are around runs of 4, simdgroups and threadgroups; 9000 does not
// fit in the registers of rms_norm.
var rowWidths = []int{1, 3, 5, 33, 64, 130, 384, 1027, 9000}

// normTolerance is that of f32 arithmetic with Metal's fast square root and
// division, of some ulp each, by relative norm.
const normTolerance = 2e-6

// normed is RMSNorm of one row in float64.
func normed(x, w []float32, eps float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+eps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v) * scale
		if w != nil {
			y[i] *= float64(w[i])
		}
	}
	return y
}

func checkRMSNorm(d *device) error {
	const rows, eps = 3, 1e-6
	r := rand.New(rand.NewPCG(2, 1))
	for _, width := range rowWidths {
		n := rows * width
		x, w := vectors.Normals(r, n), vectors.Normals(r, width)
		var want []float64
		for i := range rows {
			want = append(want, normed(x[i*width:(i+1)*width], w, eps)...)
		}
		if err := withBed(d, func(b *bed) error {
			px, pw := b.floats(x), b.floats(w)
			whole, half, alone := b.empty(n, elemF32), b.empty(n, elemBF16), b.empty(width, elemF32)
			b.run(func(e encoder) {
				rmsNorm(e, whole, px, pw, rows, width, eps)
				rmsNorm(e, half, px, pw, rows, width, eps)
				rmsNorm(e, alone, px.at(4*2*width), pw, 1, width, eps)
				rmsNorm(e, px, px, pw, rows, width, eps)
			})
			got := b.read(whole, n)
			if err := vectors.Near(got, want, normTolerance); err != nil {
				return err
			}
			if err := each(b.read(half, n), want, roundoff(elemBF16)+2*normTolerance); err != nil {
				return fmt.Errorf("bf16: %w", err)
			}
			if err := vectors.Equal(b.read(alone, width), got[2*width:]); err != nil {
				return fmt.Errorf("row 2 alone and among %d rows: %w", rows, err)
			}
			if err := vectors.Equal(b.read(px, n), got); err != nil {
				return fmt.Errorf("in place: %w", err)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("width %d: %w", width, err)
		}
	}
	return nil
}

func checkRMSNormWanted(d *device) error {
	const rows, eps = 4, 1e-6
	r := rand.New(rand.NewPCG(3, 1))
	want := []uint32{3, 0, 3}
	for _, width := range []int{1, 30, 256, 1025} {
		x, w := vectors.Normals(r, rows*width), vectors.Normals(r, width)
		n := len(want) * width
		if err := withBed(d, func(b *bed) error {
			px, pw, pick := b.floats(x), b.floats(w), b.words(want)
			all, whole, half := b.empty(rows*width, elemF32), b.empty(n, elemF32), b.empty(n, elemBF16)
			b.run(func(e encoder) {
				rmsNorm(e, all, px, pw, rows, width, eps)
				rmsNormWanted(e, whole, px, pw, pick, len(want), width, eps)
				rmsNormWanted(e, half, px, pw, pick, len(want), width, eps)
			})
			every := b.read(all, rows*width)
			for i, row := range want {
				from := int(row) * width
				if err := vectors.Near(b.read(whole.at(4*i*width), width), normed(x[from:from+width], w, eps), normTolerance); err != nil {
					return fmt.Errorf("row %d: %w", row, err)
				}
				if err := each(b.read(half.at(2*i*width), width), normed(x[from:from+width], w, eps), roundoff(elemBF16)+2*normTolerance); err != nil {
					return fmt.Errorf("row %d in bf16: %w", row, err)
				}
				if err := vectors.Equal(b.read(whole.at(4*i*width), width), every[from:from+width]); err != nil {
					return fmt.Errorf("row %d as a wanted one and as one of all: %w", row, err)
				}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("width %d: %w", width, err)
		}
	}
	return nil
}

func checkColumns(d *device) error {
	const rows = 3
	r := rand.New(rand.NewPCG(5, 1))
	for _, parts := range [][]int{{1, 2}, {8, 8}, {5, 64, 3}, {256, 128}, {4, 3000}} {
		width := 0
		for _, n := range parts {
			width += n
		}
		if err := withBed(d, func(b *bed) error {
			whole, half := b.empty(rows*width, elemF32), b.empty(rows*width, elemBF16)
			want := make([]float32, rows*width)
			first := 0
			for _, n := range parts {
				x := vectors.Normals(r, rows*n)
				px := b.floats(x)
				b.run(func(e encoder) {
					putColumns(e, whole, px, rows, width, first, n)
					putColumns(e, half, px, rows, width, first, n)
				})
				for i := range rows {
					copy(want[i*width+first:], x[i*n:(i+1)*n])
				}
				first += n
			}
			if err := vectors.Equal(b.read(whole, rows*width), want); err != nil {
				return err
			}
			if err := vectors.Equal(b.read(half, rows*width), rounded(want, elemBF16)); err != nil {
				return fmt.Errorf("bf16: %w", err)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("columns %v: %w", parts, err)
		}
	}
	return nil
}

func checkConvert(d *device) error {
	r := rand.New(rand.NewPCG(4, 1))
	for _, n := range []int{1, 7, 8, 2049} {
		x := vectors.Normals(r, n)
		// A tie that rounds down, one that rounds up, the largest bf16, and -0.
		for i, v := range []uint32{0x3f808000, 0x3f818000, 0x7f7f0000, 0x80000000} {
			if i < n {
				x[i] = math.Float32frombits(v)
			}
		}
		if err := withBed(d, func(b *bed) error {
			px, half, whole := b.floats(x), b.empty(n, elemBF16), b.empty(n, elemF32)
			odd := b.empty(n, elemBF16) // from element 1 on: not at a run of 4
			b.run(func(e encoder) {
				convertRows(e, half, px, n)
				convertRows(e, whole, half, n)
				if n > 1 {
					convertRows(e, odd.at(2), px.at(4), n-1)
				}
			})
			want := rounded(x, elemBF16)
			if err := vectors.Equal(b.read(half, n), want); err != nil {
				return err
			}
			if n > 1 {
				if err := vectors.Equal(b.read(odd.at(2), n-1), want[1:]); err != nil {
					return fmt.Errorf("from element 1 on: %w", err)
				}
			}
			if err := untouched(odd.bytes()[:2]); err != nil {
				return err
			}
			return vectors.Equal(b.read(whole, n), want)
		}); err != nil {
			return fmt.Errorf("%d elements: %w", n, err)
		}
	}
	return nil
}
