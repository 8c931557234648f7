package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/decoder"
	"windrow/model"
)

// scripted is an engine whose masks say what the text says with a chance, and whose
// forwards take the time of a table, by a clock of its own.
type scripted struct {
	ease float64
	cost *decoder.CostModel
	span float64 // seconds a span takes beside its rows
	// stepTime is what rows of prompts may take beside steps; 0: 16 of them.
	stepTime time.Duration
	// text, where set, is what is said at a position.
	text func(pos uint64) int32
	at   time.Time
	caches
}

// caches makes caches that hold nothing.
type caches struct{ budget backend.Budget }

func (c *caches) NewCache(_ context.Context, capacity, _ int) (*model.Cache, error) {
	return model.NewCountingCache(capacity), nil
}

func (c *caches) ForkCache(context.Context, *model.Cache, int, int, int) (*model.Cache, error) {
	return nil, fmt.Errorf("there is nothing to share")
}
func (c *caches) ReserveCache(context.Context, *model.Cache, int) error { return nil }
func (c *caches) ExportStates(context.Context, *model.Cache, backend.Place, []byte) error {
	return errors.New("no states")
}

func (c *caches) ImportStates(context.Context, *model.Cache, backend.Place, int, []byte) error {
	return errors.New("no states")
}

func (c *caches) ExportCache(context.Context, *model.Cache, int, []byte) error {
	return fmt.Errorf("there is nothing to export")
}
func (c *caches) ImportCache(context.Context, *model.Cache, ...[]byte) error {
	return fmt.Errorf("there is nothing to import into")
}
func (c *caches) RoomCache(context.Context, *model.Cache, int) ([][]byte, error) { return nil, nil }
func (c *caches) FreeCache(x *model.Cache)                                       { x.Close() }
func (c *caches) KVPageBytes() int64                                             { return 1 }
func (c *caches) Budget() *backend.Budget                                        { return &c.budget }
func (c *caches) Features() backend.Features {
	return backend.Features{BatchInvariantRows: 1 << 20, PrefillRows: 512}
}

func (s *scripted) now() time.Time {
	return s.at
}

const scriptedMask = 99

func (s *scripted) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	for _, span := range b.Spans {
		span.Cache.Stage(span.Rows)
	}
	s.at = s.at.Add(time.Duration((s.cost.Seconds(len(b.Tokens)) + s.span*float64(len(b.Spans))) * float64(time.Second)))
	var results []model.Result
	for _, w := range b.Want {
		pos := uint64(b.Positions[w.Row])
		r := model.Result{Argmax: s.letter(pos + 1), Entropy: .1}
		if w.Hidden {
			r.Hidden = []float32{0}
		}
		if b.Tokens[w.Row] == scriptedMask {
			r.Argmax = s.letter(pos)
			if s.chance(pos) >= s.ease {
				r.Argmax = 60
			}
		}
		results = append(results, r)
	}
	return results, nil
}

func (s *scripted) letter(pos uint64) int32 {
	if s.text != nil {
		return s.text(pos)
	}
	return int32(mixed(pos) % 50)
}

func (s *scripted) chance(pos uint64) float64 { return float64(mixed(pos+1<<20)%1000) / 1000 }

// mixed is the finaliser of SplitMix64.
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// run returns the seconds in which so many clients, each with one request at a time,
// are given answers.
func (s *scripted) run(t *testing.T, clients, answers int, o decoder.Options) float64 {
	t.Helper()
	return s.answers(t, clients, answers, func(n int) Request {
		// Of different lengths, so that they are at different places of the text.
		o := o
		o.MaxTokens = 60 + int(mixed(uint64(n))%80)
		return Request{Prompt: make([]int32, 1+mixed(uint64(n))%40), Options: o}
	}, s)
}

// answers is run for requests by their numbers, of an engine with s's clock.
func (s *scripted) answers(t *testing.T, clients, answers int, request func(n int) Request, e Engine) float64 {
	t.Helper()
	s.at = time.Unix(0, 0)
	x := idle(e, Options{Prefixes: -1, StepTime: s.stepTime, Now: s.now})
	ctx := context.Background()
	var streams []*Stream
	for n := 0; n < answers || len(streams) > 0; {
		for ; len(streams) < clients && n < answers; n++ {
			r := request(n)
			r.Salt = fmt.Sprint(n)
			stream, err := x.Submit(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
		}
		x.admit(ctx)
		if !x.pass(ctx) {
			t.Fatal("nothing to do")
		}
		streams = slices.DeleteFunc(streams, func(s *Stream) bool {
			if s.err != nil {
				t.Fatal(s.err)
			}
			return s.done
		})
	}
	return s.at.Sub(time.Unix(0, 0)).Seconds()
}

// loadTables are machines that read memory only to such that compute only.
func loadTables(t testing.TB) map[string]*decoder.CostModel {
	table := func(points ...decoder.CostPoint) *decoder.CostModel {
		c, err := decoder.NewCostModel(points)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	return map[string]*decoder.CostModel{
		"flat":      table(decoder.CostPoint{Rows: 1, Seconds: 1}, decoder.CostPoint{Rows: 256, Seconds: 1.1}),
		"device":    table(decoder.CostPoint{Rows: 1, Seconds: 1}, decoder.CostPoint{Rows: 16, Seconds: 1.15}, decoder.CostPoint{Rows: 32, Seconds: 1.5}, decoder.CostPoint{Rows: 128, Seconds: 3.9}),
		"cpu":       table(decoder.CostPoint{Rows: 1, Seconds: 1}, decoder.CostPoint{Rows: 4, Seconds: 1.4}, decoder.CostPoint{Rows: 8, Seconds: 2.6}, decoder.CostPoint{Rows: 64, Seconds: 16}),
		"staircase": table(decoder.CostPoint{Rows: 1, Seconds: 1}, decoder.CostPoint{Rows: 16, Seconds: 1.1}, decoder.CostPoint{Rows: 17, Seconds: 1.9}, decoder.CostPoint{Rows: 32, Seconds: 2}, decoder.CostPoint{Rows: 33, Seconds: 2.9}, decoder.CostPoint{Rows: 48, Seconds: 3}),
		"linear":    table(decoder.CostPoint{Rows: 1, Seconds: 1}, decoder.CostPoint{Rows: 32, Seconds: 32}),
	}
}

// TestWindowsUnderLoad: the rows that sequences choose together take at most 3 % more
// than the best fixed window, ar among them, on machines that read memory only to such
// that compute only.
func TestWindowsUnderLoad(t *testing.T) {
	eases, levels := []float64{1, .9, .6, .2, 0}, []int{1, 2, 4, 8, 12, 32}
	if testing.Short() {
		t.Log("left out: three of five kinds of text, and 1, 8 and 12 clients: leave -short out")
		eases, levels = []float64{.9, .2}, []int{2, 4, 32}
	}
	for name, cost := range loadTables(t) {
		for _, ease := range eases {
			for _, clients := range levels {
				t.Run(fmt.Sprintf("%s/%v stand/%d clients", name, ease, clients), func(t *testing.T) {
					s := &scripted{ease: ease, cost: cost}
					o := decoder.DefaultOptions()
					o.Vocabulary.MaskID = scriptedMask
					o.Mode = decoder.AR
					answers := 20 + 4*clients
					best, at := s.run(t, clients, answers, o), "ar"
					o.Mode = decoder.Verified
					for _, w := range []int{2, 4, 8, 16} {
						o.Window = w
						if x := s.run(t, clients, answers, o); x < best {
							best, at = x, fmt.Sprintf("window %d", w)
						}
					}
					o.Window, o.Cost, o.Experience = 24, cost, decoder.NewExperience()
					s.run(t, clients, 2*clients, o) // what a server has learned when it is busy
					auto := s.run(t, clients, answers, o)
					what := fmt.Sprintf("together %.1f, best (%s) %.1f: %.3f", auto, at, best, auto/best)
					t.Log(what)
					if auto > 1.03*best {
						t.Error(what)
					}
				})
			}
		}
	}
}

// TestLookupsUnderLoad: in a model without masks, lookups of many sequences together cost
// at most 3 % where text never repeats itself, or always another way, and gain on copies
// what rows leave to gain.
func TestLookupsUnderLoad(t *testing.T) {
	for name, text := range map[string]func(pos uint64) int32{
		"new":       func(pos uint64) int32 { return int32(mixed(pos) % 1_000_000) },
		"few words": func(pos uint64) int32 { return int32(mixed(pos) % 3) },
		"pairs": func(pos uint64) int32 { // each followed by another word
			if pos%3 < 2 {
				return int32(mixed(pos/3)%8)*2 + int32(pos%3)
			}
			return 100 + int32(mixed(pos)%1_000_000)
		},
		"copies": func(pos uint64) int32 { return int32(mixed(pos%30) % 1_000_000) },
	} {
		for machine, cost := range loadTables(t) {
			for _, clients := range []int{1, 8, 32} {
				t.Run(fmt.Sprintf("%s/%s/%d clients", name, machine, clients), func(t *testing.T) {
					s := &scripted{cost: cost, text: text}
					o := decoder.DefaultOptions()
					o.Mode = decoder.AR
					answers := 20 + 4*clients
					ar := s.run(t, clients, answers, o)
					o.Mode, o.Draft = decoder.Verified, decoder.DraftAuto
					o.Window, o.Cost, o.Experience = 24, cost, decoder.NewExperience()
					s.run(t, clients, 2*clients, o) // what a server has learned when it is busy
					auto := s.run(t, clients, answers, o)
					what := fmt.Sprintf("ar %.1f, with lookups %.1f: %.2f times as fast", ar, auto, ar/auto)
					t.Log(what)
					if auto > 1.03*ar {
						t.Error(what)
					}
					// 40 or so of 100 tokens are copies, where rows are nearly free.
					if name == "copies" && machine == "flat" && ar < 1.7*auto || name == "copies" && machine == "device" && clients < 32 && ar < 1.4*auto {
						t.Error("too little: " + what)
					}
				})
			}
		}
	}
}

// scriptedHead is the head for drafts of a scripted engine, of which a share is right.
type scriptedHead struct {
	*scripted
	right float64
	// seconds is what a forward takes, in those of the model with as many rows, and each
	// what a sequence takes beside that.
	seconds, each float64
	first         float64 // seconds that the first one takes beside that
}

func (h *scriptedHead) Draft(_ context.Context, b *model.DraftBatch) ([]model.Result, error) {
	took := h.seconds*h.cost.Seconds(len(b.Tokens)) + h.each*float64(len(b.Spans))
	h.at = h.at.Add(time.Duration((took + h.first) * float64(time.Second)))
	h.first = 0
	var results []model.Result
	span := 0
	for _, w := range b.Want {
		for int(w.Row) >= b.Spans[span].First+b.Spans[span].Rows {
			span++
		}
		at := uint64(b.Spans[span].At + int(w.Row) - b.Spans[span].First)
		r := model.Result{Argmax: h.letter(at + 2), Entropy: .1, Hidden: []float32{0}}
		if h.chance(at+1<<30) >= h.right {
			r.Argmax = 61
		}
		results = append(results, r)
	}
	return results, nil
}

// TestHeadsUnderLoad: a head for drafts costs at most 3 % of ar with any number of
// sequences, however often it is right, and 5 % where its forwards take twice what is
// told; and all that draft together take at most 15 % more than with the best fixed number
// of drafts.
func TestHeadsUnderLoad(t *testing.T) {
	rights, levels := []float64{1, .8, .5, 0}, []int{1, 8, 32}
	if testing.Short() {
		t.Log("left out: two of four heads, and 8 clients: leave -short out")
		rights, levels = []float64{.8, 0}, []int{1, 32}
	}
	for machine, cost := range loadTables(t) {
		for name, head := range map[string]struct{ told, seconds, each, first float64 }{
			"small": {.06, .06, 0, 0}, "large": {.6, .6, 0, 0}, "slower than told": {.3, .6, .05, 0}, "first slow": {.06, .06, 0, 9},
		} {
			for _, right := range rights {
				for _, clients := range levels {
					t.Run(fmt.Sprintf("%s/%s/%v right/%d clients", machine, name, right, clients), func(t *testing.T) {
						t.Parallel()
						s := &scripted{cost: cost, stepTime: 4 * time.Second} // of forwards of a second
						h := &scriptedHead{s, right, head.seconds, head.each, head.first}
						o := decoder.DefaultOptions()
						o.Mode = decoder.AR
						answers := 20 + 4*clients
						ar := s.run(t, clients, answers, o)
						best, at := ar, "ar"
						o.Mode, o.Draft = decoder.Verified, decoder.DraftMTP
						o.Head = &decoder.HeadDrafts{Engine: h, Width: 1, Seconds: head.told}
						for o.Drafts = 1; o.Drafts <= 4; o.Drafts++ {
							if x := s.run(t, clients, answers, o); x < best {
								best, at = x, fmt.Sprintf("%d drafts", o.Drafts)
							}
						}
						o.Drafts, o.Cost, o.Experience = 0, cost, decoder.NewExperience()
						s.run(t, clients, 2*clients, o) // what a server has learned when it is busy
						h.first = head.first            // of another server
						auto := s.run(t, clients, answers, o) - head.first
						what := fmt.Sprintf("ar %.1f, best (%s) %.1f, together %.1f: %.3f of ar, %.3f of the best", ar, at, best, auto, auto/ar, auto/best)
						t.Log(what)
						most := 1.03
						if head.seconds > head.told {
							most = 1.05       // until it is seen what they take
							if clients == 1 { // each answer by its own ledger: 2 %, and three steps
								most = 1.02 + 3*float64(answers)*cost.Seconds(1)/ar
							}
						}
						if auto > most*ar || auto > 1.15*best {
							t.Error(what)
						}
					})
				}
			}
		}
	}
}
