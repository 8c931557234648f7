package main

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/checkpoint"
	"windrow/convert"
	"windrow/decoder"
	"windrow/eval"
	"windrow/internal/unless"
	"windrow/model"
)

// namedPolicy is a policy under the name that a table shows. module is the one
// that a policy of a single class quantises.
type namedPolicy struct {
	name, module string
	policy       convert.Policy
}

// layerClasses are the kinds of layers that --sensitivity goes through.
var layerClasses = []struct{ name, module string }{
	{"embed", "embed_tokens"}, {"lm_head", "lm_head"},
	{"q", "q_proj"}, {"k", "k_proj"}, {"v", "v_proj"}, {"o", "o_proj"},
	{"gate", "gate_proj"}, {"up", "up_proj"}, {"down", "down_proj"},
}

// sensitivityForms quantise one kind of layer each. A tied head is the
// embedding: the two are one class.
func sensitivityForms(p convert.Policy) func(*checkpoint.Config) []namedPolicy {
	return func(config *checkpoint.Config) (list []namedPolicy) {
		for _, class := range layerClasses {
			name := class.name
			if config.TieEmbeddings {
				switch name {
				case "embed":
					name = "embed = lm_head (tied)"
				case "lm_head":
					continue
				}
			}
			list = append(list, namedPolicy{name, class.module, convert.Policy{Bits: p.Bits, Group: p.Group,
				Widths: []convert.Width{{Pattern: "*", Bits: 16}, {Pattern: class.module, Bits: p.Bits}}}})
		}
		return list
	}
}

// compareForms are the formats of --compare.
func compareForms(group int) func(*checkpoint.Config) []namedPolicy {
	return func(*checkpoint.Config) (list []namedPolicy) {
		for _, p := range []convert.Policy{{Bits: 4}, {Bits: 4, Selective: true}, {Bits: 8}} {
			p.Group = group
			list = append(list, namedPolicy{p.Name(), "", p})
		}
		return list
	}
}

// formMaker makes forms of one model. All of them run on its backend.
type formMaker struct{ *engine }

// source is the model as it is.
func (m *formMaker) source() eval.Form {
	in := checkpoint.Inspect(m.checkpoint)
	name := "source"
	if len(in.DTypes) > 0 {
		name = in.DTypes[0].DType
	}
	return eval.Form{Name: name, Open: func(context.Context) (eval.Variant, eval.Size, error) {
		return variant{m.engine}, eval.Size{Bytes: in.Bytes, BitsPerWeight: in.BitsPerWeight}, nil
	}}
}

// quantized is the model quantised in memory.
func (m *formMaker) quantized(p namedPolicy) eval.Form {
	return eval.Form{Name: p.name, Open: func(ctx context.Context) (eval.Variant, eval.Size, error) {
		src, r, err := convert.Quantized(ctx, m.checkpoint, p.policy)
		size := eval.Size{Bytes: r.BytesAfter, BitsPerWeight: r.BitsAfter}
		if err != nil {
			return nil, size, err
		}
		if r.BitsQuantized == 0 {
			return nil, size, keptReason(r, p.module)
		}
		e := *m.engine
		if e.model, err = model.Load(m.backend, src); err != nil {
			return nil, size, err
		}
		return variant{&e}, size, nil
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

// variant is a form that is loaded.
type variant struct{ *engine }

func (v variant) Run(ctx context.Context, p eval.Prompt, o decoder.Options) (decoder.Summary, error) {
	return runner{v.engine}.Run(ctx, p, o)
}

// Encode returns the ids of a prompt with its answer, cut to the context.
func (v variant) Encode(ctx context.Context, p eval.Prompt, answer string) ([]int32, error) {
	messages, raw := promptMessages(p)
	ids, err := v.encode(ctx, messages, raw)
	if err != nil {
		return nil, err
	}
	if raw {
		answer = " " + answer
	}
	more, err := v.tokens.EncodePlain(answer)
	if err != nil {
		return nil, err
	}
	ids = append(ids, more...)
	return ids[:min(len(ids), v.model.Config().MaxPositions)], nil
}

func (v variant) Force(n int) (eval.ForcedText, error) {
	cache, err := v.cache(n, n)
	if err != nil {
		return nil, err
	}
	return &forcedText{v.model, cache}, nil
}

// Close does nothing: the backend is the source's, and the weights are the
// collector's.
func (v variant) Close() {}

// forcedText is a text that is fed to a model.
type forcedText struct {
	model *model.Model
	cache *model.Cache
}

func (t *forcedText) Logits(ctx context.Context, tokens []int32) ([][]float32, error) {
	b := &model.Batch{Tokens: tokens, Spans: []model.Span{{Cache: t.cache, Rows: len(tokens)}}, Want: model.Want{Logits: true, Except: -1}}
	for i := range tokens {
		b.Positions = append(b.Positions, int32(t.cache.Base()+i))
		b.Want.Rows = append(b.Want.Rows, int32(i))
	}
	results, err := t.model.Forward(ctx, b)
	if err != nil {
		return nil, err
	}
	rows := make([][]float32, len(results))
	for i, r := range results {
		rows[i] = r.Logits
	}
	return rows, t.cache.Commit(len(tokens))
}

func (t *forcedText) Close() { t.cache.Close() }

// openForms opens a model to be measured, with what to measure it on.
func openForms(c *cli.Context, src string) (*formMaker, eval.GSM8K, error) {
	fail := func(err error) (*formMaker, eval.GSM8K, error) { return nil, eval.GSM8K{}, err }
	machine, err := parseMachine(c)
	if err != nil {
		return fail(err)
	}
	// Forms are several copies of the weights: they belong in the host's memory,
	// unless a device is asked for.
	if machine.backend == backendAuto {
		machine.backend = backendCPU
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
		if name = "gsm8k"; embedded(src) {
			name = "tinygsm"
		}
	}
	data, err := unless.Cancelled(c.Context, func() (*eval.Dataset, error) { return eval.Load(name) }, nil)
	if err != nil {
		return fail(err)
	}
	e, err := openEngine(c.Context, src, machine, c.Bool("no-think"))
	if err != nil {
		return fail(err)
	}
	if !c.IsSet("max-tokens") {
		o.MaxTokens = min(e.defaultMaxTokens(), e.model.Config().MaxPositions-1)
	}
	o = e.adapt(o, mode)
	if err := e.checkMode(o); err != nil {
		e.Close()
		return fail(err)
	}
	return &formMaker{e}, eval.GSM8K{
		Data: data, Offset: c.Int("offset"), Limit: c.Int("limit"), FewShot: c.Int("few-shot"), System: c.String("system"), Raw: c.Bool("raw"),
		Settings: []eval.Setting{{Mode: o.Mode, Window: o.Window, EntropyThreshold: o.EntropyThreshold, PosPenalty: o.PosPenalty}},
		Options:  o, Model: e.name, Arithmetic: e.arithmetic(),
	}, nil
}

// measureForms runs one of eval's comparisons on forms of a model and prints
// its report.
func measureForms(c *cli.Context, src string, forms func(*checkpoint.Config) []namedPolicy, first string,
	run func(context.Context, eval.Form, []eval.Form, eval.GSM8K) (*eval.FormsReport, error)) error {
	m, config, err := openForms(c, src)
	if err != nil {
		return err
	}
	defer m.Close()
	var list []eval.Form
	for _, p := range forms(m.model.Config()) {
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
