package cuda

import (
	"os"
	"strings"
	"testing"
)

// TestProjectionTimes runs the benchmark: on a GPU whole, on the emulated
// device with a tiny model's shapes.
func TestProjectionTimes(t *testing.T) {
	d := testDevice(t)
	if os.Getenv("WINDROW_CUDA_DEVICE") != "" {
		d.benchProjections(os.Stdout)
		return
	}
	var out strings.Builder
	b := &projectTimes{d: d, w: &out, noise: 1 << 20, layers: 1, launches: 2, replays: 1, variants: []tuning{{}, {shared: 100 << 10}}, shapes: []benchShape{
		{"q k v", []int{256, 64, 64}, 256, false}, {"gate up", []int{128, 128}, 256, true}, {"head", []int{300}, 256, false},
	}}
	b.run([]int{8, 16})
	if n := strings.Count(out.String(), "GB/s"); n != 30 || strings.Contains(out.String(), "projections:") {
		t.Errorf("%d lines of figures, want 30:\n%s", n, out.String())
	}
}
