package launch

import (
	"fmt"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() {
	for _, f := range projectFormats {
		if !f.dt.Quantized() {
			continue
		}
		name := vectors.Name(f.dt, f.group)
		registerSelfTest("tiled/"+name, func(d *Device) error { return checkTiled(d, f.dt, f.group) })
	}
}

// tiledForms are those of which kernels/tiled_*.cu have kernels, each with some
// number of warpgroups.
var tiledForms = []TiledForm{
	{1, 1, 5, 1}, {1, 1, 3, 1}, {2, 1, 5, 1}, {2, 1, 4, 1}, {4, 1, 3, 1}, {4, 4, 1, 1}, {8, 1, 3, 1}, {8, 1, 1, 1}, {8, 2, 1, 1},
	{4, 1, 3, 4}, {4, 1, 1, 4}, {16, 1, 3, 1},
}

// briefTiledForms are one for each kernel, of few warps.
var briefTiledForms = []TiledForm{{1, 1, 2, 1}, {2, 1, 2, 1}, {4, 1, 1, 1}, {4, 4, 1, 1}, {8, 1, 1, 1}, {8, 2, 1, 1}, {4, 1, 1, 4}, {16, 1, 1, 1}}

// briefInputs go round the rings that brief self-tests have.
const briefInputs = 1280

// manyInputs are more: slices have several stages of a ring.
const manyInputs = 3840

// checkTiled compares each form with kernels/stream.cuh, bit for bit. It does
// nothing on devices that tiled.cuh is not for.
func checkTiled(d *Device, dt backend.DType, group int) error {
	if !d.takesTiled() {
		return nil
	}
	b := newProjectBench(d, uint64(dt)<<8|uint64(group)+3)
	all, ins := tiledForms, append(shapesOf(dt, group), 4096)
	if d.brief {
		all, ins = briefTiledForms, []int{briefInputs, manyInputs}
	}
	for i, in := range ins {
		c := b.tiledCase(dt, group, in)
		forms := slices.DeleteFunc(slices.Clone(all), func(t TiledForm) bool {
			_, ok := d.tiledShapeOf(t, c.format, 1, 1) // whether a block has room
			return !ok
		})
		if len(forms) < 5 {
			return fmt.Errorf("only %v have room", forms)
		}
		if in == manyInputs { // one team that has all slices; few tiles, to be brief
			forms = slices.DeleteFunc(forms, func(t TiledForm) bool { return t.Teams*t.Cluster > 1 || t.Tiles > 4 })
		}
		for j, t := range forms {
			if d.brief { // one launch, of two slices of rows or one
				c.stages = 2 + j%2
				rows := []int{min(8*t.Tiles+9, tiledRows), 8*t.Tiles - 7}[(j+int(dt)+group/32)%2]
				[]func(TiledForm, int){c.three, c.gated}[(j/2+int(dt))%2](t, rows)
				continue
			}
			rows := []int{tiledRows, 17, 64, 33, 24}[(i+j)%5]
			c.three(t, rows)
			c.gated(t, rows)
		}
	}
	return b.close()
}

// tiledCase is weights that the forms take turns at, with one to three in a
// launch. Numbers of outputs end within a strip, and within 16 bytes.
type tiledCase struct {
	*projectBench
	format  format
	in      int
	x       driver.Ptr // tiledRows
	w       []Linear
	halves  [2]Linear // gate and up
	stages  int       // of the rings, at most, if not 0
	blocks  int       // of kernels/one.cuh, or clusters of few.cuh, if not 0
	cluster int       // of few.cuh, at least
	chunk   int       // of its copies, at most, if not 0
	held    use       // of held.cuh
	sliced  slicedTile
	outs    []int // of w
	gatedTo int   // outputs of halves
}

const tiledRows = 130

var tiledOuts = []int{141, 24, 156}

const tiledGated = 181

func (b *projectBench) tiledCase(dt backend.DType, group, in int) *tiledCase {
	return b.tiledCaseTo(dt, group, in, tiledOuts, tiledGated)
}

// tiledCaseTo is a tiledCase of other numbers of outputs.
func (b *projectBench) tiledCaseTo(dt backend.DType, group, in int, outs []int, gated int) *tiledCase {
	c := &tiledCase{projectBench: b, in: in, outs: outs, gatedTo: gated}
	c.format, _ = formatOf(dt, group)
	c.x, _ = b.rows(tiledRows, in)
	for _, out := range outs {
		c.w = append(c.w, Linear{Weight: b.matrix(b.tensor(dt, group, out, in))})
	}
	c.w[1].Bias = b.uploadF32(b.normals(outs[1]))
	for i := range c.halves {
		c.halves[i].Weight = b.matrix(b.tensor(dt, group, gated, in))
	}
	c.halves[1].Bias = b.uploadF32(b.normals(gated))
	return c
}

// three is a launch of one to three weights: the first is added to what is
// there, the second is in bf16 too.
func (c *tiledCase) three(t TiledForm, rows int) {
	w := c.w[:1+rows%3]
	var n []int
	for i := range w {
		n = append(n, rows*c.outs[i])
	}
	c.same(t, rows, n, func(dst []Target) {
		dst[0].Add = true
		c.d.Project(dst, c.x, w, rows)
	})
}

func (c *tiledCase) gated(t TiledForm, rows int) {
	c.same(t, rows, []int{rows * c.gatedTo}, func(dst []Target) {
		c.d.ProjectGated(dst[0], c.x, c.halves[0], c.halves[1], rows)
	})
}

// same compares what a projection to n[i] numbers writes by both kernels, in f32
// and, but for the first of several, in bf16. All targets begin with the same noise.
func (c *tiledCase) same(t TiledForm, rows int, n []int, project func(dst []Target)) {
	forced := []Tuning{{Stream: true}, {Tiled: t, stages: c.stages, blocks: c.blocks, cluster: c.cluster, chunk: c.chunk, held: c.held, sliced: c.sliced}}
	c.sameBy(fmt.Sprintf("%v, %v", t, c.sliced), rows, n, func(way int, dst []Target) {
		c.d.Tuning = forced[way]
		project(dst)
	})
}

// sameBy is same for two ways to project.
func (c *tiledCase) sameBy(what string, rows int, n []int, project func(way int, dst []Target)) {
	var results [2][][]byte
	var noise [][]float32
	for _, n := range n {
		noise = append(noise, c.normals(n))
	}
	for way := range results {
		var dst []Target
		for j := range n {
			dst = append(dst, Target{F32: c.uploadF32(noise[j])})
			if j > 0 || len(n) == 1 {
				dst[j].BF16 = c.upload(make([]byte, 2*n[j]))
			}
		}
		if c.err != nil {
			return
		}
		project(way, dst)
		for j := range n {
			results[way] = append(results[way], c.download(4*n[j], dst[j].F32))
			if dst[j].BF16 != 0 {
				results[way] = append(results[way], c.download(2*n[j], dst[j].BF16))
			}
		}
	}
	for i, want := range results[0] {
		got := results[1][i]
		for at := range want {
			if got[at] != want[at] && c.err == nil {
				c.err = fmt.Errorf("%s, %d inputs, %d rows, %d weights: result %d differs at byte %d of %d", what, c.in, rows, len(n), i, at, len(want))
			}
		}
	}
}
