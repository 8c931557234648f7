package checkpoint

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"windrow/backend"
)

// The GGUF file format, versions 2 and 3, little-endian: metadata by key, a
// list of tensors, then their data.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
const (
	ggufMagic     = "GGUF"
	ggufAlignment = 32 // where general.alignment is absent
)

// Bounds on what a GGUF file may hold. Published models have some 50 keys,
// under 2,000 tensors, and strings (chat templates) of 20 kB.
const (
	maxGGUFKeys    = 1 << 16
	maxGGUFTensors = 1 << 16
	maxGGUFString  = 16 << 20
	maxGGUFRank    = 4
)

// GGUF is a parsed GGUF file. Its tensors' data are slices of the bytes that
// it was read from; metadata is copied.
type GGUF struct {
	Version  int
	Metadata []GGUFField  // in the order of the file
	Tensors  []GGUFTensor // likewise
	index    map[string]int
}

// GGUFField is a key with its value: uint8, int8, uint16, int16, uint32, int32,
// uint64, int64, float32, float64, bool, string, or a slice of one of them.
type GGUFField struct {
	Key   string
	Value any
}

// GGUFTensor is a tensor. Shape is in our order, [out, in]: the file has it
// the other way round.
type GGUFTensor struct {
	Name  string
	DType backend.DType
	Shape []int
	Data  []byte
}

// ggufTypes are the type numbers of the tensors that are read.
var ggufTypes = map[uint32]backend.DType{
	0: backend.F32, 1: backend.F16, 30: backend.BF16,
	2: backend.Q4_0, 3: backend.Q4_1, 6: backend.Q5_0, 7: backend.Q5_1, 8: backend.Q8_0,
	10: backend.Q2_K, 11: backend.Q3_K, 12: backend.Q4_K, 13: backend.Q5_K, 14: backend.Q6_K,
	20: backend.IQ4_NL, 23: backend.IQ4_XS,
}

// ggufOtherTypes name types that exist but are not read, for the error.
var ggufOtherTypes = map[uint32]string{
	9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
	24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
	31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
	39: "MXFP4", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}

// ReadGGUF parses a whole GGUF file without copying tensor data.
func ReadGGUF(data []byte) (*GGUF, error) {
	if len(data) < len(ggufMagic) || string(data[:4]) != ggufMagic {
		return nil, fmt.Errorf("gguf file starts with %q: want %q", data[:min(4, len(data))], ggufMagic)
	}
	r := &ggufReader{data: data, at: 4}
	g := &GGUF{Version: int(r.u32()), index: map[string]int{}}
	switch {
	case r.err != nil:
	case g.Version == 2<<24, g.Version == 3<<24:
		r.fail("gguf version %d: a big-endian file, want little-endian", g.Version>>24)
	case g.Version != 2 && g.Version != 3:
		r.fail("gguf version %d: want 2 or 3", g.Version)
	}
	tensors := r.count("tensors", maxGGUFTensors, 8+4+8+4+8)
	keys := r.count("metadata keys", maxGGUFKeys, 8+4+1)
	for i := range keys {
		f := r.field()
		if r.err != nil {
			return nil, fmt.Errorf("gguf metadata key %d %.80q: %w", i, f.Key, r.err)
		}
		if _, twice := g.index[f.Key]; twice {
			return nil, fmt.Errorf("gguf metadata key %.80q stands twice", f.Key)
		}
		g.index[f.Key] = i
		g.Metadata = append(g.Metadata, f)
	}
	if r.err != nil {
		return nil, r.err
	}
	places := make([]ggufPlace, tensors)
	for i := range places {
		places[i] = r.tensor()
		if r.err != nil {
			return nil, fmt.Errorf("gguf tensor %d %.80q: %w", i, places[i].Name, r.err)
		}
	}
	alignment, err := g.alignment()
	if err != nil {
		return nil, err
	}
	start := (uint64(r.at) + alignment - 1) / alignment * alignment
	if err := placeGGUF(places, data[min(start, uint64(len(data))):], alignment); err != nil {
		return nil, err
	}
	for _, p := range places {
		g.Tensors = append(g.Tensors, p.GGUFTensor)
	}
	return g, nil
}

// ggufPlace is a tensor before its data is cut out.
type ggufPlace struct {
	GGUFTensor
	offset, size uint64
}

// tensor reads one entry of the tensor list.
func (r *ggufReader) tensor() (p ggufPlace) {
	if p.Name = r.str(); r.err == nil {
		r.err = checkTensorName(p.Name)
	}
	rank := r.u32()
	if r.err == nil && (rank == 0 || rank > maxGGUFRank) {
		r.fail("%d dimensions: want 1 to %d", rank, maxGGUFRank)
	}
	if r.err != nil {
		return p
	}
	p.Shape = make([]int, rank)
	elements := uint64(1)
	for i := range p.Shape {
		d := r.u64()
		high, low := bits.Mul64(elements, d)
		if r.err == nil && (d == 0 || high != 0 || low > math.MaxInt64/8 || low > math.MaxInt/8) {
			r.fail("dimension %d is %d: want a positive one, and a tensor that can be addressed", i, d)
		}
		elements = low
		p.Shape[int(rank)-1-i] = int(d)
	}
	number := r.u32()
	p.offset = r.u64()
	if r.err != nil {
		return p
	}
	var ok bool
	if p.DType, ok = ggufTypes[number]; !ok {
		name := ggufOtherTypes[number]
		if name == "" {
			name = fmt.Sprint(number)
		}
		r.fail("type %s: want F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL or IQ4_XS: take a file such as Q3_K_M, Q4_K_M or IQ4_XS of the same model", name)
		return p
	}
	in := p.Shape[rank-1]
	if in%p.DType.BlockSize() != 0 {
		r.fail("rows of %d: want a multiple of %d for %v", in, p.DType.BlockSize(), p.DType)
		return p
	}
	p.size = elements / uint64(p.DType.BlockSize()) * uint64(p.DType.BlockBytes())
	return p
}

// placeGGUF cuts out each tensor's data. Tensors may lie in any order and
// leave holes, but not overlap.
func placeGGUF(places []ggufPlace, body []byte, alignment uint64) error {
	byOffset := make([]*ggufPlace, len(places))
	names := make(map[string]bool, len(places))
	for i := range places {
		p := &places[i]
		byOffset[i] = p
		switch {
		case names[p.Name]:
			return fmt.Errorf("gguf tensor %.80q stands twice", p.Name)
		case p.offset%alignment != 0:
			return fmt.Errorf("gguf tensor %.80q: offset %d, want a multiple of the alignment %d", p.Name, p.offset, alignment)
		case p.offset > uint64(len(body)) || p.size > uint64(len(body))-p.offset:
			return fmt.Errorf("gguf tensor %.80q: %d bytes at offset %d of %d bytes of data (truncated file?)", p.Name, p.size, p.offset, len(body))
		}
		names[p.Name] = true
		p.Data = body[p.offset : p.offset+p.size : p.offset+p.size]
	}
	slices.SortStableFunc(byOffset, func(a, b *ggufPlace) int { return cmp.Compare(a.offset, b.offset) })
	for i := 1; i < len(byOffset); i++ {
		if a, b := byOffset[i-1], byOffset[i]; a.offset+a.size > b.offset {
			return fmt.Errorf("gguf tensor %.80q: starts at offset %d inside %.80q, which ends at %d", b.Name, b.offset, a.Name, a.offset+a.size)
		}
	}
	return nil
}

func (g *GGUF) alignment() (uint64, error) {
	value, ok := g.Value("general.alignment")
	if !ok {
		return ggufAlignment, nil
	}
	n, ok := value.(uint32)
	if !ok || n < 8 || n > 1<<16 || n&(n-1) != 0 {
		return 0, fmt.Errorf("gguf metadata general.alignment: found %s, want a power of two from 8 to 65536", found(value))
	}
	return uint64(n), nil
}

// Value finds metadata by its key.
func (g *GGUF) Value(key string) (any, bool) {
	i, ok := g.index[key]
	if !ok {
		return nil, false
	}
	return g.Metadata[i].Value, true
}
