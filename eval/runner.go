package eval

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"windrow/decoder"
	"windrow/tokenizer"
)

// Runner answers one prompt in one setting: a loaded model, or a script in
// tests. It is called by one goroutine at a time.
type Runner interface {
	// Run generates the answer to p. A cancelled generation returns either an
	// error or a summary that ended with decoder.FinishCancelled.
	Run(ctx context.Context, p Prompt, o decoder.Options) (decoder.Summary, error)
}

// Message is one chat turn. Role is "system", "user" or "assistant".
type Message = tokenizer.Message

// Prompt is what a model is asked: either chat turns for its template, or raw
// text where Messages is empty.
type Prompt struct {
	Messages []Message
	Raw      string
}

// Progress is told after each finished answer how many of all are done, with
// a short note for people. Resumed answers count as done from the start.
type Progress func(done, total int, note string)

// DefaultWindow is W where a setting leaves it out.
const DefaultWindow = 16

// DefaultMaxTokens bounds an answer where the options do not. GSM8K's paper
// setting for WeDLM is 512 too (arXiv 2512.22737).
const DefaultMaxTokens = 512

// maxWindow is far above any useful window: slots past τ/λ only feed the
// fallback.
const maxWindow = 4096

// Setting is one way to decode that is compared with others: the mode, and
// for wedlm and verified the window W, the entropy threshold τ and the
// position penalty λ.
type Setting struct {
	Mode             decoder.Mode `json:"mode"`
	Window           int          `json:"window,omitempty"`
	EntropyThreshold *float32     `json:"entropy_threshold"` // nil: one token per step
	PosPenalty       float32      `json:"pos_penalty"`
	// Draft says who drafts in verified; "" is the window's masks. Beside it Window 0 is a
	// window that adapts.
	Draft decoder.DraftChoice `json:"draft,omitempty"`
}

// DefaultSettings are the three modes at W 16, τ 0.4, λ 0.02; ar comes first
// and is what the others are compared with.
func DefaultSettings() []Setting {
	var all []Setting
	for _, m := range []decoder.Mode{decoder.AR, decoder.WeDLM, decoder.Verified} {
		tau := float32(0.4)
		all = append(all, Setting{Mode: m, Window: DefaultWindow, EntropyThreshold: &tau, PosPenalty: 0.02}.canonical())
	}
	return all
}

// canonical drops what the mode does not use, so that equal ways to decode
// compare equal.
func (s Setting) canonical() Setting {
	if s.Mode == decoder.AR {
		return Setting{Mode: decoder.AR}
	}
	if s.adapts() {
		return Setting{Mode: s.Mode, Draft: s.Draft}
	}
	if s.Window == 0 {
		s.Window = DefaultWindow
	}
	return s
}

// Name is the setting in a few words, such as "ar" or "wedlm W16 τ0.4 λ0.02".
// Different settings have different names.
func (s Setting) Name() string {
	s = s.canonical()
	if s.Mode == decoder.AR {
		return string(s.Mode)
	}
	name := string(s.Mode)
	if s.Draft != "" {
		name += " " + string(s.Draft)
	}
	if s.adapts() {
		return name
	}
	return fmt.Sprintf("%s W%d τ%s λ%s", name, s.Window, thresholdName(s.EntropyThreshold), shortFloat(s.PosPenalty))
}

// adapts reports whether the window adapts.
func (s Setting) adapts() bool { return s.Draft != "" && s.Window == 0 }

// Options returns base with this setting's mode, window, threshold, penalty and drafter.
func (s Setting) Options(base decoder.Options) decoder.Options {
	s = s.canonical()
	base.Mode, base.Window = s.Mode, s.Window
	base.EntropyThreshold, base.PosPenalty = s.EntropyThreshold, s.PosPenalty
	if base.Draft = s.Draft; base.Draft == "" && s.Mode == decoder.Verified {
		base.Draft = decoder.DraftMask
	}
	return base
}

func (s Setting) check() error {
	switch s.Mode {
	case decoder.AR, decoder.WeDLM, decoder.Verified:
	default:
		return fmt.Errorf("mode %q: want %s, %s or %s", s.Mode, decoder.AR, decoder.WeDLM, decoder.Verified)
	}
	if _, err := decoder.ParseDraft(string(s.Draft)); err != nil {
		return err
	}
	if s.Draft != "" && s.Mode != decoder.Verified {
		return fmt.Errorf("draft %s: want mode %s, not %s", s.Draft, decoder.Verified, s.Mode)
	}
	if s.Window < 0 || s.Window > maxWindow {
		return fmt.Errorf("window %d: want 1 to %d", s.Window, maxWindow)
	}
	// JSON has no infinity, and none is needed: the largest entropy is
	// ln(vocabulary), 11.9 nats for 151936 ids.
	if t := s.EntropyThreshold; t != nil && !(*t >= 0 && *t <= math.MaxFloat32) {
		return fmt.Errorf("entropy threshold %v: want a finite number from 0 (100 takes every draft)", *t)
	}
	if p := s.PosPenalty; !(p >= 0 && p <= math.MaxFloat32) {
		return fmt.Errorf("position penalty %v: want a finite number from 0", p)
	}
	return nil
}

// checkSettings returns the settings in canonical form, or an error for an
// impossible or repeated one.
func checkSettings(settings []Setting) ([]Setting, error) {
	if len(settings) == 0 {
		return nil, fmt.Errorf("no setting to evaluate: want at least one mode")
	}
	seen := map[string]bool{}
	var all []Setting
	for _, s := range settings {
		if err := s.check(); err != nil {
			return nil, err
		}
		s = s.canonical()
		if seen[s.Name()] {
			return nil, fmt.Errorf("setting %s is given twice", s.Name())
		}
		seen[s.Name()] = true
		all = append(all, s)
	}
	return all, nil
}

func thresholdName(t *float32) string {
	if t == nil {
		return "none"
	}
	return shortFloat(*t)
}

func shortFloat(f float32) string { return strconv.FormatFloat(float64(f), 'g', -1, 32) }
