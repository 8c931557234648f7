package main

import (
	"encoding/json"
	"fmt"
	"io"

	"windrow/backend"
	"windrow/bench"
	"windrow/decoder"
	"windrow/engine"
)

// generation is the object that --json prints.
type generation struct {
	Text         string               `json:"text"`
	Tokens       []int32              `json:"tokens"`
	PromptTokens int                  `json:"prompt_tokens"`
	FinishReason decoder.FinishReason `json:"finish_reason"`
	Mode         decoder.Mode         `json:"mode"`
	Stats        generationStats      `json:"stats"`
}

// generationStats are the counters and times of a generation, and what follows
// from them.
type generationStats struct {
	decoder.Stats
	TokensPerForward       float64 `json:"tokens_per_forward"`
	PCache                 float64 `json:"p_cache"`
	TokensPerSecond        float64 `json:"tokens_per_second"`
	PrefillTokensPerSecond float64 `json:"prefill_tokens_per_second"`
	// Masks says what an adaptive window chose.
	Masks *decoder.StepMasks `json:"masks,omitempty"`
}

func newGeneration(o decoder.Options, s decoder.Summary) generation {
	t := s.Stats
	g := generation{
		Text: s.Text, Tokens: s.Tokens, PromptTokens: t.PromptTokens, FinishReason: s.FinishReason, Mode: o.Mode,
		Stats: generationStats{
			Stats: t, TokensPerForward: t.TokensPerForward(), PCache: t.PCache(),
			TokensPerSecond: t.TokensPerSecond(), PrefillTokensPerSecond: t.PrefillTokensPerSecond(),
		},
	}
	if g.Tokens == nil {
		g.Tokens = []int32{}
	}
	if o.Cost != nil {
		masks := t.StepMasks()
		g.Stats.Masks = &masks
	}
	return g
}

// writeJSON prints one object, indented, without HTML escapes.
func writeJSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// writeJSONLine prints one object on one line, for what scripts read in bulk.
func writeJSONLine(w io.Writer, v any) error { return encodeJSON(w, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(asciiControls{w})
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// writeStats prints what --stats shows, for people.
func writeStats(w io.Writer, o decoder.Options, s decoder.Summary, f backend.Features, kept *engine.Calibration) {
	t := s.Stats
	fmt.Fprintf(w, "mode      %s, finished by %s\n", o.Mode, s.FinishReason)
	cached := ""
	if t.CachedTokens > 0 {
		cached = fmt.Sprintf(" (%d of them cached)", t.CachedTokens)
	}
	fmt.Fprintf(w, "prefill   %d tokens%s in %s, %.0f tokens/s\n", t.PromptTokens, cached, seconds(t.PrefillSeconds), t.PrefillTokensPerSecond())
	fmt.Fprintf(w, "decode    %d tokens in %s, %.1f tokens/s\n", t.Tokens, seconds(t.DecodeSeconds), t.TokensPerSecond())
	fmt.Fprintf(w, "forwards  %d, %.2f tokens per forward, p_cache %.3f, %.1f rows on average\n", t.Forwards, t.TokensPerForward(), t.PCache(), t.MeanRows())
	if t.Drafts > 0 {
		fmt.Fprintf(w, "drafts    %d checked, %d accepted (%.0f %%)\n", t.Drafts, t.Accepted, 100*float64(t.Accepted)/float64(max(t.Drafts, 1)))
	}
	t.Drafters.Each(func(kind decoder.DrafterKind, x decoder.DrafterStats) {
		fmt.Fprintf(w, "  %-8s%s\n", kind, x)
	})
	if o.Cost != nil {
		fmt.Fprintf(w, "window    auto: %.1f masks on average, %d to %d; c(rows) %s\n", t.MeanMasks(), t.LeastMasks, t.MostMasks, bench.CostText(o.Cost))
	}
	if kept != nil && o.Mode == decoder.Verified {
		fmt.Fprintf(w, "kept      %s\n", kept)
	}
	fmt.Fprintf(w, "backend   %s\n", describe(f))
}

// describe is one line about the arithmetic at work.
func describe(f backend.Features) string {
	if f.Exact {
		return f.Description + ", activations in f32"
	}
	return f.Description + ", activations rounded where that is faster"
}

// seconds prints a time with the unit that reads best.
func seconds(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.1f ms", 1000*s)
	case s < 100:
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}
