package launch

import (
	"bytes"
	"errors"
	"strings"
)

// fewGatedRows are the rows up to which gate and up of a mixture go through
// kernels/experts_few.cuh.
const fewGatedRows = 16

const (
	fewWarps  = 24                        // of a block: as many as decode what an H200 reads
	fewSums   = fewWarps * 2 * 8 * 16 * 4 // bytes of gate's and up's
	oneChunk  = 2                         // granules of a copy of one row's
	downChunk = 2                         // granules of a copy of few rows' down, at most
	downRing  = 2                         // such copies on their way in a warp
	gatedFew  = 2                         // stages of a ring of gate and up, at most, as measured: docs/adr/0049-rings-are-short.md
)

// fewShape is how a launch of kernels/experts_few.cuh is cut: the depth of its rings, and
// bytes of shared memory.
type fewShape struct{ stages, shared int }

// fewGatedShape is how gate and up of a pass go through kernels/experts_few.cuh; ok tells
// whether they do, and beside it is to be room for so many bytes.
func (d *Device) fewGatedShape(p *expertsPass, f format, beside int) (s fewShape, ok bool) {
	in := p.Gate.Of.In
	if !f.nibbles() || in%8 != 0 || p.bucket > fewGatedRows || !d.takesTiled() {
		return s, false
	}
	line := Ceil(in, f.inputs)*f.inputs*2 + 16
	fixed := fewSums + p.bucket*line + 16*(p.Gate.Count+p.Gate.More) + 16*p.slots + 16*Ceil(p.bucket*p.each, 4) + 8 + beside
	stage := fewWarps * (2*f.granule + 8)
	s.stages = min(gatedFew, (d.Info.SharedPerBlock-reservedShared-fixed)/stage)
	s.shared = s.stages*stage + fixed
	return s, s.stages >= 2
}

// fewGated makes silu(gate·x) ⊙ up·x of few rows, bf16, by a block a multiprocessor.
func (d *Device) fewGated(p *expertsPass, f format, parts int, s fewShape) {
	w, k := p.Gate.Of, f.fewKernel("gated")
	k.shared = s.shared
	d.launch(k, dim{x: d.Info.SMs}, 32*fewWarps,
		p.Gate.address(0), p.Up.address(0), uint64(p.x16), uint64(p.at(p.inner16)), uint64(p.tables), uint64(p.pairs), uint64(p.step),
		uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(s.stages), uint64(parts), uint64(p.each),
		uint64(p.Gate.Count+p.Gate.More), uint64(p.bucket), uint64(p.slots))
}

// wholeShape is how a launch of all of a mixture's few rows is cut, blocks that need what the others
// make: of down the granules of a copy.
type wholeShape struct {
	fewShape
	blocks, chunk int
	apart         bool // what down makes has room beside sums of gate and up
}

// fewWholeShape is how gate and up, down and the sum of a pass are one launch of
// kernels/experts_few.cuh; ok tells whether they are.
func (d *Device) fewWholeShape(p *expertsPass) (s wholeShape, ok bool) {
	if d.Tuning.expertsApart || !p.few || p.bucket < 2 || p.logits != 0 || !p.Gate.Of.Fast() || !p.Down.Of.Fast() || p.joinParts() == 0 {
		return s, false
	}
	f, pairs, parts := p.Gate.Of.format(), p.bucket*p.each, p.joinParts()
	made := 4 * 16 * pairs * parts // where sums of gate and up were
	if p.Down.Of.format() != f || !d.copiesExperts(f, p.Down.Of.In) || made > fewSums {
		return s, false
	}
	// A ring of down, of two copies, lies where a warp's of gate and up was. A copy is of what a warp has of a slot,
	// if it is little.
	s.chunk = min(downChunk, Ceil(Ceil(p.Down.Of.In, f.inputs), parts))
	lists := 8*(p.Down.Count+p.Down.More) + 4*(pairs+1) + 8*(1+fewWarps*downRing) + 8 + 16
	if !d.Tuning.expertsTight {
		s.fewShape, s.apart = d.fewGatedShape(p, f, lists+made)
	}
	if !s.apart {
		if s.fewShape, ok = d.fewGatedShape(p, f, lists); !ok {
			return s, false
		}
	}
	// One less than there is room for: they wait for each other, and where the experts are chosen one would
	// begin when all others are ready.
	s.blocks = max(1, d.Info.SMs-1)
	if n := d.activeClusters(s.kernel(f), 1, 32*fewWarps); n > 0 {
		s.blocks = min(n, s.blocks)
	}
	return s, true
}

func (s wholeShape) kernel(f format) kernel {
	k := f.fewKernel("whole")
	k.shared = s.shared
	return k
}

// flowHead is bytes before the two places of what gate and up make.
const flowHead = 16

// flowPlace is the bytes of such a place: rows of all pairs that few rows of a mixture may have.
func (e *Experts) flowPlace() int { return aligned(fewGatedRows * (e.Chosen + 1) * e.Down.Of.In * 2) }

// growFlow makes room for it: the head is zero, and the places have nothing.
func (d *Device) growFlow(e *Experts) (changed bool, err error) {
	r := &d.mixtures.flow
	if changed, err = d.grow(r, flowHead+2*e.flowPlace()); changed && err == nil {
		data := bytes.Repeat([]byte{0xff}, r.size)
		clear(data[:flowHead])
		err = d.Context.Upload(r.data, data)
	}
	return changed, err
}

// fewWhole adds to dst what the experts make of few rows.
func (d *Device) fewWhole(p *expertsPass, s wholeShape) {
	place := (d.mixtures.flow.size - flowHead) / 2
	if d.err == nil && place < p.flowPlace() {
		d.err = errors.New("cuda: no room was made for what blocks of experts make for each other")
	}
	w, f := p.Gate.Of, p.Gate.Of.format()
	d.launch(s.kernel(f), dim{x: s.blocks}, 32*fewWarps,
		p.Gate.address(0), p.Up.address(0), p.Down.address(0), uint64(p.x16), uint64(p.dst), uint64(p.tables), uint64(p.pairs),
		uint64(w.In), uint64(w.Out), uint64(p.Down.Of.Out), uint64(f.granule), uint64(f.shift), uint64(s.stages), uint64(gatedParts(f, w.In)),
		uint64(p.joinParts()), uint64(p.shared), uint64(p.shares), uint64(p.routing), uint64(p.Chosen), uint64(p.each), uint64(p.step),
		uint64(p.bucket), uint64(p.slots), uint64(s.chunk), flag(s.apart), uint64(p.Gate.Count+p.Gate.More), uint64(d.mixtures.flow.data), uint64(place/4))
}

// copiesExperts reports whether gate and up of the only row, and down and the sum of few rows, of so many
// inputs, go through kernels/experts_few.cuh.
func (d *Device) copiesExperts(f format, in int) bool {
	return f.nibbles() && in%f.inputs == 0 && d.takesTiled()
}

// fewJoinStage is the bytes of a stage of down: a granule, and lines of rows.
func (f format) fewJoinStage(held int) int { return f.granule + held*(2*f.inputs+16) }

// fewKernel is one of kernels/experts_few.cuh.
func (f format) fewKernel(name string) kernel {
	suffix := f.file[len("stream"):]
	return kernel{file: "experts_few" + suffix + "_hopper", name: "experts_few_" + name + suffix}
}

// oneKernel is one of them that are of the only row.
func (f format) oneKernel(name string) kernel {
	k := f.fewKernel(name)
	k.name = strings.Replace(k.name, "experts_few_", "experts_one_", 1)
	return k
}
