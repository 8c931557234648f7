package launch

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// TriedFloats of each rank are exchanged in tests: a row of the residual of an 8B
// model.
const TriedFloats = 4096

// TryExchange compares both exchanges with what they have to bring, and says how
// long one takes; all ranks try at the same time.
func (d *Device) TryExchange() (took time.Duration, err error) {
	d.Context.Enter()
	defer d.Context.Leave()
	if _, err = d.PreparePartials(TriedFloats, true); err != nil {
		return 0, err
	}
	r, s, p := d.rank, d.Stream, d.partials.data
	own := make([]byte, 4*TriedFloats)
	for i := range TriedFloats {
		binary.LittleEndian.PutUint32(own[4*i:], math.Float32bits(tried(r.index, i)))
	}
	hold := func(what string, ranks int, want func(i int) float32) error {
		got := make([]float32, ranks*TriedFloats)
		if err := d.DownloadFloats(got, p); err != nil {
			return err
		}
		for i, v := range got {
			if v != want(i) {
				return fmt.Errorf("cuda: NCCL %s %v at %d, want %v", what, v, i, want(i))
			}
		}
		return nil
	}
	if err = d.Context.Upload(d.OwnPartial(TriedFloats, true), own); err != nil {
		return 0, err
	}
	if err = r.gather(s, p, TriedFloats); err != nil {
		return 0, err
	}
	if err = hold("gathered", r.count, func(i int) float32 { return tried(i/TriedFloats, i%TriedFloats) }); err != nil {
		return 0, err
	}
	const times = 20
	start := time.Now()
	for range times {
		if err = r.gather(s, p, TriedFloats); err != nil {
			return 0, err
		}
	}
	if err = s.Synchronize(); err != nil {
		return 0, err
	}
	took = time.Since(start) / times
	if err = d.Context.Upload(p, own); err != nil {
		return 0, err
	}
	if err = r.reduce(s, p, TriedFloats); err != nil {
		return 0, err
	}
	return took, hold("added up to", 1, func(i int) (sum float32) {
		for k := range r.count {
			sum += tried(k, i)
		}
		return sum
	})
}

// tried is a whole number that differs between ranks and neighbours; sums of it are
// exact in any order.
func tried(rank, i int) float32 { return float32((rank + 1) * (i%1000 + 1)) }
