package synthetic

import (
	"slices"
	"sync"

	"github.com/edsrzf/mmap-go"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
)

// DTypes lists the types that weights are invented in: all but F8_E4M3, of which
// bytes taken at random may be no number.
func DTypes() []backend.DType {
	return slices.DeleteFunc(backend.DTypes(), func(d backend.DType) bool { return d == backend.F8_E4M3 })
}

// floatBeside is the type of the embedding, the head and the norms beside
// projections of a dtype.
func floatBeside(dt backend.DType) backend.DType {
	if dt.Quantized() {
		return backend.BF16
	}
	return dt
}

// quantized reports whether the selective policy quantises a weight to dt.
func quantized(w architecture.Tensor, dt backend.DType) bool {
	return dt.Quantized() && (w.Class == architecture.ClassProjection || w.Class == architecture.ClassExpert)
}

// emptySource is a model without weights.
type emptySource struct {
	config  *checkpoint.Config
	names   []string
	tensors map[string]backend.Tensor
}

// EmptySource makes the tensors of RandomSource without their values: all of
// them are zero and share one piece of memory, which nothing has to touch. It
// is for backends that only count.
func EmptySource(c *checkpoint.Config, dt backend.DType) checkpoint.Source {
	s := &emptySource{config: c, tensors: map[string]backend.Tensor{}}
	most := 0
	for _, w := range weightsOf(c) {
		t := backend.Tensor{Name: w.Name, DType: floatBeside(dt), Shape: w.Shape}
		if quantized(w, dt) {
			t.DType = dt
		}
		if t.DType.Affine() {
			t.Group = affineRandomGroup
		}
		s.names = append(s.names, w.Name)
		s.tensors[w.Name] = t
		most = max(most, elements(w)/t.DType.BlockSize()*t.DType.BlockBytes())
	}
	zero := zeros(most)
	for name, t := range s.tensors {
		t.Data = zero[:t.Elements()/t.DType.BlockSize()*t.DType.BlockBytes()]
		if t.DType.Affine() {
			n := 2 * t.Elements() / t.Group
			t.Scales, t.Biases = zero[:n], zero[:n]
		}
		s.tensors[name] = t
	}
	return s
}

var (
	zeroMemory []byte
	zeroMutex  sync.Mutex
)

// zeros returns n zero bytes, which may not be written to. They are address
// space alone, and kept: the garbage collector would write to memory that it
// gives a second time.
func zeros(n int) []byte {
	zeroMutex.Lock()
	defer zeroMutex.Unlock()
	if len(zeroMemory) < n {
		memory, err := mmap.MapRegion(nil, n, mmap.RDONLY, mmap.ANON, 0)
		if err != nil {
			return make([]byte, n)
		}
		zeroMemory = memory
	}
	return zeroMemory[:n]
}

func (s *emptySource) Config() *checkpoint.Config { return s.config }

func (s *emptySource) Tensor(name string) (backend.Tensor, bool) {
	t, ok := s.tensors[name]
	return t, ok
}

func (s *emptySource) Names() []string { return s.names }
