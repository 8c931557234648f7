package launch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/cuda/driver"
)

func init() { registerPacked("wide", checkWide) }

// wideForms are those that the self-tests go through, each with rows of its turn.
var (
	wideForms = []wideForm{
		{wide: 3, parts: 1}, {wide: 3, parts: 4}, {wide: 2, parts: 1}, {wide: 2, parts: 2}, {wide: 1, parts: 2}, {wide: 2, parts: 4}, {wide: 1, parts: 4},
		widePair, {}, // {}: chosen
	}
	wideTurns   = []int{33, 127, 48, 128, 96, 64, 200}
	wideOutputs = []int{144, 24, 152}
)

// checkWide compares kernels/wide.cuh with float64 over weights rounded to bf16,
// which tells a weight that is rounded otherwise, or twice. It does nothing on
// devices that the kernels are not for.
func checkWide(d *Device, dt backend.DType, group int) error {
	if !d.takesTiled() {
		return nil
	}
	b := newProjectBench(d, uint64(dt)<<8|uint64(group)+4)
	b.note(d.prepareWide())
	ins := append(shapesOf(dt, group), 1024, 4096, 12288)
	if d.brief {
		ins = []int{briefInputs}
	}
	for i, in := range ins {
		outs := wideOutputs
		if d.brief {
			outs = []int{104, 24, 88}
		}
		if in == 1024 {
			outs = []int{2056} // an odd number of tiles, and the last one not full
		}
		c := b.wideCase(dt, group, in, outs)
		for j, form := range wideForms {
			d.Tuning.wide = form
			rows := wideTurns[(i+j)%len(wideTurns)]
			if form.pair {
				rows += 100
			}
			if d.brief { // one launch
				d.Tuning.stages = 2 + j%2
				rows = []int{33, 70}[(j+int(dt))%2]
				if form.pair {
					rows += 200
				}
				if ran := c.ran; (j/2+int(dt))%2 == 0 {
					c.three(rows)
				} else if c.gated(rows); c.ran == ran { // it has no room
					c.three(rows)
				}
				continue
			}
			c.three(rows)
			c.gated(rows)
		}
		if c.ran < len(wideForms)/2 {
			b.note(fmt.Errorf("%d inputs: only %d launches have room", in, c.ran))
		}
	}
	return b.close()
}

// wideCase is weights of that many outputs, all but the first with a bias, and inputs.
type wideCase struct {
	*projectBench
	in    int
	x     driver.Ptr // 300 rows
	xs    []float32
	w     []Linear
	exact [][]float32 // rounded to bf16
	bias  [][]float32
	up    int // the weight that is gated by the first
	ran   int // launches
}

// fits reports whether the form has room for a launch: not where the inputs have
// fewer stages than parts, or the parts are more than the device has at work.
func (c *wideCase) fits(w []Linear, rows int) bool {
	total := 0
	for _, l := range w {
		total += Ceil(l.Weight.Out, 16)
	}
	_, ok := c.d.wideShape(w[0].Weight.format(), total, Rows{Count: rows}, c.in)
	if ok {
		c.ran++
	}
	return ok && c.err == nil
}

func (b *projectBench) wideCase(dt backend.DType, group, in int, outs []int) *wideCase {
	c := &wideCase{projectBench: b, in: in, bias: make([][]float32, len(outs)+1)}
	c.x, c.xs = b.rows(300, in)
	c.up = len(outs)
	for i, out := range append(outs[:len(outs):len(outs)], outs[0]) {
		t := b.tensor(dt, group, out, in)
		l := Linear{Weight: b.matrix(t)}
		if i > 0 {
			c.bias[i] = b.normals(out)
			l.Bias = b.uploadF32(c.bias[i])
		}
		c.w, c.exact = append(c.w, l), append(c.exact, rounded(widened(t)))
	}
	return c
}

// sum is one product of weight i, and what sums in f32 may be off.
func (c *wideCase) sum(i, row, out int) (value, slack float64) {
	x, w := c.xs[row*c.in:][:c.in], c.exact[i][out*c.in:][:c.in]
	for k := range x {
		p := float64(x[k]) * float64(w[k])
		value += p
		slack += math.Abs(p)
	}
	if c.bias[i] != nil {
		value += float64(c.bias[i][out])
	}
	return value, gemmSlack(slack)
}

// three is a launch of one to three weights: the first is added to what is
// there, the second is in bf16 too.
func (c *wideCase) three(rows int) {
	w := c.w[:min(c.up, 1+rows%3)]
	if !c.fits(w, rows) {
		return
	}
	var dst []Target
	var before []float32
	for i, l := range w {
		n := rows * l.Weight.Out
		t := Target{Add: i == 0}
		if i == 0 {
			before = c.normals(n)
			t.F32 = c.uploadF32(before)
		} else {
			t.F32 = c.alloc(4 * n)
		}
		if i == 1 {
			t.BF16 = c.alloc(2 * n)
		}
		dst = append(dst, t)
	}
	if c.err != nil {
		return
	}
	c.d.wide(dst, c.x, w, false, Rows{Count: rows})
	for i, l := range w {
		c.near(fmt.Sprintf("weight %d of %d", i, len(w)), c.downloadF32(rows*l.Weight.Out, dst[i].F32), l.Weight.Out, func(row, out int) (float64, float64) {
			value, slack := c.sum(i, row, out)
			if i == 0 {
				value += float64(before[row*l.Weight.Out+out])
			}
			return value, slack
		})
	}
	if len(w) > 1 {
		c.checkHalves(rows*w[1].Weight.Out, dst[1])
	}
}

// gated is gate and up of one shape, twice: the same bits.
func (c *wideCase) gated(rows int) {
	gate, up := c.w[0], c.w[c.up]
	if !c.fits([]Linear{gate, up}, rows) {
		return
	}
	n := rows * gate.Weight.Out
	dst := Target{F32: c.alloc(4 * n), BF16: c.alloc(2 * n)}
	if c.err != nil {
		return
	}
	c.d.wide([]Target{dst}, c.x, []Linear{gate, up}, true, Rows{Count: rows})
	got := c.downloadF32(n, dst.F32)
	c.near("gated", got, gate.Weight.Out, func(row, out int) (float64, float64) {
		g, gateSlack := c.sum(0, row, out)
		u, upSlack := c.sum(c.up, row, out)
		v := g / (1 + math.Exp(-g)) * u
		return v, 1.2*gateSlack*math.Abs(u) + upSlack*math.Abs(g) + 4e-6*math.Abs(v) + 1e-6
	})
	c.checkHalves(n, dst)
	c.d.wide([]Target{dst}, c.x, []Linear{gate, up}, true, Rows{Count: rows})
	first := make([]byte, 4*n)
	for i, v := range got {
		binary.LittleEndian.PutUint32(first[4*i:], math.Float32bits(v))
	}
	if again := c.download(4*n, dst.F32); c.err == nil && !bytes.Equal(again, first) {
		c.err = fmt.Errorf("%v, %d inputs, %d rows: other bits a second time", c.d.Tuning.wide, c.in, rows)
	}
}

// near compares some results with want(row, out): a value, and what it may be off.
func (c *wideCase) near(what string, got []float32, out int, want func(row, out int) (value, slack float64)) {
	step := 1 + len(got)*c.in/(1<<20)
	for i := 0; i < len(got) && c.err == nil; i += step {
		value, slack := want(i/out, i%out)
		if !(math.Abs(float64(got[i])-value) <= slack) {
			c.err = fmt.Errorf("%v, %d inputs, %d rows, %s: row %d, output %d of %d is %g, want %g within %.2g", c.d.Tuning.wide, c.in, len(got)/out, what, i/out, i%out, out, got[i], value, slack)
		}
	}
}
