package metal

import (
	"encoding/binary"
	"math"

	"windrow/metal/driver"
)

// expertWeights are the weights of a dispatch for experts: of one format, and all in the
// same buffers. Where both are set they are gates and ups.
type expertWeights struct {
	weight                   // the first one's format and shape; its views are whole buffers
	second     weightBuffers // of ups, where gated
	gated      bool
	places     view // u64 [experts, placeWords] of experts.h.metal
	experts    int  // that it has, of all
	allExperts int
}

// weightBuffers are what the parts of a weight lie in, from their beginnings on.
type weightBuffers struct{ data, scales, biases view }

// placeWords is the words of an expert's place.
const placeWords = 6

// nowhere is the place of an expert that another dispatch has.
const nowhere = math.MaxUint64

// expertFormat tells the dispatches of experts apart.
type expertFormat struct {
	dtype, group int
	buffers      [placeWords]*driver.Buffer
}

// expertGroup is a dispatch's weights before its places are on the device.
type expertGroup struct {
	expertWeights
	words []byte // of places
}

// groupExperts puts the experts of a projection in as few dispatches as there are formats
// and buffers: a layer whose tensors lie in one file has one. seconds are ups, for gates,
// or nil.
func groupExperts(firsts, seconds []weight) (list []expertGroup) {
	var order []expertFormat
	members := map[expertFormat][]int{}
	for i, w := range firsts {
		second := w
		if seconds != nil {
			second = seconds[i]
		}
		f := expertFormat{int(w.dtype), w.group, [placeWords]*driver.Buffer{w.data.buffer, second.data.buffer, w.scales.buffer, second.scales.buffer, w.biases.buffer, second.biases.buffer}}
		if members[f] == nil {
			order = append(order, f)
		}
		members[f] = append(members[f], i)
	}
	for _, f := range order {
		words := make([]uint64, placeWords*len(firsts))
		for i := range words {
			words[i] = nowhere
		}
		for _, i := range members[f] {
			place, w := words[placeWords*i:], firsts[i]
			second := w
			if seconds != nil {
				second = seconds[i]
			}
			for j, v := range []view{w.data, second.data, w.scales, second.scales, w.biases, second.biases} {
				place[j] = uint64(v.offset)
				if j >= 2 {
					place[j] /= 2 // bf16
				}
			}
		}
		data := make([]byte, 0, 8*len(words))
		for _, x := range words {
			data = binary.LittleEndian.AppendUint64(data, x)
		}
		one := members[f][0]
		y := expertWeights{weight: firsts[one], gated: seconds != nil, experts: len(members[f]), allExperts: len(firsts)}
		y.data.offset, y.scales.offset, y.biases.offset = 0, 0, 0
		if y.gated {
			s := seconds[one]
			y.second = weightBuffers{s.data, s.scales, s.biases}
			y.second.data.offset, y.second.scales.offset, y.second.biases.offset = 0, 0, 0
		} else {
			y.second = weightBuffers{y.data, y.scales, y.biases}
		}
		list = append(list, expertGroup{y, data})
	}
	return list
}

// expertParams is experts.h.metal's ExpertParams.
type expertParams struct{ per uint32 }

// expertTile is that of a simdgroup.
var expertTile = projectTile{outputs: 32, rows: 8}

// projectExperts sets rows of dst, one for each pair of sortPairs, to x by the weights of
// the pair's expert: x·wᵀ in f32, or silu(x·gateᵀ) ⊙ (x·upᵀ) in f32 or bf16. x, f32 or
// bf16, has a row for per pairs. A row's bits depend on x and its expert alone. What
// project says of the places of x and of weights holds here too.
func projectExperts(e encoder, dst, x, slots, list view, rows, chosen, per int, w expertWeights) {
	p := projection{dst: []view{dst}, x: x, rows: rows, w: []linear{{weight: w.weight}}, gated: w.gated}
	kernel := "experts_"
	if p.ragged() {
		kernel += "ragged_"
	}
	v, blocks := p.params(expertTile.outputs)
	one := expertParams{uint32(per)}
	strip := stripInputs(w.dtype)
	simdgroups := min(splits, (w.in+strip-1)/strip)
	data := func(v view) view {
		if w.dtype.Affine() {
			v.elem = elemU32 // the alignment that is checked
		}
		return v
	}
	d := dispatch{
		file: "experts_" + w.dtype.String(), kernel: kernel + w.dtype.String() + "_" + x.elem.name(),
		args: []arg{
			bind(x), bind(data(w.data)), bind(data(w.second.data)), bind(w.scales), bind(w.second.scales), bind(w.biases), bind(w.second.biases),
			bind(w.places), bind(slots), bind(list), bind(dst), params(&v), params(&one),
		},
		threadgroup: simdgroups * expertTile.bytes(),
		// Blocks come first: those that share rows run side by side.
		groups: size3{blocks, slotsOf(rows, w.allExperts, chosen), 1}, threads: size3{32 * simdgroups, 1, 1},
	}
	matrices := int64(1 + flag(w.gated))
	pairs := int64(rows) * int64(chosen) * int64(w.experts) / int64(w.allExperts)
	read := distinctExperts(rows, w.allExperts, chosen) * float64(w.experts) / float64(w.allExperts)
	d.cost = cost{
		read:    int64(read*float64(matrices*w.bytes())) + pairs/int64(per)*int64(w.in)*int64(x.elem.size()),
		written: pairs * int64(w.out) * int64(dst.elem.size()),
		flops:   2 * matrices * pairs * int64(w.in) * int64(w.out),
	}
	e.dispatch(d)
}
