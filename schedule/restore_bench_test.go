package schedule_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/engine"
	"windrow/model"
	"windrow/session"
)

// BenchmarkRestore measures what it takes to have a conversation's keys from disk in a
// cache, beside reading its files (in the system's cache), and loading them without a
// cache. Keys are random bytes. Medians of 15, in turn.
func BenchmarkRestore(b *testing.B) { benchTalks(b, restore) }

// into imports pages into a cache.
func into(ctx context.Context, e *engine.Engine, c *model.Cache) session.Into {
	return session.Into{
		Room: func(n int) ([][]byte, error) { return e.RoomCache(ctx, c, n) }, Filled: c.Filled,
		Put: func(pages ...[]byte) error { return e.ImportCache(ctx, c, pages...) },
	}
}

// restore reports the figures of an engine.
func restore(b *testing.B, e *engine.Engine, n int) {
	dir := filepath.Join(b.TempDir(), "sessions")
	store, err := session.Open(dir, session.Options{Fingerprint: "bench", PageTokens: backend.PageTokens, PageBytes: int(e.KVPageBytes())})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	tokens := make([]int32, n)
	r := rand.NewChaCha8([32]byte{})
	if _, err := store.Save(b.Context(), session.Session{Name: "x", Tokens: tokens}, func(_ int, dst []byte) error {
		_, err := r.Read(dst)
		return err
	}); err != nil {
		b.Fatal(err)
	}
	kept := store.Find("", tokens)
	files, _ := filepath.Glob(filepath.Join(dir, "segments", "*.wkv"))
	ways := []struct {
		name string
		run  func()
	}{
		{"read", func() {
			for _, path := range files {
				if _, err := os.ReadFile(path); err != nil {
					b.Fatal(err)
				}
			}
		}},
		{"load", func() {
			if err := store.Load(b.Context(), kept, 0, session.Into{Put: func(...[]byte) error { return nil }}); err != nil {
				b.Fatal(err)
			}
		}},
		{"restore", func() {
			c, err := e.NewCache(b.Context(), n+1, 1)
			if err != nil {
				b.Fatal(err)
			}
			defer e.FreeCache(c)
			if err := store.Load(b.Context(), kept, 0, into(b.Context(), e, c)); err != nil {
				b.Fatal(err)
			}
		}},
	}
	took := make([][]time.Duration, len(ways))
	for range 15 {
		for i, way := range ways {
			began := time.Now()
			way.run()
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, list := range took {
		slices.Sort(list)
		b.Logf("%s: %v (%v–%v)", ways[i].name, list[len(list)/2], list[0], list[len(list)-1])
		b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, ways[i].name+"-ms")
	}
}
