package kernels

import (
	"fmt"
	"strconv"
	"unsafe"

	"windrow/backend"
	"windrow/quant"
)

// quantFormat is what integer kernels know of a quantised weight: whole numbers
// in groups, each with a scale, and of some formats a bias. Activations are
// rounded to int8 by row and group, and the product of a group joins its output
// by
//
//	y += (sum · activation scale) · weight scale, then
//	y += (activation sum) · weight bias, where there is one,
//
// the last operation of each line a fused multiply-add, groups ascending. Sums
// over a group are exact, so every kernel of every instruction set gives the
// same bits, for any number of rows.
type quantFormat struct {
	format, kind int
	group, bits  int
	// zeroPoint is what makes signed numbers unsigned, for instructions that want
	// one factor unsigned; 0 for formats with a bias, whose numbers are.
	zeroPoint      int
	kernels, label string // the name of the kernels, and with the type and the group
	// unpacks marks types that the assembly does not decode: quant.Unpack makes
	// bytes of a block's rows, with their scales and biases in f32.
	unpacks, biased bool
}

// The formats that the assembly decodes; formatDirect are bytes.
const (
	formatDirect = iota
	formatAffine4
	formatQ8_0
	formatQ4_0
	formatQ4_K
	formatQ6_K
	formatQ5_K // by dot products alone: the matrix unit has no decoder for it
)

// The kinds of groups that the matrix unit's assembly multiplies: unsigned
// numbers with a bias, and signed ones without.
const (
	kindUnsigned128 = iota
	kindUnsigned64
	kindUnsigned32
	kindSigned32
	kindSigned16
	kindDecode // no multiplication: decode to bytes
)

// quantStep is the elements of a step, of which rows have whole numbers.
const quantStep = 128

// newQuantFormat is the format of t for kernels of that name; false where they
// have none.
func newQuantFormat(t *backend.Tensor, kernels string) (q quantFormat, ok bool) {
	in := t.Shape[len(t.Shape)-1]
	if in%quantStep != 0 || t.DType.RowBytes(in) > 1<<26 {
		return q, false
	}
	q.bits = t.DType.Bits()
	switch t.DType {
	case backend.Affine4:
		q.format, q.group = formatAffine4, t.Group
	case backend.Affine8:
		q.format, q.group = formatDirect, t.Group
	case backend.Q8_0:
		q.format, q.group, q.kind, q.zeroPoint = formatQ8_0, 32, kindSigned32, 128
	case backend.Q4_0:
		q.format, q.group, q.kind, q.zeroPoint = formatQ4_0, 32, kindSigned32, 8
	case backend.Q4_K:
		q.format, q.group, q.kind = formatQ4_K, 32, kindUnsigned32
	case backend.Q6_K:
		q.format, q.group, q.kind, q.zeroPoint = formatQ6_K, 16, kindSigned16, 32
	case backend.Q5_K:
		q.format, q.group, q.kind = formatQ5_K, 32, kindUnsigned32
	default:
		u, ok := quant.UnitsOf(t.DType)
		if !ok {
			return q, false
		}
		// Types of the same units share a packing.
		q.format, q.group, q.bits, q.zeroPoint, q.unpacks, q.biased = formatDirect, u.Group, u.Bits, int(u.Less), true, u.Bias
		q.kernels, q.label = kernels, fmt.Sprintf("%s-units-%d-%d", kernels, u.Group, u.Less)
		return q, true
	}
	q.kernels, q.label = kernels, kernels+"-"+t.DType.String()
	if t.DType.Affine() {
		switch t.Group {
		case 32:
			q.kind = kindUnsigned32
		case 64:
			q.kind = kindUnsigned64
		case 128:
			q.kind = kindUnsigned128
		default:
			return q, false
		}
		q.label += "-" + strconv.Itoa(q.group)
	}
	return q, true
}

// Arithmetic names the kernels, for people.
func (q quantFormat) Arithmetic() string { return q.kernels }

// Name is that of the packed form, which differs in groups and order.
func (q quantFormat) Name() string { return q.label }

func (q quantFormat) Takes(dt backend.DType, in int) bool { return dt.Quantized() && in%quantStep == 0 }

// Chunk is large enough that its start, streams that nothing has prefetched
// yet, costs little.
func (q quantFormat) Chunk(rows, in int) int {
	switch bytes := in * q.bits / 8; {
	case bytes > 4096:
		return 64
	case bytes > 1024:
		return 128
	}
	return 256
}

// bytes is how many bytes of a row n elements take, in whole blocks.
func (q quantFormat) bytes(n int) int {
	switch q.format {
	case formatAffine4:
		return n / 2
	case formatQ8_0:
		return n / 32 * 34
	case formatQ4_0:
		return n / 32 * 18
	case formatQ4_K:
		return n / 256 * 144
	case formatQ6_K:
		return n / 256 * 210
	case formatQ5_K:
		return n / 256 * 176
	}
	return n
}

// dotsOnly reports whether the format has no kernels but the dot products of a
// step that is decoded for all rows.
func (q quantFormat) dotsOnly() bool { return q.unpacks || q.format == formatQ5_K }

// rowStride is the bytes from row to row of what the assembly decodes. Unpacked
// rows lie a line apart from where they would share a set of the L1 cache.
func (q quantFormat) rowStride(w *Weight) int {
	if q.unpacks {
		return w.in + 64
	}
	return w.stride()
}

// unpack makes bytes of outs rows from o on, rowStride apart, and their scales and
// biases, [groups, lanes]; biases of types without them stay. Numbers are raised
// by raise. What belongs to lanes past outs is undefined.
func (q quantFormat) unpack(numbers []byte, scales, biases []float32, lanes int, w *Weight, o, outs int, raise byte) {
	from, to := w.stride(), q.rowStride(w)
	for i := range outs {
		row := w.data[(o+i)*from : (o+i+1)*from]
		quant.Unpack(w.dt, numbers[i*to:i*to+w.in], scales[i:], biases[i:], lanes, row, raise)
	}
}

// bytesOf is the int8 form of packed rows from row r on.
func bytesOf(p *Packed) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(&p.b16[0])), 2*len(p.b16))
}
