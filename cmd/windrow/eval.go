package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/engine"
	"windrow/eval"
	"windrow/internal/unless"
)

func evalCommand() *cli.Command {
	return command(&cli.Command{
		Name:        "eval",
		Usage:       "measure accuracy and parallelism: gsm8k, pcache",
		UsageText:   "windrow eval gsm8k|pcache [flags]",
		Subcommands: []*cli.Command{evalGSM8KCommand(), evalPCacheCommand()},
		Action: func(*cli.Context) error {
			return usagef("say what to evaluate: windrow eval gsm8k or windrow eval pcache")
		},
	}, "windrow eval gsm8k --data tinygsm --limit 50 --mode ar --mode verified")
}

// evalFlags are what both evaluations take.
func evalFlags(extra ...cli.Flag) []cli.Flag {
	modes := &cli.StringSliceFlag{
		Name: "mode", Category: categoryDecoding, Usage: "`MODE`: auto, ar, wedlm or verified (repeatable; the others are compared with the first)",
	}
	drafts := &cli.StringSliceFlag{
		Name: "draft", Category: categoryDecoding, Usage: draftUsage + " (repeatable: verified with each; its window adapts where --window is not given)",
	}
	flags := append(slices.Concat(modelFlags(), cacheFlags(), promptFlags(), decodeFlags(modes), draftFlags(drafts)),
		rawFlag(),
		&cli.BoolFlag{Name: "sweep", Category: categoryDecoding, Usage: "run ar and every window × threshold × penalty of the lists below, in the one --mode (default: wedlm)"},
		&cli.StringFlag{Name: "sweep-windows", Category: categoryDecoding, Value: "8,16", Usage: "`LIST` of windows"},
		&cli.StringFlag{Name: "sweep-thresholds", Category: categoryDecoding, Value: "0.05,0.1,0.2,0.4,0.8", Usage: "`LIST` of entropy thresholds"},
		&cli.StringFlag{Name: "sweep-penalties", Category: categoryDecoding, Value: "0.02", Usage: "`LIST` of position penalties"},
		&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print the report as one JSON object"},
	)
	return append(flags, extra...)
}

func evalGSM8KCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "gsm8k",
		Usage: "accuracy on grade-school word problems, mode by mode",
		Description: "Answers are compared by their final number (after ####, else the last one). With several modes, each is\n" +
			"paired with the first (McNemar's test). An interrupted run goes on from its --output file.",
		Flags: evalFlags(
			&cli.StringFlag{Name: "data", Category: categoryOutput, Value: "gsm8k", Usage: "gsm8k (test set, 1319 problems), tinygsm (500, for the embedded model), or a JSONL `FILE` with question and answer"},
			&cli.IntFlag{Name: "limit", Category: categoryOutput, Usage: "the first `N` problems only (0: all)"},
			&cli.IntFlag{Name: "offset", Category: categoryOutput, Usage: "leave out the first `N` problems"},
			&cli.IntFlag{Name: "few-shot", Category: categoryOutput, Usage: "show `N` solved problems first, 8 at most"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Category: categoryOutput, Usage: "write one line an answer to `FILE`.jsonl, and resume from it"},
			&cli.StringFlag{Name: "report", Category: categoryOutput, Usage: "write a report that works offline to `FILE`.html"},
		),
		Action: evalGSM8K,
	},
		"windrow eval gsm8k --data tinygsm --limit 100 --mode ar --mode wedlm --mode verified",
		"windrow eval gsm8k --data tinygsm --limit 100 --sweep --output sweep.jsonl --report sweep.html")
}

func evalPCacheCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "pcache",
		Usage: "tokens per forward, p_cache and rows over a prompt set, by setting",
		Flags: evalFlags(
			&cli.StringFlag{Name: "data", Category: categoryOutput, Value: "mixed", Usage: "mixed (counting, arithmetic, word problems, open questions), or a JSONL `FILE` with prompt and category"},
			&cli.IntFlag{Name: "limit", Category: categoryOutput, Usage: "the first `N` prompts only (0: all)"},
		),
		Action: evalPCache,
	}, "windrow eval pcache --mode wedlm --mode verified --max-tokens 128")
}

func evalGSM8K(c *cli.Context) error {
	e, o, settings, err := openEvaluation(c)
	if err != nil {
		return err
	}
	defer e.Close()
	data, err := unless.Cancelled(c.Context, func() (*eval.Dataset, error) { return eval.Load(c.String("data")) }, nil)
	if err != nil {
		return err
	}
	bar := newProgress(c.App.ErrWriter, "gsm8k")
	r, runErr := eval.RunGSM8K(c.Context, evaluated{e.Engine}, eval.GSM8K{
		Data: data, Offset: c.Int("offset"), Limit: c.Int("limit"),
		Settings: settings, Options: o, FewShot: c.Int("few-shot"), System: c.String("system"), Raw: c.Bool("raw"),
		Model: e.Name(), Arithmetic: e.Arithmetic(), Output: c.String("output"), Progress: bar.update,
	})
	bar.finish()
	if r == nil {
		return runErr
	}
	// What an interrupted run has found is printed as well.
	if path := c.String("report"); path != "" {
		if err := eval.SaveHTML(path, r); err != nil {
			return errors.Join(runErr, err)
		}
	}
	if c.Bool("json") {
		err = writeJSON(c.App.Writer, r)
	} else {
		err = eval.WriteTable(c.App.Writer, r)
	}
	return errors.Join(runErr, err)
}

func evalPCache(c *cli.Context) error {
	e, o, settings, err := openEvaluation(c)
	if err != nil {
		return err
	}
	defer e.Close()
	prompts, err := unless.Cancelled(c.Context, func() ([]eval.PCachePrompt, error) { return eval.LoadPrompts(c.String("data")) }, nil)
	if err != nil {
		return err
	}
	if limit := c.Int("limit"); limit > 0 {
		prompts = prompts[:min(limit, len(prompts))]
	}
	bar := newProgress(c.App.ErrWriter, "pcache")
	r, runErr := eval.RunPCache(c.Context, evaluated{e.Engine}, eval.PCache{
		Name: c.String("data"), Prompts: prompts, Settings: settings, Options: o, System: c.String("system"), Raw: c.Bool("raw"),
		Model: e.Name(), Arithmetic: e.Arithmetic(), Progress: bar.update,
	})
	bar.finish()
	if r == nil {
		return runErr
	}
	if c.Bool("json") {
		err = writeJSON(c.App.Writer, r)
	} else {
		err = eval.WritePCacheTable(c.App.Writer, r)
	}
	return errors.Join(runErr, err)
}

// openEvaluation reads the flags that both evaluations share and opens the
// model. The options are complete but for mode, window, threshold and penalty.
func openEvaluation(c *cli.Context) (*evaluation, decoder.Options, []eval.Setting, error) {
	fail := func(err error) (*evaluation, decoder.Options, []eval.Setting, error) {
		return nil, decoder.Options{}, nil, err
	}
	if c.Args().Present() {
		return fail(usagef("takes no arguments, got %q", c.Args().First()))
	}
	for _, name := range []string{"limit", "offset", "few-shot"} {
		if c.Int(name) < 0 {
			return fail(usagef("--%s %d: want 0 or more", name, c.Int(name)))
		}
	}
	// An unwritable report should not come to light after hours.
	if path := c.String("report"); path != "" {
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return fail(fmt.Errorf("--report %s: %s is no folder", path, filepath.Dir(path)))
		}
	}
	if c.Int("few-shot") > eval.MaxFewShot {
		return fail(usagef("--few-shot %d: want 0 to %d", c.Int("few-shot"), eval.MaxFewShot))
	}
	machine, err := parseMachine(c)
	if err != nil {
		return fail(err)
	}
	o, err := parseDecode(c)
	if err != nil {
		return fail(err)
	}
	modes, err := parseModes(c)
	if err != nil {
		return fail(err)
	}
	drafts, err := parseDrafts(c, modes)
	if err == nil {
		err = setDrafts(c, &o)
	}
	if err != nil {
		return fail(err)
	}
	machine.NeedHead = slices.Contains(drafts, decoder.DraftMTP)
	var settings []eval.Setting
	if c.Bool("sweep") {
		if settings, err = parseSweep(c, modes); err != nil {
			return fail(err)
		}
	}
	e, err := engine.Open(c.Context, c.String("model"), machine)
	if err != nil {
		return fail(err)
	}
	for _, mode := range modes {
		o.Mode, o.Draft = mode, ""
		if mode == "" && len(drafts) > 0 {
			o.Mode = decoder.Verified // who asks for drafts
		}
		o = e.Defaults(o)
		if c.Bool("sweep") {
			continue
		}
		rule := o
		if !ruleGiven(c) {
			rule = e.Calibrated(o)
		}
		s := eval.Setting{Mode: o.Mode, Window: o.Window, EntropyThreshold: rule.EntropyThreshold, PosPenalty: rule.PosPenalty}
		if o.Mode != decoder.Verified || len(drafts) == 0 {
			if s.Draft = undrafted(o); s.Draft != "" && !c.IsSet("window") {
				s.Window = 0
			}
			settings = append(settings, s)
			continue
		}
		for _, s.Draft = range drafts {
			if !c.IsSet("window") {
				s.Window = 0
			}
			settings = append(settings, s)
		}
	}
	closeDrafter, err := openDrafter(c, e, machine, c.StringSlice("draft")...)
	for _, s := range settings {
		if err == nil {
			err = e.Check(e.Defaults(s.Options(o)))
		}
	}
	if err != nil {
		e.Close()
		return fail(err)
	}
	return &evaluation{e, closeDrafter}, o, settings, nil
}

// undrafted is who drafts in a setting of complete options where nobody was named: "",
// the masks, or where there are none whoever else can.
func undrafted(o decoder.Options) decoder.DraftChoice {
	if o.Mode == decoder.Verified && o.Vocabulary.MaskID < 0 {
		return decoder.DraftAuto
	}
	return ""
}

// evaluation is the model that is asked, and the one that drafts for it.
type evaluation struct {
	*engine.Engine
	closeDrafter func()
}

// Close frees both.
func (e *evaluation) Close() {
	e.Engine.Close()
	e.closeDrafter()
}

// parseDrafts reads every --draft.
func parseDrafts(c *cli.Context, modes []decoder.Mode) (list []decoder.DraftChoice, err error) {
	model := ""
	for _, s := range c.StringSlice("draft") {
		d, path, err := parseDraft(s)
		if err != nil {
			return nil, err
		}
		if path != "" && model != "" {
			return nil, usagef("--draft %s: want one model at most", s)
		}
		if path != "" {
			model = path
		}
		list = append(list, d)
	}
	if err := noDraftBackend(c, model); err != nil {
		return nil, err
	}
	if len(list) > 0 && (c.Bool("sweep") || !slices.ContainsFunc(modes, func(m decoder.Mode) bool { return m == "" || m == decoder.Verified })) {
		return nil, usagef("--draft %s: want --mode verified, and no --sweep", list[0])
	}
	return list, nil
}

func parseModes(c *cli.Context) ([]decoder.Mode, error) {
	names := c.StringSlice("mode")
	if len(names) == 0 {
		names = []string{modeAuto}
	}
	var modes []decoder.Mode
	for _, name := range names {
		mode, err := parseMode(name)
		if err != nil {
			return nil, err
		}
		modes = append(modes, mode)
	}
	return modes, nil
}

func parseSweep(c *cli.Context, modes []decoder.Mode) ([]eval.Setting, error) {
	mode := modes[0]
	if !c.IsSet("mode") {
		mode = decoder.WeDLM
	}
	if len(modes) > 1 || mode != decoder.WeDLM && mode != decoder.Verified {
		return nil, usagef("--sweep: want one --mode, wedlm or verified")
	}
	g, err := eval.ParseGrid(mode, c.String("sweep-windows"), c.String("sweep-thresholds"), c.String("sweep-penalties"))
	if err != nil {
		return nil, &usageError{err}
	}
	return g.Settings(), nil
}

// evaluated is an engine as package eval asks it.
type evaluated struct{ *engine.Engine }

// Run implements eval.Runner.
func (e evaluated) Run(ctx context.Context, p eval.Prompt, o decoder.Options) (decoder.Summary, error) {
	return e.Engine.Run(ctx, promptOf(p), o)
}

// Encode implements eval.Variant.
func (e evaluated) Encode(ctx context.Context, p eval.Prompt, answer string) ([]int32, error) {
	return e.EncodeAnswered(ctx, promptOf(p), answer)
}

// Force implements eval.Variant.
func (e evaluated) Force(ctx context.Context, n int) (eval.ForcedText, error) {
	return e.Engine.Force(ctx, n)
}

// Close implements eval.Variant: the engine is closed by who opened it.
func (evaluated) Close() {}

func promptOf(p eval.Prompt) engine.Prompt { return engine.Prompt{Messages: p.Messages, Raw: p.Raw} }
