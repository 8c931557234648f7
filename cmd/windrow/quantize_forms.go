package main

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/checkpoint"
	"windrow/convert"
	"windrow/engine"
	"windrow/eval"
	"windrow/internal/unless"
)

// formMaker makes forms of one model. All of them run on its backend.
type formMaker struct {
	*engine.Engine
	checkpoint *checkpoint.Checkpoint
}

// source is the model as it is.
func (m *formMaker) source() eval.Form {
	in := checkpoint.Inspect(m.checkpoint)
	name := "source"
	if len(in.DTypes) > 0 {
		name = in.DTypes[0].DType
	}
	return eval.Form{Name: name, Open: func(context.Context) (eval.Variant, eval.Size, error) {
		return evaluated{m.Engine}, eval.Size{Bytes: in.Bytes, BitsPerWeight: in.BitsPerWeight}, nil
	}}
}

// quantized is the model quantised in memory.
func (m *formMaker) quantized(p convert.Named) eval.Form {
	return eval.Form{Name: p.Name, Open: func(ctx context.Context) (eval.Variant, eval.Size, error) {
		src, r, err := convert.Quantized(ctx, m.checkpoint, p.Policy)
		size := eval.Size{Bytes: r.BytesAfter, BitsPerWeight: r.BitsAfter}
		if err != nil {
			return nil, size, err
		}
		if r.BitsQuantized == 0 {
			return nil, size, keptReason(r, p.Module)
		}
		e, err := m.With(ctx, src)
		if err != nil {
			return nil, size, err
		}
		return evaluated{e}, size, nil
	}}
}

// keptReason says why a policy quantised nothing of a module ("": of any).
func keptReason(r convert.Report, module string) error {
	for _, k := range r.Kept {
		if module == "" || strings.HasSuffix(k.Name, "."+module+".weight") || k.Name == module+".weight" {
			return &eval.KeptError{Reason: k.Name + ": " + k.Reason}
		}
	}
	return &eval.KeptError{Reason: "the model has no such matrix"}
}

// openForms opens a model to be measured, with what to measure it on.
func openForms(c *cli.Context, src string) (*formMaker, eval.GSM8K, error) {
	fail := func(err error) (*formMaker, eval.GSM8K, error) { return nil, eval.GSM8K{}, err }
	machine, err := parseMachine(c)
	if err != nil {
		return fail(err)
	}
	// Forms are several copies of the weights: they belong in the host's memory,
	// unless a device is asked for.
	if machine.Backend == engine.Auto {
		machine.Backend = engine.CPU
	}
	o, err := parseDecode(c)
	if err != nil {
		return fail(err)
	}
	mode, err := parseMode(c.String("mode"))
	if err != nil {
		return fail(err)
	}
	name := c.String("data")
	if name == "" {
		if name = "gsm8k"; engine.Embedded(src) {
			name = "tinygsm"
		}
	}
	data, err := unless.Cancelled(c.Context, func() (*eval.Dataset, error) { return eval.Load(name) }, nil)
	if err != nil {
		return fail(err)
	}
	e, err := engine.Open(c.Context, src, machine)
	if err != nil {
		return fail(err)
	}
	o.Mode = mode
	o = e.Defaults(o)
	if err := e.Check(o); err != nil {
		e.Close()
		return fail(err)
	}
	return &formMaker{e, e.Checkpoint()}, eval.GSM8K{
		Data: data, Offset: c.Int("offset"), Limit: c.Int("limit"), FewShot: c.Int("few-shot"), System: c.String("system"), Raw: c.Bool("raw"),
		Settings: []eval.Setting{{Mode: o.Mode, Window: o.Window, EntropyThreshold: o.EntropyThreshold, PosPenalty: o.PosPenalty, Draft: undrafted(o)}},
		Options:  o, Model: e.Name(), Arithmetic: e.Arithmetic(),
	}, nil
}

// measureForms runs one of eval's comparisons on forms of a model and prints
// its report.
func measureForms(c *cli.Context, src string, forms func(*checkpoint.Config) []convert.Named, first string,
	run func(context.Context, eval.Form, []eval.Form, eval.GSM8K) (*eval.FormsReport, error)) error {
	m, config, err := openForms(c, src)
	if err != nil {
		return err
	}
	defer m.Close()
	var list []eval.Form
	for _, p := range forms(m.Config()) {
		list = append(list, m.quantized(p))
	}
	bar := newProgress(c.App.ErrWriter, "quantize")
	config.Progress = bar.update
	r, runErr := run(c.Context, m.source(), list, config)
	bar.finish()
	if r == nil {
		return runErr
	}
	if c.Bool("json") {
		err = writeJSON(c.App.Writer, r)
	} else {
		err = eval.WriteForms(c.App.Writer, r, first)
	}
	return errors.Join(runErr, err)
}
