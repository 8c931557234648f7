package launch

import "testing"

// TestGroupedTiles holds how rows of experts are cut where the measured shapes are.
func TestGroupedTiles(t *testing.T) {
	d := &Device{prefill: prefill{hopper: &hopperGEMM{}, tried: true}}
	for _, c := range []struct{ rows, chosen, experts, prompt, decode int }{
		{32, 8, 128, 2, 0}, {48, 8, 128, 2, 1}, {64, 8, 128, 2, 1}, {96, 8, 128, 2, 2}, {128, 8, 128, 2, 2}, {256, 8, 128, 4, 4}, {512, 8, 128, 6, 4}, {2048, 8, 128, 9, 4},
		{96, 8, 256, 2, 1}, {128, 8, 256, 2, 2}, {256, 8, 256, 2, 2}, {512, 8, 256, 4, 4}, {2048, 8, 256, 9, 4},
		{128, 10, 512, 2, 1}, {256, 10, 512, 2, 2}, {512, 10, 512, 2, 2}, {2048, 10, 512, 6, 4},
	} {
		rows := Rows{Count: c.rows, Prompt: true}
		if got := d.groupedTile(true, false, rows, c.chosen, c.experts); got != c.prompt {
			t.Errorf("%d of %d experts, a prompt of %d rows: tiles of %d, want %d", c.chosen, c.experts, c.rows, 8*got, 8*c.prompt)
		}
		if got := d.groupedTile(true, true, rows, c.chosen, c.experts); got != c.decode {
			t.Errorf("%d of %d experts, %d rows: tiles of %d, want %d", c.chosen, c.experts, c.rows, 8*got, 8*c.decode)
		}
	}
	for _, decode := range []bool{false, true} {
		if d.groupedTile(false, decode, Rows{Count: 2048}, 8, 128) != 0 {
			t.Errorf("experts of other types are tiled, decode %v", decode)
		}
	}
}
