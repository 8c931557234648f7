package launch

import (
	"testing"

	"windrow/backend"
)

// TestTiledChoice holds which forms are chosen for 48 rows and more on a device as large as an H200, where
// what was measured there says which is the fastest (docs/adr/0065-forms-of-many-rows-have-a-price.md).
func TestTiledChoice(t *testing.T) {
	d := &Device{prefill: prefill{hopper: &hopperGEMM{}, tried: true}}
	d.Info.SMs, d.Info.SharedPerBlock = 132, 227<<10
	for _, c := range []struct {
		name          string
		dt            backend.DType
		out, in, rows int
		want          string // "": kernels/stream.cuh
	}{
		{"8B, q, k, v", backend.Affine4, 6144, 4096, 64, "64x64/2"}, {"8B, q, k, v", backend.Affine4, 6144, 4096, 128, "64x128/1"}, {"8B, o", backend.Affine4, 4096, 4096, 64, "32x64/4"},
		{"8B, gate and up", backend.Affine4, 24576, 4096, 64, "64x192/1"}, {"8B, down", backend.Affine4, 4096, 12288, 128, "64x64/2"}, {"8B, down", backend.Affine4, 4096, 12288, 256, "64x128/1"},
		{"27B, q, k, v, z", backend.Affine4, 16384, 5120, 128, "128x128/1"}, {"27B, out", backend.Affine4, 5120, 6144, 256, "64x192/1"},
		{"35B, q, k, v, z", backend.Affine4, 12288, 2048, 64, "32x192/1"}, {"35B, q, k, v, z", backend.Affine4, 12288, 2048, 128, "64x192/1"},
		{"35B, o", backend.Affine4, 2048, 4096, 48, ""}, {"35B, o", backend.Affine4, 2048, 4096, 64, "32x192/1x4"}, {"35B, o", backend.Affine4, 2048, 4096, 128, "32x64/4"},
		{"shared expert", backend.Affine4, 1024, 2048, 128, ""},
		{"8B, gate and up", backend.Q4_K, 24576, 4096, 128, "64x192/1"}, {"27B, q, k, v, z", backend.Q4_K, 16384, 5120, 64, "64x128/1"}, {"35B, o", backend.Q8_0, 2048, 4096, 64, "32x192/1x4"},
	} {
		f, _ := formatOf(c.dt, 64)
		s, ok := d.tiled(f, c.out/16, c.rows, c.in)
		got := ""
		if ok {
			got = s.String()
		}
		if got != c.want {
			t.Errorf("%s by %v, %d rows: %q, want %q", c.name, c.dt, c.rows, got, c.want)
		}
	}
	f, _ := formatOf(backend.Affine4, 64)
	if s, ok := d.tiled(f, 6144/16, 32, 4096); !ok || s.String() != "32x64/4" {
		t.Errorf("32 rows: %v, %v", s, ok)
	}
}
