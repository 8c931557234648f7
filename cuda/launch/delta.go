package launch

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
)

// Kernels of delta.cu, of which that of the recurrence is of a length of keys, and of
// delta_few_hopper.cu.
var (
	kernelDeltaNorm = kernel{file: "delta", name: "delta_norm"}
	kernelDeltaFew  = kernel{file: "delta_few_hopper", name: "delta_few_c8", shared: 53024}
)

// Sizes that delta.cu has, too.
const (
	deltaWarps    = 8   // of a block that takes a head of a row a warp
	deltaColumns  = 16  // of a block of the recurrence, or twice as many
	deltaResident = 3   // of these, as many as a multiprocessor has room for
	deltaMostDim  = 128 // of a head
	deltaRun      = 8   // rows that a warp of delta_rows takes in turn, where there are many
)

// And delta_few_hopper.cu.
const (
	deltaFewRows    = 32
	deltaFewPays    = 16  // rows up to which it is faster than delta.cu, on an H200
	deltaFewDim     = 128 // of keys and values
	deltaFewConv    = 4
	deltaFewBlocks  = 8 // of a value head
	deltaFewThreads = 160
)

// DeltaTakes says what of a shape the kernels do not take; nil: they take it.
func DeltaTakes(s backend.StateShape) error {
	if s.KeyDim > deltaMostDim || s.ValueDim > deltaMostDim {
		return fmt.Errorf("states of heads of %d by %d: at most %d by %d", s.KeyDim, s.ValueDim, deltaMostDim, deltaMostDim)
	}
	return nil
}

// DeltaShape is a shape of states as kernels see it.
type DeltaShape struct{ backend.StateShape }

// lines is how many elements a key or query has, zeros at its end.
func (s DeltaShape) lines() int { return max(32, PowerOfTwo(s.KeyDim)) }

// keys and values are the elements of a row of keys and of values.
func (s DeltaShape) keys() int   { return s.KeyHeads * s.lines() }
func (s DeltaShape) values() int { return s.ValueHeads * s.columns() }

// columns are a value head's, with those that pad its blocks.
func (s DeltaShape) columns() int { return Ceil(s.ValueDim, deltaColumns) * deltaColumns }

// raw is the elements of a row before the convolution.
func (s DeltaShape) raw() int { return Ceil(s.Channels(), 4) * 4 }

// Size is the elements of a layer's states with a log of n rows: fixed + n·byLog. Where
// heads are of 32, 64 or 128 elements by a multiple of 16, and channels a multiple of 4,
// that is what backend.StateShape counts, and 3 elements more for each value head and
// row of the log.
func (s DeltaShape) Size() (fixed, byLog int) {
	return s.values()*s.lines() + (s.Conv-1)*s.raw(), s.keys() + s.values() + 4*s.ValueHeads + s.raw()
}

// DeltaShare is what one of several devices has of a layer's states: the key heads of an
// equal part, in the devices' order, with their value heads. Alone it has all of them.
type DeltaShare struct {
	DeltaShape
	Rank, Devices int
}

// valueHead is the number among all value heads of one that the device has.
func (s DeltaShare) valueHead(head int) int {
	run := s.ValueHeads // a key head's follow each other
	if s.Tiled {
		run = s.KeyHeads
	}
	return (head/run*s.Devices+s.Rank)*run + head%run
}

// Carry copies a layer's states with a log of some rows, as kernels have them, to where
// the exported ones of all devices have them (backend.Layout.ExportedStates), or back. What
// a place does not cover stays as it is.
func (s DeltaShare) Carry(own, exported []byte, log int, p backend.Place, in bool) {
	run := func(mine, theirs, n int) {
		to, from := exported[4*theirs:4*(theirs+n)], own[4*mine:4*(mine+n)]
		if in {
			to, from = from, to
		}
		copy(to, from)
	}
	le, columns, size := binary.LittleEndian, s.values()/s.ValueHeads, s.KeyDim*s.ValueDim
	for head := range s.ValueHeads {
		theirs := s.valueHead(head) * size
		for line := range s.KeyDim { // theirs by column
			mine := head*columns*s.lines() + line
			for column := range s.ValueDim {
				x, y := own[4*(mine+column*s.lines()):], exported[4*(theirs+line*s.ValueDim+column):]
				if in {
					x, y = y, x
				}
				le.PutUint32(y, le.Uint32(x))
			}
		}
	}
	at := s.Devices * s.ValueHeads * size // behind all matrices
	keys := s.values() * s.lines()
	deltas := keys + log*s.keys()
	gates := deltas + log*s.values()
	raw := gates + log*4*s.ValueHeads
	// perKey and perValue bring what heads have: here at mine, mine + stride, ….
	perKey := func(mine, stride int) {
		for head := range s.KeyHeads {
			run(mine+head*stride, at+(s.Rank*s.KeyHeads+head)*s.KeyDim, s.KeyDim)
		}
		at += s.Devices * s.Keys()
	}
	perValue := func(mine, stride, n int) {
		for head := range s.ValueHeads {
			run(mine+head*stride, at+s.valueHead(head)*n, n)
		}
		at += s.Devices * s.ValueHeads * n
	}
	for index := p.From; index < p.End; index++ {
		row := index % log
		perKey(keys+row*s.keys(), s.lines())
		perValue(deltas+row*s.values(), columns, s.ValueDim)
		perValue(gates+row*4*s.ValueHeads, 4, 1) // of a row's gates what folds it in, its decay
	}
	for index := s.RawFrom(p.From); index < p.End; index++ {
		mine := raw + index%(log+s.Conv-1)*s.raw()
		perKey(mine, s.KeyDim)          // queries
		perKey(mine+s.Keys(), s.KeyDim) // keys
		perValue(mine+2*s.Keys(), s.ValueDim, s.ValueDim)
	}
}

// Room is the elements a row that the kernels hand on: queries, keys, values, gates, and
// what the recurrence makes.
func (s DeltaShape) Room() int { return 2*s.keys() + 2*s.values() + 4*s.ValueHeads }

// DeltaRaw is where a projection's part of key head g begins: X + 4·(First + g·Stride),
// in rows of that width, in f32.
type DeltaRaw struct {
	X             driver.Ptr
	Width         int
	First, Stride int
}

func (r DeltaRaw) args() []uint64 {
	return []uint64{uint64(r.X + driver.Ptr(4*r.First)), uint64(r.Width), uint64(r.Stride)}
}

// Delta is a layer of gated DeltaNet on the device.
type Delta struct {
	DeltaShape
	Q, K, V, Z, B, A               DeltaRaw
	Taps, LogDecay, TimeStep, Norm driver.Ptr
	Eps                            float32
	Layer                          int // among those with a state
	Fixed, ByLog                   int // of the layers before, summed up
	Room                           driver.Ptr
}

// deltaStep is a layer's launches over a step: where they hand on what they make.
type deltaStep struct {
	*Delta
	q, k, v, gates, o uint64
	place             []uint64
	bucket, spans     int
	out32, out16      driver.Ptr
}

func (x *Delta) over(out32, out16, step driver.Ptr, bucket, spans int) deltaStep {
	at := x.Room
	take := func(n int) uint64 {
		here := at
		at += driver.Ptr(4 * bucket * n)
		return uint64(here)
	}
	return deltaStep{
		Delta: x, q: take(x.keys()), k: take(x.keys()), v: take(x.values()), gates: take(4 * x.ValueHeads), o: take(x.values()),
		place:  []uint64{uint64(step), uint64(x.Fixed), uint64(x.ByLog), uint64(x.KeyHeads), uint64(x.ValueHeads)},
		bucket: bucket, spans: spans, out32: out32, out16: out16,
	}
}

// Delta sets the step's rows of out32 and out16 (0: not wanted), [bucket, values] in f32
// and bf16, as backend.Delta says, over the states that the step block names. Room is
// of bucket · DeltaShape.Room elements. A row's bits depend on it and those before alone.
func (d *Device) Delta(out32, out16 driver.Ptr, x *Delta, step driver.Ptr, bucket, spans int) {
	y := x.over(out32, out16, step, bucket, spans)
	if d.deltaFewTakes(x, bucket) {
		d.deltaFew(y)
		return
	}
	d.deltaRows(y)
	d.deltaColumns(y)
	d.deltaNorm(y)
}

// deltaFewTakes reports whether a layer's rows go through one launch: there are few, heads are as all
// published models have them, and vectors of four lie whole.
func (d *Device) deltaFewTakes(x *Delta, bucket int) bool {
	fits := x.KeyDim == deltaFewDim && x.ValueDim == deltaFewDim && x.Conv == deltaFewConv
	if !fits || bucket > cmp.Or(d.Tuning.deltaFew, deltaFewPays) || !d.takesTiled() {
		return false
	}
	for _, r := range []DeltaRaw{x.Q, x.K, x.V, x.Z} {
		if r.X%16 != 0 || r.First%4 != 0 || r.Stride%4 != 0 || r.Width%4 != 0 {
			return false
		}
	}
	return x.Taps%16 == 0 && x.Norm%16 == 0
}

// PrepareDelta makes room for what the clusters of a layer's few rows count; changed reports
// whether addresses changed.
func (d *Device) PrepareDelta(x *Delta, bucket int) (changed bool, err error) {
	if !d.deltaFewTakes(x, bucket) {
		return false, nil
	}
	return d.growCounters(&d.folding, 4*deltaFewRows*x.KeyHeads*deltaFewBlocks)
}

func (d *Device) freeDelta() {
	d.Context.Free(d.folding.data)
	d.folding = room{}
}

// deltaFew makes all of a layer of few rows. PrepareDelta has made room.
func (d *Device) deltaFew(x deltaStep) {
	if d.err == nil && d.folding.size < 4*deltaFewRows*x.KeyHeads*deltaFewBlocks {
		d.err = fmt.Errorf("cuda: no room was made for few rows of %d key heads", x.KeyHeads)
	}
	args := []uint64{uint64(x.out32), uint64(x.out16)}
	for _, r := range []DeltaRaw{x.Q, x.K, x.V, x.Z, x.B, x.A} {
		args = append(args, r.args()...)
	}
	args = append(args, uint64(x.Taps), uint64(x.LogDecay), uint64(x.TimeStep), uint64(x.Norm), f32(x.Eps), x.place[0], uint64(x.Layer))
	args = append(append(args, x.place[1:]...), flag(x.Tiled), uint64(d.folding.data))
	d.launch(d.deltaFewKernel(x.ValueHeads*x.spans), dim{x: deltaFewBlocks * x.ValueHeads, y: x.spans}, deltaFewThreads, args...)
}

// deltaFewKernel is the kernel of so many clusters. It asks for more shared memory than it has use
// for, so that blocks do not crowd on some multiprocessors while others have none, where the driver
// says that all are at work at once even so.
func (d *Device) deltaFewKernel(clusters int) kernel {
	for each := d.each(deltaFewBlocks * clusters); each < 4; each++ { // blocks of a multiprocessor
		k := kernelDeltaFew
		k.shared = max(k.shared, d.sharedOf(each))
		if d.activeClusters(k, deltaFewBlocks, deltaFewThreads) >= clusters {
			return k
		}
	}
	return kernelDeltaFew
}

// deltaRows makes what rows need by themselves.
func (d *Device) deltaRows(x deltaStep) {
	run := 1
	switch {
	case x.bucket > 1024:
		run = 2 * deltaRun
	case x.bucket > 128:
		run = deltaRun
	}
	run = cmp.Or(d.Tuning.deltaRun, run)
	args := []uint64{x.q, x.k, x.v, x.gates}
	for _, r := range []DeltaRaw{x.Q, x.K, x.V, x.B, x.A} {
		args = append(args, r.args()...)
	}
	args = append(args, uint64(x.Taps), uint64(x.LogDecay), uint64(x.TimeStep))
	args = append(append(args, x.place...), uint64(x.KeyDim), uint64(x.ValueDim), uint64(x.Conv), uint64(x.lines()), uint64(run))
	heads := Ceil(x.bucket, run) * (2*x.KeyHeads + x.ValueHeads)
	k := kernel{file: "delta", name: "delta_rows_8"}
	if x.Conv == 4 {
		k.name = "delta_rows_4"
	}
	d.launch(k, dim{x: Ceil(heads, deltaWarps)}, deltaWarps*32, args...)
}

// deltaColumns is the recurrence, by blocks of 16 columns or of 32, whose warps have twice the columns each.
func (d *Device) deltaColumns(x deltaStep) {
	of, name, threads, rows := deltaColumns, fmt.Sprintf("delta_columns_%d", x.lines()), 64, 8*3
	if x.lines() == deltaMostDim { // 16 lanes a column
		threads, rows = 128, 16*2
		if d.deltaWide(x) {
			of, name = 2*of, name+"_wide"
		}
	}
	blocks, ring := x.values()/of, 4*rows*(2*x.lines()+of+4) // of kernels/delta.cu
	k := d.spread(kernel{file: "delta", name: name}, ring, blocks*x.spans, deltaResident)
	d.launch(k, dim{x: blocks, y: x.spans}, threads,
		x.o, x.q, x.k, x.v, x.gates, x.place[0], uint64(x.Layer), x.place[1], x.place[2], x.place[3], x.place[4], uint64(x.ValueDim), flag(x.Tiled))
}

// deltaWide reports whether columns go 32 a block. Of rows of a prompt one block of 16 a multiprocessor takes 300 cycles
// a row, two 440, three 550; one of 32 takes 390, two 600 (H200). No more than three are at work at once.
func (d *Device) deltaWide(x deltaStep) bool {
	if x.columns()%(2*deltaColumns) != 0 || d.Tuning.deltaWide == never {
		return false
	}
	each := d.each(x.values() / deltaColumns * x.spans)
	return d.Tuning.deltaWide == always || each == 2 || each > deltaResident
}

// deltaNorm norms and gates what the recurrence made, and logs rows.
func (d *Device) deltaNorm(x deltaStep) {
	args := append([]uint64{uint64(x.out32), uint64(x.out16), x.o}, x.Z.args()...)
	args = append(append(args, uint64(x.Norm), f32(x.Eps), x.k, x.gates), x.place...)
	d.launch(kernelDeltaNorm, dim{x: Ceil(x.bucket*x.ValueHeads, deltaWarps)}, deltaWarps*32, append(args, uint64(x.ValueDim), uint64(x.lines()))...)
}
