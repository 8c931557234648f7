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

// Convert fills rows [o0, o1), multiples of GroupedUnit, of t, [Out, In] of the
// type and group of Target, with the same weights. It is an error where stored
// zeros or scales are none that t can hold.
func (g *Grouped) Convert(t *backend.Tensor, o0, o1 int) error {
	var q [GroupedUnit][groupedInputs]byte
	for o := o0; o < o1; o += GroupedUnit {
		for at := 0; at < g.In; at += groupedInputs {
			g.read(&q, o, at)
			for i := range GroupedUnit {
				if err := g.write(t, o+i, at, &q[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// read takes 32 numbers, from input at on, of each of 8 outputs.
func (g *Grouped) read(q *[GroupedUnit][groupedInputs]byte, o, at int) {
	n := 32 / g.Bits
	switch g.Layout {
	case LayoutAWQ:
		stride := 4 * (g.Out / n)
		src := g.Numbers[at*stride+4*(o/n):]
		for i := range groupedInputs {
			w := binary.LittleEndian.Uint32(src[i*stride:])
			for j := range q {
				q[j][i] = byte(w >> awqShift[j] & 15)
			}
		}
	case LayoutGPTQ:
		for k := 0; k < groupedInputs; k += n {
			src := g.Numbers[4*((at+k)/n*g.Out+o):]
			for j := range q {
				unpackWord(q[j][k:k+n], binary.LittleEndian.Uint32(src[4*j:]), g.Bits)
			}
		}
	case LayoutRows:
		for j := range q {
			src := g.Numbers[((o+j)*g.In+at)*g.Bits/8:]
			for k := 0; k < groupedInputs; k += n {
				unpackWord(q[j][k:k+n], binary.LittleEndian.Uint32(src[k*g.Bits/8:]), g.Bits)
			}
		}
	}
}

// awqShift is where a word of AWQ's holds the number of each of its 8 outputs.
var awqShift = [8]int{0, 16, 4, 20, 8, 24, 12, 28}

func unpackWord(dst []byte, w uint32, bits int) {
	if bits == 8 {
		binary.LittleEndian.PutUint32(dst, w)
		return
	}
	for i := range dst {
		dst[i] = byte(w >> (4 * i) & 15)
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

// f16Scale is a group's scale in f16, where that is exact.
func (g *Grouped) f16Scale(o, group int) (uint16, error) {
	bits := g.scale(o, group)
	if !g.ScalesBF16 {
		return bits, nil
	}
	wide := BF16ToF32(bits)
	h := F32ToF16(wide)
	if F16ToF32(h) != wide {
		return 0, fmt.Errorf("output %d, group %d: scale %g, want one that f16 can hold", o, group, wide)
	}
	return h, nil
}

// write puts 32 numbers of output o, from input at on, into t.
func (g *Grouped) write(t *backend.Tensor, o, at int, q *[groupedInputs]byte) error {
	group := at / g.Group
	zero, err := g.zero(o, group)
	if err != nil {
		return err
	}
	if t.DType.Affine() {
		g.writeAffine(t, o, at, q)
		return nil
	}
	scale, err := g.f16Scale(o, group)
	if err != nil {
		return err
	}
	block := t.DType.BlockBytes()
	dst := t.Data[(o*g.In+at)/groupedInputs*block:][:block]
	binary.LittleEndian.PutUint16(dst, scale)
	dst = dst[2:]
	if t.DType == backend.Q4_0 {
		for i := range dst {
			dst[i] = q[i] | q[i+16]<<4
		}
		return nil
	}
	for i := range dst {
		dst[i] = q[i] - byte(zero)
	}
	return nil
}

// writeAffine is write for symmetric numbers with scales in bf16.
func (g *Grouped) writeAffine(t *backend.Tensor, o, at int, q *[groupedInputs]byte) {
	if at%t.Group == 0 {
		scale := g.scale(o, at/g.Group)
		to := 2 * (o*g.In + at) / t.Group
		binary.LittleEndian.PutUint16(t.Scales[to:], scale)
		binary.LittleEndian.PutUint16(t.Biases[to:], F32ToBF16(-float32(g.middle())*BF16ToF32(scale)))
	}
	dst := t.Data[(o*g.In+at)*g.Bits/8:][:groupedInputs*g.Bits/8]
	if g.Bits == 8 {
		copy(dst, q[:])
		return
	}
	for i := range dst {
		dst[i] = q[2*i] | q[2*i+1]<<4
	}
}
