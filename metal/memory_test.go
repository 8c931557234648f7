package metal

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/edsrzf/mmap-go"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/metal/driver"
)

// hostMemory is memory without a device.
type hostMemory struct {
	buffers map[*driver.Buffer][]byte
	wraps   int
	most    int
}

func newHostMemory(most int) *hostMemory {
	return &hostMemory{buffers: map[*driver.Buffer][]byte{}, most: most}
}

func (m *hostMemory) add(data []byte, e elem) (view, error) {
	if len(data) > m.most {
		return view{}, errors.New("too large")
	}
	b := new(driver.Buffer)
	m.buffers[b] = data
	return view{buffer: b, elem: e}, nil
}

func (m *hostMemory) alloc(n int, e elem) (view, error) { return m.add(make([]byte, n), e) }

func (m *hostMemory) wrap(pages []byte) (view, error) {
	m.wraps++
	if address(pages)%driver.PageSize != 0 || len(pages)%driver.PageSize != 0 {
		return view{}, errors.New("not whole pages")
	}
	return m.add(pages, elemBytes)
}

func (m *hostMemory) region() (region, error) { return &hostRegion{memory: m}, nil }

// hostRegion is memory that grows by a copy.
type hostRegion struct {
	memory *hostMemory
	data   view
}

func (r *hostRegion) grow(n int) (view, error) {
	v, err := r.memory.alloc(n, elemBytes)
	if err != nil {
		return view{}, err
	}
	copy(r.memory.buffers[v.buffer], r.memory.buffers[r.data.buffer])
	r.free()
	r.data = v
	return v, nil
}

func (r *hostRegion) free() { r.memory.free(r.data) }

func (m *hostMemory) free(v view) { delete(m.buffers, v.buffer) }

func (m *hostMemory) bytes(v view, n int) []byte { return m.buffers[v.buffer][v.offset : v.offset+n] }

func (m *hostMemory) submit(context.Context, func(e encoder)) (func() error, error) {
	return nil, errors.New("no device")
}
func (m *hostMemory) maxBuffer() int { return m.most }

// mapped is memory at a page border of the system that ends inside of a page.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	m, err := mmap.MapRegion(nil, n, mmap.RDWR, mmap.ANON, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Unmap() })
	for i := range m {
		m[i] = byte(i*7 + i>>8)
	}
	return m
}

// Tensors of a mapped file are used in place, whatever window they lie in, and
// whatever is not mapped or not aligned is copied.
func TestWeightsInPlace(t *testing.T) {
	file := mapped(t, 1<<20+1234)
	const largest = 40000
	for _, most := range []int{2 << 20, 10 * driver.PageSize, 5*driver.PageSize + 100} {
		m := newHostMemory(most)
		w := newWeights(m, [][]byte{nil, file}, largest)
		r := rand.New(rand.NewPCG(1, 1))
		check := func(data []byte, inPlace bool) {
			t.Helper()
			v, err := w.place(data, elemBF16)
			if err != nil {
				t.Fatal(err)
			}
			got := m.bytes(v, len(data))
			if !bytes.Equal(got, data) || v.elem != elemBF16 {
				t.Fatalf("at most %d: other bytes", most)
			}
			if same := unsafe.SliceData(got) == unsafe.SliceData(data); same != inPlace {
				t.Fatalf("at most %d: %d bytes in place: %v, want %v", most, len(data), same, inPlace)
			}
		}
		for range 300 {
			at := r.IntN(len(file)-largest) &^ (weightAlign - 1)
			check(file[at:at+1+r.IntN(largest)], true)
		}
		check(file[:largest], true)
		check(file[len(file)-largest+(-len(file)&(weightAlign-1)):], true) // up to the last byte
		if most > weightsChunk {                                           // copies have room
			check(file[3:5000], false)
			check(make([]byte, 100), false)
			check(make([]byte, weightsChunk/2), false)
		}
		if n := (len(file) + most - 1) / most; m.wraps < n || m.wraps > 3*n {
			t.Errorf("%d bytes in %d windows of at most %d", len(file), m.wraps, most)
		}
		w.close()
		if n := len(m.buffers); n != 0 {
			t.Errorf("%d buffers are left", n)
		}
	}
}

// A tensor that is larger than was said is copied where no window holds it.
func TestWeightsLargerThanSaid(t *testing.T) {
	file := mapped(t, 1<<20)
	m := newHostMemory(600 << 10)
	w := newWeights(m, [][]byte{file}, 1000)
	data := file[500<<10 : 1000<<10]
	v, err := w.place(data, elemBytes)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.bytes(v, len(data)), data) {
		t.Error("other bytes")
	}
	if _, err := w.place(file[:700<<10], elemBytes); err == nil {
		t.Error("a tensor that no buffer holds: want an error")
	}
	w.close()
}

// Small copies share buffers and keep their bytes.
func TestWeightsCopies(t *testing.T) {
	m := newHostMemory(1 << 30)
	w := newWeights(m, nil, 0)
	var views []view
	for i := range 3000 {
		v, err := w.copy(bytes.Repeat([]byte{byte(i)}, 1+i), elemF32)
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, v)
	}
	for i, v := range views {
		if v.offset%weightAlign != 0 || !bytes.Equal(m.bytes(v, 1+i), bytes.Repeat([]byte{byte(i)}, 1+i)) {
			t.Fatalf("copy %d at %d has other bytes", i, v.offset)
		}
	}
	if n := len(m.buffers); n > 8 {
		t.Errorf("%d buffers for 4.5 MB of small weights", n)
	}
	w.close()
	if len(m.buffers) != 0 {
		t.Error("buffers are left")
	}
}

// Closing a backend closes what is still open in it, once.
func TestBackendCloses(t *testing.T) {
	m := newHostMemory(1 << 30)
	b := overMemory(m, Options{})
	c, err := b.NewStorage(backend.KeysLayout(1, 1, 4, backend.KVF32, 10))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Reserve(5); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Vector(backend.Tensor{DType: backend.F32, Shape: []int{3}, Data: make([]byte, 12)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if err := c.Reserve(5); !errors.Is(err, paging.ErrClosed) {
		t.Errorf("a page after Close: %v", err)
	}
	if _, err := b.NewStorage(backend.KeysLayout(1, 1, 4, backend.KVF32, 10)); !errors.Is(err, errClosed) {
		t.Errorf("storage after Close: %v", err)
	}
	if used, _ := b.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken after Close", used)
	}
	if len(m.buffers) != 0 {
		t.Errorf("%d buffers are left", len(m.buffers))
	}
	if _, err := b.Compile(new(backend.Program)); !errors.Is(err, errClosed) {
		t.Errorf("a program after Close: %v", err)
	}
	if _, err := b.Rotation(nil, 1); !errors.Is(err, errClosed) {
		t.Errorf("a rotation after Close: %v", err)
	}
	if _, err := b.Vector(backend.Tensor{DType: backend.F32, Shape: []int{3}, Data: make([]byte, 12)}); err == nil {
		t.Error("a weight after Close: want an error")
	}
}
