package synthetic

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"

	"github.com/edsrzf/mmap-go"

	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
	"windrow/quant"
)

// randomBlock is how many normal values the weights repeat: a prime, so that
// no two rows of a matrix and no two tensors start at the same value. Drawing
// every weight would take half a minute for a model of 8 billion.
const randomBlock = 1048573

// randomSource is a model of random weights in memory.
type randomSource struct {
	config  *checkpoint.Config
	names   []string
	tensors map[string]backend.Tensor
	memory  []byte
}

// deviation is the standard deviation of random weights, an embedding's apart.
const deviation = 0.02

// RandomSource makes random weights in the shape of a config: norms are 1,
// everything else is normal with standard deviation 0.02, but for the embedding
// of a mixture of experts, which is larger: rows of different tokens choose their
// experts almost independently. A block of about a million values is drawn, and
// each tensor repeats it from a place of its own: every byte is real memory, read
// at full cost, but the values are not independent. The same config, dtype and
// seed give the same bytes.
//
// With a quantised dtype the projections of the layers have it (affine groups
// of 64, uniform numbers under one scale), and the embedding and the head are
// bf16: the selective policy.
//
// The weights lie outside the garbage collector's heap, each part at a page
// border, and stay until the process ends.
func RandomSource(c *checkpoint.Config, dt backend.DType, seed uint64) checkpoint.Source {
	list := weightsOf(c)
	s := &randomSource{config: c, tensors: make(map[string]backend.Tensor, len(list))}
	float := floatBeside(dt)
	memory := reserve(int(RandomBytes(c, dt)))
	s.memory = memory
	blocks := map[backend.DType][]byte{float: normalBlock(float, seed, deviation)}
	embedding := normalBlock(float, seed, embeddingDeviation(c))
	if dt.Quantized() {
		blocks[dt] = quantizedBlock(dt, seed)
	}
	starts := rand.New(rand.NewPCG(seed, 2))
	var work []func()
	for _, w := range list {
		t, parts := randomTensor(w, dt)
		for j, p := range parts {
			data := memory[:p.bytes:p.bytes]
			memory = memory[p.pages():]
			switch j {
			case 0:
				t.Data = data
			case 1:
				t.Scales = data
			case 2:
				t.Biases = data
			}
			if p.fill != nil {
				work = append(work, func() { p.fill(data) })
				continue
			}
			block := blocks[t.DType]
			if w.Role == architecture.Embedding {
				block = embedding
			}
			start := starts.IntN(len(block)/t.DType.BlockBytes()) * t.DType.BlockBytes()
			const piece = 16 << 20
			for at := 0; at < len(data); at += piece {
				work = append(work, func() { repeatBlock(data[at:min(at+piece, len(data))], block, (start+at)%len(block)) })
			}
		}
		s.names = append(s.names, w.Name)
		s.tensors[w.Name] = t
	}
	inParallel(work)
	return s
}

// RandomBytes is how much memory RandomSource takes.
func RandomBytes(c *checkpoint.Config, dt backend.DType) (total int64) {
	for _, w := range weightsOf(c) {
		_, parts := randomTensor(w, dt)
		for _, p := range parts {
			total += int64(p.pages())
		}
	}
	return total
}

// randomPart is one of the arrays that a tensor lies in.
type randomPart struct {
	bytes int
	fill  func(dst []byte) // nil: the tensor's block from a place of its own
}

// pages is the memory of the pages that it takes.
func (p randomPart) pages() int {
	page := os.Getpagesize()
	return (p.bytes + page - 1) / page * page
}

// randomTensor is a weight without its data, and the arrays of that: values, and of affine
// types scales and biases.
func randomTensor(w architecture.Tensor, dt backend.DType) (backend.Tensor, []randomPart) {
	float := floatBeside(dt)
	t := backend.Tensor{Name: w.Name, DType: float, Shape: w.Shape}
	switch {
	case w.Class == architecture.ClassNorm:
		return t, []randomPart{{elements(w) * float.Size(), func(dst []byte) { repeatValue(dst, float, 1) }}}
	case !quantized(w, dt):
		return t, []randomPart{{elements(w) * float.Size(), nil}}
	}
	t.DType = dt
	parts := []randomPart{{elements(w) / dt.BlockSize() * dt.BlockBytes(), nil}}
	if dt.Affine() {
		t.Group = affineRandomGroup
		scale := float32(0.07) / float32(int(1)<<(dt.BlockBytes()*8/dt.BlockSize())-1) // a uniform spread of ±0.035
		groups := 2 * elements(w) / affineRandomGroup
		parts = append(parts,
			randomPart{groups, func(dst []byte) { repeatValue(dst, backend.BF16, scale) }},
			randomPart{groups, func(dst []byte) { repeatValue(dst, backend.BF16, -0.035) }})
	}
	return t, parts
}

// embeddingDeviation is the standard deviation of the embedding. Rows that attend to the
// same tokens get much the same from it, and random layers keep of that what is common and
// average what is not: beside an embedding of the layers' deviation, rows of 30B-A3B are
// alike to 99 % from the fifth layer on, and 16 of them choose 11 experts in place of 82.
// So a mixture's is twice what the attention of all layers adds where rows are alike.
// A tied one is the head as well, and stays; no published mixture has it.
func embeddingDeviation(c *checkpoint.Config) float64 {
	if c.Experts == nil || c.TieEmbeddings {
		return deviation
	}
	layer := deviation * math.Sqrt(float64(c.HiddenSize)) * deviation * math.Sqrt(float64(c.Heads*c.HeadDim))
	return max(deviation, 2*layer*math.Sqrt(float64(c.Layers)))
}

// affineRandomGroup is the group of random affine weights.
const affineRandomGroup = 64

// repeatValue fills dst with one value.
func repeatValue(dst []byte, dt backend.DType, x float32) {
	encodeValue(dst, dt, x)
	for at := dt.Size(); at < len(dst); at *= 2 {
		copy(dst[at:], dst[:at])
	}
}

// quantizedBlock is some million weights of a quantised type: a prime number
// of its blocks, or of words of affine groups.
func quantizedBlock(dt backend.DType, seed uint64) []byte {
	const blocks = 4099
	r := rand.New(rand.NewPCG(seed, 3))
	if dt.Affine() {
		words := make([]byte, 4*262147)
		for i := range words {
			words[i] = byte(r.Uint32())
		}
		return words
	}
	values := make([]float32, blocks*dt.BlockSize())
	for i := range values {
		values[i] = float32(r.NormFloat64() * deviation)
	}
	block := make([]byte, blocks*dt.BlockBytes())
	quant.Blocks(block, dt, values)
	return block
}

func (s *randomSource) Config() *checkpoint.Config { return s.config }

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
func normalBlock(dt backend.DType, seed uint64, deviation float64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	block := make([]byte, randomBlock*dt.Size())
	for i := range randomBlock {
		encodeValue(block[i*dt.Size():], dt, float32(r.NormFloat64()*deviation))
	}
	return block
}

// encodeValue writes one value of a float type.
func encodeValue(dst []byte, dt backend.DType, x float32) {
	switch dt {
	case backend.F32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(x))
	case backend.BF16:
		binary.LittleEndian.PutUint16(dst, quant.F32ToBF16(x))
	case backend.F16:
		binary.LittleEndian.PutUint16(dst, quant.F32ToF16(x))
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

// Mappings are what checkpoint.Mappings asks for.
func (s *randomSource) Mappings() [][]byte { return [][]byte{s.memory} }
