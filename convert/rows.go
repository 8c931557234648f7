package convert

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/quant"
)

// quantizeChunk is how many weights are converted before they are written:
// 4 Mi take at most 8 MiB, and a core some 10 ms.
const quantizeChunk = 4 << 20

// convert fills parts with rows [o0, o1) of the step's data, scales and biases,
// on every core.
func (s *quantizeStep) convert(o0, o1 int, parts [3][]byte) error {
	workers := min(runtime.GOMAXPROCS(0), o1-o0)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		a, b := o0+(o1-o0)*w/workers, o0+(o1-o0)*(w+1)/workers
		wg.Go(func() {
			row := make([]float32, s.in)
			for o := a; o < b && errs[w] == nil; o++ {
				errs[w] = s.convertRow(o, row, s.rowsOf(parts, o-o0, o-o0+1))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// rowsOf cuts rows [a, b) out of parts.
func (s *quantizeStep) rowsOf(parts [3][]byte, a, b int) (cut [3][]byte) {
	for i, n := range s.rowBytes() {
		cut[i] = parts[i][int64(a)*n : int64(b)*n]
	}
	return cut
}

// convertRow converts one row, by way of f32.
func (s *quantizeStep) convertRow(o int, row []float32, to [3][]byte) error {
	o = s.row(o)
	if !s.quantized() && s.source.DType == s.float && !s.centred {
		copy(to[0], s.source.Data[s.float.Size()*o*s.in:])
		return nil
	}
	t := s.source
	if s.vector {
		t.Shape = []int{s.in}
	}
	quant.Row(row, &t, o)
	if s.centred {
		for i := range row {
			row[i]--
		}
	}
	if !s.quantized() {
		quant.Blocks(to[0], s.float, row)
		return nil
	}
	quant.Affine(to[0], to[1], to[2], row, s.format.Bits, s.format.Group)
	for at := 0; at < len(to[1]); at += 2 {
		for _, part := range to[1:] {
			if binary.LittleEndian.Uint16(part[at:])&0x7f80 == 0x7f80 {
				return fmt.Errorf("tensor %s: row %d holds NaN, infinite or too large values: cannot be quantised", s.source.Name, o)
			}
		}
	}
	return nil
}

// stream converts the step chunk by chunk; write gets each chunk of each part
// with its place within the part. The buffers are used again.
func (s *quantizeStep) stream(ctx context.Context, write func(part int, at int64, data []byte) error, done func(rows int)) error {
	rows := min(s.out, max(1, quantizeChunk/s.in))
	var parts [3][]byte
	for i, n := range s.rowBytes() {
		parts[i] = make([]byte, n*int64(rows))
	}
	for o := 0; o < s.out; o += rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(rows, s.out-o)
		if err := s.convert(o, o+n, parts); err != nil {
			return err
		}
		for i, data := range s.rowsOf(parts, 0, n) {
			if len(data) > 0 {
				if err := write(i, s.rowBytes()[i]*int64(o), data); err != nil {
					return err
				}
			}
		}
		done(n)
	}
	return nil
}

// Quantized quantises in memory, to the tensors that Quantize writes: what
// is kept is in bf16, of a bf16 source the source's own data. It is for
// measuring a policy before it is written.
func Quantized(ctx context.Context, src checkpoint.Source, p Policy) (checkpoint.Source, Report, error) {
	steps, err := planQuantize(src, p)
	if err != nil {
		return nil, Report{}, err
	}
	q := &quantizedSource{config: src.Config(), tensors: map[string]backend.Tensor{}}
	for _, s := range steps {
		t := s.source
		if s.quantized() || t.DType != s.float || s.name != t.Name {
			if t, err = s.inMemory(ctx); err != nil {
				return nil, Report{}, err
			}
		}
		q.tensors[t.Name] = t
		q.names = append(q.names, t.Name)
	}
	return q, reportQuantize(steps, p), nil
}

// inMemory converts the step's tensor.
func (s *quantizeStep) inMemory(ctx context.Context) (t backend.Tensor, err error) {
	var whole [3][]byte
	for i, n := range s.rowBytes() {
		whole[i] = make([]byte, n*int64(s.out))
	}
	write := func(part int, at int64, data []byte) error {
		copy(whole[part][at:], data)
		return nil
	}
	if err := s.stream(ctx, write, func(int) {}); err != nil {
		return t, err
	}
	t = backend.Tensor{Name: s.name, DType: s.float, Shape: s.shape, Data: whole[0]}
	if s.centred {
		return checkpoint.WholeNorm(t)
	}
	if s.quantized() {
		t.DType, t.Group, t.Scales, t.Biases = s.format.DType(), s.format.Group, whole[1], whole[2]
	}
	return t, nil
}

// quantizedSource is a model quantised in memory.
type quantizedSource struct {
	config  *checkpoint.Config
	tensors map[string]backend.Tensor
	names   []string
}

func (q *quantizedSource) Config() *checkpoint.Config { return q.config }

func (q *quantizedSource) Names() []string { return q.names }

func (q *quantizedSource) Tensor(name string) (backend.Tensor, bool) {
	t, ok := q.tensors[name]
	return t, ok
}
