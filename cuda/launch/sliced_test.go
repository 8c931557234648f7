package launch

import (
	"testing"

	"windrow/backend"
)

// TestSlicedChoice: where kernels/sliced_hopper.cu makes a projection, and by which tile.
func TestSlicedChoice(t *testing.T) {
	d := &Device{prefill: prefill{hopper: &hopperGEMM{}, tried: true}}
	d.Info.SMs, d.Info.SharedPerBlock = 132, 227<<10
	bf16 := func(in int, outs ...int) (w []Linear) {
		for _, out := range outs {
			w = append(w, Linear{Weight: &Weight{Out: out, In: in}})
		}
		return w
	}
	packed := []Linear{{Weight: &Weight{Out: 4096, In: 4096, Packed: &packedMatrix{dt: backend.Affine4}}}}
	packed[0].Weight.Packed.format, _ = formatOf(backend.Affine4, 64)
	qkv, o, halves, down, head := bf16(4096, 4096, 1024, 1024), bf16(4096, 4096), bf16(4096, 12288, 12288), bf16(12288, 4096), bf16(4096, 151936)
	for _, c := range []struct {
		name  string
		w     []Linear
		gated bool
		rows  int
		want  string // none: "0x0"
	}{
		{"few rows", qkv, false, 32, "0x0"}, {"33 rows", qkv, false, 33, "64x64"}, {"128 rows", qkv, false, 128, "128x64"}, {"256 rows", qkv, false, 256, "128x128"},
		{"o", o, false, 64, "64x32"}, {"o of 128 rows", o, false, 128, "64x64"}, {"down of 128 rows", down, false, 128, "64x64"},
		{"gate and up", halves, true, 128, "128x128"}, {"gate and up of few rows", halves, true, 32, "0x0"},
		{"head of 16 rows", head, false, 16, "0x0"}, {"head of 17 rows", head, false, 17, "64x128"}, {"head", head, false, 128, "128x128"},
		{"packed", packed, false, 64, "0x0"}, {"outputs that are no eights", bf16(4096, 4100), false, 64, "0x0"}, {"inputs that are no eights", bf16(4100, 4096), false, 64, "0x0"},
	} {
		p := projectionOf(nil, c.w, c.gated)
		if got, ok := d.sliced(&p, c.rows); got.String() != c.want || ok != (c.want != "0x0") || p.err != nil {
			t.Errorf("%s, %d rows: %v, %v, %v, want %s", c.name, c.rows, got, ok, p.err, c.want)
		}
	}
	for _, tile := range slicedTiles {
		for rows := 1; rows <= 600; rows++ {
			box := tile.box(rows)
			if tiles := Ceil(rows, 2*box); box%8 != 0 || 2*box > tile.rows || tiles > Ceil(rows, tile.rows) {
				t.Fatalf("%v, %d rows: boxes of %d", tile, rows, box)
			}
		}
	}
	if d.prefillSliced(hopperNarrow, nil, 0, head, false, slicedPromptHead+1) || d.prefillSliced(hopperNarrow, nil, 0, o, false, slicedPromptRows+1) || d.prefillSliced(gemmNarrow, nil, 0, o, false, 40) {
		t.Error("a prompt's projection is sliced that is another's")
	}
}
