package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"

	"windrow/model"
)

// measurements are the values of all repetitions.
type measurements struct {
	bandwidth, share []float64
	prefill          map[int][]float64 // tokens/s by size
	steps, c         map[int][]float64 // ms, and the ratio to one row, by rows
	contexts         map[int][]float64 // ms of one row by context
	modes            [][]modeRun
}

func newMeasurements(modes int) *measurements {
	return &measurements{
		prefill: map[int][]float64{}, steps: map[int][]float64{}, c: map[int][]float64{}, contexts: map[int][]float64{},
		modes: make([][]modeRun, modes),
	}
}

// benchReport is the object that bench --json prints. Figures are medians;
// spread holds them with their extremes.
type benchReport struct {
	Model         string             `json:"model"`
	DType         string             `json:"dtype"`
	Backend       string             `json:"backend"`
	Kernels       string             `json:"kernels"`
	Exact         bool               `json:"exact"`
	KVDType       string             `json:"kv_dtype"`
	Threads       int                `json:"threads"`
	Repetitions   int                `json:"repetitions"`
	Context       int                `json:"context"`
	BandwidthGBps float64            `json:"bandwidth_gbps"`
	Prefill       map[string]float64 `json:"prefill"`
	StepMS        map[string]float64 `json:"step_ms"`
	C             map[string]float64 `json:"c"`
	// OneRow is about steps of one row: their time by context, the bytes they
	// read at Context, and the share of the bandwidth that this is.
	OneRowMS        map[string]float64 `json:"one_row_ms"`
	OneRowBytes     int64              `json:"one_row_bytes"`
	OneRowBandwidth float64            `json:"one_row_bandwidth_share"`
	Modes           []benchMode        `json:"modes"`
	Spread          benchSpread        `json:"spread"`
}

type benchMode struct {
	Mode                  string  `json:"mode"`
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_second"`
	TokensPerForward      float64 `json:"tokens_per_forward"`
	PCache                float64 `json:"p_cache"`
	MeanRows              float64 `json:"mean_rows"`
	Tokens                int     `json:"tokens"`
	// Speedup is the median of the paired ratios to the first mode.
	Speedup float64 `json:"speedup"`
	Spread  spread  `json:"spread"`
}

type benchSpread struct {
	BandwidthGBps   spread            `json:"bandwidth_gbps"`
	OneRowBandwidth spread            `json:"one_row_bandwidth_share"`
	Prefill         map[string]spread `json:"prefill"`
	StepMS          map[string]spread `json:"step_ms"`
	C               map[string]spread `json:"c"`
	OneRowMS        map[string]spread `json:"one_row_ms"`
}

func (p *benchPlan) report(e *engine, src model.Source, s *stopwatch, m *measurements) *benchReport {
	f := e.backend.Features()
	r := &benchReport{
		Model: e.name, DType: weightDType(src), Backend: e.backend.Name(), Kernels: f.Kernels, Exact: f.Exact,
		KVDType: e.machine.kv.String(), Threads: f.Threads, Repetitions: p.reps, Context: p.context,
		OneRowBytes: s.stepBytes(src, p.context), Modes: []benchMode{},
		Spread: benchSpread{
			BandwidthGBps: newSpread(m.bandwidth), OneRowBandwidth: newSpread(m.share),
			Prefill: spreads(m.prefill), StepMS: spreads(m.steps), C: spreads(m.c), OneRowMS: spreads(m.contexts),
		},
	}
	r.BandwidthGBps, r.OneRowBandwidth = r.Spread.BandwidthGBps.Median, r.Spread.OneRowBandwidth.Median
	r.Prefill, r.StepMS, r.C, r.OneRowMS = medians(r.Spread.Prefill), medians(r.Spread.StepMS), medians(r.Spread.C), medians(r.Spread.OneRowMS)
	for i, o := range p.modes {
		var rates, ratios []float64
		for rep, run := range m.modes[i] {
			rates = append(rates, run.tokensPerSecond())
			if first := m.modes[0][rep].tokensPerSecond(); first > 0 {
				ratios = append(ratios, run.tokensPerSecond()/first)
			}
		}
		last := m.modes[i][len(m.modes[i])-1]
		r.Modes = append(r.Modes, benchMode{
			Mode: string(o.Mode), DecodeTokensPerSecond: newSpread(rates).Median, Spread: newSpread(rates),
			TokensPerForward: over(last.tokens, last.forwards), PCache: over(last.tokens, last.rows), MeanRows: over(last.rows, last.forwards),
			Tokens: last.tokens, Speedup: newSpread(ratios).Median,
		})
	}
	return r
}

// weightDType is the dtype of the largest tensor: projections and embedding
// share one.
func weightDType(src model.Source) string {
	largest, dtype := 0, "none"
	for _, name := range src.Names() {
		if t, ok := src.Tensor(name); ok && len(t.Data) > largest {
			largest, dtype = len(t.Data), t.DType.String()
		}
	}
	return dtype
}

func spreads(values map[int][]float64) map[string]spread {
	out := map[string]spread{}
	for k, v := range values {
		out[strconv.Itoa(k)] = newSpread(v)
	}
	return out
}

func medians(s map[string]spread) map[string]float64 {
	out := map[string]float64{}
	for k, v := range s {
		out[k] = v.Median
	}
	return out
}

// ascending are a table's keys in the order of their numbers.
func ascending(s map[string]spread) []string {
	return slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
}

// table prints the report for people.
func (r *benchReport) table(out io.Writer) error {
	exact := ""
	if r.Exact {
		exact = ", exact"
	}
	fmt.Fprintf(out, "%s %s on %s (%s%s), %d threads, KV %s; median of %d (least–largest)\n\n",
		r.Model, r.DType, r.Backend, r.Kernels, exact, r.Threads, r.KVDType, r.Repetitions)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "read bandwidth\t%s GB/s\n", r.Spread.BandwidthGBps)
	for _, n := range ascending(r.Spread.Prefill) {
		fmt.Fprintf(w, "prefill of %s\t%s tokens/s\n", n, r.Spread.Prefill[n])
	}
	for _, n := range ascending(r.Spread.OneRowMS) {
		fmt.Fprintf(w, "one row at context %s\t%s ms\n", n, r.Spread.OneRowMS[n])
	}
	if s := r.Spread.OneRowBandwidth; s.Median > 0 {
		fmt.Fprintf(w, "one row at context %d reads %s\t%.0f %% (%.0f–%.0f) of the bandwidth\n", r.Context, bytesText(r.OneRowBytes), 100*s.Median, 100*s.Min, 100*s.Max)
	}
	if len(r.StepMS) > 0 {
		fmt.Fprintf(w, "\nrows at context %d\tms\tc(rows)\n", r.Context)
		for _, n := range ascending(r.Spread.StepMS) {
			fmt.Fprintf(w, "%s\t%s\t%s\n", n, r.Spread.StepMS[n], r.Spread.C[n])
		}
	}
	if len(r.Modes) > 0 {
		fmt.Fprintf(w, "\nmode\ttokens/s\ttokens per forward\tp_cache\trows\ttimes %s\n", r.Modes[0].Mode)
		for _, m := range r.Modes {
			fmt.Fprintf(w, "%s\t%s\t%.2f\t%.3f\t%.1f\t%.2f\n", m.Mode, m.Spread, m.TokensPerForward, m.PCache, m.MeanRows, m.Speedup)
		}
	}
	return w.Flush()
}
