package server

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"

	"windrow/decoder"
)

// usage is what a request took.
type usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	TotalTokens         int `json:"total_tokens"`
	PromptTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// head is what all chunks of a reply have in common.
type head struct {
	ID                string `json:"id"`
	Object            string `json:"object"`
	Created           int64  `json:"created"`
	Model             string `json:"model"`
	SystemFingerprint string `json:"system_fingerprint"`
}

// own are fields that only this server has.
type own struct {
	Seed uint64 `json:"seed"`
	Mode string `json:"mode"`
	// Drafters are those of all choices, in a reply that is whole.
	Drafters decoder.Drafters `json:"drafters,omitzero"`
}

// tail is what a reply ends with.
type tail struct {
	// Usage is null in chunks before the last where it was asked for, absent where not.
	Usage   json.RawMessage `json:"usage,omitempty"`
	Timings *timings        `json:"timings,omitempty"`
	Windrow *own            `json:"windrow,omitempty"`
}

// timings are where a request's time went, on request.
type timings struct {
	QueuedMS           float64 `json:"queued_ms"`
	CacheN             int     `json:"cache_n"`
	PromptN            int     `json:"prompt_n"`
	PromptMS           float64 `json:"prompt_ms"`
	PredictedN         int     `json:"predicted_n"`
	PredictedMS        float64 `json:"predicted_ms"`
	PredictedPerSecond float64 `json:"predicted_per_second"`
	Forwards           int     `json:"forwards"`
	TokensPerForward   float64 `json:"tokens_per_forward"`
	Preempted          int     `json:"preempted"`
}

// timings are those of the first choice; nil where nobody asked.
func (r *run) timings() *timings {
	if !r.params.timings {
		return nil
	}
	c := r.choices[0]
	t := &timings{
		QueuedMS: milliseconds(c.timings.Queued), PromptMS: milliseconds(c.timings.Prefill), PredictedMS: milliseconds(c.timings.Decode),
		CacheN: max(0, len(r.prompt)-c.uncached), PromptN: c.uncached, PredictedN: c.tokens,
		Forwards: c.summary.Stats.Forwards, Preempted: c.timings.Preempted,
	}
	if t.PredictedMS > 0 {
		t.PredictedPerSecond = float64(t.PredictedN) / t.PredictedMS * 1000
	}
	if t.Forwards > 0 {
		t.TokensPerForward = float64(t.PredictedN) / float64(t.Forwards)
	}
	return t
}

// tail is the end of a whole reply.
func (r *run) tail() tail {
	data, _ := json.Marshal(r.usage()) // numbers: cannot fail
	return tail{Usage: data, Timings: r.timings(), Windrow: r.ownInFull()}
}

// own is what is known at a reply's beginning.
func (r *run) own() *own { return &own{Seed: r.params.seed, Mode: string(r.choices[0].mode)} }

// ownInFull is what is known once all choices have ended.
func (r *run) ownInFull() *own {
	o := r.own()
	var all decoder.Stats
	for _, c := range r.choices {
		all.Add(c.summary.Stats)
	}
	o.Drafters = all.Drafters
	return o
}

// newID is an id with 96 random bits.
func newID(prefix string) string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// maxPiece is how much text an event has: escaped it is under 64 KiB, which is the
// longest line that some clients read (langchaingo; others take 1 MiB).
const maxPiece = 8 << 10

// pieces cuts a text into parts that fit an event, between characters.
func pieces(s string) (list []string) {
	for len(s) > maxPiece {
		n := maxPiece
		for !utf8.RuneStart(s[n]) {
			n--
		}
		list = append(list, s[:n])
		s = s[n:]
	}
	return append(list, s)
}

// last is what a stream's last chunk says: usage where it was asked for, and timings;
// false where there is nothing to say.
func (r *run) last() (end tail, some bool) {
	end = r.tail()
	end.Windrow = nil // the first chunk had it
	if !r.params.includeUsage {
		end.Usage = nil
	}
	return end, end.Usage != nil || end.Timings != nil
}
