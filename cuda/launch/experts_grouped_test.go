package launch

import "testing"

// TestGroupedTiles holds how rows of experts are cut where the measured shapes are.
func TestGroupedTiles(t *testing.T) {
	d := &Device{prefill: prefill{hopper: &hopperGEMM{}, tried: true}}
	for _, c := range []struct{ rows, chosen, experts, prompt, decode int }{
		{32, 8, 128, 2, 0}, {48, 8, 128, 2, 1}, {64, 8, 128, 2, 2}, {128, 8, 128, 2, 2}, {256, 8, 128, 4, 2}, {512, 8, 128, 6, 2}, {2048, 8, 128, 9, 2},
		{96, 8, 256, 2, 1}, {128, 8, 256, 2, 2}, {512, 8, 256, 4, 2}, {2048, 8, 256, 9, 2},
		{128, 10, 512, 2, 1}, {512, 10, 512, 2, 2}, {2048, 10, 512, 6, 2},
	} {
		if got := d.groupedTile(true, c.rows*c.chosen, c.experts); got != c.prompt {
			t.Errorf("%d of %d experts, a prompt of %d rows: tiles of %d, want %d", c.chosen, c.experts, c.rows, 8*got, 8*c.prompt)
		}
		if got := d.groupedPartTile(true, c.rows, c.rows*c.chosen, c.experts); got != c.decode {
			t.Errorf("%d of %d experts, %d rows: tiles of %d, want %d", c.chosen, c.experts, c.rows, 8*got, 8*c.decode)
		}
	}
	if d.groupedTile(false, 2048*8, 128) != 0 || d.groupedPartTile(false, 128, 1024, 128) != 0 {
		t.Error("experts by other weights are tiled")
	}
}
