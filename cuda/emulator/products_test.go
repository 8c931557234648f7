package emulator_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"windrow/cuda/driver"
)

// productRig has kernels of testdata/products_hopper.cu and their operands, whole
// numbers: sums are exact.
type productRig struct {
	*rig
	a, b    driver.Ptr
	x, y, c []float32
}

func newProductRig(t *testing.T, checked bool) productRig {
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	p := productRig{rig: newRig(t, checked, "products_hopper")}
	random := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) (driver.Ptr, []float32) {
		values, data := make([]float32, n), make([]byte, n*2)
		for i := range values {
			values[i] = float32(random.IntN(17) - 8)
			binary.LittleEndian.PutUint16(data[i*2:], uint16(math.Float32bits(values[i])>>16))
		}
		at := p.buffer(t, n/2)
		if err := p.ctx.Upload(at, data); err != nil {
			t.Fatal(err)
		}
		return at, values
	}
	p.a, p.x = numbers(64 * 64)
	p.b, p.y = numbers(64 * 256)
	p.c = make([]float32, 64*256)
	for i := range p.c {
		p.c[i] = float32(random.IntN(100))
	}
	return p
}

// run multiplies, and returns [64][columns].
func (p productRig) run(t *testing.T, kernel string, columns int) ([]float32, error) {
	data := make([]byte, 64*columns*4)
	for i := range 64 * columns {
		binary.LittleEndian.PutUint32(data[i*4:], math.Float32bits(p.c[i]))
	}
	out := p.buffer(t, 64*columns)
	if err := p.ctx.Upload(out, data); err != nil {
		t.Fatal(err)
	}
	if err := p.rig.run(kernel, 1, 160, 48<<10, uint64(p.a), uint64(p.b), uint64(out)); err != nil {
		return nil, err
	}
	got := make([]float32, 64*columns)
	for i, w := range p.words(t, out, len(got)) {
		got[i] = math.Float32frombits(w)
	}
	return got, nil
}

func TestProducts(t *testing.T) {
	p := newProductRig(t, true)
	for _, c := range []struct {
		kernel  string
		columns int
		rows    bool // b is [64][columns]
	}{
		{"tiles_128", 128, false},
		{"tiles_256", 256, false},
		{"registers_16", 16, false},
		{"registers_32", 32, false},
		{"registers_64", 64, false},
		{"registers_128", 128, false},
		{"rows_128", 128, true},
	} {
		got, err := p.run(t, c.kernel, c.columns)
		if err != nil {
			t.Errorf("%s: %v", c.kernel, err)
			continue
		}
		for i := range got {
			m, n := i/c.columns, i%c.columns
			want := p.c[i]
			for k := range 64 {
				y := p.y[n*64+k]
				if c.rows {
					y = p.y[k*c.columns+n]
				}
				want += p.x[m*64+k] * y
			}
			if got[i] != want {
				t.Errorf("%s: row %d, column %d: %v, want %v", c.kernel, m, n, got[i], want)
				break
			}
		}
	}
}

func TestProductsRefused(t *testing.T) {
	p := newProductRig(t, false)
	for kernel, want := range map[string]string{
		"touches_sums":      "wrote to sums",
		"touches_registers": "wrote to registers",
		"ends_early":        "on their way when their threads end",
		"one_more":          "divergence: the warps of a warpgroup",
		"other_shape":       "have the same sums on their way",
		"no_warpgroup":      "no whole warpgroup",
	} {
		if _, err := p.run(t, kernel, 128); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kernel, err, want)
		}
	}
}
