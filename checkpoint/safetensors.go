package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"windrow/backend"
)

// maxSafetensorsHeader is the header limit of the format's own reader.
const maxSafetensorsHeader = 100_000_000

// Safetensors is a parsed safetensors file. Its tensors' data are slices of
// the bytes that it was read from.
type Safetensors struct {
	Metadata map[string]string
	Tensors  []RawTensor // in the order of their data
	index    map[string]int
}

// RawTensor is a tensor of any dtype of the format: little-endian elements,
// row after row. A scalar has an empty shape.
type RawTensor struct {
	Name  string
	DType string // as in the file: "F32", "BF16", "I32", ...
	Shape []int
	Data  []byte
}

// safetensorsBits are the dtypes of the format with their width in bits.
var safetensorsBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16,
	"U32": 32, "I32": 32, "F32": 32,
	"U64": 64, "I64": 64, "F64": 64, "C64": 64,
}

// ReadSafetensors parses a whole safetensors file without copying tensor
// data. Every byte after the header must belong to exactly one tensor, as the
// format demands; tensors may start at any alignment.
func ReadSafetensors(data []byte) (*Safetensors, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("safetensors file of %d bytes: want at least the 8 of the header length", len(data))
	}
	length := binary.LittleEndian.Uint64(data)
	if length > maxSafetensorsHeader {
		return nil, fmt.Errorf("safetensors header length %d: want at most %d", length, maxSafetensorsHeader)
	}
	if length > uint64(len(data)-8) {
		return nil, fmt.Errorf("safetensors header length %d: only %d bytes follow (truncated file?)", length, len(data)-8)
	}
	header, body := data[8:8+length], data[8+length:]
	s := &Safetensors{}
	entries, err := s.parseHeader(header)
	if err != nil {
		return nil, fmt.Errorf("safetensors header: %w", err)
	}
	slices.SortStableFunc(entries, func(a, b headerEntry) int {
		if a.begin != b.begin {
			return cmp.Compare(a.begin, b.begin)
		}
		return cmp.Compare(a.end, b.end)
	})
	s.Tensors = make([]RawTensor, len(entries))
	s.index = make(map[string]int, len(entries))
	at := uint64(0)
	for i, e := range entries {
		if err := e.check(uint64(len(body))); err != nil {
			return nil, fmt.Errorf("safetensors tensor %.80q: %w", e.name, err)
		}
		if e.begin < at {
			return nil, fmt.Errorf("safetensors tensor %.80q: starts at byte %d inside %.80q, which ends at %d", e.name, e.begin, entries[i-1].name, at)
		}
		if e.begin > at {
			return nil, fmt.Errorf("safetensors tensor %.80q: starts at byte %d, which leaves a hole from %d", e.name, e.begin, at)
		}
		at = e.end
		s.Tensors[i] = RawTensor{Name: e.name, DType: e.dtype, Shape: e.shape, Data: body[e.begin:e.end:e.end]}
		s.index[e.name] = i
	}
	if at != uint64(len(body)) {
		return nil, fmt.Errorf("safetensors tensors end at byte %d of %d: want no bytes left over", at, len(body))
	}
	return s, nil
}

// Lookup finds a tensor by name.
func (s *Safetensors) Lookup(name string) (RawTensor, bool) {
	i, ok := s.index[name]
	if !ok {
		return RawTensor{}, false
	}
	return s.Tensors[i], true
}

// check compares an entry with the size of the data section.
func (e headerEntry) check(body uint64) error {
	if e.begin > e.end || e.end > body {
		return fmt.Errorf("data_offsets [%d, %d]: want an ascending range within the %d bytes of data", e.begin, e.end, body)
	}
	want, err := tensorBytes(e.dtype, e.shape)
	if err != nil {
		return err
	}
	if e.end-e.begin != want {
		return fmt.Errorf("%d bytes of data: shape %v of %s takes %d", e.end-e.begin, e.shape, e.dtype, want)
	}
	return nil
}

// tensorBytes is the size of a tensor's data.
func tensorBytes(dtype string, shape []int) (uint64, error) {
	width, ok := safetensorsBits[dtype]
	if !ok {
		return 0, fmt.Errorf("dtype %.20q: want one of the safetensors format", dtype)
	}
	total := width
	// A zero dimension makes an empty tensor, whatever the others are.
	if slices.Contains(shape, 0) {
		return 0, nil
	}
	for _, n := range shape {
		if n < 0 {
			return 0, fmt.Errorf("shape %v: want no negative dimension", shape)
		}
		high, low := bits.Mul64(total, uint64(n))
		if high != 0 || low > math.MaxInt64 {
			return 0, fmt.Errorf("shape %v of %s: too large to address", shape, dtype)
		}
		total = low
	}
	if total%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s: want whole bytes", shape, dtype)
	}
	return total / 8, nil
}

// Weight returns the tensor as backends take it: F32, F16 or BF16 only.
func (t RawTensor) Weight() (backend.Tensor, error) {
	dtypes := map[string]backend.DType{"F32": backend.F32, "F16": backend.F16, "BF16": backend.BF16}
	dtype, ok := dtypes[t.DType]
	if !ok {
		return backend.Tensor{}, fmt.Errorf("tensor %.80q has dtype %s: want F32, F16 or BF16", t.Name, t.DType)
	}
	return backend.Tensor{Name: t.Name, DType: dtype, Shape: t.Shape, Data: t.Data}, nil
}

// Float32s returns a copy of an F32 tensor's elements.
func (t RawTensor) Float32s() ([]float32, error) {
	if t.DType != "F32" {
		return nil, fmt.Errorf("tensor %.80q has dtype %s: want F32", t.Name, t.DType)
	}
	out := make([]float32, len(t.Data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return out, nil
}

// Int32s returns a copy of an I32 or I64 tensor's elements, each of which
// must fit.
func (t RawTensor) Int32s() ([]int32, error) {
	switch t.DType {
	case "I32":
		out := make([]int32, len(t.Data)/4)
		for i := range out {
			out[i] = int32(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
		return out, nil
	case "I64":
		out := make([]int32, len(t.Data)/8)
		for i := range out {
			v := int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
			if v != int64(int32(v)) {
				return nil, fmt.Errorf("tensor %.80q: element %d is %d: want it to fit 32 bits", t.Name, i, v)
			}
			out[i] = int32(v)
		}
		return out, nil
	}
	return nil, fmt.Errorf("tensor %.80q has dtype %s: want I32 or I64", t.Name, t.DType)
}
