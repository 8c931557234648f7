package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/cpu"
	"windrow/cuda/emulator"
	"windrow/model"
	"windrow/synthetic"
)

// openHosting opens a GPU whose experts of the first layers stay with the CPU.
func openHosting(t testing.TB, exact bool, layers int) *Backend {
	t.Helper()
	host, err := cpu.New(cpu.Options{Exact: exact, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Options{Exact: exact, Library: emulator.Driver(t), Experts: host, ExpertLayers: layers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// TestHostExperts runs the suite's part for mixtures with all experts in the host's memory.
func TestHostExperts(t *testing.T) {
	if testing.Short() && !emulator.OnGPU {
		t.Skip("the suite for mixtures on the emulator: leave -short out") // TestHostVerified and TestHostRows run some
	}
	for name, exact := range map[string]bool{"exact": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			backendtest.RunExperts(t, "", func(t *testing.T) backend.Backend { return openHosting(t, exact, 1) })
		})
	}
}

// TestHostGolden: golden mixtures with the experts of some layers, and of all, in the host's
// memory have the reference's logits, and the same bits in forwards of 1, 7, 16 and all rows.
func TestHostGolden(t *testing.T) {
	if testing.Short() && !emulator.OnGPU {
		t.Skip("minutes on the emulator: leave -short out")
	}
	whole := emulator.OnGPU || os.Getenv("WINDROW_SLOW") != ""
	if !whole {
		t.Log("left out: golden hybrids in both arithmetics and for each number of layers, minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, c := range []struct {
		name   string
		layers int
		exact  bool
		quick  bool // runs in any case
	}{
		{"qwen3-moe-tiny", 2, true, true}, {"qwen3-moe-tiny", 4, true, true}, {"qwen3-moe-tiny", 4, false, true},
		{"qwen3-next-tiny", 4, true, true}, {"qwen3-next-tiny", 1, true, false}, {"qwen3-next-tiny", 4, false, false},
		{"qwen3-5-moe-tiny", 3, true, true}, {"qwen3-5-moe-tiny", 4, false, false},
		{"tiny-gsm-next", 2, true, false},
	} {
		if !c.quick && !whole {
			continue
		}
		t.Run(fmt.Sprintf("%s %d layers, exact %t", c.name, c.layers, c.exact), func(t *testing.T) {
			b := openHosting(t, c.exact, c.layers)
			m, err := model.Load(b, backendtest.Source(t, goldenDir, c.name))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			most := b.Features().BatchInvariantRows
			backendtest.CheckGoldenLengths(t, m, goldenDir, c.name, c.exact, func(chunk int) bool { return chunk > 0 && chunk <= most || most >= 48 }, 0, 1, 7, 16)
		})
	}
}

// TestHostVerified: verified's tokens are ar's, of mixtures with a shared expert and
// without, whoever runs how many of the experts.
func TestHostVerified(t *testing.T) {
	for _, layers := range []int{1, 2} {
		b := openHosting(t, false, layers)
		config := smallMixture()
		if layers == 2 {
			config = smallHybrid()
		}
		m, err := model.Load(b, synthetic.RandomSource(config, backend.Affine4, 5), model.Barring(1200, 5))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		verifiedIsAR(t, m)
	}
}

// TestHostParts: a step is a graph for each part, whose bits are those of launches one by
// one, between which the states are shown; so they are when graphs were dropped.
func TestHostParts(t *testing.T) {
	b := openHosting(t, false, 2)
	m, err := model.Load(b, synthetic.RandomSource(smallHybrid(), backend.BF16, 5))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := m.NewCache(model.CacheOptions{Capacity: 120, MaxRows: 64, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run := func(tap bool) []float32 {
		t.Helper()
		batch := &model.Batch{Tokens: []int32{5, 700, 31}, Positions: []int32{0, 1, 2}, Spans: []model.Span{{Cache: c, Rows: 3}}}
		for r := range batch.Tokens {
			batch.Want = append(batch.Want, model.Wanted{Row: int32(r), Logits: true})
		}
		shown := 0
		if tap {
			batch.Hidden = func(i int, states []float32) {
				if i != shown || len(states) != 3*m.Config().HiddenSize {
					t.Errorf("Tap %d of %d numbers, want number %d", i, len(states), shown)
				}
				shown++
			}
		}
		results, err := m.Forward(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		if want := m.Config().Layers + 1; tap && shown != want {
			t.Errorf("%d Taps, want %d", shown, want)
		}
		var logits []float32
		for _, r := range results {
			logits = append(logits, r.Logits...)
		}
		return logits
	}
	want := run(true)
	for i := range 4 {
		if got := run(i == 2); !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Errorf("forward %d has other bits", i)
		}
		if v := b.graphs.list; len(v) != 1 || len(v[0].parts) != 2*2+1 {
			t.Fatalf("%d graphs in all, want one of five parts", len(v))
		}
		if i == 1 {
			b.graphs.drop(nil)
			run(false)
		}
	}
	most := 8*2 + 6 + 2*8 // beside what a step of one row has without: the choice, leave, return, two norms, two forms, a shared expert's
	if n := b.Launches(); n == 0 || n > most {
		t.Errorf("a step is %d launches, want at most %d", n, most)
	}
}

// countdown is a context that is cancelled when it has been asked so often.
type countdown struct {
	context.Context
	left *int
}

func (c countdown) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestHostCancelled: a forward that ends between its parts has left nothing: of recurrent
// layers some have their rows then, and others not.
func TestHostCancelled(t *testing.T) {
	b := openHosting(t, false, 2)
	m, c := load(t, b, synthetic.RandomSource(smallHybrid(), backend.Affine4, 5))
	defer m.Close()
	_, fresh := load(t, b, synthetic.RandomSource(smallHybrid(), backend.Affine4, 5))
	forwardAll(t, m, c, 0, 40)
	forwardAll(t, m, fresh, 0, 40)
	ended := 0
	for n := range 12 {
		batch := &model.Batch{Tokens: []int32{7, 8, 9}, Positions: []int32{40, 41, 42}, Spans: []model.Span{{Cache: c, Rows: 3}}}
		if _, err := m.Forward(countdown{t.Context(), &n}, batch); errors.Is(err, context.Canceled) {
			ended++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if ended < 4 || ended == 12 {
		t.Errorf("%d of 12 forwards were cancelled", ended)
	}
	got, want := forwardAll(t, m, c, 40, 9), forwardAll(t, m, fresh, 40, 9)
	for r := range want {
		if !slices.Equal(got[r].Logits, want[r].Logits) {
			t.Errorf("row %d has other bits after forwards that were cancelled", r)
		}
	}
}

// TestHostGroup: several GPUs leave no experts to the host.
func TestHostGroup(t *testing.T) {
	host, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if g, err := NewGroup(Options{Library: groupLibrary(t, groupSize), Experts: host, ExpertLayers: 1}, groupSize); err == nil {
		g.Close()
		t.Error("a group leaves experts to the host")
	}
}

// TestHostRows: a row has the same bits in steps of one row, of 7, of 16 and of 32, by graphs.
func TestHostRows(t *testing.T) {
	b := openHosting(t, false, 2)
	m, err := model.Load(b, synthetic.RandomSource(smallHybrid(), backend.Affine4, 5))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var want []model.Result
	for _, n := range []int{1, 7, 16, 32} {
		c, err := m.NewCache(model.CacheOptions{Capacity: 64, MaxRows: 32, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		var got []model.Result
		for base := 0; base < 32; base += n {
			got = append(got, forwardAll(t, m, c, base, min(n, 32-base))...)
		}
		c.Close()
		if want == nil {
			want = got
		}
		for r := range want {
			if !slices.Equal(got[r].Logits, want[r].Logits) {
				t.Errorf("row %d has other bits in steps of %d rows", r, n)
			}
		}
	}
}

// TestHostForwardsAgree: random forwards, with errors, cancelled contexts and Taps among
// them, have the bits of forwards that are each the first.
func TestHostForwardsAgree(t *testing.T) {
	forwardsOfAgree(t, smallMixture(), openHosting(t, false, 1), openHosting(t, false, 1), 20)
}

// TestHostMemory: experts that stay take no memory of the device.
func TestHostMemory(t *testing.T) {
	taken := func(b *Backend) int64 {
		before := b.device.Context.Allocated()
		c := smallMixture()
		c.Experts.Count, c.Experts.InnerSize = 64, 512
		m, err := model.Load(b, synthetic.RandomSource(c, backend.BF16, 5))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return b.device.Context.Allocated() - before
	}
	src := smallMixture()
	bytes := int64(2 * 3 * 64 * 512 * src.HiddenSize) // of a layer's experts
	all := taken(openHosting(t, false, 0))
	for layers := 1; layers <= 2; layers++ {
		if less := all - taken(openHosting(t, false, layers)); less < int64(layers)*bytes*9/10 {
			t.Errorf("%d layers' experts in the host's memory save %d bytes, want %d", layers, less, int64(layers)*bytes)
		}
	}
}

// TestHostFeatures: who runs experts is told, as bits depend on it.
func TestHostFeatures(t *testing.T) {
	f, plain := openHosting(t, false, 3).Features(), openHosting(t, false, 0).Features()
	if f.Kernels == plain.Kernels || !strings.HasPrefix(f.Kernels, plain.Kernels) || !strings.Contains(f.Description, "experts of 3 layers in host memory") || f.BatchInvariantRows != plain.BatchInvariantRows {
		t.Errorf("features %+v", f)
	}
	if strings.Contains(plain.Description, "experts") {
		t.Errorf("features without: %+v", plain)
	}
}

// TestHostAnswers: the trained hybrid gives the reference's answers, and verified's are ar's.
func TestHostAnswers(t *testing.T) {
	if testing.Short() || !emulator.OnGPU && os.Getenv("WINDROW_SLOW") == "" {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, exact := range []bool{true, false} {
		decodertest.RunHybrid(t, goldenDir, openHosting(t, exact, 2), 2)
	}
}
