package cuda

import (
	"fmt"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
	"windrow/model"
	"windrow/synthetic"
)

// promptModel loads a model of random weights onto a device whose passes of prompts keep
// their bits: one of compute capability 9.0, or one that takes gemm.cu.
func promptModel(t *testing.T, library string, c *checkpoint.Config, dt backend.DType) *model.Model {
	t.Helper()
	b, err := New(Options{Library: library})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if !hopper(b.device) {
		b.device.UseRoute(launch.RouteOwn)
		b.setPromptRows()
	}
	m, err := model.Load(b, synthetic.RandomSource(c, dt, 9))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// large is a layer of Qwen3-8B's shape, whose products are cut by rows.
func large() *checkpoint.Config {
	c := small(true)
	c.HiddenSize, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.IntermediateSize = 4096, 1, 32, 8, 128, 12288
	c.Rope.HeadDim = 128
	return c
}

// smallHybrid is a model with recurrent layers, gates of attention, and experts.
func smallHybrid() *checkpoint.Config {
	c := smallMixture()
	c.Architecture, c.Heads, c.KVHeads, c.AttentionGate = "qwen3_5_moe_text", 2, 1, true
	c.Delta = &checkpoint.DeltaNet{KeyHeads: 1, ValueHeads: 2, KeyDim: 128, ValueDim: 128, Conv: 4, Layers: []bool{true, false}}
	c.Experts.SharedInnerSize = 128
	return c
}

// promptTypes are weights of each arithmetic: as stored, by groups, by blocks.
var promptTypes = []backend.DType{backend.BF16, backend.Affine4, backend.Q4_K, backend.F32}

// TestPrompts: rows of prompts have the same bits however prompts are cut, and beside
// others. On a GPU in large shapes, too, and all that a pass may have.
func TestPrompts(t *testing.T) { testPrompts(t, emulator.Driver(t)) }

// TestPromptsHopper is TestPrompts on an emulated device of compute capability 9.0,
// checked: packed weights alone.
func TestPromptsHopper(t *testing.T) { testPrompts(t, emulator.CheckedHopper(t), backend.Affine4) }

func testPrompts(t *testing.T, library string, types ...backend.DType) {
	rows := 140 // more than experts take as in steps
	models := map[string]*checkpoint.Config{"dense": small(true), "experts": smallMixture(), "hybrid": smallHybrid()}
	if emulator.OnGPU {
		rows = launch.PromptRows
		models["large"] = large()
		types = promptTypes
	} else if types == nil {
		types = promptTypes[:2]
		if testing.Short() {
			t.Logf("left out: %v, and dense models, on the emulator: leave -short out", types[0])
			types = types[1:]
			delete(models, "dense")
		}
	}
	for name, c := range models {
		for i, dt := range types {
			if name == "large" && dt == backend.F32 {
				continue // the small one has its kernels
			}
			kv := []backend.KVType{backend.KVBF16, backend.KVInt8}[i%2]
			c := *c
			if dt == backend.Q4_K {
				if name != "large" { // whole blocks of 256
					c.HiddenSize, c.IntermediateSize = 256, 512
				}
				if c.Experts != nil {
					e := *c.Experts
					e.InnerSize, e.SharedInnerSize = 256, 2*e.SharedInnerSize
					c.Experts = &e
				}
				if c.Delta != nil {
					d := *c.Delta
					d.ValueDim = 256 / d.ValueHeads
					c.Delta, c.HeadDim, c.Rope.HeadDim = &d, 256/c.Heads, 256/c.Heads
				}
			}
			t.Run(fmt.Sprintf("%s %v, kv %v", name, dt, kv), func(t *testing.T) {
				m := promptModel(t, library, &c, dt)
				if differ := backendtest.RunPrompts(t, m, kv, rows); !differ && dt != backend.F32 {
					t.Error("cut so, other rows have these bits, too: nothing is shown")
				}
			})
		}
	}
}

// TestPromptsNot: nothing is promised of prompts where another library or another number
// of GPUs decides the order of sums.
func TestPromptsNot(t *testing.T) {
	for name, o := range map[string]Options{"exact": {Exact: true}, "default": {}} {
		o.Library = emulator.Driver(t)
		b, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if name == "default" && hopper(b.device) {
			want = launch.PromptRows
		}
		if got := b.Features().PromptRows; got != want {
			t.Errorf("%s: prompts of %d rows, want %d", name, got, want)
		}
		b.Close()
	}
}
