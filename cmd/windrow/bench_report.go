package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"

	"windrow/checkpoint"
	"windrow/internal/units"
)

// measurements are the values of all repetitions.
type measurements struct {
	bandwidth, share []float64
	prefill          map[int][]float64 // tokens/s by size
	steps, c         map[int][]float64 // ms, and the ratio to one row, by rows
	contexts         map[int][]float64 // ms of one row by context
	batches          [][]float64       // ms by batch
	modes            [][][]modeRun     // by text, mode and repetition
}

func newMeasurements(texts, modes int) *measurements {
	m := &measurements{prefill: map[int][]float64{}, steps: map[int][]float64{}, c: map[int][]float64{}, contexts: map[int][]float64{}}
	for range texts {
		m.modes = append(m.modes, make([][]modeRun, modes))
	}
	return m
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
	// BatchMS is the time of steps that serve several sequences, by
	// SEQUENCESxROWS.
	BatchMS map[string]float64 `json:"batch_ms,omitempty"`
	// Launches is how many kernels and copies the last step had; 0 on a CPU.
	Launches int `json:"launches,omitempty"`
	batches  []benchBatch
	// AutoC is the c(rows) that the adaptive windows chose by: measured once for
	// this model and machine, and kept.
	AutoC  map[string]float64 `json:"auto_c,omitempty"`
	autoC  string
	Spread benchSpread `json:"spread"`
}

type benchMode struct {
	Data                  string  `json:"data"`
	Mode                  string  `json:"mode"`
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_second"`
	TokensPerForward      float64 `json:"tokens_per_forward"`
	PCache                float64 `json:"p_cache"`
	MeanRows              float64 `json:"mean_rows"`
	Tokens                int     `json:"tokens"`
	Drafts                int     `json:"drafts"`
	Accepted              int     `json:"accepted"`
	// Masks are those of a step: what an adaptive window chose.
	Masks masksChosen `json:"masks"`
	// Speedup is the median of the paired ratios to the first mode on the same
	// data.
	Speedup       float64 `json:"speedup"`
	SpeedupSpread spread  `json:"speedup_spread"`
	Spread        spread  `json:"spread"`
}

type benchSpread struct {
	BandwidthGBps   spread            `json:"bandwidth_gbps"`
	OneRowBandwidth spread            `json:"one_row_bandwidth_share"`
	Prefill         map[string]spread `json:"prefill"`
	StepMS          map[string]spread `json:"step_ms"`
	C               map[string]spread `json:"c"`
	OneRowMS        map[string]spread `json:"one_row_ms"`
	BatchMS         map[string]spread `json:"batch_ms,omitempty"`
}

func (p *benchPlan) report(e *engine, src checkpoint.Source, s *stopwatch, m *measurements) *benchReport {
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
	if r.batches = p.batches; len(p.batches) > 0 {
		r.Spread.BatchMS = map[string]spread{}
		for i, b := range p.batches {
			r.Spread.BatchMS[b.String()] = newSpread(m.batches[i])
		}
		r.BatchMS = medians(r.Spread.BatchMS)
	}
	if e.backend.launches != nil {
		r.Launches = e.backend.launches()
	}
	for t, text := range p.texts {
		for i, mode := range p.modes {
			r.Modes = append(r.Modes, newBenchMode(text.name, mode.name, m.modes[t][i], m.modes[t][0]))
		}
	}
	if p.cost != nil {
		r.AutoC, r.autoC = map[string]float64{}, costText(p.cost)
		for _, point := range p.cost.Points() {
			r.AutoC[strconv.Itoa(point.Rows)] = p.cost.Ratio(point.Rows)
		}
	}
	return r
}

// newBenchMode sums up a mode's repetitions, paired with the first mode's. The
// counters are equal in all of them.
func newBenchMode(data, mode string, runs, first []modeRun) benchMode {
	var rates, ratios []float64
	for rep, run := range runs {
		rates = append(rates, run.tokensPerSecond())
		if f := first[rep].tokensPerSecond(); f > 0 {
			ratios = append(ratios, run.tokensPerSecond()/f)
		}
	}
	last := runs[len(runs)-1]
	return benchMode{
		Data: data, Mode: mode, DecodeTokensPerSecond: newSpread(rates).Median, Spread: newSpread(rates),
		TokensPerForward: over(last.tokens, last.forwards), PCache: over(last.tokens, last.rows), MeanRows: over(last.rows, last.forwards),
		Tokens: last.tokens, Drafts: last.drafts, Accepted: last.accepted,
		Masks:   masksChosen{over(last.masks, last.forwards), last.leastMasks, last.mostMasks},
		Speedup: newSpread(ratios).Median, SpeedupSpread: newSpread(ratios),
	}
}

// weightDType is the dtype that most of the weights have: that of the layers'
// projections, whatever the embedding is kept in.
func weightDType(src checkpoint.Source) string {
	weights := map[string]int{}
	most := ""
	for _, name := range src.Names() {
		if t, ok := src.Tensor(name); ok {
			d := t.DType.String()
			weights[d] += t.Elements()
			if most == "" || weights[d] > weights[most] {
				most = d
			}
		}
	}
	return most
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
	threads := ""
	if r.Threads > 0 { // of a CPU
		threads = fmt.Sprintf("%d threads, ", r.Threads)
	}
	fmt.Fprintf(out, "%s %s on %s (%s%s), %sKV %s; median of %d (least–largest)\n\n",
		r.Model, r.DType, r.Backend, r.Kernels, exact, threads, r.KVDType, r.Repetitions)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	what := "read"
	if r.Backend != backendCPU {
		what = "copy"
	}
	fmt.Fprintf(w, "%s bandwidth\t%s GB/s\n", what, r.Spread.BandwidthGBps)
	for _, n := range ascending(r.Spread.Prefill) {
		fmt.Fprintf(w, "prefill of %s\t%s tokens/s\n", n, r.Spread.Prefill[n])
	}
	for _, n := range ascending(r.Spread.OneRowMS) {
		fmt.Fprintf(w, "one row at context %s\t%s ms\n", n, r.Spread.OneRowMS[n])
	}
	if s := r.Spread.OneRowBandwidth; s.Median > 0 {
		fmt.Fprintf(w, "one row at context %d reads %s\t%.0f %% (%.0f–%.0f) of the bandwidth\n", r.Context, units.Bytes(r.OneRowBytes), 100*s.Median, 100*s.Min, 100*s.Max)
	}
	if len(r.StepMS) > 0 {
		fmt.Fprintf(w, "\nrows at context %d\tms\tc(rows)\n", r.Context)
		for _, n := range ascending(r.Spread.StepMS) {
			fmt.Fprintf(w, "%s\t%s\t%s\n", n, r.Spread.StepMS[n], r.Spread.C[n])
		}
	}
	for i, b := range r.batches {
		if i == 0 {
			fmt.Fprintf(w, "\nsequences of rows at context %d\tms\n", r.Context)
		}
		fmt.Fprintf(w, "%d × %d\t%s\n", b.sequences, b.rows, r.Spread.BatchMS[b.String()])
	}
	if r.Launches > 0 {
		fmt.Fprintf(w, "\nkernels and copies of the last step\t%d\n", r.Launches)
	}
	data := ""
	for _, m := range r.Modes {
		if m.Data != data {
			data = m.Data
			fmt.Fprintf(w, "\nmode on %s\ttokens/s\ttokens per forward\tp_cache\trows\tmasks\tdrafts accepted\ttimes %s\n", data, r.Modes[0].Mode)
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.3f\t%.1f\t%s\t%s\t%s\n", m.Mode, m.Spread, m.TokensPerForward, m.PCache, m.MeanRows, m.masks(), m.acceptance(), m.SpeedupSpread)
	}
	if err := w.Flush(); err != nil || r.autoC == "" {
		return err
	}
	_, err := fmt.Fprintf(out, "\nauto chose by c(rows) %s\nand by the drafts accepted so far in each answer\n", r.autoC)
	return err
}

func (m *benchMode) masks() string {
	return fmt.Sprintf("%.1f (%d–%d)", m.Masks.Mean, m.Masks.Min, m.Masks.Max)
}

func (m *benchMode) acceptance() string {
	if m.Drafts == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", m.Accepted, m.Drafts)
}
