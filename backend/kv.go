package backend

import "fmt"

// KVType is the element type of stored keys and values.
type KVType uint8

// The element types of a KV cache.
const (
	KVF32  KVType = iota + 1
	KVBF16        // rounded to nearest even
	KVInt8        // symmetric int8 per group of 64 of the head dimension, with an f32 scale a group
	KVF16         // rounded to nearest even, 65,504 at most; only where Features says so
)

// KVGroup is the group size of KVInt8 along the head dimension; a head
// dimension that it does not divide makes one shorter last group.
const KVGroup = 64

func (t KVType) String() string {
	switch t {
	case KVF32:
		return "f32"
	case KVBF16:
		return "bf16"
	case KVInt8:
		return "int8"
	case KVF16:
		return "f16"
	}
	return fmt.Sprintf("kvtype(%d)", uint8(t))
}

// KVTypes lists them, from the most exact to the least.
var KVTypes = []KVType{KVF32, KVF16, KVBF16, KVInt8}

// ParseKVType reads "f32", "f16", "bf16" or "int8".
func ParseKVType(s string) (KVType, error) {
	for _, t := range KVTypes {
		if s == t.String() {
			return t, nil
		}
	}
	return 0, fmt.Errorf("kv dtype %q: want f32, f16, bf16 or int8", s)
}

// KVLayout is the shape of one sequence's keys and values.
type KVLayout struct {
	Layers, KVHeads, HeadDim int
	DType                    KVType
	// Slots is how many indices the storage can hold at once, scratch rows of
	// the current forward included.
	Slots int
	// Window, where not 0, makes the storage rotate: a row at index i sees the
	// first Keep indices and the newest Window-Keep ones up to its own. A
	// forward may then carry at most Slots-Window rows.
	Window, Keep int
}

// Check refuses layouts that no backend can hold.
func (l KVLayout) Check() error {
	if l.Layers <= 0 || l.KVHeads <= 0 || l.HeadDim <= 0 || l.HeadDim%2 != 0 || l.Slots <= 0 {
		return fmt.Errorf("kv layout %+v: layers, heads, an even head dimension and slots must be positive", l)
	}
	if l.Window != 0 && (l.Keep < 0 || l.Keep >= l.Window || l.Slots <= l.Window) {
		return fmt.Errorf("kv layout %+v: want 0 ≤ keep < window < slots", l)
	}
	if l.BytesPerToken() == 0 {
		return fmt.Errorf("kv dtype %v: want f32, f16, bf16 or int8", l.DType)
	}
	return nil
}

// BytesPerToken is 2 · layers · KV heads · bytes of one head's vector; 0
// for an unknown element type.
func (l KVLayout) BytesPerToken() int64 {
	head := int64(l.HeadDim)
	switch l.DType {
	case KVF32:
		head *= 4
	case KVBF16, KVF16:
		head *= 2
	case KVInt8:
		head += 4 * int64((l.HeadDim+KVGroup-1)/KVGroup)
	default:
		return 0
	}
	return 2 * int64(l.Layers) * int64(l.KVHeads) * head
}

// Slot maps an index of the sequence to its physical slot.
func (l KVLayout) Slot(index int) int {
	if l.Window == 0 || index < l.Keep {
		return index
	}
	return l.Keep + (index-l.Keep)%(l.Slots-l.Keep)
}

// Visible returns the index range that a row at index sees besides the first
// Keep: [from, index]. Without rotation from is 0.
func (l KVLayout) Visible(index int) (from int) {
	if l.Window == 0 {
		return 0
	}
	return max(l.Keep, index+1-(l.Window-l.Keep))
}

// KV is the key and value storage of one sequence.
type KV interface {
	Layout() KVLayout
	// Bytes is what the storage takes now.
	Bytes() int64
	// Close frees it.
	Close()
}
