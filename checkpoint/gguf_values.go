package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The value types of GGUF metadata.
const (
	ggufUint8 = iota
	ggufInt8
	ggufUint16
	ggufInt16
	ggufUint32
	ggufInt32
	ggufFloat32
	ggufBool
	ggufString
	ggufArray
	ggufUint64
	ggufInt64
	ggufFloat64
)

// ggufReader walks over a GGUF file and keeps the first error. It never reads
// past the end, and allocates no more than about twice what is left of the
// file.
type ggufReader struct {
	data []byte
	at   int
	err  error
}

func (r *ggufReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// take returns the next n bytes; zeros after an error.
func (r *ggufReader) take(n int) []byte {
	if r.err == nil && n > len(r.data)-r.at {
		r.err = errors.New("gguf file ends early (truncated file?)")
	}
	if r.err != nil {
		return make([]byte, min(n, 8))
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *ggufReader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *ggufReader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// count reads how many things of at least size bytes follow.
func (r *ggufReader) count(what string, limit uint64, size int) int {
	n := r.u64()
	if r.err != nil {
		return 0
	}
	if n > limit {
		r.fail("gguf file of %d %s: want at most %d", n, what, limit)
		return 0
	}
	if n > uint64((len(r.data)-r.at)/size) {
		r.fail("gguf file of %d %s: only %d bytes follow (truncated file?)", n, what, len(r.data)-r.at)
		return 0
	}
	return int(n)
}

func (r *ggufReader) str() string {
	n := r.count("bytes of text", maxGGUFString, 1)
	if r.err != nil {
		return ""
	}
	return string(r.take(n))
}

func (r *ggufReader) field() (f GGUFField) {
	f.Key = r.str()
	kind := r.u32()
	if r.err != nil {
		return f
	}
	if kind != ggufArray {
		f.Value = r.scalar(kind)
		return f
	}
	kind = r.u32()
	switch kind {
	case ggufUint8:
		f.Value = ggufSlice(r, 1, func() uint8 { return r.take(1)[0] })
	case ggufInt8:
		f.Value = ggufSlice(r, 1, func() int8 { return int8(r.take(1)[0]) })
	case ggufUint16:
		f.Value = ggufSlice(r, 2, func() uint16 { return binary.LittleEndian.Uint16(r.take(2)) })
	case ggufInt16:
		f.Value = ggufSlice(r, 2, func() int16 { return int16(binary.LittleEndian.Uint16(r.take(2))) })
	case ggufUint32:
		f.Value = ggufSlice(r, 4, r.u32)
	case ggufInt32:
		f.Value = ggufSlice(r, 4, func() int32 { return int32(r.u32()) })
	case ggufFloat32:
		f.Value = ggufSlice(r, 4, func() float32 { return math.Float32frombits(r.u32()) })
	case ggufBool:
		f.Value = ggufSlice(r, 1, r.boolean)
	case ggufString:
		f.Value = ggufSlice(r, 8, r.str)
	case ggufUint64:
		f.Value = ggufSlice(r, 8, r.u64)
	case ggufInt64:
		f.Value = ggufSlice(r, 8, func() int64 { return int64(r.u64()) })
	case ggufFloat64:
		f.Value = ggufSlice(r, 8, func() float64 { return math.Float64frombits(r.u64()) })
	default:
		r.fail("array of type %d: want a list of numbers or strings", kind)
	}
	return f
}

// ggufSlice reads a count and as many elements of at least size bytes.
func ggufSlice[T any](r *ggufReader, size int, next func() T) []T {
	n := r.count("elements", math.MaxInt64, size)
	list := make([]T, 0, n)
	for range n {
		list = append(list, next())
		if r.err != nil {
			return nil
		}
	}
	return list
}

func (r *ggufReader) boolean() bool {
	b := r.take(1)[0]
	if b > 1 {
		r.fail("truth value %d: want 0 or 1", b)
	}
	return b == 1
}

func (r *ggufReader) scalar(kind uint32) any {
	switch kind {
	case ggufUint8:
		return r.take(1)[0]
	case ggufInt8:
		return int8(r.take(1)[0])
	case ggufUint16:
		return binary.LittleEndian.Uint16(r.take(2))
	case ggufInt16:
		return int16(binary.LittleEndian.Uint16(r.take(2)))
	case ggufUint32:
		return r.u32()
	case ggufInt32:
		return int32(r.u32())
	case ggufFloat32:
		return math.Float32frombits(r.u32())
	case ggufBool:
		return r.boolean()
	case ggufString:
		return r.str()
	case ggufUint64:
		return r.u64()
	case ggufInt64:
		return int64(r.u64())
	case ggufFloat64:
		return math.Float64frombits(r.u64())
	}
	r.fail("value of type %d: want one of GGUF's 0 to 12", kind)
	return nil
}
