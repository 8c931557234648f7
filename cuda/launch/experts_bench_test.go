package launch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
	"windrow/quant"
)

// mixtureShape is a layer's mixture of experts.
type mixtureShape struct {
	name string
	expertShape
}

// mixtureShapes are those of Qwen3-30B-A3B, Qwen3.5-35B-A3B and Qwen3-Next-80B.
var mixtureShapes = []mixtureShape{
	{"30B", expertShape{128, 8, 2048, 768, 0}},
	{"35B", expertShape{256, 8, 2048, 512, 512}},
	{"Next", expertShape{512, 10, 2048, 512, 512}},
}

// BenchmarkExperts measures the mixture of a layer, and its launches by themselves: over
// weights of several layers, in turn, and rows that are routed as they come. Bytes are
// those of the experts that are chosen.
func BenchmarkExperts(b *testing.B) {
	m := benchDevice(b)
	for _, s := range mixtureShapes {
		m.Run("shape", s.name, func(m meter) {
			mixtureSweep{of: weightType{backend.Affine4, 64}, rows: []int{1, 2, 4, 8, 16, 32, 64, 128, 2048}, layers: 6, noise: 3 << 30}.run(m, s.expertShape)
		})
	}
}

// BenchmarkGroupedForms compares the tiles of kernels/grouped_wide.cuh, what is chosen and the
// kernels that others run, for packed types.
func BenchmarkGroupedForms(b *testing.B) {
	m := benchDevice(b)
	needsHopper(m)
	for _, s := range mixtureShapes {
		m.Run("shape", s.name, func(m meter) {
			sweep := mixtureSweep{of: weightType{backend.Affine4, 64}, layers: 4, noise: 3 << 30}
			for _, t := range benchTypes[1:] {
				if t.dt == backend.Affine4 || s.name == mixtureShapes[0].name {
					sweep.of = t
					m.Run("pass", "decode", func(m meter) {
						sweep.rows, sweep.decode, sweep.prompt, sweep.forms = []int{48, 64, 96, 128, 256}, true, false, groupedTunings(groupedPartTiles)
						sweep.run(m, s.expertShape)
					})
					m.Run("pass", "prompt", func(m meter) {
						sweep.rows, sweep.decode, sweep.prompt, sweep.forms = []int{64, 128, 256, 512, 2048}, false, true, groupedTunings(groupedTiles)
						sweep.run(m, s.expertShape)
					})
				}
			}
		})
	}
}

func groupedTunings(tiles []int) []Tuning {
	list := []Tuning{{}, {groupedApart: true}}
	for _, tile := range tiles {
		list = append(list, Tuning{grouped: tile})
	}
	return list
}

// mixtureSweep is a benchmark of a mixture of experts.
type mixtureSweep struct {
	of            weightType
	rows          []int
	decode        bool     // rows have the bits that they have in any step
	prompt        bool     // rows have the bits that they have in any prompt
	forms         []Tuning // none: what is chosen
	layers, noise int      // and bytes of the slab
}

func (w mixtureSweep) run(m meter, s expertShape) {
	t, layers, noise, rows := w.of, w.layers, w.noise, w.rows
	b := newSlab(m, noise, []projectShape{{out: []int{s.width}, in: s.width}})
	r := rand.New(rand.NewPCG(3, 4))
	most := slices.Max(rows)
	x := vectors.Normals(r, most*s.width)
	floats := func(list []float32) driver.Ptr {
		data := make([]byte, 4*len(list))
		for i, v := range list {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
		}
		return m.Filled(len(data), data)
	}
	x32, x16, norm := floats(x), m.Alloc(2*RowBucket(most)*s.width), floats(vectors.Normals(r, s.width))
	dst, routing := m.Alloc(4*RowBucket(most)*s.width), m.Alloc(4*RowBucket(most)*2*s.chosen)
	d := m.D
	d.ToBF16(x16, x32, most*s.width)
	m.Cleanup(d.FreeMixtures)

	var routers []*Router
	var mixtures []*Experts
	bytes := 0 // of an expert
	list := func(out, in int, shared *[]Linear) (l ExpertList) {
		if s.shared > 0 {
			l.More = 1
		}
		l.Count = s.experts
		data := make([]byte, 8*3*(s.experts+l.More))
		for i := range s.experts + l.More {
			w, n := b.weight(t, out, in)
			if l.Of = w; i == 0 {
				bytes += n
			}
			if i == s.experts {
				*shared = append(*shared, Linear{Weight: w})
			}
			binary.LittleEndian.PutUint64(data[8*i:], uint64(w.Data()))
		}
		l.Where = m.Filled(len(data), data)
		return l
	}
	matrix := vectors.Normals(r, s.experts*s.width)
	for range layers {
		for i := range matrix { // other experts in each layer
			j := r.IntN(i + 1)
			matrix[i], matrix[j] = matrix[j], matrix[i]
		}
		data := make([]byte, 2*len(matrix))
		quant.Blocks(data, backend.BF16, matrix)
		router := &Router{Weight: &Weight{DType: backend.BF16, Out: s.experts, In: s.width, Raw: m.Filled(len(data), data)}, Chosen: s.chosen, Renormalise: true, Rounded: true}
		bytes = 0
		e := &Experts{Chosen: s.chosen, Joined: s.shared > 0}
		e.Gate, e.Up, e.Down = list(s.inner, s.width, &e.Shared), list(s.inner, s.width, &e.Shared), list(s.width, s.inner, &e.Shared)
		if router.Joined = e.Joined; e.Joined {
			router.Share = &Weight{DType: backend.BF16, Out: 1, In: s.width, Raw: m.Filled(2*s.width, data)}
		}
		router.Wide = e.Wide()
		routers, mixtures = append(routers, router), append(mixtures, e)
	}
	for _, n := range rows {
		bucket := RowBucket(n)
		shape := StepShape{Bucket: bucket, Spans: 1, Pages: 8}
		block := make([]byte, shape.Bytes())
		step := m.Alloc(len(block))
		v := StepValues{Rows: n}
		v.Write(block, shape, step)
		m.Check(d.Context.Upload(step, block))
		all := Rows{Count: bucket, Prompt: w.prompt}
		decode := w.decode || FewForExperts(false, all)
		for i := range routers {
			_, err := d.PrepareRoute(routers[i], bucket)
			m.Check(err)
			for _, joined := range []bool{false, s.shared > 0} {
				mixtures[i].Joined = joined
				_, err = d.PrepareExperts(mixtures[i], decode, all)
				m.Check(err)
			}
		}
		normed := Normed{}
		if n == 1 {
			normed = Normed{Weight: norm, Eps: 1e-6, BF16: x16}
		}
		route := func(i int) { d.Route(routing, x32, routers[i], normed, step, decode, all) }
		pass := func(i int, joined bool) *expertsPass {
			mixtures[i].Joined = joined
			return d.expertsPass(dst, x32, x16, routing, mixtures[i], step, decode, all)
		}
		measure := func(m meter) {
			route(0)
			table := make([]byte, 4)
			m.Check(d.Stream.Synchronize())
			m.Check(d.Context.Download(table, d.mixtures.route.data+driver.Ptr(routeLayoutOf(s.experts, s.chosen, bucket).tables)))
			moved := bytes * min(s.experts+1, int(binary.LittleEndian.Uint32(table)))
			for _, part := range []struct {
				name string
				run  func(i int)
			}{
				{"route", route},
				{"shared", func(i int) { d.sharedExpert(pass(i, false)) }},
				{"gated", func(i int) { d.expertsIn(pass(i, s.shared > 0)) }},
				{"down", func(i int) { d.expertsOut(pass(i, s.shared > 0)) }},
				{"apart", func(i int) {
					routers[i].Joined, mixtures[i].Joined = false, false
					route(i)
					d.Experts(dst, x32, x16, routing, mixtures[i], step, decode, all)
				}},
				{"all", func(i int) {
					routers[i].Joined, mixtures[i].Joined = s.shared > 0, s.shared > 0
					route(i)
					d.Experts(dst, x32, x16, routing, mixtures[i], step, decode, all)
				}},
			} {
				if (part.name == "shared" || part.name == "apart") && s.shared == 0 {
					continue
				}
				if len(w.forms) > 0 && !slices.Contains([]string{"gated", "down", "all"}, part.name) {
					continue
				}
				m.Run("of", part.name, func(m meter) { m.Moved(moved, graph(m, layers, part.run)) })
			}
		}
		m.Run("rows", fmt.Sprint(n), func(m meter) {
			if len(w.forms) == 0 {
				measure(m)
				return
			}
			defer func() { d.Tuning = Tuning{} }()
			for _, d.Tuning = range w.forms {
				m.Run("type", t.dt.String(), func(m meter) { m.Run("form", d.Tuning.form(), measure) })
			}
		})
	}
}
