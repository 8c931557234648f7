package quant

import (
	"encoding/binary"
	"fmt"

	"windrow/backend"
)

// Layout is how a Grouped weight lies in its checkpoint.
type Layout uint8

// The layouts of checkpoints. Words are little-endian and of 32 bits, with whole
// numbers of 4 or 8 bits, n = 32/bits to a word, low bits first.
const (
	// LayoutAWQ is AutoAWQ's "gemm": words [in, out/n] and zeros [groups, out/n]
	// lie along the outputs, which a word holds in the order 0, 2, 4, 6, 1, 3, 5,
	// 7; scales are [groups, out].
	LayoutAWQ Layout = iota + 1
	// LayoutGPTQ is AutoGPTQ's: words [in/n, out] lie along the inputs, zeros
	// [groups, out/n] along the outputs, both in order; scales are [groups, out].
	LayoutGPTQ
	// LayoutRows is the one of compressed-tensors: words [out, in/n] lie along the
	// inputs, zeros [out/n, groups] along the outputs; scales are [out, groups].
	LayoutRows
)

// GroupedUnit is how many outputs of a Grouped weight are converted together:
// a multiple of what a word of zeros holds.
const GroupedUnit = 8

// groupedInputs is how many inputs are converted together: a block of GGUF's.
const groupedInputs = 32

// Grouped is a weight [Out, In] of whole numbers in groups along the inputs, as
// checkpoints for the engines of GPUs hold it. A weight is (q − zero)·scale.
type Grouped struct {
	Layout Layout
	Bits   int // 4 or 8
	// Out is a multiple of GroupedUnit, In of Group, and Group of 32.
	Out, In, Group int
	// Numbers and Zeros are words; without Zeros each zero is 1 << (Bits-1).
	Numbers, Zeros []byte
	Scales         []byte // f16, or bf16 where ScalesBF16 is set
	ScalesBF16     bool
	// ZeroPlus is added to each stored zero: 1 in the first version of GPTQ.
	ZeroPlus int
	// Symmetric says that each zero is 1 << (Bits-1), which Convert makes sure of.
	Symmetric bool
}

// middle is the zero of symmetric weights.
func (g *Grouped) middle() int { return 1 << (g.Bits - 1) }

// Target is the type, and of affine types the group, that holds exactly the
// same weights.
//
// Symmetric numbers with f16 scales are GGUF's blocks, whose scale is one:
// Q4_0 and Q8_0. With bf16 scales they are affine groups, whose bias is −8 or
// −128 scales and as exact. Numbers of 4 bits with zeros of their own are Q8_0:
// q − zero is −15 to 15. Those of 8 bits fit no type.
func (g *Grouped) Target() (dt backend.DType, group int, err error) {
	switch {
	case !g.Symmetric && g.Bits == 8:
		return 0, 0, fmt.Errorf("8 bits with zero points")
	case !g.Symmetric:
		return backend.Q8_0, 0, nil
	case !g.ScalesBF16 && g.Bits == 8:
		return backend.Q8_0, 0, nil
	case !g.ScalesBF16:
		return backend.Q4_0, 0, nil
	}
	dt, group = backend.Affine4, 32
	if g.Bits == 8 {
		dt = backend.Affine8
	}
	for group < 128 && g.Group%(2*group) == 0 {
		group *= 2
	}
	return dt, group, nil
}

// numbers are 32 whole numbers of one output, a byte each, 8 to an element, the
// first one lowest.
type numbers [groupedInputs / 8]uint64

// Each byte 1, each low half, and each sign.
const (
	eachByte   = 0x0101010101010101
	eachNibble = 0x0f0f0f0f0f0f0f0f
	eachSign   = 0x8080808080808080
)

// Convert fills rows [o0, o1), multiples of GroupedUnit, of t, [Out, In] of the
// type and group of Target, with the same weights. It is an error where stored
// zeros or scales are none that t can hold.
func (g *Grouped) Convert(t *backend.Tensor, o0, o1 int) error {
	var q [GroupedUnit]numbers
	var zeros [GroupedUnit]int
	var scales [GroupedUnit]uint16
	for o := o0; o < o1; o += GroupedUnit {
		for at := 0; at < g.In; at += groupedInputs {
			if at%g.Group == 0 {
				if err := g.group(&zeros, &scales, t.DType, o, at/g.Group); err != nil {
					return err
				}
			}
			g.read(&q, o, at)
			for i := range q {
				g.write(t, o+i, at, &q[i], zeros[i], scales[i])
			}
		}
	}
	return nil
}

// group reads the zeros and the scales of a group of 8 outputs; the scales as t
// is to hold them.
func (g *Grouped) group(zeros *[GroupedUnit]int, scales *[GroupedUnit]uint16, dt backend.DType, o, group int) (err error) {
	for i := range GroupedUnit {
		if zeros[i], err = g.zero(o+i, group); err != nil {
			return err
		}
		scales[i] = g.scale(o+i, group)
		if !g.ScalesBF16 || dt.Affine() {
			continue
		}
		wide := BF16ToF32(scales[i])
		if scales[i] = F32ToF16(wide); F16ToF32(scales[i]) != wide {
			return fmt.Errorf("output %d, group %d: scale %g, want one that f16 can hold", o+i, group, wide)
		}
	}
	return nil
}

// read takes 32 numbers, from input at on, of each of 8 outputs.
func (g *Grouped) read(q *[GroupedUnit]numbers, o, at int) {
	n := 32 / g.Bits
	switch g.Layout {
	case LayoutAWQ:
		stride := 4 * (g.Out / n)
		src := g.Numbers[at*stride+4*(o/n):]
		for k := range len(numbers{}) {
			var rows [8]uint64
			for i := range rows {
				// The bytes of outputs 0, 4, 1, 5, and of 2, 6, 3, 7.
				w := uint64(binary.LittleEndian.Uint32(src[(8*k+i)*stride:]))
				rows[i] = (w | w<<28) & eachNibble
			}
			transposeBytes(&rows)
			for i, j := range awqByte {
				q[j][k] = rows[i]
			}
		}
	case LayoutGPTQ:
		for k := range len(numbers{}) {
			src := g.Numbers[4*((at+8*k)/n*g.Out+o):]
			for j := range q {
				w := uint64(binary.LittleEndian.Uint32(src[4*j:]))
				if g.Bits == 8 {
					q[j][k] = w | uint64(binary.LittleEndian.Uint32(src[4*(g.Out+j):]))<<32
				} else {
					q[j][k] = spreadNibbles(w)
				}
			}
		}
	case LayoutRows:
		for j := range q {
			src := g.Numbers[((o+j)*g.In+at)*g.Bits/8:]
			for k := range q[j] {
				if g.Bits == 8 {
					q[j][k] = binary.LittleEndian.Uint64(src[8*k:])
				} else {
					q[j][k] = spreadNibbles(uint64(binary.LittleEndian.Uint32(src[4*k:])))
				}
			}
		}
	}
}

// awqByte is whose output's number each byte is, of a word's low halves and then
// of its high halves; awqShift is where a word holds the number of each output.
var (
	awqByte  = [8]int{0, 4, 1, 5, 2, 6, 3, 7}
	awqShift = [8]int{0, 16, 4, 20, 8, 24, 12, 28}
)

// spreadNibbles makes the 8 halves of 4 bytes bytes.
func spreadNibbles(w uint64) uint64 {
	w = (w | w<<16) & 0x0000ffff0000ffff
	w = (w | w<<8) & 0x00ff00ff00ff00ff
	return (w | w<<4) & eachNibble
}

// joinNibbles is the opposite: the low halves of 8 bytes in 4.
func joinNibbles(x uint64) uint32 {
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}

// transposeBytes swaps rows and columns of 8 × 8 bytes.
func transposeBytes(x *[8]uint64) {
	for i := range 4 {
		a, b := x[i], x[i+4]
		x[i], x[i+4] = a&0xffffffff|b<<32, a>>32|b&^0xffffffff
	}
	for _, i := range [4]int{0, 1, 4, 5} {
		a, b := x[i], x[i+2]
		x[i], x[i+2] = a&0x0000ffff0000ffff|b&0x0000ffff0000ffff<<16, a>>16&0x0000ffff0000ffff|b&^0x0000ffff0000ffff
	}
	for i := 0; i < 8; i += 2 {
		a, b := x[i], x[i+1]
		x[i], x[i+1] = a&0x00ff00ff00ff00ff|b&0x00ff00ff00ff00ff<<8, a>>8&0x00ff00ff00ff00ff|b&^0x00ff00ff00ff00ff
	}
}

// zero is that of a group of output o.
func (g *Grouped) zero(o, group int) (int, error) {
	if g.Zeros == nil {
		return g.middle(), nil
	}
	n := 32 / g.Bits
	at, shift := group*(g.Out/n)+o/n, o%n*g.Bits
	switch g.Layout {
	case LayoutAWQ:
		shift = awqShift[o%n]
	case LayoutRows:
		at = o/n*(g.In/g.Group) + group
	}
	top := 1<<g.Bits - 1
	stored := int(binary.LittleEndian.Uint32(g.Zeros[4*at:])) >> shift & top
	switch zero := stored + g.ZeroPlus; {
	case g.Symmetric && zero != g.middle():
		return 0, fmt.Errorf("output %d, group %d: zero %d, want %d: the config says that weights are symmetric", o, group, zero, g.middle())
	case zero > top:
		return 0, fmt.Errorf("output %d, group %d: stored zero %d, want at most %d: readers disagree whether %d+1 is %d or 0", o, group, stored, top-1, stored, zero)
	default:
		return zero, nil
	}
}

// scale is the bits of a group's scale.
func (g *Grouped) scale(o, group int) uint16 {
	at := group*g.Out + o
	if g.Layout == LayoutRows {
		at = o*(g.In/g.Group) + group
	}
	return binary.LittleEndian.Uint16(g.Scales[2*at:])
}

// write puts 32 numbers of output o, from input at on, into t.
func (g *Grouped) write(t *backend.Tensor, o, at int, q *numbers, zero int, scale uint16) {
	if t.DType.Affine() {
		g.writeAffine(t, o, at, q, scale)
		return
	}
	block := t.DType.BlockBytes()
	dst := t.Data[(o*g.In+at)/groupedInputs*block:][:block]
	binary.LittleEndian.PutUint16(dst, scale)
	dst = dst[2:]
	switch {
	case t.DType == backend.Q4_0:
		binary.LittleEndian.PutUint64(dst, q[0]|q[2]<<4)
		binary.LittleEndian.PutUint64(dst[8:], q[1]|q[3]<<4)
	case g.Bits == 8: // less 128
		for k, x := range q {
			binary.LittleEndian.PutUint64(dst[8*k:], x^eachSign)
		}
	default: // with the sign set no byte borrows from the next one
		for k, x := range q {
			binary.LittleEndian.PutUint64(dst[8*k:], ((x|eachSign)-uint64(zero)*eachByte)^eachSign)
		}
	}
}

// writeAffine is write for symmetric numbers with scales in bf16.
func (g *Grouped) writeAffine(t *backend.Tensor, o, at int, q *numbers, scale uint16) {
	if at%t.Group == 0 {
		to := 2 * ((o*g.In + at) / t.Group)
		binary.LittleEndian.PutUint16(t.Scales[to:], scale)
		binary.LittleEndian.PutUint16(t.Biases[to:], F32ToBF16(-float32(g.middle())*BF16ToF32(scale)))
	}
	dst := t.Data[(o*g.In+at)*g.Bits/8:]
	for k, x := range q {
		if g.Bits == 8 {
			binary.LittleEndian.PutUint64(dst[8*k:], x)
		} else {
			binary.LittleEndian.PutUint32(dst[4*k:], joinNibbles(x))
		}
	}
}
