package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// TriedFloats of each rank are exchanged in tests: a row of the residual of an 8B
// model.
const TriedFloats = 4096

// TryExchange compares all exchanges with what they have to bring, and says how
// long one of a decode pass takes; all ranks try at the same time.
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
	if took, err = d.timeExchange(func() error { return r.gather(s, p, TriedFloats) }); err != nil {
		return 0, err
	}
	if d.exchangesByPeers(TriedFloats) {
		if took, err = d.tryPeers(); err != nil {
			return 0, err
		}
	}
	if err = d.Context.Upload(p, own); err != nil {
		return 0, err
	}
	if err = r.reduce(s, p, TriedFloats); err != nil {
		return 0, err
	}
	return took, hold("added up to", 1, func(i int) float32 { return triedSum(r.count, i) })
}

// tryPeers is the part of TryExchange that kernels do.
func (d *Device) tryPeers() (took time.Duration, err error) {
	dst, err := d.Context.Alloc(4 * TriedFloats)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Context.Free(dst)) }()
	own := d.OwnPartial(TriedFloats, true)
	exchange := func(n int) error {
		d.exchangePartials(dst, own, n)
		return d.Take()
	}
	// Odd and even rounds, and fewer numbers than there were before.
	const rounds = 3
	if err = d.Stream.Zero(dst, 4*TriedFloats); err != nil {
		return 0, err
	}
	for round := range rounds {
		if err = exchange(TriedFloats - 511*round); err != nil {
			return 0, err
		}
	}
	got := make([]float32, TriedFloats)
	if err = d.DownloadFloats(got, dst); err != nil {
		return 0, err
	}
	for i, v := range got {
		want := float32(0)
		for round := range rounds {
			if i < TriedFloats-511*round {
				want += triedSum(d.rank.count, i)
			}
		}
		if v != want {
			return 0, fmt.Errorf("cuda: the GPUs' own exchange gives %v at %d, want %v (%s=off leaves it out)", v, i, want, PeersVariable)
		}
	}
	return d.timeExchange(func() error { return exchange(TriedFloats) })
}

// timeExchange is how long one of many takes.
func (d *Device) timeExchange(once func() error) (time.Duration, error) {
	const times = 20
	start := time.Now()
	for range times {
		if err := once(); err != nil {
			return 0, err
		}
	}
	err := d.Stream.Synchronize()
	return time.Since(start) / times, err
}

// tried is a whole number that differs between ranks and neighbours; sums of it are
// exact in any order.
func tried(rank, i int) float32 { return float32((rank + 1) * (i%1000 + 1)) }

// triedSum is that of all ranks.
func triedSum(ranks, i int) (sum float32) {
	for k := range ranks {
		sum += tried(k, i)
	}
	return sum
}
