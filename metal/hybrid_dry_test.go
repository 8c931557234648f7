package metal

import (
	"context"
	"errors"
	"math"
	"testing"

	"windrow/backend"
	"windrow/model"
	"windrow/synthetic"
)

// mixedForward runs rows behind what a cache has, and commits some.
func mixedForward(m *model.Model, c *model.Cache, rows, kept int) error {
	b := &model.Batch{Spans: []model.Span{{Cache: c, Rows: rows}}}
	for i := range rows {
		b.Tokens, b.Positions = append(b.Tokens, int32(i)), append(b.Positions, int32(c.Base()+i))
	}
	b.Want = []model.Wanted{{Row: int32(rows - 1)}}
	c.Stage(rows)
	if _, err := m.Forward(context.Background(), b); err != nil {
		return err
	}
	return c.Commit(kept)
}

// Bytes of a forward behind 32 tokens are those of its weights, of as many experts as are
// to be expected, and of the states, and its layers have few dispatches.
func TestBytesOfMixtures(t *testing.T) {
	for _, c := range []struct {
		shape string
		rows  int
		bytes float64 // 10⁹, at 4.5 bits a weight, router and head in bf16
		per   float64 // dispatches a layer
	}{
		{"qwen3-30b-a3b", 1, 2.18, 14},
		{"qwen3-30b-a3b", 16, 11.66, 14},
		{"qwen3-next-80b-a3b", 1, 2.68, 19},
		{"qwen3-next-80b-a3b", 16, 13.60, 19},
		{"qwen3.5-35b-a3b", 4, 4.14, 19},
	} {
		m, b := dryModel(t, c.shape, backend.Affine4, false)
		cache, err := m.NewCache(model.CacheOptions{Capacity: 100, MaxRows: 32, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		if err := mixedForward(m, cache, 32, 32); err != nil {
			t.Fatal(err)
		}
		if err := mixedForward(m, cache, 1, 1); err != nil {
			t.Fatal(err)
		}
		b.Taken()
		if err := mixedForward(m, cache, c.rows, 1); err != nil {
			t.Fatal(err)
		}
		n := b.Taken()
		per := float64(n.InLayers) / float64(m.Config().Layers)
		t.Logf("%s, %d rows: %.4g bytes read, %.4g written, %d dispatches, %.1f a layer, %.3g operations", c.shape, c.rows, float64(n.Read), float64(n.Written), n.Dispatches, per, float64(n.FLOPs))
		if got := float64(n.Read+n.Written) / 1e9; math.Abs(got/c.bytes-1) > 0.05 {
			t.Errorf("%s, %d rows: %.2f GB, want %.2f", c.shape, c.rows, got, c.bytes)
		}
		if per > c.per {
			t.Errorf("%s, %d rows: %.1f dispatches a layer, want at most %v", c.shape, c.rows, per, c.per)
		}
		cache.Close()
	}
}

// losing is memory whose work may fail.
type losing struct {
	*dryMemory
	err error
}

func (m *losing) submit(ctx context.Context, f func(e encoder)) (func() error, error) {
	if _, err := m.dryMemory.submit(ctx, f); err != nil {
		return nil, err
	}
	return func() error { return m.err }, nil
}

// A forward that failed on the device may have written any part of the states: nothing goes
// on from them.
func TestStatesAfterFailure(t *testing.T) {
	config, _ := synthetic.ShapeConfig("qwen3.5-0.8b")
	memory := &losing{dryMemory: NewDry(false).memory}
	b := overMemory(memory, Options{})
	defer b.Close()
	m, err := model.Load(b, synthetic.EmptySource(config, backend.BF16))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := m.NewCache(model.CacheOptions{Capacity: 100, MaxRows: 32, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if err := mixedForward(m, c, 20, 20); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Truncate(58); err != nil || got != 58 {
		t.Fatalf("back to 58 reaches %d", got)
	}
	memory.err = errors.New("lost")
	if err := mixedForward(m, c, 1, 1); !errors.Is(err, memory.err) {
		t.Fatal(err)
	}
	memory.err = nil
	if got, err := c.Truncate(58); err != nil || got != 0 {
		t.Errorf("after a failure back to 58 reaches %d", got)
	}
	if err := mixedForward(m, c, 30, 30); err != nil {
		t.Error(err)
	}
}
