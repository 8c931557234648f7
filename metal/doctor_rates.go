package metal

import (
	"encoding/binary"
	"fmt"
	"time"

	"windrow/backend"
	"windrow/backend/doctor"
	"windrow/quant"
)

const (
	// ratesBytes is what a measurement moves at least, more than any cache holds.
	ratesBytes = 512 << 20
	ratesRuns  = 4 // the best counts
)

// room bounds what a measurement takes of the GPU's memory.
func (d *device) room() int { return min(ratesBytes, d.info.WorkingSet/8) }

// best encodes f some times and returns the least time of the GPU in seconds.
func (d *device) best(f func(e encoder)) (least float64, err error) {
	for range ratesRuns {
		if err := d.encode(f); err != nil {
			return 0, err
		}
		if least == 0 || d.seconds < least {
			least = d.seconds
		}
	}
	if least <= 0 {
		return 0, fmt.Errorf("the GPU tells no times")
	}
	return least, nil
}

// measureBandwidth is the rate of reading f32 and writing bf16.
func (d *device) measureBandwidth(c *doctor.Check) (err error) {
	c.Rate, err = d.bandwidth()
	c.Detail = "read and written, f32 to bf16"
	return err
}

// bandwidth is in 10⁹ bytes a second, read and written both counted.
func (d *device) bandwidth() (float64, error) {
	n := d.room() / 6 &^ 0xff
	src, err := d.alloc(4*n, elemF32)
	if err != nil {
		return 0, err
	}
	defer d.free(src)
	clear(src.bytes())
	dst, err := d.alloc(2*n, elemBF16)
	if err != nil {
		return 0, err
	}
	defer d.free(dst)
	seconds, err := d.best(func(e encoder) { convertRows(e, dst, src, n) })
	if err != nil {
		return 0, err
	}
	return 6 * float64(n) / seconds / 1e9, nil
}

// measureLatency is how long a command buffer of one small dispatch takes the
// host, and what one dispatch more adds.
func (d *device) measureLatency(c *doctor.Check) error {
	v, err := d.alloc(4<<10, elemF32)
	if err != nil {
		return err
	}
	defer d.free(v)
	to, err := d.alloc(2<<10, elemBF16)
	if err != nil {
		return err
	}
	defer d.free(to)
	clear(v.bytes())
	var least [2]time.Duration
	const many = 300
	for i, dispatches := range []int{1, 1 + many} {
		for run := range 20 {
			start := time.Now()
			err := d.encode(func(e encoder) {
				for range dispatches {
					convertRows(e, to, v, 1<<10)
				}
			})
			if err != nil {
				return err
			}
			if took := time.Since(start); run == 0 || took < least[i] {
				least[i] = took
			}
		}
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	c.Detail = fmt.Sprintf("%.0f µs a command buffer, %.1f µs a dispatch more", us(least[0]), us(least[1]-least[0])/many)
	return nil
}

// windowShape is a projection of a window of rows.
type windowShape struct {
	dtype         backend.DType
	rows, out, in int
}

// windowShapes are projections of an 8B model: of one token, of a window, of a
// prompt.
var windowShapes = []windowShape{
	{backend.Affine4, 1, 4096, 4096},
	{backend.Affine4, 16, 4096, 4096},
	{backend.Affine4, 16, 12288, 4096},
	{backend.Affine4, 16, 4096, 12288},
	{backend.Affine4, 32, 4096, 4096},
	{backend.BF16, 16, 4096, 4096},
	{backend.Q4_K, 16, 4096, 4096},
	{backend.Affine4, 512, 4096, 4096},
	{backend.BF16, 512, 4096, 4096},
}

func (s windowShape) name() string {
	return fmt.Sprintf("project %v, %d rows, %d×%d", s.dtype, s.rows, s.out, s.in)
}

// measure times it over copies of the weight that no cache holds together.
func (s windowShape) measure(d *device, c *doctor.Check) error {
	size := s.out * s.dtype.RowBytes(s.in)
	scales := 0
	group := 0
	if s.dtype.Affine() {
		group = 64
		scales = 2 * s.out * s.in / group
	}
	n := max(1, d.room()/(size+2*scales))
	var owned []view
	defer func() {
		for _, v := range owned {
			d.free(v)
		}
	}()
	reserve := func(bytes int, e elem, fill func(data []byte)) (view, error) {
		v, err := d.alloc(bytes, e)
		if err == nil {
			owned = append(owned, v)
			fill(v.bytes())
		}
		return v, err
	}
	ones := func(data []byte) { repeat(data, []byte{0x80, 0x3c}) } // 1/64 in bf16
	var weights []linear
	for range n {
		w := linear{weight: weight{dtype: s.dtype, out: s.out, in: s.in, group: group}}
		var err error
		if w.data, err = reserve(size, weightElem(s.dtype), func(data []byte) { fillWeights(data, s.dtype) }); err != nil {
			return err
		}
		if scales > 0 {
			if w.scales, err = reserve(scales, elemBF16, ones); err != nil {
				return err
			}
			if w.biases, err = reserve(scales, elemBF16, ones); err != nil {
				return err
			}
		}
		weights = append(weights, w)
	}
	x, err := reserve(2*s.rows*s.in, elemBF16, ones)
	if err != nil {
		return err
	}
	dst, err := reserve(4*s.rows*s.out, elemF32, func([]byte) {})
	if err != nil {
		return err
	}
	seconds, err := d.best(func(e encoder) {
		for _, w := range weights {
			project(e, []view{dst}, x, s.rows, []linear{w}, s.rows <= invariantRows)
		}
	})
	if err != nil {
		return err
	}
	seconds /= float64(n)
	c.Rate = float64(size+2*scales) / seconds / 1e9
	c.Detail = fmt.Sprintf("%.0f µs, %.2f TFLOP/s, the rate is of the weights", 1e6*seconds, 2*float64(s.rows)*float64(s.out)*float64(s.in)/seconds/1e12)
	return nil
}

// repeat fills dst with a pattern.
func repeat(dst, pattern []byte) {
	for n := copy(dst, pattern); n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// fillWeights makes weights of small different values.
func fillWeights(dst []byte, dt backend.DType) {
	const some = 1024
	if dt.Affine() {
		words := make([]byte, 0, 4*some)
		for i := range uint32(some) {
			words = binary.LittleEndian.AppendUint32(words, i*2654435761)
		}
		repeat(dst, words)
		return
	}
	values := make([]float32, some)
	for i := range values {
		values[i] = float32(i%29-14) / 256
	}
	block := make([]byte, dt.RowBytes(some))
	quant.Blocks(block, dt, values)
	repeat(dst, block)
}

// Bandwidth measures for about d how fast the device reads and writes its
// memory: GB/s, both counted. It is 0 where that cannot be measured.
func (b *Backend) Bandwidth(d time.Duration) (rate float64) {
	m, ok := b.memory.(gpuMemory)
	if !ok {
		return 0
	}
	for start := time.Now(); rate == 0 || time.Since(start) < d; {
		var r float64
		var err error
		if closed := m.gpu.do(func() { r, err = m.gpu.device.bandwidth() }); closed != nil || err != nil || r == 0 {
			return 0
		}
		rate = max(rate, r)
	}
	return rate
}
