package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"windrow/backend"
)

// TestStopwatchIds: forwards of a mixture that are measured have ids of their own, each
// repetition others.
func TestStopwatchIds(t *testing.T) {
	for _, name := range []string{"qwen3-moe-tiny", "qwen3-next-tiny"} {
		e := openGolden(t, name)
		seen := &idsBackend{Backend: e.device.backend}
		e.model.Close()
		e.device.backend = seen
		var err error
		if e.model, err = e.load(t.Context(), e.source); err != nil {
			t.Fatal(err)
		}
		const rows, context = 8, 4
		s := e.NewStopwatch(20 * time.Millisecond)
		defer s.Close()
		for what, measure := range map[string]func() error{
			"a step":            func() error { _, err := s.Step(t.Context(), rows, context); return err },
			"a batch":           func() error { _, err := s.Batch(t.Context(), 2, rows, context); return err },
			"a forward":         func() error { _, err := s.once(t.Context(), rows, context, true); return err },
			"several sequences": func() error { _, err := s.once(t.Context(), ownRows+1, context, true); return err },
		} {
			seen.ids = nil
			if err := measure(); err != nil {
				t.Fatal(err)
			}
			forwards := slices.DeleteFunc(seen.ids, func(ids []int32) bool { return len(ids) < rows }) // those of the context
			different := map[string]bool{}
			for _, ids := range forwards {
				different[fmt.Sprint(ids)] = true
			}
			switch {
			case len(forwards) < 2:
				t.Errorf("%s, %s: %d forwards", name, what, len(forwards))
			case len(different) != len(forwards):
				t.Errorf("%s, %s: %d forwards have %d lists of ids", name, what, len(forwards), len(different))
			}
		}
	}
}

// TestCostKeyOfMixtures: how many experts a row has, and how they are weighed, is in the
// key; a dense model's is without.
func TestCostKeyOfMixtures(t *testing.T) {
	e := openGolden(t, "qwen3-moe-tiny")
	x, key := e.source.Config().Experts, e.costKey()
	if want := fmt.Sprintf(", %d of %d experts, renormalised %t", x.PerToken, x.Count, x.Renormalise); !strings.HasSuffix(key, want) {
		t.Errorf("key %q, want it to end in %q", key, want)
	}
	for what, change := range map[string]func(){"experts a row": func() { x.PerToken-- }, "renormalised or not": func() { x.Renormalise = !x.Renormalise }} {
		old := e.costKey()
		if change(); e.costKey() == old {
			t.Errorf("%s: the same key", what)
		}
	}
	if key := openGolden(t, "qwen3-untied").costKey(); strings.Contains(key, "expert") {
		t.Errorf("a dense model's key is %q", key)
	}
}

// openGolden opens a golden model, which has no tokenizer, on the CPU.
func openGolden(t *testing.T, name string) *Engine {
	t.Helper()
	src, err := OpenCheckpoint(t.Context(), "../model/testdata/golden/"+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	e, err := OpenSource(t.Context(), name, src, Options{Backend: CPU, Measurements: Measurements{Folder: NoFolder}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// idsBackend notes the ids of each forward.
type idsBackend struct {
	backend.Backend
	ids [][]int32
}

func (b *idsBackend) Compile(p *backend.Program) (backend.Forward, error) {
	f, err := b.Backend.Compile(p)
	return &idsForward{f, b}, err
}

type idsForward struct {
	backend.Forward
	b *idsBackend
}

func (f *idsForward) Start(ctx context.Context, v backend.Values) error {
	f.b.ids = append(f.b.ids, slices.Clone(v.Tokens))
	return f.Forward.Start(ctx, v)
}
