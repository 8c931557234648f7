package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/backend"
	"windrow/bench"
	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/engine"
	"windrow/eval"
	"windrow/internal/memory"
	"windrow/internal/units"
	"windrow/internal/unless"
	"windrow/synthetic"
)

func benchCommand() *cli.Command {
	flags := append(modelFlags(),
		&cli.StringSliceFlag{Name: "shape", Category: categoryModel, Usage: "random weights in the shape of `NAME` instead of a model (repeatable with --dry): " + strings.Join(synthetic.ShapeNames(), ", ")},
		&cli.StringFlag{Name: "dtype", Category: categoryModel, Value: "bf16", Usage: "with --shape: `TYPE` of the weights, bf16, f16, f32, or a quantised type for the layers with the rest in bf16 (affine4, affine8, or one of GGUF such as q8_0, q5_k, q4_k)"},
	)
	for _, f := range adaptiveFlags(&cli.StringSliceFlag{Name: "mode", Category: categoryDecoding, Usage: "`MODE` to measure (repeatable; default: ar, wedlm, and verified with a fixed and an adaptive window)"}) {
		if !slices.Contains([]string{"stop", "logit-bias"}, f.Names()[0]) {
			flags = append(flags, f)
		}
	}
	return command(&cli.Command{
		Name:  "bench",
		Usage: "measure speed: prefill, steps of some rows, and the modes side by side",
		Description: "What is compared alternates within one run: a repetition measures everything once. Figures are medians\n" +
			"with the least and the largest value. The memory's read bandwidth is taken in the same seconds.",
		Flags: append(flags,
			&cli.IntFlag{Name: "reps", Category: categoryOutput, Value: 5, Usage: "`N` repetitions"},
			&cli.StringFlag{Name: "prefill", Category: categoryOutput, Value: "512", Usage: "prompt `SIZES` to prefill"},
			&cli.StringFlag{Name: "rows", Category: categoryOutput, Value: "1,2,4,8,16,32", Usage: "`ROWS` of a step"},
			&cli.IntFlag{Name: "context", Category: categoryOutput, Value: 512, Usage: "`TOKENS` in the cache during these steps"},
			&cli.StringFlag{Name: "contexts", Category: categoryOutput, Value: "0,2048", Usage: "`CONTEXTS` for steps of one row"},
			&cli.StringFlag{Name: "batch", Category: categoryOutput, Usage: "`SEQUENCESxROWS` of steps that serve several sequences at --context, such as 8x16"},
			&cli.StringSliceFlag{Name: "data", Category: categoryOutput, DefaultText: "tinygsm and gsm8k", Usage: "prompts for the modes: gsm8k, tinygsm or a JSONL `FILE` (repeatable)"},
			&cli.IntFlag{Name: "prompts", Category: categoryOutput, Value: 8, Usage: "the first `N` prompts of each (0: no modes)"},
			&cli.BoolFlag{Name: "dry", Category: categoryOutput, Usage: "with --backend metal: run nothing, count the dispatches, bytes and operations of these forwards (on any machine)"},
			&cli.BoolFlag{Name: "timeline", Category: categoryOutput, Usage: "with --backend cuda: also print when each kernel of these prompts and steps runs on the GPU (they take some percent longer then)"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"},
		),
		Action:      runBench,
		Subcommands: []*cli.Command{benchServeCommand()},
	}, "windrow bench --reps 3", "windrow bench --shape qwen3-0.6b --threads 1 --json")
}

// parseBatches reads a list such as "2x16,8x16".
func parseBatches(c *cli.Context) (batches []bench.Batch, err error) {
	for s := range strings.SplitSeq(c.String("batch"), ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		n, r, _ := strings.Cut(s, "x")
		sequences, err1 := strconv.Atoi(n)
		rows, err2 := strconv.Atoi(r)
		if err1 != nil || err2 != nil || sequences < 1 || rows < 1 || sequences > 1024 || rows > 4096 {
			return nil, usagef("--batch %q: want SEQUENCESxROWS, such as 8x16", s)
		}
		batches = append(batches, bench.Batch{Sequences: sequences, Rows: rows})
	}
	return batches, nil
}

func runBench(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q", c.Args().First())
	}
	machine, err := parseMachine(c)
	if err != nil {
		return err
	}
	plan, err := parseBenchPlan(c)
	if err != nil {
		return err
	}
	o, window, err := parseAdaptive(c)
	if err != nil {
		return err
	}
	machine.Timeline, plan.Timeline = c.Bool("timeline"), c.Bool("timeline")
	if c.Bool("dry") {
		return benchDry(c, machine, plan)
	}
	e, err := openBenchModel(c, machine, false)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := plan.Fit(e.Config().MaxPositions); err != nil {
		return err
	}
	if len(c.StringSlice("shape")) == 0 && c.Int("prompts") > 0 {
		if err := planModes(c, plan, e, o, window); err != nil {
			return err
		}
	}
	bar := newProgress(c.App.ErrWriter, "bench")
	r, err := plan.Run(c.Context, e, bar.update)
	bar.finish()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, r)
	}
	return r.Table(c.App.Writer)
}

func parseBenchPlan(c *cli.Context) (p *bench.Plan, err error) {
	p = &bench.Plan{}
	if p.Repetitions = c.Int("reps"); p.Repetitions < 1 || p.Repetitions > 10000 {
		return p, usagef("--reps %d: want 1 to 10000", p.Repetitions)
	}
	if p.Context = c.Int("context"); p.Context < 0 {
		return p, usagef("--context %d: want 0 or more", p.Context)
	}
	if n := c.Int("prompts"); n < 0 {
		return p, usagef("--prompts %d: want 0 or more", n)
	}
	if p.Prefill, err = parseSizes(c, "prefill", 1); err != nil {
		return p, err
	}
	if p.Rows, err = parseSizes(c, "rows", 1); err != nil {
		return p, err
	}
	if p.Contexts, err = parseSizes(c, "contexts", 0); err != nil {
		return p, err
	}
	if p.Batches, err = parseBatches(c); err != nil {
		return p, err
	}
	// c(rows) is relative to one row.
	if len(p.Rows) > 0 && p.Rows[0] != 1 {
		p.Rows = append([]int{1}, p.Rows...)
	}
	return p, nil
}

// parseSizes reads a list such as "1,2,4", ascending and without repeats in
// the result.
func parseSizes(c *cli.Context, flag string, least int) ([]int, error) {
	var sizes []int
	for s := range strings.SplitSeq(c.String(flag), ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > 1<<20 {
			return nil, usagef("--%s %q: want numbers from %d, such as %d,%d", flag, c.String(flag), least, least, 512)
		}
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

// openBenchModel opens --model, or makes --shape; one that is served needs a tokenizer,
// which a shape has not.
func openBenchModel(c *cli.Context, machine engine.Options, served bool) (*engine.Engine, error) {
	shapes := c.StringSlice("shape")
	if len(shapes) == 0 {
		if c.IsSet("dtype") {
			return nil, usagef("--dtype: a model has its own; it goes with --shape")
		}
		machine.NoThink = true
		return engine.Open(c.Context, c.String("model"), machine)
	}
	if len(shapes) > 1 {
		return nil, usagef("--shape: several of them go with --dry alone")
	}
	if c.String("model") != "" {
		return nil, usagef("--shape and --model: want one of them")
	}
	config, dtype, err := parseShape(c, shapes[0])
	if err != nil {
		return nil, err
	}
	if served {
		if machine.Tokenizer, err = synthetic.Tokenizer(config.VocabSize); err != nil {
			return nil, err
		}
		// Published hybrids have a head for drafts. Random ones hardly draft what stands: they
		// show what it costs to have one.
		if c.String("draft") == string(decoder.DraftMTP) && config.Delta != nil {
			config.MTPLayers = 1
		}
	}
	if err := checkRandom(shapes[0], config, dtype, memory.Total()); err != nil {
		return nil, err
	}
	return engine.OpenSource(c.Context, shapes[0], synthetic.RandomSource(config, dtype, 1), machine)
}

// checkRandom says that a machine has not the memory for random weights, and which it has
// it for; 0: as much as one likes. They are made in it, wherever they go then.
func checkRandom(shape string, config *checkpoint.Config, dtype backend.DType, total int64) error {
	need := synthetic.RandomBytes(config, dtype)
	if total == 0 || need <= total {
		return nil
	}
	err := fmt.Errorf("--shape %s: %v weights take %s of memory, and this machine has %s", shape, dtype, units.Bytes(need), units.Bytes(total))
	if least := synthetic.RandomBytes(config, backend.Affine4); dtype != backend.Affine4 && least <= total {
		err = fmt.Errorf("%w; with --dtype affine4 they take %s", err, units.Bytes(least))
	}
	return err
}

// parseShape finds a shape, and the type that its weights are to have.
func parseShape(c *cli.Context, name string) (*checkpoint.Config, backend.DType, error) {
	config, ok := synthetic.ShapeConfig(name)
	if !ok {
		return nil, 0, usagef("--shape %q: want one of %s", name, strings.Join(synthetic.ShapeNames(), ", "))
	}
	var names []string
	for _, d := range synthetic.DTypes() {
		if d.String() == c.String("dtype") {
			return config, d, nil
		}
		names = append(names, d.String())
	}
	return nil, 0, usagef("--dtype %q: want one of %s", c.String("dtype"), strings.Join(names, ", "))
}

// planModes plans the modes on the first prompts of some data.
func planModes(c *cli.Context, p *bench.Plan, e *engine.Engine, o decoder.Options, window windowChoice) error {
	var modes []decoder.Mode
	for _, s := range c.StringSlice("mode") {
		m, err := decoder.ParseMode(s)
		if err != nil {
			return err
		}
		modes = append(modes, m)
	}
	if err := p.AddModes(c.Context, e, o, modes, window.auto); err != nil {
		return err
	}
	names := c.StringSlice("data")
	if len(names) == 0 {
		names = []string{"tinygsm", "gsm8k"}
	}
	for _, name := range names {
		list, err := questions(c, name, c.Int("prompts"))
		if err != nil {
			return err
		}
		err = p.AddText(c.Context, e, name, list)
		if long := (*engine.ContextError)(nil); errors.As(err, &long) {
			err = &usageError{advised(err)} // the data is chosen by flags, too
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// questions are the first n questions of some data, all of them for 0 or where there
// are fewer; none of "".
func questions(c *cli.Context, name string, n int) (list []string, err error) {
	if name == "" {
		return nil, nil
	}
	data, err := unless.Cancelled(c.Context, func() (*eval.Dataset, error) { return eval.Load(name) }, nil)
	if err != nil {
		return nil, err
	}
	problems, err := data.Slice(0, n)
	if err != nil {
		return nil, err
	}
	for _, problem := range problems {
		list = append(list, problem.Question)
	}
	return list, nil
}
