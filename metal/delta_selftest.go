package metal

import (
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/backend/vectors"
)

func init() {
	registerSelfTest("delta", func(d *device) error { return checkDeltaCases(d, deltaCases[:3]) })
	registerSelfTest("delta, long keys", func(d *device) error { return checkDeltaCases(d, deltaCases[3:]) })
}

// deltaTestCase is a layer of gated DeltaNet; its forwards have so many rows each.
type deltaTestCase struct {
	backend.StateShape
	logRows int
	byHead  bool // q, k, v, z lie by key head in one buffer, b and a in another
	cuts    []deltaCut
}

// deltaCut is a forward: of its rows so many are kept. Apart, it writes its state beside the
// one that it reads, as for a sequence that shares it.
type deltaCut struct {
	rows, kept int
	apart      bool
}

// deltaCases fold rows in place and apart, settle rows, go round the rings, take rows back, and
// have heads that are no whole blocks.
var deltaCases = []deltaTestCase{
	{StateShape: backend.StateShape{KeyHeads: 2, ValueHeads: 4, KeyDim: 16, ValueDim: 40, Conv: 4}, logRows: 3,
		cuts: []deltaCut{{1, 1, false}, {3, 1, false}, {2, 2, false}, {3, 0, false}, {7, 6, true}, {2, 2, true}, {1, 1, false}, {3, 3, false}}},
	{StateShape: backend.StateShape{KeyHeads: 1, ValueHeads: 2, KeyDim: 5, ValueDim: 3, Conv: 2}, logRows: 4, byHead: true,
		cuts: []deltaCut{{9, 7, false}, {4, 4, false}, {4, 2, false}, {5, 5, true}, {1, 1, false}}},
	{StateShape: backend.StateShape{KeyHeads: 3, ValueHeads: 6, KeyDim: 8, ValueDim: 8, Conv: 3, Tiled: true}, logRows: 2,
		cuts: []deltaCut{{2, 2, false}, {2, 1, true}, {2, 2, false}}},
	{StateShape: backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 128, ValueDim: 33, Conv: 4}, logRows: 2, byHead: true,
		cuts: []deltaCut{{3, 3, false}, {1, 1, false}, {2, 2, false}}},
	{StateShape: backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 200, ValueDim: 4, Conv: 1}, logRows: 2,
		cuts: []deltaCut{{2, 1, false}, {1, 1, false}}},
}

// deltaNumbers are a case with its numbers: of rows and of one that is taken back again
// for each.
type deltaNumbers struct {
	deltaTestCase
	wide, narrow                    int       // widths of the buffers of projections
	projected, gates                []float32 // [rows, wide], [rows, narrow]
	taps, logDecay, timeStep, normW []float32
	q, k, v, z, b, a                deltaPart
	want                            []float64
}

func (c deltaTestCase) numbers(r *rand.Rand) *deltaNumbers {
	rows := 0
	for _, cut := range c.cuts {
		rows += cut.kept
	}
	n, dk, dv := c.Group(), c.KeyDim, c.ValueDim
	y := &deltaNumbers{deltaTestCase: c, wide: c.Channels() + c.Values() + 3, narrow: 2*c.ValueHeads + 1}
	w, t := uint32(y.wide), uint32(y.narrow)
	u := func(x int) uint32 { return uint32(x) }
	if c.byHead {
		s := u(2*dk + 2*n*dv)
		y.q, y.k, y.v, y.z = deltaPart{0, s, w}, deltaPart{u(dk), s, w}, deltaPart{u(2 * dk), s, w}, deltaPart{u(2*dk + n*dv), s, w}
		y.b, y.a = deltaPart{0, u(2 * n), t}, deltaPart{u(n), u(2 * n), t}
	} else {
		y.q, y.k = deltaPart{1, u(dk), w}, deltaPart{u(1 + c.Keys()), u(dk), w}
		y.v, y.z = deltaPart{u(1 + 2*c.Keys()), u(n * dv), w}, deltaPart{u(1 + c.Channels()), u(n * dv), w}
		y.b, y.a = deltaPart{0, u(n), t}, deltaPart{u(c.ValueHeads), u(n), t}
	}
	y.projected, y.gates = vectors.Normals(r, 2*rows*y.wide), vectors.Normals(r, 2*rows*y.narrow)
	y.gates[0], y.gates[y.a.first] = -100, 40 // the ends of exp and of softplus
	y.gates[len(y.gates)/2-2] = -120
	y.taps, y.normW = vectors.Normals(r, c.Channels()*c.Conv), vectors.Normals(r, dv)
	y.logDecay, y.timeStep = vectors.Normals(r, c.ValueHeads), vectors.Normals(r, c.ValueHeads)
	y.logDecay[0] = -7 // what a head remembers long
	y.want = y.reference(rows)
	return y
}

// reference is backend.Delta in float64, row by row.
func (y *deltaNumbers) reference(rows int) (all []float64) {
	n, dk, dv := y.Group(), y.KeyDim, y.ValueDim
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	at := func(x []float32, p deltaPart, row, g, i int) float64 {
		return float64(x[row*int(p.width)+int(p.first)+g*int(p.stride)+i])
	}
	mixed := func(p deltaPart, row, g, i, channel int) (sum float64) {
		for t := range y.Conv {
			if from := row - y.Conv + 1 + t; from >= 0 {
				sum += float64(y.taps[channel*y.Conv+t]) * at(y.projected, p, from, g, i)
			}
		}
		return silu(sum)
	}
	unit := func(x []float64, scale float64) {
		sum := backend.DeltaEps
		for _, v := range x {
			sum += v * v
		}
		for i := range x {
			x[i] *= scale / math.Sqrt(sum)
		}
	}
	state := make([]float64, y.Size())
	for row := range rows {
		for j := range y.ValueHeads {
			g, part := y.KeyHead(j), j/n
			q, k := make([]float64, dk), make([]float64, dk)
			for i := range dk {
				q[i], k[i] = mixed(y.q, row, g, i, g*dk+i), mixed(y.k, row, g, i, y.Keys()+g*dk+i)
			}
			unit(q, 1/math.Sqrt(float64(dk)))
			unit(k, 1)
			beta := 1 / (1 + math.Exp(-at(y.gates, y.b, row, part, j%n)))
			dt := at(y.gates, y.a, row, part, j%n) + float64(y.timeStep[j])
			alpha := math.Exp(-math.Exp(float64(y.logDecay[j])) * math.Log1p(math.Exp(dt)))
			s, o, squares := state[j*dk*dv:], make([]float64, dv), 0.0
			for c := range dv {
				kv := 0.0
				for i := range dk {
					kv += alpha * s[i*dv+c] * k[i]
				}
				delta := beta * (mixed(y.v, row, part, j%n*dv+c, 2*y.Keys()+j*dv+c) - kv)
				for i := range dk {
					s[i*dv+c] = alpha*s[i*dv+c] + k[i]*delta
					o[c] += s[i*dv+c] * q[i]
				}
				squares += o[c] * o[c]
			}
			for c := range dv {
				all = append(all, o[c]/math.Sqrt(squares/float64(dv)+1e-6)*float64(y.normW[c])*silu(at(y.projected, y.z, row, part, j%n*dv+c)))
			}
		}
	}
	return all
}

// checkDeltaCases compares the rows that are kept with float64, and their bits with those of
// all of them in one forward.
func checkDeltaCases(d *device, cases []deltaTestCase) error {
	for i, c := range cases {
		y := c.numbers(rand.New(rand.NewPCG(13, uint64(i))))
		err := withBed(d, func(b *bed) error {
			got, err := y.run(b, c.cuts, elemF32)
			if err != nil {
				return err
			}
			if err := vectors.Near(got, y.want, 3e-6); err != nil {
				return err
			}
			rows := len(y.want) / y.Values()
			one, err := y.run(b, []deltaCut{{rows, rows, false}}, elemF32)
			if err != nil {
				return err
			}
			if err := vectors.Equal(got, one); err != nil {
				return fmt.Errorf("against one forward: %w", err)
			}
			half, err := y.run(b, c.cuts[:1], elemBF16)
			if err != nil {
				return err
			}
			return vectors.Equal(half, rounded(one[:len(half)], elemBF16))
		})
		if err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

// run runs forwards, and gives the rows that are kept. Rows that are taken back are others
// than those that follow.
func (y *deltaNumbers) run(b *bed, cuts []deltaCut, to elem) (all []float32, err error) {
	rows := len(y.projected) / y.wide / 2
	taps, decay, step, norm := b.floats(y.taps), b.floats(y.logDecay), b.floats(y.timeStep), b.floats(y.normW)
	var from stateView
	base, folded := 0, 0
	for _, cut := range cuts {
		pick := func(x []float32, width int) view {
			var some []float32
			for i := range cut.rows {
				at := base + i
				if i >= cut.kept {
					at = rows + (base+5*i)%rows // never one that is kept
				}
				some = append(some, x[at*width:(at+1)*width]...)
			}
			return b.floats(some)
		}
		wide, narrow := pick(y.projected, y.wide), pick(y.gates, y.narrow)
		d := delta{
			StateShape: y.StateShape, logRows: y.logRows, taps: taps, logDecay: decay, timeStep: step, norm: norm, eps: 1e-6,
			q: deltaInput{wide, y.q}, k: deltaInput{wide, y.k}, v: deltaInput{wide, y.v}, z: deltaInput{wide, y.z}, b: deltaInput{narrow, y.b}, a: deltaInput{narrow, y.a},
			from: from, base: base, folded: folded, settle: base + max(0, cut.rows-y.logRows), rows: cut.rows,
		}
		d.to = from
		if from.state.buffer == nil || cut.apart || d.settle > base {
			d.to = y.states(b)
		}
		n := cut.rows * y.Values()
		dst := b.empty(n+4, to)
		work := workAt(b.empty(deltaScratch(y.StateShape, cut.rows)/4, elemF32), y.StateShape, cut.rows)
		b.run(func(e encoder) { deltaNet(e, dst, work, d) })
		if err := untouched(dst.bytes()[n*to.size():][:4*to.size()]); err != nil {
			return nil, err
		}
		all = append(all, b.read(dst, cut.kept*y.Values())...)
		from, folded, base = d.to, d.settle, base+cut.kept
		if err := y.untouchedPast(from); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// states are memory for a layer's, one part a buffer, each with something behind it.
func (y *deltaNumbers) states(b *bed) stateView {
	part := func(n int) view { return b.empty(n+4, elemF32) }
	return stateView{
		state: part(y.Size()), keys: part(y.logRows * y.Keys()), deltas: part(y.logRows * y.Values()),
		decays: part(y.logRows * y.ValueHeads), raw: part(y.RawRows(y.logRows) * y.Channels()),
	}
}

// untouchedPast checks that nothing was written behind states.
func (y *deltaNumbers) untouchedPast(s stateView) error {
	for _, p := range []struct {
		view
		n int
	}{{s.state, y.Size()}, {s.keys, y.logRows * y.Keys()}, {s.deltas, y.logRows * y.Values()}, {s.decays, y.logRows * y.ValueHeads}, {s.raw, y.RawRows(y.logRows) * y.Channels()}} {
		if err := untouched(p.bytes()[4*p.n:][:16]); err != nil {
			return err
		}
	}
	return nil
}
