package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/engine"
	"windrow/internal/units"
	"windrow/model"
)

// Report is the object that bench --json prints. Figures are medians;
// spread holds them with their extremes.
type Report struct {
	Model         string             `json:"model"`
	DType         string             `json:"dtype"`
	Backend       string             `json:"backend"`
	Kernels       string             `json:"kernels"`
	Exact         bool               `json:"exact"`
	GPUs          int                `json:"gpus,omitempty"` // that share the model, where there are several
	KVDType       string             `json:"kv_dtype"`
	Threads       int                `json:"threads"`
	Repetitions   int                `json:"repetitions"`
	Context       int                `json:"context"`
	BandwidthGBps float64            `json:"bandwidth_gbps"`
	Prefill       map[string]float64 `json:"prefill"`
	StepMS        map[string]float64 `json:"step_ms"`
	C             map[string]float64 `json:"c"`
	// OneRow is about steps of one row: their time by context, the bytes they
	// read at Context (of several GPUs, in all), and the share of the bandwidth that this is.
	OneRowMS        map[string]float64 `json:"one_row_ms"`
	OneRowBytes     int64              `json:"one_row_bytes"`
	OneRowBandwidth float64            `json:"one_row_bandwidth_share"`
	Modes           []ModeReport       `json:"modes"`
	// BatchMS is the time of steps that serve several sequences, by
	// SEQUENCESxROWS.
	BatchMS map[string]float64 `json:"batch_ms,omitempty"`
	// Launches is how many kernels and copies the last step had; 0 on a CPU.
	Launches int `json:"launches,omitempty"`
	// HostExperts is where weights lie where experts stay in the host's memory, which the
	// CPU reads at HostBandwidthGBps.
	HostExperts       *model.HostExperts `json:"host_experts,omitempty"`
	HostBandwidthGBps float64            `json:"host_bandwidth_gbps,omitempty"`
	// Timelines are when kernels of steps ran, where that was asked for.
	Timelines []Timeline `json:"timelines,omitempty"`
	batches   []Batch
	// AutoC is the c(rows) that the adaptive windows chose by: measured once for
	// this model and machine, and kept.
	AutoC  map[string]float64 `json:"auto_c,omitempty"`
	autoC  string
	Spread Spreads `json:"spread"`
}

// ModeReport is a mode on a data set. The counters are sums over its prompts.
type ModeReport struct {
	Data                  string  `json:"data"`
	Mode                  string  `json:"mode"`
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_second"`
	TokensPerForward      float64 `json:"tokens_per_forward"`
	PCache                float64 `json:"p_cache"`
	MeanRows              float64 `json:"mean_rows"`
	decoder.Stats
	// Masks are those of a step: what an adaptive window chose.
	Masks decoder.StepMasks `json:"masks"`
	// Speedup is the median of the paired ratios to the first mode on the same
	// data.
	Speedup       float64 `json:"speedup"`
	SpeedupSpread Spread  `json:"speedup_spread"`
	Spread        Spread  `json:"spread"`
}

// Spreads are a report's figures with their extremes.
type Spreads struct {
	BandwidthGBps   Spread            `json:"bandwidth_gbps"`
	OneRowBandwidth Spread            `json:"one_row_bandwidth_share"`
	HostBandwidth   *Spread           `json:"host_bandwidth_gbps,omitempty"`
	Prefill         map[string]Spread `json:"prefill"`
	StepMS          map[string]Spread `json:"step_ms"`
	C               map[string]Spread `json:"c"`
	OneRowMS        map[string]Spread `json:"one_row_ms"`
	BatchMS         map[string]Spread `json:"batch_ms,omitempty"`
}

func (r *runner) report() *Report {
	e, f := r.engine, r.engine.Features()
	y := &Report{
		Model: e.Name(), DType: weightDType(e.Source()), Backend: e.BackendName(), Kernels: f.Kernels, Exact: f.Exact,
		GPUs: f.Devices, KVDType: e.KV().String(), Threads: f.Threads, Repetitions: r.Repetitions, Context: r.Context,
		OneRowBytes: r.watch.StepBytes(r.Context), Launches: e.Launches(), Modes: []ModeReport{}, Timelines: r.timelines,
		Spread: Spreads{
			BandwidthGBps: newSpread(r.bandwidth), OneRowBandwidth: newSpread(r.share),
			Prefill: spreads(r.prefill), StepMS: spreads(r.steps), C: spreads(r.c), OneRowMS: spreads(r.contexts),
		},
	}
	y.BandwidthGBps, y.OneRowBandwidth = y.Spread.BandwidthGBps.Median, y.Spread.OneRowBandwidth.Median
	y.Prefill, y.StepMS, y.C, y.OneRowMS = medians(y.Spread.Prefill), medians(y.Spread.StepMS), medians(y.Spread.C), medians(y.Spread.OneRowMS)
	if y.HostExperts = e.HostExperts(); len(r.hostBandwidth) > 0 {
		s := newSpread(r.hostBandwidth)
		y.Spread.HostBandwidth, y.HostBandwidthGBps = &s, s.Median
	}
	if y.batches = r.Batches; len(r.Batches) > 0 {
		y.Spread.BatchMS = map[string]Spread{}
		for i, b := range r.Batches {
			y.Spread.BatchMS[b.String()] = newSpread(r.batches[i])
		}
		y.BatchMS = medians(y.Spread.BatchMS)
	}
	for t, text := range r.Texts {
		for i, mode := range r.Modes {
			y.Modes = append(y.Modes, newModeReport(text.Name, mode.Name, r.modes[t][i], r.modes[t][0]))
		}
	}
	if r.Cost != nil {
		y.AutoC, y.autoC = map[string]float64{}, CostText(r.Cost)
		for _, point := range r.Cost.Points() {
			y.AutoC[strconv.Itoa(point.Rows)] = r.Cost.Ratio(point.Rows)
		}
	}
	return y
}

// newModeReport sums up a mode's repetitions, paired with the first mode's. The
// counters are equal in all of them, the times those of the last.
func newModeReport(data, mode string, runs, first []decoder.Stats) ModeReport {
	var rates, ratios []float64
	for rep, run := range runs {
		rates = append(rates, run.TokensPerSecond())
		if f := first[rep].TokensPerSecond(); f > 0 {
			ratios = append(ratios, run.TokensPerSecond()/f)
		}
	}
	last := runs[len(runs)-1]
	return ModeReport{
		Data: data, Mode: mode, DecodeTokensPerSecond: newSpread(rates).Median, Spread: newSpread(rates),
		TokensPerForward: last.TokensPerForward(), PCache: last.PCache(), MeanRows: last.MeanRows(), Stats: last, Masks: last.StepMasks(),
		Speedup: newSpread(ratios).Median, SpeedupSpread: newSpread(ratios),
	}
}

// CostText is c(rows) over c(1), in one line.
func CostText(c *decoder.CostModel) string {
	var parts []string
	for _, p := range c.Points() {
		parts = append(parts, fmt.Sprintf("%d: %s", p.Rows, units.Digits(c.Ratio(p.Rows))))
	}
	return strings.Join(parts, ", ")
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

func spreads(values map[int][]float64) map[string]Spread {
	out := map[string]Spread{}
	for k, v := range values {
		out[strconv.Itoa(k)] = newSpread(v)
	}
	return out
}

func medians(s map[string]Spread) map[string]float64 {
	out := map[string]float64{}
	for k, v := range s {
		out[k] = v.Median
	}
	return out
}

// ascending are a table's keys in the order of their numbers.
func ascending(s map[string]Spread) []string {
	return slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
}

// Table prints the report for people.
func (r *Report) Table(out io.Writer) error {
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
	if r.Backend != engine.CPU {
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
		on := ""
		if r.GPUs > 1 {
			on = fmt.Sprintf(" on %d GPUs", r.GPUs)
		}
		fmt.Fprintf(w, "one row at context %d reads %s%s\t%.0f %% (%.0f–%.0f) of the bandwidth\n", r.Context, units.Bytes(r.OneRowBytes), on, 100*s.Median, 100*s.Min, 100*s.Max)
	}
	if h := r.HostExperts; h != nil {
		fmt.Fprintf(w, "weights on the device\t%s, of which a row reads %s\n", units.Bytes(h.DeviceBytes), units.Bytes(h.DeviceReadBytes))
		fmt.Fprintf(w, "experts of %d layers in host memory\t%s, of which a row reads %s\n", h.Layers, units.Bytes(h.HostBytes), units.Bytes(h.HostReadBytes))
	}
	if s := r.Spread.HostBandwidth; s != nil {
		fmt.Fprintf(w, "read bandwidth of host memory\t%s GB/s\n", s)
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
		fmt.Fprintf(w, "%d × %d\t%s\n", b.Sequences, b.Rows, r.Spread.BatchMS[b.String()])
	}
	if r.Launches > 0 {
		fmt.Fprintf(w, "\nkernels and copies of the last step\t%d\n", r.Launches)
	}
	for _, t := range r.Timelines {
		t.table(w)
	}
	data := ""
	for _, m := range r.Modes {
		if m.Data != data {
			data = m.Data
			fmt.Fprintf(w, "\nmode on %s\ttokens/s\ttokens per forward\tp_cache\trows\tmasks\tdrafts accepted\ttimes %s\n", data, r.Modes[0].Mode)
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.3f\t%.1f\t%s\t%s\t%s\n", m.Mode, m.Spread, m.TokensPerForward, m.PCache, m.MeanRows, m.maskText(), m.acceptance(), m.SpeedupSpread)
	}
	if err := w.Flush(); err != nil || r.autoC == "" {
		return err
	}
	_, err := fmt.Fprintf(out, "\nauto chose by c(rows) %s\nand by the drafts accepted so far in each answer\n", r.autoC)
	return err
}

func (m *ModeReport) maskText() string {
	return fmt.Sprintf("%.1f (%d–%d)", m.Masks.Mean, m.Masks.Min, m.Masks.Max)
}

func (m *ModeReport) acceptance() string {
	if m.Drafts == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", m.Accepted, m.Drafts)
}
