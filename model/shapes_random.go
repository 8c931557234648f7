package model

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/edsrzf/mmap-go"

	"windrow/backend"
)

// randomBlock is how many normal values the weights repeat: a prime, so that
// no two rows of a matrix and no two tensors start at the same value. Drawing
// every weight would take half a minute for a model of 8 billion.
const randomBlock = 1048573

// randomSource is a model of random weights in memory.
type randomSource struct {
	config  *Config
	names   []string
	tensors map[string]backend.Tensor
}

// RandomSource makes random weights in the shape of a config: norms are 1,
// everything else is normal with standard deviation 0.02. A block of about a
// million values is drawn, and each tensor repeats it from a place of its own:
// every byte is real memory, read at full cost, but the values are not
// independent. The same config, dtype and seed give the same bytes.
//
// The weights lie outside the garbage collector's heap, each tensor at a page
// border, and stay until the process ends.
func RandomSource(c *Config, dt backend.DType, seed uint64) Source {
	list := c.weightShapes()
	s := &randomSource{config: c, tensors: make(map[string]backend.Tensor, len(list))}
	page := os.Getpagesize()
	offsets := make([]int, len(list)+1)
	for i, w := range list {
		offsets[i+1] = offsets[i] + (w.elements()*dt.Size()+page-1)/page*page
	}
	memory := reserve(offsets[len(list)])
	block := normalBlock(dt, seed)
	starts := rand.New(rand.NewPCG(seed, 2))
	var work []func()
	for i, w := range list {
		n := w.elements() * dt.Size()
		data := memory[offsets[i] : offsets[i]+n : offsets[i]+n]
		s.names = append(s.names, w.name)
		s.tensors[w.name] = backend.Tensor{Name: w.name, DType: dt, Shape: w.shape, Data: data}
		if strings.HasSuffix(w.name, "norm.weight") {
			encodeValue(data, dt, 1)
			for at := dt.Size(); at < n; at *= 2 {
				copy(data[at:], data[:at])
			}
			continue
		}
		start := starts.IntN(randomBlock) * dt.Size()
		const piece = 16 << 20
		for at := 0; at < n; at += piece {
			work = append(work, func() { repeatBlock(data[at:min(at+piece, n)], block, (start+at)%len(block)) })
		}
	}
	inParallel(work)
	return s
}

func (s *randomSource) Config() *Config { return s.config }

func (s *randomSource) Tensor(name string) (backend.Tensor, bool) {
	t, ok := s.tensors[name]
	return t, ok
}

func (s *randomSource) Names() []string { return s.names }

// reserve returns zeroed memory at a page border.
func reserve(n int) []byte {
	memory, err := mmap.MapRegion(nil, n, mmap.RDWR, mmap.ANON, 0)
	if err != nil {
		return make([]byte, n) // the runtime gives large objects whole pages
	}
	adviseHugePages(memory)
	return memory
}

// normalBlock draws randomBlock values and encodes them.
func normalBlock(dt backend.DType, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	block := make([]byte, randomBlock*dt.Size())
	for i := range randomBlock {
		encodeValue(block[i*dt.Size():], dt, float32(r.NormFloat64()*0.02))
	}
	return block
}

// encodeValue writes a value of a weight's usual size: no overflow, and f16
// subnormals become 0.
func encodeValue(dst []byte, dt backend.DType, x float32) {
	bits := math.Float32bits(x)
	switch dt {
	case backend.F32:
		binary.LittleEndian.PutUint32(dst, bits)
	case backend.BF16:
		binary.LittleEndian.PutUint16(dst, uint16((bits+0x7fff+bits>>16&1)>>16))
	case backend.F16:
		half := uint16(bits >> 16 & 0x8000)
		if exponent := int(bits>>23&0xff) - 127 + 15; exponent > 0 {
			half += uint16((uint32(exponent)<<23 | bits&0x7fffff + 0xfff + bits>>13&1) >> 13)
		}
		binary.LittleEndian.PutUint16(dst, half)
	}
}

// repeatBlock fills dst with block, beginning at from and starting over at its
// end.
func repeatBlock(dst, block []byte, from int) {
	for len(dst) > 0 {
		n := copy(dst, block[from:])
		dst, from = dst[n:], 0
	}
}

// inParallel runs independent pieces of work on every core.
func inParallel(work []func()) {
	next := make(chan func(), len(work))
	for _, w := range work {
		next <- w
	}
	close(next)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for w := range next {
				w()
			}
		})
	}
	wg.Wait()
}
