// Package decodertest holds the golden traces of decoding, and runs them on a
// backend.
package decodertest

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"windrow/decoder"
)

// Problem is one of the golden traces: 16 problems decoded greedily by a
// reference in another language, without a cache, on tiny-gsm in float32.
type Problem struct {
	Question         string
	Prompt           []int32
	AR               []int32 `json:"ar"`
	WeDLM            []Trace `json:"wedlm"`
	VerifiedForwards int     `json:"verified_forwards"`
}

// Trace is one decoding in one setting, step by step.
type Trace struct {
	Window           int
	EntropyThreshold *float32 `json:"entropy_threshold"`
	PosPenalty       float32  `json:"pos_penalty"`
	Output           []int32
	Forwards         int
	Rows             int `json:"n_fwd"`
	Steps            []Step
}

// Step is a window before a forward, and what the forward filled.
type Step struct {
	Tokens    []int32
	Mask      []bool
	Committed int
	Entropy   []float32
	Fill      [][2]int32
}

// Vocabulary is tiny-gsm's.
var Vocabulary = decoder.Vocabulary{Size: vocabSize, MaskID: maskID}

const (
	maskID    = 4095
	nearTie   = 1e-3 // what the traces' maker allows between arithmetics
	vocabSize = 4096
)

//go:embed traces.json.gz
var traces []byte

// Problems reads the traces.
func Problems(t testing.TB) []Problem {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(traces))
	if err != nil {
		t.Fatal(err)
	}
	var problems []Problem
	if err := json.NewDecoder(z).Decode(&problems); err != nil {
		t.Fatal(err)
	}
	if len(problems) != 16 || len(problems[0].WeDLM) != 4 {
		t.Fatalf("%d problems", len(problems))
	}
	return problems
}

// Options are the decoding options of the trace.
func (tr Trace) Options() decoder.Options {
	o := decoder.DefaultOptions()
	o.Mode, o.Window, o.EntropyThreshold, o.PosPenalty = decoder.WeDLM, tr.Window, tr.EntropyThreshold, tr.PosPenalty
	o.MaxTokens, o.StopIDs = 160, []int32{4094, 4092}
	o.Vocabulary = Vocabulary
	return o
}

// Name says the setting.
func (tr Trace) Name() string {
	tau := "none"
	if tr.EntropyThreshold != nil {
		tau = fmt.Sprint(*tr.EntropyThreshold)
	}
	return fmt.Sprintf("W=%d,τ=%s,λ=%v", tr.Window, tau, tr.PosPenalty)
}

// CheckTotals compares a summary with the trace.
func CheckTotals(t *testing.T, sum decoder.Summary, tr Trace) {
	t.Helper()
	if !slices.Equal(sum.Tokens, tr.Output) {
		t.Errorf("output %v\nwant   %v", sum.Tokens, tr.Output)
	}
	if sum.Stats.Forwards != tr.Forwards || sum.Stats.Rows != tr.Rows {
		t.Errorf("%d forwards of %d rows in all, want %d of %d", sum.Stats.Forwards, sum.Stats.Rows, tr.Forwards, tr.Rows)
	}
}
