package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/internal/units"
	"windrow/metal"
	"windrow/model"
	"windrow/synthetic"
)

// dryReport is the object that bench --dry prints.
type dryReport struct {
	Backend string     `json:"backend"`
	Dry     bool       `json:"dry"`
	Models  []dryModel `json:"models"`
}

// dryModel is what the forwards of one model come to.
type dryModel struct {
	Model   string       `json:"model"`
	DType   string       `json:"dtype"`
	KVDType string       `json:"kv_dtype"`
	Exact   bool         `json:"exact"`
	Layers  int          `json:"layers"`
	Steps   []dryForward `json:"forwards"`
}

// dryForward is one forward of rows for each of some sequences that hold
// context tokens. The results of all rows are taken, but of a prompt only the
// last row's.
type dryForward struct {
	Prefill   bool `json:"prefill"`
	Sequences int  `json:"sequences"`
	Rows      int  `json:"rows"` // of each sequence
	Context   int  `json:"context"`
	metal.Count
	PerLayer float64 `json:"dispatches_per_layer"`
}

// benchDry counts what forwards on a GPU would read, write and compute.
func benchDry(c *cli.Context, machine machineOptions, p benchPlan) error {
	if machine.backend != backendMetal {
		return usagef("--dry counts for --backend metal alone")
	}
	r := dryReport{Backend: backendMetal, Dry: true}
	sources, err := drySources(c)
	if err != nil {
		return err
	}
	for _, s := range sources {
		m, err := p.dry(c.Context, machine, s.name, s.source)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.Models = append(r.Models, *m)
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, r)
	}
	return r.table(c.App.Writer)
}

type drySource struct {
	name   string
	source checkpoint.Source
}

// drySources are the shapes, without weights, or the model.
func drySources(c *cli.Context) (list []drySource, err error) {
	if shapes := c.StringSlice("shape"); len(shapes) > 0 {
		if c.String("model") != "" {
			return nil, usagef("--shape and --model: want one of them")
		}
		for _, name := range shapes {
			config, dtype, err := parseShape(c, name)
			if err != nil {
				return nil, err
			}
			list = append(list, drySource{name, synthetic.EmptySource(config, dtype)})
		}
		return list, nil
	}
	if c.IsSet("dtype") {
		return nil, usagef("--dtype: a model has its own; it goes with --shape")
	}
	source, name, err := openCheckpoint(c.Context, c.String("model"))
	if err != nil {
		return nil, err
	}
	return []drySource{{name, source}}, nil
}

func (p *benchPlan) dry(ctx context.Context, machine machineOptions, name string, src checkpoint.Source) (*dryModel, error) {
	config := src.Config()
	if err := p.fit(config.MaxPositions); err != nil {
		return nil, err
	}
	b := metal.NewDry(machine.exact)
	defer b.Close()
	loaded, err := model.LoadContext(ctx, b, src)
	if err != nil {
		return nil, err
	}
	m := &dryModel{Model: name, DType: weightDType(src), KVDType: machine.kv.String(), Exact: machine.exact, Layers: config.Layers}
	var steps []dryForward
	for _, rows := range p.rows {
		steps = append(steps, dryForward{Sequences: 1, Rows: rows, Context: p.context})
	}
	for _, batch := range p.batches {
		steps = append(steps, dryForward{Sequences: batch.sequences, Rows: batch.rows, Context: p.context})
	}
	for _, n := range p.prefill {
		steps = append(steps, dryForward{Prefill: true, Sequences: 1, Rows: n})
	}
	for _, f := range steps {
		if err := f.run(ctx, loaded, machine.kv); err != nil {
			return nil, err
		}
		f.Count = b.Taken()
		f.PerLayer = float64(f.InLayers) / float64(config.Layers)
		m.Steps = append(m.Steps, f)
	}
	return m, nil
}

func (f *dryForward) run(ctx context.Context, m *model.Model, kv backend.KVType) error {
	b := &model.Batch{Want: model.Want{Except: -1}}
	for i := range f.Sequences {
		cache, err := m.NewCache(model.CacheOptions{Capacity: f.Context + f.Rows, MaxRows: f.Rows, DType: kv})
		if err != nil {
			return err
		}
		defer cache.Close()
		cache.Stage(f.Context) // nothing is stored: tokens need not have been there
		if err := cache.Commit(f.Context); err != nil {
			return err
		}
		b.Spans = append(b.Spans, model.Span{Cache: cache, First: i * f.Rows, Rows: f.Rows})
		for r := range f.Rows {
			b.Tokens = append(b.Tokens, 0)
			b.Positions = append(b.Positions, int32(f.Context+r))
			if !f.Prefill || r == f.Rows-1 {
				b.Want.Rows = append(b.Want.Rows, int32(i*f.Rows+r))
			}
		}
	}
	_, err := m.Forward(ctx, b)
	return err
}

func (r dryReport) table(out io.Writer) error {
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
