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

// StoreKind says what a layer keeps of the tokens before.
type StoreKind uint8

// The kinds of stores.
const (
	StoreNone  StoreKind = iota // nothing: a layer without attention or recurrence
	StoreKeys                   // keys and values, by index
	StoreState                  // a state that sums over all indices, and a log of the last rows
)

func (k StoreKind) String() string {
	switch k {
	case StoreNone:
		return "none"
	case StoreKeys:
		return "keys"
	case StoreState:
		return "state"
	}
	return fmt.Sprintf("store(%d)", uint8(k))
}

// LayerStore is what one layer keeps.
type LayerStore struct {
	Kind StoreKind
	// KVHeads and HeadDim are of StoreKeys.
	KVHeads, HeadDim int
	// State is of StoreState. The state covers the indices that can no longer be taken
	// back; a log has, for each of the rows after, what it adds to the state, so that a
	// row that is not committed is never added. It is folded in by the next forward.
	State StateShape
}

// Layout is the shape of what one sequence keeps.
type Layout struct {
	// Layers are those of the model, in order. Those with keys have one shape.
	Layers []LayerStore
	// DType is the element type of keys and values.
	DType KVType
	// Slots is how many indices the storage can hold at once, scratch rows of
	// the current forward included.
	Slots int
	// Window, where not 0, makes the storage rotate: a row at index i sees the
	// first Keep indices and the newest Window-Keep ones up to its own. A
	// forward may then carry at most Slots-Window rows.
	Window, Keep int
	// LogRows is how many rows the logs of states hold: the most that a forward may
	// leave uncommitted. Of a forward of more rows all but the last LogRows must be
	// committed, or none.
	LogRows int
}

// KeysLayout is the layout of layers that all keep keys and values of one shape.
func KeysLayout(layers, kvHeads, headDim int, t KVType, slots int) Layout {
	l := Layout{DType: t, Slots: slots}
	for range layers {
		l.Layers = append(l.Layers, LayerStore{Kind: StoreKeys, KVHeads: kvHeads, HeadDim: headDim})
	}
	return l
}

// Keys is the shape of a layout's keys and values: of the layers that have some.
type Keys struct {
	Layers, KVHeads, HeadDim int
	DType                    KVType
}

// Keys counts the layers with keys. A layer's place among them is KeyLayer's.
func (l Layout) Keys() (k Keys) {
	for _, s := range l.Layers {
		if s.Kind == StoreKeys {
			k.Layers++
			k.KVHeads, k.HeadDim = s.KVHeads, s.HeadDim
		}
	}
	k.DType = l.DType
	return k
}

// layerOf is how many layers of a kind come before a layer.
func layerOf(kind StoreKind, layers []LayerStore, layer int) (n int) {
	for _, s := range layers[:layer] {
		if s.Kind == kind {
			n++
		}
	}
	return n
}

// Check refuses layouts that no backend can hold.
func (l Layout) Check() error {
	k := l.Keys()
	for i, s := range l.Layers {
		switch s.Kind {
		case StoreNone:
		case StoreKeys:
			if s.KVHeads <= 0 || s.HeadDim <= 0 || s.HeadDim%2 != 0 {
				return fmt.Errorf("storage: layer %d has %d heads of %d: want positive numbers, the second even", i, s.KVHeads, s.HeadDim)
			}
			if s.KVHeads != k.KVHeads || s.HeadDim != k.HeadDim {
				return fmt.Errorf("storage: layer %d has %d heads of %d, another %d of %d", i, s.KVHeads, s.HeadDim, k.KVHeads, k.HeadDim)
			}
		case StoreState:
			if err := s.State.Check(); err != nil {
				return fmt.Errorf("storage: layer %d has %w", i, err)
			}
			if l.LogRows <= 0 || l.LogRows > MaxRows {
				return fmt.Errorf("storage: states with a log of %d rows: want 1 to %d", l.LogRows, MaxRows)
			}
		default:
			return fmt.Errorf("storage: layer %d keeps %v", i, s.Kind)
		}
	}
	switch {
	case len(l.Layers) == 0 || l.Slots <= 0:
		return fmt.Errorf("storage: %d layers, %d slots: want positive numbers", len(l.Layers), l.Slots)
	case l.Window != 0 && (l.Keep < 0 || l.Keep >= l.Window || l.Slots <= l.Window):
		return fmt.Errorf("storage: keep %d of a window of %d in %d slots: want 0 ≤ keep < window < slots", l.Keep, l.Window, l.Slots)
	case k.Layers > 0 && k.RowBytes() == 0:
		return fmt.Errorf("kv dtype %v: want f32, f16, bf16 or int8", l.DType)
	}
	return nil
}

// RowBytes is what one head's vector takes; 0 for an unknown element type.
func (k Keys) RowBytes() int {
	switch k.DType {
	case KVF32:
		return 4 * k.HeadDim
	case KVBF16, KVF16:
		return 2 * k.HeadDim
	case KVInt8:
		return k.HeadDim + 4*((k.HeadDim+KVGroup-1)/KVGroup)
	}
	return 0
}

// TokenBytes is what one token's keys and values take: 2 · layers · KV heads · RowBytes.
func (k Keys) TokenBytes() int64 {
	return 2 * int64(k.Layers) * int64(k.KVHeads) * int64(k.RowBytes())
}

// PageBytes is what PageTokens tokens take.
func (k Keys) PageBytes() int64 { return PageTokens * k.TokenBytes() }

// BytesPerToken is what one token's keys and values take.
func (l Layout) BytesPerToken() int64 { return l.Keys().TokenBytes() }

// StateBytes is what a sequence's states, logs and rows before the convolution take,
// however long it is.
func (l Layout) StateBytes() (n int64) {
	for _, s := range l.Layers {
		if s.Kind == StoreState {
			n += s.State.Bytes(l.LogRows)
		}
	}
	return n
}

// Slot maps an index of the sequence to its physical slot.
func (l Layout) Slot(index int) int {
	if l.Window == 0 || index < l.Keep {
		return index
	}
	return l.Keep + (index-l.Keep)%(l.Slots-l.Keep)
}

// Visible returns the index range that a row at index sees besides the first
// Keep: [from, index]. Without rotation from is 0.
func (l Layout) Visible(index int) (from int) {
	if l.Window == 0 {
		return 0
	}
	return max(l.Keep, index+1-(l.Window-l.Keep))
}

// Reach is how far storage of keys goes back: a rotating one that has dropped some of
// what index n-1 would see still has the first Keep.
func (l Layout) Reach(n, base int) int {
	if l.Window == 0 || base <= l.Window || n == base {
		return n
	}
	return min(n, l.Keep)
}

// PageTokens is how many tokens a page of keys and values holds.
const PageTokens = 64

// Storage is what one sequence keeps. Its memory grows with the tokens it holds, page
// by page, within its backend's Budget.
type Storage interface {
	Layout() Layout
	// Bytes is what the storage takes now. A page that several storages share counts
	// for each of them.
	Bytes() int64
	// Reserve makes room for indices 0 to tokens-1 (or, where it rotates, for those it
	// holds at once), so that forwards over them need no more. It returns a
	// *MemoryError, and takes nothing, where the budget or the device has less.
	Reserve(tokens int) error
	// Fork returns a storage of that many slots that begins with this one's first n
	// indices, which must have been written, and which Reach must reach. Full pages and
	// states are shared: whoever writes into shared ones first makes others of its own.
	// A rotating storage cannot be forked.
	Fork(n, slots int) (Storage, error)
	// Reach is the largest number of indices, at most n, to which a storage of base
	// indices can go back: n for keys; less where indices were dropped, or added to a
	// state. A forward behind that many goes on from there.
	Reach(n, base int) int
	// Truncate forgets all but the first n indices, to which Reach goes: a forward behind
	// them will find the states that it needs. Without states it does nothing.
	//
	// Reach, Truncate and Mark may be called while another goroutine uses the backend
	// with other storage.
	Truncate(n int)
	// Mark keeps the states as they are behind base indices, beside what becomes of
	// them, so that Reach can go back to there. It takes memory when the next forward
	// runs. Marks go, the least recently used first, where there is no memory for what
	// a forward needs, or where there are too many of them. Without states it does
	// nothing.
	Mark(base int)
	// Export copies the page of indices PageTokens·page onwards, which must have been
	// written, in the form that ExportedPage describes. Import is its reverse, into a
	// page of a storage of the same Keys: bits are kept.
	Export(page int, dst []byte) error
	Import(page int, src []byte) error
	// Close frees it.
	Close()
}

// RoomStorage is storage whose pages lie in the host's memory, where they can be read to.
type RoomStorage interface {
	Storage
	// Room is the memory of a page that Import is to write. What is put there in the
	// exported form becomes the page when Filled and then Import get this very memory. A
	// page that will not be imported must be made zero.
	Room(page int) ([]byte, error)
	// Filled brings a page that was put into its room in the backend's own order. It may
	// be called while the backend does other things, for several pages at once.
	Filled(room []byte)
}

// ExportedPage is the size of an exported page: for each layer with keys, and each KV
// head, PageTokens keys and then PageTokens values of RowBytes, whatever order a
// backend keeps them in. Elements are little-endian; an int8 row is its elements and
// then its groups' f32 scales.
func (k Keys) ExportedPage() int { return int(k.PageBytes()) }
