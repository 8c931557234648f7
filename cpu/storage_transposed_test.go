package cpu

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/quant"
)

// transposedSequence is a storage with values by dimension, on any processor, beside
// what it should hold: a value is its index and its writer's mark.
type transposedSequence struct {
	*storage
	want []float32 // by index
	end  int       // of the last forward; what lies behind it in its page is zero
}

const transposedDim = 32

// forward writes rows as a forward does: pages are made writable, then values stored.
func (s *transposedSequence) forward(t *testing.T, base, rows int, mark float32) {
	t.Helper()
	if err := s.Begin(s.Table, base, rows, false); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, rows*transposedDim)
	s.want = s.want[:base]
	for r := range rows {
		v := mark + float32(r%8)
		s.want = append(s.want, v)
		for i := range transposedDim {
			x[r*transposedDim+i] = v
		}
	}
	s.storeTransposed(s.b.k, &s.b.scratch[0], 0, 0, base, rows, x, transposedDim)
	s.end = base + rows
	s.endTransposed(0, s.end)
}

// check compares every index of the pages that a forward would read.
func (s *transposedSequence) check(t *testing.T, what string) {
	t.Helper()
	for index := range pageEnd(s.end) {
		want := float32(0)
		if index < s.end {
			want = s.want[index]
		}
		tile := s.tile(0, 0, index)
		for _, i := range []int{0, transposedDim - 1} {
			at := len(tile)/2 + 2*(i*pageSlots+index%pageSlots)
			if got := quant.BF16ToF32(binary.LittleEndian.Uint16(tile[at:])); got != want {
				t.Fatalf("%s: value %d of index %d of %d is %v, want %v", what, i, index, s.end, got, want)
			}
		}
	}
}

// TestTransposedForks: whatever sequences that share pages write and go back from, each
// keeps its values, and has zeros behind its last row, in the page that this lies in. A
// forward once made zero what lay in pages behind its own, others' pages among them.
func TestTransposedForks(t *testing.T) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const slots = 5 * pageSlots
	open := func(kv backend.Storage) *transposedSequence {
		s := &transposedSequence{storage: kv.(*storage)}
		if !s.transposed { // as where there is no matrix unit
			s.transposed, s.written = true, make([]written, 1)
		}
		return s
	}
	l := backend.KeysLayout(1, 1, transposedDim, backend.KVBF16, slots)
	b.slabsOf(int(l.Keys().PageBytes()), b.transposes(&l)).zero = true
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		kv, err := b.NewStorage(l)
		if err != nil {
			t.Fatal(err)
		}
		all := []*transposedSequence{open(kv)}
		for step := range 60 {
			s := all[r.IntN(len(all))]
			if n := r.IntN(s.end + 1); len(all) < 4 && r.IntN(4) == 0 {
				kv, err := s.Fork(n, slots)
				if err != nil {
					t.Fatal(err)
				}
				child := open(kv)
				for i := range child.written { // a parent without the matrix unit says nothing of it
					child.written[i] = written{near: -1, far: min(s.written[i].far, pageEnd(n))}
				}
				child.want = append(child.want, s.want[:n]...)
				all = append(all, child)
				s = child
				s.end = 0 // nothing of it has run: what lies behind is not zero yet
			}
			base := len(s.want)
			if r.IntN(3) == 0 {
				base = r.IntN(base + 1)
			}
			rows := 1 + r.IntN(90)
			if base+rows > slots {
				base = r.IntN(slots - rows)
				base = min(base, len(s.want))
			}
			s.forward(t, base, rows, float32(8*(1+step%15)))
			for _, other := range all {
				if other.end > 0 {
					other.check(t, "a sequence")
				}
			}
		}
		for _, s := range all {
			s.Close()
		}
	}
}

// TestRoomTransposed: a page whose values are kept by dimension becomes the same by being
// brought in order where it lies as by being copied, and its exported form is what it was.
func TestRoomTransposed(t *testing.T) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	l := backend.KeysLayout(2, 3, transposedDim, backend.KVBF16, 2*pageSlots)
	page := make([]byte, l.Keys().ExportedPage())
	rand.NewChaCha8([32]byte{1}).Read(page)
	var list [2]*storage
	for i := range list {
		kv, err := b.NewStorage(l)
		if err != nil {
			t.Fatal(err)
		}
		s := kv.(*storage)
		defer s.Close()
		s.transposed, s.written = true, make([]written, 2)
		list[i] = s
	}
	room, err := list[1].Room(0)
	if err != nil {
		t.Fatal(err)
	}
	copy(room, page)
	list[1].Filled(room)
	for i, src := range [][]byte{page, room} {
		if err := list[i].Import(0, src); err != nil {
			t.Fatal(err)
		}
	}
	if copied := list[0].At(0).memory; !bytes.Equal(copied, room) || bytes.Equal(copied, page) {
		t.Error("a page that was brought in order where it lies is another")
	}
	again := make([]byte, len(page))
	if err := list[1].Export(0, again); err != nil || !bytes.Equal(again, page) {
		t.Error("it is exported as other bytes", err)
	}
}
