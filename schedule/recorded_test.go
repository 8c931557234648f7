package schedule

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"windrow/conformance/decodertest"
	"windrow/decoder"
	"windrow/model"
)

// recorded is a scripted engine whose masks say what tiny-gsm's said.
type recorded struct {
	scripted
	list    []decodertest.Recording
	prompts map[*model.Cache][]int32
	of      map[*model.Cache]*decodertest.Recording // nil: its prompt is not known yet
}

func (s *recorded) Forward(_ context.Context, b *model.Batch) (results []model.Result, err error) {
	s.at = s.at.Add(time.Duration(s.cost.Seconds(len(b.Tokens)) * float64(time.Second)))
	want := b.Want
	for _, span := range b.Spans {
		span.Cache.Stage(span.Rows)
		rows := b.Tokens[span.First : span.First+span.Rows]
		r := s.of[span.Cache]
		if r == nil {
			prompt := append(s.prompts[span.Cache], rows...)
			s.prompts[span.Cache] = prompt
			if i := slices.IndexFunc(s.list, func(r decodertest.Recording) bool { return slices.Equal(prompt, r.Prompt) }); i >= 0 {
				s.of[span.Cache] = &s.list[i]
			}
		}
		for ; len(want) > 0 && int(want[0].Row) < span.First+span.Rows; want = want[1:] {
			if r == nil { // the last of the prompt
				results = append(results, model.Result{Argmax: s.of[span.Cache].Answer[0], Entropy: .1})
			} else {
				results = append(results, r.Result(span.Cache.Base(), rows, int(want[0].Row)-span.First))
			}
		}
	}
	return results, nil
}

// TestRecordedUnderLoad: on what tiny-gsm's masks really said of texts that are easy, hard,
// and of both kinds at once, rows that are chosen together take at most 3 % more than the
// best fixed window, ar among them, and on average at least 10 % less.
func TestRecordedUnderLoad(t *testing.T) {
	own, foreign := decodertest.Recordings(t)
	sum, n := 0.0, 0
	for machine, cost := range loadTables(t) {
		for texts, list := range map[string][]decodertest.Recording{"own": own, "foreign": foreign, "both": slices.Concat(own, foreign)} {
			for _, clients := range []int{2, 4, 8} {
				run := func(mode decoder.Mode, window, answers int, e *decoder.Experience) float64 {
					s := &recorded{scripted{cost: cost}, list, map[*model.Cache][]int32{}, map[*model.Cache]*decodertest.Recording{}}
					return s.answers(t, clients, answers, func(n int) Request {
						r := &list[mixed(uint64(n))%uint64(len(list))]
						o := r.Options(mode, window)
						if e != nil {
							o.Cost, o.Experience, o.Draft = cost, e, decoder.DraftAuto
						}
						return Request{Prompt: r.Prompt, Options: o}
					}, s)
				}
				answers := 20 + 4*clients
				best, at := run(decoder.AR, 0, answers, nil), "ar"
				for _, w := range []int{2, 4, 8, 16} {
					if x := run(decoder.Verified, w, answers, nil); x < best {
						best, at = x, fmt.Sprintf("window %d", w)
					}
				}
				e := decoder.NewExperience()
				run(decoder.Verified, 24, 2*clients, e) // what a server has learned when it is busy
				auto := run(decoder.Verified, 24, answers, e)
				what := fmt.Sprintf("%s, %s, %d clients: together %.1f, best (%s) %.1f: %.3f", machine, texts, clients, auto, at, best, auto/best)
				t.Log(what)
				if auto > 1.03*best {
					t.Error(what)
				}
				sum, n = sum+auto/best, n+1
			}
		}
	}
	t.Logf("%.3f on average", sum/float64(n))
	if sum > .9*float64(n) {
		t.Errorf("%.3f on average", sum/float64(n))
	}
}
