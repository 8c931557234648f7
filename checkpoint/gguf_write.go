package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"windrow/backend"
)

// WriteGGUF writes a GGUF file of version 3: metadata in the order given, then
// the tensors, each at a multiple of 32 bytes (or of general.alignment). The
// same input gives the same bytes.
func WriteGGUF(w io.Writer, metadata []GGUFField, tensors []GGUFTensor) error {
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if s, ok := v.(string); ok {
				v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
			}
			binary.Write(&b, binary.LittleEndian, v)
		}
	}
	put([]byte(ggufMagic), uint32(3), uint64(len(tensors)), uint64(len(metadata)))
	g := &GGUF{index: map[string]int{}}
	for i, f := range metadata {
		kind, list, ok := ggufKind(f.Value)
		if !ok {
			return fmt.Errorf("gguf metadata key %.80q: cannot write a %T", f.Key, f.Value)
		}
		put(f.Key)
		if list >= 0 {
			put(uint32(ggufArray), uint32(kind), uint64(list))
		} else {
			put(uint32(kind))
		}
		if texts, ok := f.Value.([]string); ok {
			for _, s := range texts {
				put(s)
			}
		} else {
			put(f.Value)
		}
		g.index[f.Key] = i
	}
	g.Metadata = metadata
	alignment, err := g.alignment()
	if err != nil {
		return err
	}
	padded := func(n uint64) uint64 { return (n + alignment - 1) / alignment * alignment }
	offset := uint64(0)
	for _, t := range tensors {
		x := backend.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: t.Data}
		number, ok := ggufNumber(t.DType)
		if !ok || len(t.Shape) > maxGGUFRank {
			return fmt.Errorf("gguf tensor %.80q: cannot write %v of shape %v", t.Name, t.DType, t.Shape)
		}
		// Check wants two dimensions of a quantised tensor; GGUF takes one, too.
		if t.DType.Quantized() && len(t.Shape) > 0 {
			x.Shape = []int{x.Elements() / max(1, t.Shape[len(t.Shape)-1]), t.Shape[len(t.Shape)-1]}
		}
		if err := x.Check(); err != nil {
			return fmt.Errorf("gguf: %w", err)
		}
		put(t.Name, uint32(len(t.Shape)))
		for i := range t.Shape {
			put(uint64(t.Shape[len(t.Shape)-1-i]))
		}
		put(number, offset)
		offset = padded(offset + uint64(len(t.Data)))
	}
	b.Write(make([]byte, padded(uint64(b.Len()))-uint64(b.Len())))
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write gguf header: %w", err)
	}
	for _, t := range tensors {
		n := uint64(len(t.Data))
		if _, err := w.Write(t.Data); err != nil {
			return fmt.Errorf("write gguf tensor %.80q: %w", t.Name, err)
		}
		if _, err := w.Write(make([]byte, padded(n)-n)); err != nil {
			return fmt.Errorf("write gguf tensor %.80q: %w", t.Name, err)
		}
	}
	return nil
}

func ggufNumber(d backend.DType) (uint32, bool) {
	for number, t := range ggufTypes {
		if t == d {
			return number, true
		}
	}
	return 0, false
}

// ggufKind is the type number of a value; list is the length of a slice, -1
// for a scalar.
func ggufKind(value any) (kind, list int, ok bool) {
	switch v := value.(type) {
	case uint8:
		return ggufUint8, -1, true
	case int8:
		return ggufInt8, -1, true
	case uint16:
		return ggufUint16, -1, true
	case int16:
		return ggufInt16, -1, true
	case uint32:
		return ggufUint32, -1, true
	case int32:
		return ggufInt32, -1, true
	case float32:
		return ggufFloat32, -1, true
	case bool:
		return ggufBool, -1, true
	case string:
		return ggufString, -1, true
	case uint64:
		return ggufUint64, -1, true
	case int64:
		return ggufInt64, -1, true
	case float64:
		return ggufFloat64, -1, true
	case []uint8:
		return ggufUint8, len(v), true
	case []int8:
		return ggufInt8, len(v), true
	case []uint16:
		return ggufUint16, len(v), true
	case []int16:
		return ggufInt16, len(v), true
	case []uint32:
		return ggufUint32, len(v), true
	case []int32:
		return ggufInt32, len(v), true
	case []float32:
		return ggufFloat32, len(v), true
	case []bool:
		return ggufBool, len(v), true
	case []string:
		return ggufString, len(v), true
	case []uint64:
		return ggufUint64, len(v), true
	case []int64:
		return ggufInt64, len(v), true
	case []float64:
		return ggufFloat64, len(v), true
	}
	return 0, 0, false
}
