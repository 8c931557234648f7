package synthetic

import (
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cpu"
	"windrow/model"
)

// TestRowsChooseApart: rows of random ids choose as many experts of each layer as rows
// that choose independently would, E·(1 − (1 − k/E)ⁿ), whatever stands before them: what a
// benchmark of random weights reads is what independent rows read. Experts are small, which
// are chosen is the router's affair; the layers are what attention needs to make rows alike.
func TestRowsChooseApart(t *testing.T) {
	for name, layers := range map[string]int{"qwen3-30b-a3b": 12, "qwen3.5-35b-a3b": 4, "qwen3-next-80b-a3b": 4} {
		config, _ := ShapeConfig(name)
		config.Layers, config.VocabSize, config.Experts.InnerSize = layers, 8192, 64
		if config.Delta != nil {
			config.Delta.Layers = config.Delta.Layers[:layers]
		}
		y := openRouted(t, config)
		cache, err := y.NewCache(model.CacheOptions{Capacity: 256, MaxRows: 256, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		for _, context := range []int{0, 240} {
			if context > 0 {
				y.choose(t, cache, context)
				if err := cache.Commit(context); err != nil {
					t.Fatal(err)
				}
			}
			for _, rows := range []int{2, 4, 16} {
				const forwards = 4
				chosen := make([]float64, layers) // experts a forward
				for range forwards {
					for i, n := range y.choose(t, cache, rows) {
						chosen[i] += float64(n) / forwards
					}
				}
				e, k := float64(config.Experts.Count), float64(config.Experts.PerToken)
				want := e * (1 - math.Pow(1-k/e, float64(rows)))
				for i, n := range chosen {
					if math.Abs(n-want) > 0.15*want {
						t.Errorf("%s, layer %d: %d rows at context %d choose %.1f experts, want %.1f", name, i, rows, context, n, want)
					}
				}
			}
		}
		cache.Close()
		y.Close()
	}
}

// routed is a model that shows which experts its rows choose.
type routed struct {
	*model.Model
	random *rand.Rand
}

func openRouted(t *testing.T, c *checkpoint.Config) *routed {
	t.Helper()
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	m, err := model.Load(routingTap{b}, RandomSource(c, backend.Affine4, 1))
	if err != nil {
		t.Fatal(err)
	}
	return &routed{m, rand.New(rand.NewPCG(1, 2))}
}

// choose is how many experts of each layer rows of random ids choose in all.
func (y *routed) choose(t *testing.T, cache *model.Cache, rows int) (experts []int) {
	t.Helper()
	c := y.Config()
	b := &model.Batch{Spans: []model.Span{{Cache: cache, Rows: rows}}, Hidden: func(index int, x []float32) {
		if index != routingIndex {
			return
		}
		chosen, k := map[float32]bool{}, c.Experts.PerToken
		for ; len(x) > 0; x = x[2*k:] { // of a row its experts, then their weights
			for i, e := range x[:k] {
				if w := float64(x[k+i]); math.IsNaN(w) || math.IsInf(w, 0) {
					t.Fatalf("an expert has the weight %v", w)
				}
				chosen[e] = true
			}
		}
		experts = append(experts, len(chosen))
	}}
	for i := range rows {
		b.Tokens = append(b.Tokens, y.random.Int32N(int32(c.VocabSize)))
		b.Positions = append(b.Positions, int32(cache.Base()+i))
	}
	if _, err := y.Forward(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(experts) != c.Layers {
		t.Fatalf("routings of %d layers, want %d", len(experts), c.Layers)
	}
	return experts
}

// routingTap is a backend that shows routings as hidden states, at routingIndex.
type routingTap struct{ backend.Backend }

const routingIndex = -1

func (b routingTap) Compile(p *backend.Program) (backend.Forward, error) {
	q := *p
	q.Ops = nil
	for _, o := range p.Ops {
		if q.Ops = append(q.Ops, o); o.Kind == backend.OpRoute {
			q.Ops = append(q.Ops, backend.Op{Kind: backend.OpTap, Src: o.Dst, Index: routingIndex, Tapped: true})
		}
	}
	return b.Backend.Compile(&q)
}
