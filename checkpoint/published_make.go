package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"windrow/backend"
	"windrow/quant"
)

// groupedChunk is how many outputs a core converts at a time: those that a cache
// line of 64 bytes holds numbers of, where words lie along the outputs.
const groupedChunk = 128

// makeGrouped converts g to t on every core. stored is the name of its numbers.
func makeGrouped(t backend.Tensor, g *quant.Grouped, stored string) func(context.Context) (backend.Tensor, error) {
	return func(ctx context.Context) (backend.Tensor, error) {
		y := t.Allocated()
		chunks := (g.Out + groupedChunk - 1) / groupedChunk
		errs := make([]error, chunks)
		var next atomic.Int64
		var failed atomic.Bool
		var wg sync.WaitGroup
		for range min(runtime.GOMAXPROCS(0), chunks) {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < chunks && ctx.Err() == nil && !failed.Load(); i = int(next.Add(1)) - 1 {
					errs[i] = g.Convert(&y, i*groupedChunk, min((i+1)*groupedChunk, g.Out))
					if errs[i] != nil {
						failed.Store(true)
					}
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return backend.Tensor{}, fmt.Errorf("tensor %.80q: %w", stored, err)
			}
		}
		return y, ctx.Err()
	}
}

// float8Blocks is a weight [out, in] of F8_E4M3 with a scale for each block.
type float8Blocks struct {
	out, in         int
	outputs, inputs int            // of a block; the last ones may be smaller
	scales          backend.Tensor // [1, blocks], row after row
}

// make gives t the bytes of its file as they lie there, and the scales of each
// row in f32.
func (b *float8Blocks) make(t backend.Tensor, data []byte) func(context.Context) (backend.Tensor, error) {
	return func(ctx context.Context) (backend.Tensor, error) {
		groups := t.Groups()
		wide := make([]float32, b.scales.Elements())
		quant.Row(wide, &b.scales, 0)
		y := t
		y.Make, y.Data, y.Scales = nil, data, make([]byte, 4*b.out*groups)
		for o := range b.out {
			for g, s := range wide[o/b.outputs*groups:][:groups] {
				binary.LittleEndian.PutUint32(y.Scales[4*(o*groups+g):], math.Float32bits(s))
			}
		}
		return y, ctx.Err()
	}
}
