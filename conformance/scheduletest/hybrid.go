package scheduletest

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/model"
	"windrow/schedule"
)

// hybridShape is that of a model of two layers of gated DeltaNet and one of attention.
func hybridShape() checkpoint.Config {
	c := shape()
	c.Architecture, c.Layers, c.AttentionGate = "qwen3_5_text", 3, true
	c.Delta = &checkpoint.DeltaNet{KeyHeads: 1, ValueHeads: 2, KeyDim: 32, ValueDim: 32, Conv: 4, Layers: []bool{true, true, false}}
	return c
}

// talk is a conversation: its turns, and what each gets alone. At times a turn goes on
// from the prompt before, as where its answer's thinking was dropped.
type talk struct {
	turns []schedule.Request
	want  []answer
}

func (d *device) talk(t *testing.T, r *rand.Rand, turns int) *talk {
	t.Helper()
	s := schedule.New(d, schedule.Options{Sequences: 1, Prefixes: -1, Chunk: chunk})
	defer s.Close()
	c := new(talk)
	for i := range turns {
		prompt := make([]int32, 5+r.IntN(20))
		if i == 0 {
			prompt = make([]int32, 70+r.IntN(100))
		}
		for k := range prompt {
			prompt[k] = r.Int32N(maskID)
		}
		if i > 0 {
			held := slices.Clone(c.turns[i-1].Prompt)
			if i%3 != 2 {
				held = append(held, c.want[i-1].ids...)
			}
			prompt = append(held, prompt...)
		}
		q := request(prompt, []decoder.Mode{decoder.AR, decoder.Verified}[r.IntN(2)], 4, 3+r.IntN(10), uint64(r.IntN(3)))
		c.turns, c.want = append(c.turns, q), append(c.want, d.ask(t, s, q)())
	}
	return c
}

// RunHybrid checks that conversations with a hybrid go on after restarts from disk, from
// wherever a prompt parts from what was saved, and where memory is short, with the tokens
// that they have alone.
func RunHybrid(t *testing.T, b backend.Backend) {
	d := open(t, b, hybridShape())
	r := rand.New(rand.NewPCG(3, 4))
	size := func() int64 {
		c, err := d.model.NewCache(model.CacheOptions{Capacity: 300, MaxRows: 40, DType: backend.KVBF16})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if !c.Copies() {
			t.Fatal("states are not copied")
		}
		if err := c.Reserve(300); err != nil {
			t.Fatal(err)
		}
		return c.Bytes()
	}()
	same := func(t *testing.T, what string, got, want answer) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, alone %v", what, got, want)
		}
	}
	saved := func(t *testing.T, s *schedule.Scheduler, q schedule.Request) {
		t.Helper()
		info, err := s.SaveSession(t.Context(), q.Owner, q.Session)
		if err != nil || info.Tokens < len(q.Prompt) {
			t.Errorf("a prompt of %d tokens is saved as %+v, %v", len(q.Prompt), info, err)
		}
	}
	t.Run("restarts", func(t *testing.T) {
		dir, c := filepath.Join(t.TempDir(), "sessions"), d.talk(t, r, 5)
		for i, q := range c.turns {
			kept := d.store(t, dir, true)
			s := schedule.New(d, schedule.Options{Sessions: kept, Chunk: chunk})
			q.Session, q.Owner = "talk", "ann"
			same(t, fmt.Sprint("turn ", i), d.ask(t, s, q)(), c.want[i])
			if i > 0 && d.alike() { // the prompt before; an answer's rows may have other bits than a prompt's
				before := len(c.turns[i-1].Prompt) - 1
				if st := s.State(); st.SessionLoads != 1 || int(st.CachedTokens) < before {
					t.Errorf("turn %d: %d loads, %d of %d tokens were there, of which at least %d were saved", i, st.SessionLoads, st.CachedTokens, len(q.Prompt), before)
				}
			}
			saved(t, s, q)
			s.Close()
			kept.Close()
		}
	})
	t.Run("parted anywhere", func(t *testing.T) {
		c := d.talk(t, r, 3)
		last := c.turns[2]
		whole := slices.Concat(last.Prompt, c.want[2].ids)
		kept := d.store(t, filepath.Join(t.TempDir(), "sessions"), true)
		defer kept.Close()
		s := schedule.New(d, schedule.Options{Sessions: kept, Chunk: chunk})
		last.Session = "talk"
		same(t, "what is saved", d.ask(t, s, last)(), c.want[2])
		saved(t, s, last)
		s.Close()
		const near = 6
		loads, cached := 0, 0
		for i := range 3 * near {
			n := []int{len(whole) - r.IntN(12), len(last.Prompt) - r.IntN(12), 1 + r.IntN(len(whole)-1)}[i%3]
			prompt := append(slices.Clone(whole[:n]), int32(r.IntN(maskID)), int32(r.IntN(maskID)))
			q := request(prompt, decoder.AR, 1, 5, uint64(i%2))
			var got [2]answer
			for from, o := range []schedule.Options{{Prefixes: -1, Chunk: chunk}, {Sessions: kept, Chunk: chunk}} {
				s := schedule.New(d, o)
				got[from] = d.ask(t, s, q)()
				st := s.State()
				loads, cached = loads+int(st.SessionLoads), cached+int(st.CachedTokens)
				if st.SessionFailures > 0 {
					t.Errorf("request %d: %d failures", i, st.SessionFailures)
				}
				s.Close()
			}
			same(t, fmt.Sprintf("request %d, parted at %d of %d", i, n, len(whole)), got[1], got[0])
		}
		if d.alike() && (loads < near || cached < near*(len(last.Prompt)-backend.PageTokens)) {
			t.Errorf("%d of %d requests came from disk, %d tokens: nothing is shown", loads, 3*near, cached)
		}
	})
	t.Run("short of memory", func(t *testing.T) {
		defer d.Budget().Limit(0)
		const many = 4
		var list []*talk
		for range many {
			list = append(list, d.talk(t, r, 3))
		}
		kept := d.store(t, filepath.Join(t.TempDir(), "sessions"), true)
		defer kept.Close()
		// By a clock that stands nothing takes longer than anything else, so that a device
		// that is faster than the disk reads all the same.
		began := time.Now()
		stands := func() time.Time { return began }
		s := schedule.New(d, schedule.Options{Sessions: kept, KVMemory: 2 * size, Sequences: 2, Slack: -1, Chunk: chunk, Now: stands})
		defer s.Close()
		for turn := range 3 {
			for i, c := range list {
				same(t, fmt.Sprintf("conversation %d, turn %d", i, turn), d.ask(t, s, c.turns[turn])(), c.want[turn])
			}
		}
		if err := s.SaveSessions(t.Context()); err != nil {
			t.Error(err)
		}
		st := s.State()
		t.Logf("%d saves, %d loads, %d of %d tokens were there", st.SessionSaves, st.SessionLoads, st.CachedTokens, st.PromptTokens)
		if d.alike() && (st.SessionLoads < many || st.SessionSaves < many) || st.SessionFailures > 0 {
			t.Errorf("%d saves, %d loads, %d failures: want some of each but the last", st.SessionSaves, st.SessionLoads, st.SessionFailures)
		}
	})
	if used, _ := d.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}
