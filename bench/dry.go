package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/engine"
	"windrow/internal/units"
	"windrow/metal"
	"windrow/model"
)

// DryReport is the object that bench --dry prints: what forwards on a GPU would
// read, write and compute.
type DryReport struct {
	Backend string     `json:"backend"`
	Dry     bool       `json:"dry"`
	Models  []DryModel `json:"models"`
}

// DryModel is what the forwards of one model come to.
type DryModel struct {
	Model   string       `json:"model"`
	DType   string       `json:"dtype"`
	KVDType string       `json:"kv_dtype"`
	Exact   bool         `json:"exact"`
	Layers  int          `json:"layers"`
	Steps   []DryForward `json:"forwards"`
}

// DryForward is one forward of rows for each of some sequences that hold
// context tokens. The results of all rows are taken, but of a prompt only the
// last row's.
type DryForward struct {
	Prefill   bool `json:"prefill"`
	Sequences int  `json:"sequences"`
	Rows      int  `json:"rows"` // of each sequence
	Context   int  `json:"context"`
	metal.Count
	PerLayer float64 `json:"dispatches_per_layer"`
}

// NewDryReport is a report of no models yet.
func NewDryReport() *DryReport { return &DryReport{Backend: engine.Metal, Dry: true} }

// Add counts the plan's forwards of a model on Metal. Of the options only the
// arithmetic counts. Weights need not be there.
func (r *DryReport) Add(ctx context.Context, p *Plan, o engine.Options, name string, src checkpoint.Source) error {
	m, err := p.dry(ctx, o, name, src)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.Models = append(r.Models, *m)
	return nil
}

func (p *Plan) dry(ctx context.Context, o engine.Options, name string, src checkpoint.Source) (*DryModel, error) {
	config := src.Config()
	if err := p.Fit(config.MaxPositions); err != nil {
		return nil, err
	}
	kv := o.KVType()
	b := metal.NewDry(o.Exact)
	defer b.Close()
	loaded, err := model.LoadContext(ctx, b, src)
	if err != nil {
		return nil, err
	}
	m := &DryModel{Model: name, DType: weightDType(src), KVDType: kv.String(), Exact: o.Exact, Layers: config.Layers}
	var steps []DryForward
	for _, rows := range p.Rows {
		steps = append(steps, DryForward{Sequences: 1, Rows: rows, Context: p.Context})
	}
	for _, batch := range p.Batches {
		steps = append(steps, DryForward{Sequences: batch.Sequences, Rows: batch.Rows, Context: p.Context})
	}
	for _, n := range p.Prefill {
		steps = append(steps, DryForward{Prefill: true, Sequences: 1, Rows: n})
	}
	for _, f := range steps {
		if err := f.run(ctx, loaded, kv, func() { b.Taken() }); err != nil {
			return nil, err
		}
		f.Count = b.Taken()
		f.PerLayer = float64(f.InLayers) / float64(config.Layers)
		m.Steps = append(m.Steps, f)
	}
	return m, nil
}

// run runs the forward. What its sequences hold before is computed only where layers have a
// state, and forget has that forgotten.
func (f *DryForward) run(ctx context.Context, m *model.Model, kv backend.KVType, forget func()) error {
	b := new(model.Batch)
	for i := range f.Sequences {
		cache, err := m.NewCache(model.CacheOptions{Capacity: f.Context + f.Rows, MaxRows: max(f.Rows, f.Context), DType: kv})
		if err != nil {
			return err
		}
		defer cache.Close()
		if err := cache.Reserve(f.Context); err != nil {
			return err
		}
		if err := f.hold(ctx, m, cache); err != nil {
			return err
		}
		b.Spans = append(b.Spans, model.Span{Cache: cache, First: i * f.Rows, Rows: f.Rows})
		for r := range f.Rows {
			b.Tokens = append(b.Tokens, 0)
			b.Positions = append(b.Positions, int32(f.Context+r))
			if !f.Prefill || r == f.Rows-1 {
				b.Want = append(b.Want, model.Wanted{Row: int32(i*f.Rows + r)})
			}
		}
	}
	forget()
	_, err := m.Forward(ctx, b)
	return err
}

// hold has a sequence hold the context: all but the last token of it as a prompt, then that
// one as a step, so that the next forward adds one row to its states.
func (f *DryForward) hold(ctx context.Context, m *model.Model, cache *model.Cache) error {
	if m.Config().Delta == nil {
		cache.Stage(f.Context) // nothing is stored: tokens need not have been there
		return cache.Commit(f.Context)
	}
	for _, n := range []int{f.Context - 1, min(f.Context, 1)} {
		if n <= 0 {
			continue
		}
		b := &model.Batch{Tokens: make([]int32, n), Spans: []model.Span{{Cache: cache, Rows: n}}}
		for i := range n {
			b.Positions = append(b.Positions, int32(cache.Base()+i))
		}
		cache.Stage(n)
		if _, err := m.Forward(ctx, b); err != nil {
			return err
		}
		if err := cache.Commit(n); err != nil {
			return err
		}
	}
	return nil
}

// Table prints the report for people.
func (r *DryReport) Table(out io.Writer) error {
	for i, m := range r.Models {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s, %s, KV %s, exact %v, %d layers: counted for Metal, not run\n", m.Model, m.DType, m.KVDType, m.Exact, m.Layers)
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "forward\tcontext\tsubmits\tdispatches\ta layer\tread\twritten\tGFLOP\t")
		for _, f := range m.Steps {
			name := fmt.Sprintf("%d rows", f.Rows)
			switch {
			case f.Prefill:
				name = fmt.Sprintf("prefill %d", f.Rows)
			case f.Sequences > 1:
				name = fmt.Sprintf("%d × %d rows", f.Sequences, f.Rows)
			case f.Rows == 1:
				name = "1 row"
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t\n", name, f.Context, f.Submits, f.Dispatches, strings.TrimSuffix(fmt.Sprintf("%.1f", f.PerLayer), ".0"),
				units.Bytes(f.Read), units.Bytes(f.Written), units.Digits(float64(f.FLOPs)/1e9))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}
