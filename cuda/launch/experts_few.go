package launch

// fewGatedRows are the rows up to which gate and up of a mixture go through
// kernels/experts_few.cuh.
const fewGatedRows = 16

const fewWarps = 24 // of a block: as many as decode what an H200 reads

// fewShape is how a launch of kernels/experts_few.cuh is cut: the depth of its rings, and
// bytes of shared memory.
type fewShape struct{ stages, shared int }

// fewGatedShape is how gate and up of a pass go through kernels/experts_few.cuh; ok tells
// whether they do.
func (d *Device) fewGatedShape(p *expertsPass, f format, parts int) (s fewShape, ok bool) {
	const deepest = 7
	in := p.Gate.Of.In
	if !f.nibbles() || in%8 != 0 || p.bucket > fewGatedRows || !d.takesTiled() {
		return s, false
	}
	line := Ceil(in, f.inputs)*f.inputs*2 + 16
	fixed := fewWarps*2*8*16*4 + p.bucket*line + 16*(p.Gate.Count+p.Gate.More) + 16*p.slots + 16*Ceil(p.bucket*p.each, 4) + 8
	stage := fewWarps * (2*f.granule + 8)
	s.stages = min(deepest, (d.Info.SharedPerBlock-reservedShared-fixed)/stage)
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

// fewJoins reports whether down and the sum of few rows go through kernels/experts_few.cuh.
func (d *Device) fewJoins(f format, in int) bool {
	return f.nibbles() && in%f.inputs == 0 && d.takesTiled()
}

// fewKernel is one of kernels/experts_few.cuh.
func (f format) fewKernel(name string) kernel {
	suffix := f.file[len("stream"):]
	return kernel{file: "experts_few" + suffix + "_hopper", name: "experts_few_" + name + suffix}
}
