package launch

import (
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/emulator"
)

// TestTakesFew: attention of few rows is one launch where all of its clusters are at work at once,
// as the driver says where it is close, and where a block's shared memory holds what it joins.
func TestTakesFew(t *testing.T) {
	if emulator.OnGPU {
		t.Skip("an emulated device's multiprocessors are told")
	}
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	t.Setenv("WINDROW_EMULATED_SMS", "64")
	d := openDevice(t, driver.Options{Library: emulator.Driver(t)}, 0)
	shape := func(kvHeads int) Attention {
		return Attention{QHeads: 4 * kvHeads, KVHeads: kvHeads, Dim: 128, Scale: 1, KV: backend.KVBF16, Layers: 1}
	}
	for _, c := range []struct {
		kvHeads, longest, spans, chunks int
		want                            bool
		asked                           int // kernels that the driver was asked about
	}{
		{kvHeads: 4, longest: 16, spans: 1, chunks: 16, want: true},
		{kvHeads: 8, longest: 16, spans: 1, chunks: 16, want: true, asked: 1}, // all multiprocessors
		{kvHeads: 9, longest: 16, spans: 1, chunks: 16, asked: 1},
		{kvHeads: 8, longest: 1, spans: 2, chunks: 16, want: true, asked: 2}, // two blocks each
		{kvHeads: 8, longest: 1, spans: 4, chunks: 16, asked: 2},
		{kvHeads: 4, longest: 33, spans: 1, chunks: 16, asked: 2},
		{kvHeads: 4, longest: 1, spans: 1, chunks: 64, asked: 2},
		{kvHeads: 2, longest: 32, spans: 1, chunks: 32, want: true, asked: 3}, // teams by shared memory
	} {
		if got := d.TakesFew(shape(c.kvHeads), 64, c.longest, c.spans, c.chunks); got != c.want || len(d.clusters) != c.asked {
			t.Errorf("%+v: %t, asked about %d", c, got, len(d.clusters))
		}
	}
	a := shape(4)
	if a.KV = backend.KVInt8; d.TakesFew(a, 64, 1, 1, 16) {
		t.Error("keys in int8 are taken")
	}
	d.common = true
	d.prefill.tried, d.prefill.hopper = true, nil
	if d.TakesFew(shape(4), 64, 1, 1, 16) {
		t.Error("taken without kernels for compute capability 9.0")
	}
}
