package launch

import (
	"fmt"
	"math/rand/v2"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

func init() {
	for dt := backend.F32; dt <= backend.Q6_K; dt++ {
		registerSelfTest("exact projection "+dt.String(), func(d *Device) error { return checkSimtProject(d, dt) })
	}
}

// rawMatrix uploads a weight as it is stored.
func (b *bed) rawMatrix(t *backend.Tensor) *Weight {
	m := &Weight{DType: t.DType, Out: t.Shape[0], In: t.Shape[1], Group: t.Group, Raw: b.bytes(t.Data)}
	if t.DType.Affine() {
		m.Scales, m.Biases = b.bytes(t.Scales), b.bytes(t.Biases)
	}
	return m
}

// exactTolerance is that of f32 arithmetic over some thousands of terms, by
// relative norm.
const exactTolerance = 1e-6

// simtShape is a weight's shape in a self-test.
type simtShape struct{ out, in, group int }

func simtShapes(dt backend.DType) (s []simtShape) {
	switch {
	case dt.Affine():
		for _, group := range []int{32, 64, 128} {
			s = append(s, simtShape{1, group, group}, simtShape{9, 3 * group, group}, simtShape{34, 2176, group})
		}
	case dt.Quantized():
		n := dt.BlockSize()
		s = []simtShape{{1, n, 0}, {9, 3 * n, 0}, {34, 2048 + n, 0}}
	default:
		for i, in := range oddWidths {
			s = append(s, simtShape{1 + 5*i%13, in, 0})
		}
		s = append(s, simtShape{9, 520, 0})
	}
	return s
}

func checkSimtProject(d *Device, dt backend.DType) error {
	r := rand.New(rand.NewPCG(5, uint64(dt)))
	for i, s := range simtShapes(dt) {
		if err := checkSimtShape(d, r, dt, s, []int{1, 11, 8, 35}[i%4]); err != nil {
			return fmt.Errorf("[%d, %d], groups of %d: %w", s.out, s.in, s.group, err)
		}
	}
	return nil
}

func checkSimtShape(d *Device, r *rand.Rand, dt backend.DType, s simtShape, rows int) error {
	b := &bed{d: d}
	defer b.free()
	t := vectors.Tensor(r, dt, s.out, s.in, s.group)
	w, x, bias, before := b.rawMatrix(t), vectors.Normals(r, rows*s.in), vectors.Normals(r, s.out), vectors.Normals(r, rows*s.out)
	plain, full := make([]float64, rows*s.out), make([]float64, rows*s.out)
	weights := make([]float32, s.in)
	for o := range s.out {
		quant.Row(weights, t, o)
		for i := range rows {
			sum := 0.0
			for k, v := range weights {
				sum += float64(v) * float64(x[i*s.in+k])
			}
			plain[i*s.out+o] = sum
			full[i*s.out+o] = sum + float64(bias[o]) + float64(before[i*s.out+o])
		}
	}
	px, dst, added := b.floats(x), b.empty(4*rows*s.out), b.floats(before)
	d.SIMTProject(dst, px, w, 0, false, rows)
	d.SIMTProject(added, px, w, b.floats(bias), true, rows)
	got := b.readFloats(dst, rows*s.out)
	if err := vectors.Near(got, plain, exactTolerance); err != nil {
		return err
	}
	if err := vectors.Near(b.readFloats(added, rows*s.out), full, exactTolerance); err != nil {
		return fmt.Errorf("added: %w", err)
	}
	// The last row alone, then the first ones of a larger bucket.
	last := rows - 1
	alone := b.empty(4 * s.out)
	d.SIMTProject(alone, past(px, last*s.in, 4), w, 0, false, 1)
	if err := vectors.Equal(b.readFloats(alone, s.out), got[last*s.out:]); err != nil {
		return fmt.Errorf("row %d alone: %w", last, err)
	}
	bucket := rows + 13
	wide, some := b.floats(append(x, make([]float32, (bucket-rows)*s.in)...)), b.empty(4*bucket*s.out)
	live := []byte{byte(rows), 0, 0, 0}
	d.simtProjectLive(some, wide, w, 0, false, bucket, b.bytes(live))
	if err := vectors.Equal(b.readFloats(some, bucket*s.out), append(got, nans((bucket-rows)*s.out)...)); err != nil {
		return fmt.Errorf("%d rows in a bucket of %d: %w", rows, bucket, err)
	}
	return nil
}
