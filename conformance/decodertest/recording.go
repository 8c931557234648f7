package decodertest

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/decoder"
	"windrow/model"
)

// Recording is what tiny-gsm's masks say at every place of a greedy answer: enough to
// replay verified with any window, since what a mask says depends only on the text before
// it and on the masks between.
type Recording struct {
	Prompt []int32 `json:"prompt"`
	// Answer is ar's.
	Answer []int32 `json:"answer"`
	// Masks are those behind each token of the answer: what they say, and how sure they are.
	Masks [][]Mask `json:"masks"`
}

// Mask is the result of a mask.
type Mask struct {
	Token   int32
	Entropy float32
}

// MarshalJSON writes two numbers, which takes a third of the names' bytes.
func (m Mask) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%.3f]", m.Token, m.Entropy), nil
}

// UnmarshalJSON reads them.
func (m *Mask) UnmarshalJSON(data []byte) error {
	var pair [2]float32
	err := json.Unmarshal(data, &pair)
	m.Token, m.Entropy = int32(pair[0]), pair[1]
	return err
}

// RecordedMasks are as many as an adaptive window weighs.
const RecordedMasks = 24

//go:embed recordings.json.gz
var recordings []byte

// Recordings are those of the golden traces' problems, 12 that are like what the model was
// trained for and 4 that are not, and of 4 more of the latter.
func Recordings(t testing.TB) (own, foreign []Recording) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(recordings))
	if err != nil {
		t.Fatal(err)
	}
	var all []Recording
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 20 {
		t.Fatalf("%d recordings", len(all))
	}
	return all[:12], all[12:]
}

// Options are those that the recording was made with, for a mode.
func (r *Recording) Options(mode decoder.Mode, window int) decoder.Options {
	o := decoder.DefaultOptions()
	o.Mode, o.Window = mode, window
	o.MaxTokens, o.StopIDs = 160, []int32{4094, 4092}
	o.Vocabulary = Vocabulary
	return o
}

// Record makes the recording of a prompt.
func Record(t *testing.T, b backend.Backend, prompt []int32) (r Recording) {
	t.Helper()
	m := &margins{Model: Tiny(t, b)}
	r.Prompt = prompt
	r.Answer = m.generate(t, prompt, r.Options(decoder.AR, 0), backend.KVF32, decoder.Hooks{}).Tokens
	cache, err := m.NewCache(model.CacheOptions{Capacity: len(prompt) + len(r.Answer) + 2*RecordedMasks, MaxRows: len(prompt) + RecordedMasks + 1, DType: backend.KVF32})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	forward := func(tokens []int32, want int) []model.Result {
		b := &model.Batch{Tokens: tokens, Spans: []model.Span{{Cache: cache, Rows: len(tokens)}}}
		for i := range tokens {
			b.Positions = append(b.Positions, int32(cache.Base()+i))
			if i >= len(tokens)-want {
				b.Want = append(b.Want, model.Wanted{Row: int32(i)})
			}
		}
		results, err := m.Model.Forward(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	forward(prompt, 0)
	cache.Commit(len(prompt))
	masks := slices.Repeat([]int32{maskID}, RecordedMasks)
	for _, token := range r.Answer {
		var said []Mask
		for _, x := range forward(append([]int32{token}, masks...), RecordedMasks) {
			said = append(said, Mask{x.Argmax, x.Entropy})
		}
		r.Masks = append(r.Masks, said)
		cache.Commit(1)
	}
	return r
}

// Result is that of one of the rows that are fed behind so many permanent tokens of prompt
// and answer: filled ones, then masks.
func (r *Recording) Result(base int, rows []int32, row int) model.Result {
	x := model.Result{Entropy: .1}
	at, filled := base-len(r.Prompt), 0
	for filled < len(rows) && rows[filled] != maskID {
		filled++
	}
	for i := range min(filled, row+1) {
		if at+i >= len(r.Answer) || rows[i] != r.Answer[at+i] {
			return x // nobody looks
		}
	}
	if row >= filled {
		said := r.Masks[at+filled-1][row-filled]
		x.Argmax, x.Entropy = said.Token, said.Entropy
	} else if at+row+1 < len(r.Answer) {
		x.Argmax = r.Answer[at+row+1]
	}
	return x
}

// Replay answers forwards of verified and ar from a recording, and adds up what they cost
// by a table.
type Replay struct {
	*Recording
	Cost    *decoder.CostModel
	Seconds float64 // of all forwards behind the prompt's
}

// Forward implements decoder.Engine.
func (r *Replay) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	cache := b.Spans[0].Cache
	cache.Stage(len(b.Tokens))
	base := cache.Base()
	results := make([]model.Result, 0, len(b.Want))
	if base < len(r.Prompt) {
		for range b.Want {
			results = append(results, model.Result{Argmax: r.Answer[0]})
		}
		return results, nil
	}
	r.Seconds += r.Cost.Seconds(len(b.Tokens))
	for _, w := range b.Want {
		results = append(results, r.Result(base, b.Tokens, int(w.Row)))
	}
	return results, nil
}
