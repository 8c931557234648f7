package metal

import (
	"unsafe"

	"windrow/metal/driver"
)

const (
	// weightAlign is the alignment of a word, by which kernels load what they
	// can. A weight that lies otherwise in its file is copied.
	weightAlign = 4
	// weightsChunk bounds what is allocated at once for small copied weights.
	weightsChunk = 1 << 20
)

// weights holds what the model's tensors lie in: windows of mapped files, and
// copies.
type weights struct {
	memory memory
	files  []*mappedFile
	copies []view
	chunk  view // the last of copies where it has room
	used   int
}

// mappedFile is a mapping, which windows of at most one buffer's size cover.
// Windows overlap by the largest tensor, so that each tensor lies wholly in one.
type mappedFile struct {
	pages  []byte // that hold the mapping
	window int    // bytes of a window
	stride int    // from window to window
	views  map[int]view
}

// newWeights prepares for tensors of at most largest bytes in those mappings.
// They must stay mapped until close.
func newWeights(m memory, mappings [][]byte, largest int) *weights {
	w := &weights{memory: m}
	for _, data := range mappings {
		if len(data) == 0 {
			continue
		}
		f := &mappedFile{pages: pagesOf(data), window: m.maxBuffer() &^ (driver.PageSize - 1), views: map[int]view{}}
		f.stride = f.window - aligned(largest, driver.PageSize)
		if n := len(f.pages); n <= f.window {
			f.window, f.stride = n, n
		}
		if f.stride > 0 {
			w.files = append(w.files, f)
		}
	}
	return w
}

// pagesOf widens a mapping to whole pages. On Apple's processors those are the
// pages that it has; elsewhere, in tests, the ends may not be there, and nothing
// may touch them.
func pagesOf(data []byte) []byte {
	at := address(data)
	before := int(at % driver.PageSize)
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(data)), -before)), aligned(before+len(data), driver.PageSize))
}

func address(data []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(data))) }

// place gives data a place on the device: in its file, or a copy.
func (w *weights) place(data []byte, e elem) (view, error) {
	at := address(data)
	if at%weightAlign == 0 {
		for _, f := range w.files {
			if v, ok, err := f.place(w.memory, data); ok || err != nil {
				v.elem = e
				return v, err
			}
		}
	}
	return w.copy(data, e)
}

// place finds data of the file in one of its windows, which is shared with the
// device when it is first needed. It is false for data that lies in no window:
// outside of the file, or larger than was said.
func (f *mappedFile) place(m memory, data []byte) (v view, ok bool, err error) {
	first, here := address(f.pages), address(data)
	if here < first || here+uintptr(len(data)) > first+uintptr(len(f.pages)) {
		return view{}, false, nil
	}
	at := int(here - first)
	i := at / f.stride
	from := i * f.stride
	to := min(from+f.window, len(f.pages))
	if at+len(data) > to {
		return view{}, false, nil
	}
	v, ok = f.views[i]
	if !ok {
		if v, err = m.wrap(f.pages[from:to]); err != nil {
			return view{}, false, err
		}
		f.views[i] = v
	}
	return v.at(at - from), true, nil
}

// copy puts data into memory of the device; small ones share a buffer.
func (w *weights) copy(data []byte, e elem) (v view, err error) {
	n := aligned(max(len(data), 1), arenaAlign)
	switch {
	case n >= weightsChunk/4:
		if v, err = w.memory.alloc(n, e); err != nil {
			return view{}, err
		}
		w.copies = append(w.copies, v)
	default:
		if w.used+n > weightsChunk || w.used == 0 {
			if w.chunk, err = w.memory.alloc(weightsChunk, elemBytes); err != nil {
				return view{}, err
			}
			w.copies, w.used = append(w.copies, w.chunk), 0
		}
		v = w.chunk.at(w.used)
		v.elem = e
		w.used += n
	}
	copy(w.memory.bytes(v, len(data)), data)
	return v, nil
}

// close gives everything back.
func (w *weights) close() {
	for _, f := range w.files {
		for _, v := range f.views {
			w.memory.free(v)
		}
	}
	for _, v := range w.copies {
		w.memory.free(v)
	}
	w.files, w.copies, w.used = nil, nil, 0
}
