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
	"windrow/decoder"
	"windrow/engine"
	"windrow/model"
	"windrow/schedule"
	"windrow/session"
)

// BenchmarkTurn measures the time to the first token of a turn of a long conversation:
// the forward of its new tokens alone, the turn from memory and from disk (a new
// scheduler each time; the files are in the system's cache), the reading of the
// session's files, and all of it computed anew. Medians of 9 turns of 40 new tokens.
func BenchmarkTurn(b *testing.B) { benchTalks(b, turn) }

// turn reports the figures of an engine.
func turn(b *testing.B, e *engine.Engine, n int) {
	const fresh, times = 40, 9
	r := rand.New(rand.NewPCG(1, 1))
	ids := func(n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = r.Int32N(4000)
		}
		return list
	}
	talk := ids(n)
	first := func(s *schedule.Scheduler, name string, prompt []int32) time.Duration {
		began := time.Now()
		stream, err := s.Submit(b.Context(), schedule.Request{
			Prompt: prompt, Session: name,
			Options: decoder.Options{Mode: decoder.AR, MaxTokens: 1, Vocabulary: decoder.Vocabulary{MaskID: -1}},
		})
		if err != nil {
			b.Fatal(err)
		}
		for {
			events, err := stream.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if slices.ContainsFunc(events, func(e decoder.Event) bool { _, ok := e.(decoder.Token); return ok }) {
				return time.Since(began)
			}
		}
	}
	report := func(name string, list []time.Duration) {
		slices.Sort(list)
		b.Logf("%s: %v (%v–%v)", name, list[len(list)/2], list[0], list[len(list)-1])
		b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, name+"-ms")
	}
	dir := filepath.Join(b.TempDir(), "sessions")
	open := func() *session.Store {
		store, err := session.Open(dir, session.Options{Fingerprint: "bench", PageTokens: backend.PageTokens, PageBytes: int(e.KVPageBytes())})
		if err != nil {
			b.Fatal(err)
		}
		return store
	}
	store := open()
	s := schedule.New(e, schedule.Options{Sessions: store})
	report("computed", []time.Duration{first(s, "talk", talk)})
	if _, err := s.SaveSession(b.Context(), "", "talk"); err != nil {
		b.Fatal(err)
	}
	s.Close()
	store.Close()

	var disk, read []time.Duration
	for range times {
		store := open()
		s := schedule.New(e, schedule.Options{Sessions: store})
		disk = append(disk, first(s, "", slices.Concat(talk, ids(fresh))))
		if s.State().SessionLoads != 1 {
			b.Fatal("it did not come from disk")
		}
		s.Close()
		store.Close()
		began := time.Now()
		files, _ := filepath.Glob(filepath.Join(dir, "segments", "*.wkv"))
		for _, path := range files {
			if _, err := os.ReadFile(path); err != nil {
				b.Fatal(err)
			}
		}
		read = append(read, time.Since(began))
	}

	var memory, alone []time.Duration
	store = open()
	defer store.Close()
	s = schedule.New(e, schedule.Options{Sessions: store})
	defer s.Close()
	first(s, "", slices.Concat(talk, ids(fresh)))
	for range times {
		memory = append(memory, first(s, "", slices.Concat(talk, ids(fresh))))
	}
	kept := store.Find("", talk)
	c, err := e.NewCache(b.Context(), n+fresh, fresh)
	if err != nil {
		b.Fatal(err)
	}
	defer e.FreeCache(c)
	err = store.Load(b.Context(), kept, 0, into(b.Context(), e, c))
	if err != nil {
		b.Fatal(err)
	}
	for range times {
		batch := &model.Batch{Spans: []model.Span{{Cache: c, Rows: fresh}}, Want: []model.Wanted{{Row: fresh - 1}}}
		for i, id := range ids(fresh) {
			batch.Tokens, batch.Positions = append(batch.Tokens, id), append(batch.Positions, int32(c.Base()+i))
		}
		began := time.Now()
		if _, err := e.Forward(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		alone = append(alone, time.Since(began))
	}
	report("alone", alone)
	report("memory", memory)
	report("disk", disk)
	report("read", read)
}
