package metal

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend/vectors"
)

func init() {
	registerSelfTest("route", checkRoute)
	registerSelfTest("sort pairs", checkSortPairs)
	registerSelfTest("add experts", checkAddExperts)
	for _, f := range projectFormats {
		name := vectors.Name(f.dtype, f.group)
		registerSelfTest("router/"+name, func(d *device) error { return checkRouter(d, f) })
		for _, x := range []elem{elemBF16, elemF32} {
			registerSelfTest("experts/"+name+"/"+x.name(), func(d *device) error { return checkExperts(d, f, x) })
		}
	}
}

// checkRouter compares the router's projection with float64, more closely than others,
// and rows alone with rows together.
func checkRouter(d *device, f projectFormat) error {
	r := rand.New(rand.NewPCG(uint64(f.dtype)<<8|uint64(f.group), 300))
	for i, in := range append(slices.Clone(f.in), f.longIn) {
		rows, out := []int{1, 5, 9, 3}[i%4], []int{1, 18, 5, 16}[i%4]
		err := withBed(d, func(b *bed) error {
			c := newProjectCase(b, r, f, elemF32, in, rows)
			w, want := c.weight(out, nil)
			dst, alone := c.empty(rows*out+spare, elemF32), c.empty(out+spare, elemF32)
			c.run(func(e encoder) {
				projectRouter(e, dst, c.x, rows, w.weight)
				if (rows-1)*in%4 == 0 {
					projectRouter(e, alone, c.x.at(4*(rows-1)*in), 1, w.weight)
				}
			})
			if err := c.result("router", dst, want, 3e-7); err != nil {
				return err
			}
			if (rows-1)*in%4 != 0 {
				return nil
			}
			return vectors.Equal(c.read(alone, out), c.read(dst, rows*out)[(rows-1)*out:])
		})
		if err != nil {
			return fmt.Errorf("%d inputs, %d outputs, %d rows: %w", in, out, rows, err)
		}
	}
	return nil
}

// routeCase is logits of a row, of which so many are chosen.
type routeCase struct {
	logits []float32
	chosen int
}

func routeCases(r *rand.Rand) (list []routeCase) {
	for _, s := range [][2]int{{1, 1}, {2, 1}, {7, 7}, {8, 2}, {33, 5}, {64, 64}, {128, 8}, {512, 10}} {
		z := vectors.Normals(r, s[0])
		for i := range z {
			z[i] *= 4
		}
		list = append(list, routeCase{z, s[1]})
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tie := vectors.Normals(r, 70)
	for i := range tie {
		tie[i] = float32(i * 7 % 3) // far more equal ones than are chosen
	}
	zero := float32(math.Copysign(0, -1))
	return append(list, routeCase{tie, 5}, routeCase{slices.Repeat([]float32{3}, 40), 6}, routeCase{[]float32{1, 5, nan, 5, -2, nan}, 3},
		routeCase{[]float32{nan, nan, nan}, 2}, routeCase{[]float32{nan, -1e30, -3, nan}, 3}, routeCase{[]float32{1e30, -1e30, 1e30, 0, inf}, 3},
		routeCase{[]float32{inf, 1, inf, -inf}, 2}, routeCase{[]float32{zero, 0, zero, 0, -1}, 2})
}

// routing is what is to be chosen, of what is no number as of the least one.
func (c routeCase) routing(renormalise bool) (numbers []int, shares []float64) {
	z := make([]float64, len(c.logits))
	for i, v := range c.logits {
		z[i] = min(max(float64(v), -1e38), 1e38)
		if v != v {
			z[i] = -1e38
		}
		numbers = append(numbers, i)
	}
	slices.SortStableFunc(numbers, func(a, b int) int {
		if z[a] == z[b] {
			return 0
		}
		return map[bool]int{true: -1, false: 1}[z[a] > z[b]]
	})
	largest, sum := z[numbers[0]], 0.0
	for i, e := range numbers {
		if i < c.chosen || !renormalise {
			sum += math.Exp(z[e] - largest)
		}
	}
	numbers = numbers[:c.chosen]
	slices.Sort(numbers)
	for _, e := range numbers {
		shares = append(shares, math.Exp(z[e]-largest)/sum)
	}
	return numbers, shares
}

// checkRoute compares choices, with equal logits, ones at the ends of f32 and such as are
// no numbers, in rows beside others.
func checkRoute(d *device) error {
	r := rand.New(rand.NewPCG(9, 1))
	for _, c := range routeCases(r) {
		for _, renormalise := range []bool{false, true} {
			const rows = 5
			experts := len(c.logits)
			all := vectors.Normals(r, rows*experts)
			copy(all[3*experts:], c.logits)
			err := withBed(d, func(b *bed) error {
				dst := b.empty((rows+1)*2*c.chosen, elemF32)
				b.run(func(e encoder) { routeRows(e, dst, b.floats(all), rows, experts, c.chosen, renormalise) })
				for row := range rows {
					one := routeCase{all[row*experts : (row+1)*experts], c.chosen}
					numbers, shares := one.routing(renormalise)
					got := b.read(dst.at(8*row*c.chosen), 2*c.chosen)
					for i, e := range numbers {
						if got[i] != float32(e) || !(math.Abs(float64(got[c.chosen+i])-shares[i]) <= 2e-6*shares[i]+1e-30) {
							return fmt.Errorf("row %d: %v, want %v %v", row, got, numbers, shares)
						}
					}
				}
				return untouched(dst.bytes()[8*rows*c.chosen:][:8*c.chosen])
			})
			if err != nil {
				return fmt.Errorf("%d of %v, renormalised %v: %w", c.chosen, c.logits, renormalise, err)
			}
		}
	}
	return nil
}

// someRouting is a routing [rows, 2·chosen] of random experts, of which one has all rows,
// and another, in their middle, none.
func someRouting(r *rand.Rand, rows, experts, chosen int) []float32 {
	var all []float32
	for range rows {
		some := r.Perm(max(experts-1, 1))[:chosen]
		for i := range some {
			if some[i] >= experts/2 && experts > 1 {
				some[i]++
			}
		}
		if !slices.Contains(some, 0) {
			some[0] = 0
		}
		slices.Sort(some)
		for _, e := range some {
			all = append(all, float32(e))
		}
		for range chosen {
			all = append(all, r.Float32())
		}
	}
	return all
}

// pairsOf is what sortPairs is to make of a routing.
func pairsOf(routing []float32, rows, experts, chosen int) (slots, list []uint32) {
	for e := range experts {
		first := len(list)
		for row := range rows {
			for i := range chosen {
				if routing[row*2*chosen+i] == float32(e) {
					list = append(list, uint32(row*chosen+i))
				}
			}
		}
		if n := len(list) - first; n > 0 {
			slots = append(slots, uint32(e), uint32(first), uint32(n))
		}
	}
	return append(slots, make([]uint32, slotWords*slotsOf(rows, experts, chosen)-len(slots))...), list
}

func checkSortPairs(d *device) error {
	r := rand.New(rand.NewPCG(9, 2))
	for _, s := range []struct{ rows, experts, chosen int }{{1, 1, 1}, {1, 8, 2}, {40, 8, 2}, {3, 700, 10}, {33, 40, 7}, {5, 512, 10}} {
		routing := someRouting(r, s.rows, s.experts, s.chosen)
		slots, list := pairsOf(routing, s.rows, s.experts, s.chosen)
		err := withBed(d, func(b *bed) error {
			to, pairs := b.empty(len(slots)+4, elemU32), b.empty(len(list)+4, elemU32)
			b.run(func(e encoder) { sortPairs(e, to, pairs, b.floats(routing), s.rows, s.experts, s.chosen) })
			for i, w := range slots {
				if got := binary.LittleEndian.Uint32(to.bytes()[4*i:]); got != w {
					return fmt.Errorf("word %d of the slots is %d, want %d", i, got, w)
				}
			}
			for i, w := range list {
				if got := binary.LittleEndian.Uint32(pairs.bytes()[4*i:]); got != w {
					return fmt.Errorf("pair %d is %d, want %d", i, got, w)
				}
			}
			if err := untouched(to.bytes()[4*len(slots):][:16]); err != nil {
				return err
			}
			return untouched(pairs.bytes()[4*len(list):][:16])
		})
		if err != nil {
			return fmt.Errorf("%+v: %w", s, err)
		}
	}
	return nil
}

func checkAddExperts(d *device) error {
	r := rand.New(rand.NewPCG(9, 3))
	for _, s := range []struct{ rows, width, chosen int }{{1, 1, 1}, {3, 66, 2}, {2, 1032, 10}, {5, 515, 3}} {
		for _, shared := range []bool{false, true} {
			dst, made, routing := vectors.Normals(r, s.rows*s.width), vectors.Normals(r, s.rows*s.chosen*s.width), vectors.Normals(r, s.rows*2*s.chosen)
			other, logits := vectors.Normals(r, s.rows*s.width), vectors.Normals(r, s.rows)
			logits[0] = -200 // out of the range of exp in f32
			want := make([]float64, len(dst))
			for i, v := range dst {
				row := i / s.width
				want[i] = float64(v)
				for j := range s.chosen {
					want[i] += float64(routing[row*2*s.chosen+s.chosen+j]) * float64(made[(row*s.chosen+j)*s.width+i%s.width])
				}
				if shared {
					want[i] += float64(other[i]) / (1 + math.Exp(-float64(logits[row])))
				}
			}
			err := withBed(d, func(b *bed) error {
				to, x, z := b.empty(len(dst)+4, elemF32), view{}, view{}
				copy(to.bytes(), b.floats(dst).bytes()[:4*len(dst)])
				if shared {
					x, z = b.floats(other), b.floats(logits)
				}
				b.run(func(e encoder) { addExperts(e, to, b.floats(made), b.floats(routing), x, z, s.rows, s.width, s.chosen) })
				if err := vectors.Near(b.read(to, len(dst)), want, 5e-7); err != nil {
					return err
				}
				return untouched(to.bytes()[4*len(dst):][:16])
			})
			if err != nil {
				return fmt.Errorf("%+v, shared %v: %w", s, shared, err)
			}
		}
	}
	return nil
}

// checkExperts compares each pair's row with the bits that project gives that row alone.
// Weights lie in two sets of buffers; an expert has more rows than a tile, another none.
func checkExperts(d *device, f projectFormat, x elem) error {
	r := rand.New(rand.NewPCG(uint64(f.dtype)<<8|uint64(f.group), uint64(x)+400))
	lengths := f.in[len(f.in)-1:]
	if x == elemF32 && f.in[0]%8 != 0 { // rows that are not wide stay in f32
		lengths = f.in[len(f.in)-3:]
	}
	for _, in := range lengths {
		if err := withBed(d, func(b *bed) error { return newProjectCase(b, r, f, x, in, expertRows).checkExperts() }); err != nil {
			return fmt.Errorf("%d inputs: %w", in, err)
		}
	}
	return nil
}

const expertRows = 11

func (c *projectCase) checkExperts() error {
	const experts, chosen, out, pairs = 5, 2, 22, 2 * expertRows
	x := c.x.elem
	routing := someRouting(c.r, expertRows, experts, chosen)
	gates, ups := c.experts(experts, out), c.experts(experts, out)
	slots, list := pairsOf(routing, expertRows, experts, chosen)
	slotWords, pairWords := c.words(slots), c.words(list)
	// Gates and ups of rows of x, then the ups of rows of pairs.
	dst, plain := c.empty(pairs*out+spare, elemBF16), c.empty(pairs*out+spare, elemF32)
	all := newProjectCase(c.bed, c.r, c.f, x, c.in, pairs)
	c.run(func(e encoder) {
		for _, g := range c.groups(gates, ups) {
			projectExperts(e, dst, c.x, slotWords, pairWords, expertRows, chosen, chosen, g)
		}
		for _, g := range c.groups(ups, nil) {
			projectExperts(e, plain, all.x, slotWords, pairWords, expertRows, chosen, 1, g)
		}
	})
	one, two := c.empty(pairs*out, elemBF16), c.empty(pairs*out, elemF32)
	c.run(func(e encoder) {
		for pair := range pairs {
			row, expert := pair/chosen, int(routing[pair/chosen*2*chosen+pair%chosen])
			gatedProject(e, one.at(2*pair*out), c.x.at(row*c.in*x.size()), 1, linear{weight: gates[expert]}, linear{weight: ups[expert]}, true)
			project(e, []view{two.at(4 * pair * out)}, all.x.at(pair*c.in*x.size()), 1, []linear{{weight: ups[expert]}}, true)
		}
	})
	if err := vectors.Equal(c.read(dst, pairs*out), c.read(one, pairs*out)); err != nil {
		return fmt.Errorf("gated: %w", err)
	}
	if err := vectors.Equal(c.read(plain, pairs*out), c.read(two, pairs*out)); err != nil {
		return err
	}
	if err := untouched(dst.bytes()[2*pairs*out:][:spare]); err != nil {
		return err
	}
	return untouched(plain.bytes()[4*pairs*out:][:spare])
}

// experts are weights of which those of even numbers lie one behind the other.
func (c *projectCase) experts(n, out int) []weight {
	var data, scales, biases []byte
	list := make([]weight, n)
	for i := range list {
		t := vectors.Tensor(c.r, c.f.dtype, out, c.in, c.f.group)
		if i%2 == 1 {
			list[i] = c.bed.weight(t)
			continue
		}
		list[i] = weight{dtype: t.DType, out: out, in: c.in, group: t.Group}
		list[i].data.offset, list[i].scales.offset, list[i].biases.offset = len(data), len(scales), len(biases)
		data, scales, biases = append(data, t.Data...), append(scales, t.Scales...), append(biases, t.Biases...)
		for len(data)%4 != 0 {
			data = append(data, 0xff)
		}
	}
	whole := weight{data: c.bytes(data, weightElem(c.f.dtype)), scales: c.bytes(scales, elemBF16), biases: c.bytes(biases, elemBF16)}
	for i := 0; i < n; i += 2 {
		list[i].data = whole.data.at(list[i].data.offset)
		if len(scales) > 0 {
			list[i].scales, list[i].biases = whole.scales.at(list[i].scales.offset), whole.biases.at(list[i].biases.offset)
		}
	}
	return list
}

// groups are the dispatches of some experts.
func (c *projectCase) groups(firsts, seconds []weight) (list []expertWeights) {
	for _, g := range groupExperts(firsts, seconds) {
		g.places = c.bytes(g.words, elemU32)
		list = append(list, g.expertWeights)
	}
	return list
}
