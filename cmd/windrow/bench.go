package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/eval"
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
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"},
		),
		Action: bench,
	}, "windrow bench --reps 3", "windrow bench --shape qwen3-0.6b --threads 1 --json")
}

// benchPlan is what to measure.
type benchPlan struct {
	reps          int
	prefill, rows []int
	context       int
	contexts      []int
	batches       []benchBatch
	texts         []benchText
	modes         []benchedMode
	cost          *decoder.CostModel // c(rows) of the adaptive windows; nil: none
}

// benchBatch is a step of some rows for each of several sequences.
type benchBatch struct{ sequences, rows int }

func (b benchBatch) String() string { return fmt.Sprintf("%dx%d", b.sequences, b.rows) }

// parseBatches reads a list such as "2x16,8x16".
func parseBatches(c *cli.Context) (batches []benchBatch, err error) {
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
		batches = append(batches, benchBatch{sequences, rows})
	}
	return batches, nil
}

// benchText is what the modes answer.
type benchText struct {
	name    string
	prompts [][]int32
}

// benchedMode is a mode with its window.
type benchedMode struct {
	name    string
	options decoder.Options
}

// timed is how long a measurement of something quick goes on: long enough
// that the clock and the scheduler do not matter.
const timed = 120 * time.Millisecond

// bandwidthTime is how long one reading of the bandwidth takes.
const bandwidthTime = 400 * time.Millisecond

func bench(c *cli.Context) error {
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
	if c.Bool("dry") {
		return benchDry(c, machine, plan)
	}
	e, src, err := openBenchModel(c, machine)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := plan.fit(e.model.Config().MaxPositions); err != nil {
		return err
	}
	if len(c.StringSlice("shape")) == 0 && c.Int("prompts") > 0 {
		if err := plan.addModes(c, e, o, window); err != nil {
			return err
		}
	}
	bar := newProgress(c.App.ErrWriter, "bench")
	r, err := plan.run(c.Context, e, src, bar)
	bar.finish()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, r)
	}
	return r.table(c.App.Writer)
}

func parseBenchPlan(c *cli.Context) (p benchPlan, err error) {
	if p.reps = c.Int("reps"); p.reps < 1 || p.reps > 10000 {
		return p, usagef("--reps %d: want 1 to 10000", p.reps)
	}
	if p.context = c.Int("context"); p.context < 0 {
		return p, usagef("--context %d: want 0 or more", p.context)
	}
	if n := c.Int("prompts"); n < 0 {
		return p, usagef("--prompts %d: want 0 or more", n)
	}
	if p.prefill, err = parseSizes(c, "prefill", 1); err != nil {
		return p, err
	}
	if p.rows, err = parseSizes(c, "rows", 1); err != nil {
		return p, err
	}
	if p.contexts, err = parseSizes(c, "contexts", 0); err != nil {
		return p, err
	}
	if p.batches, err = parseBatches(c); err != nil {
		return p, err
	}
	// c(rows) is relative to one row.
	if len(p.rows) > 0 && p.rows[0] != 1 {
		p.rows = append([]int{1}, p.rows...)
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

// openBenchModel opens --model or makes --shape.
func openBenchModel(c *cli.Context, machine machineOptions) (*engine, checkpoint.Source, error) {
	shapes := c.StringSlice("shape")
	if len(shapes) == 0 {
		if c.IsSet("dtype") {
			return nil, nil, usagef("--dtype: a model has its own; it goes with --shape")
		}
		e, err := openEngine(c.Context, c.String("model"), machine, true)
		if err != nil {
			return nil, nil, err
		}
		return e, e.checkpoint, nil
	}
	if len(shapes) > 1 {
		return nil, nil, usagef("--shape: several of them go with --dry alone")
	}
	if c.String("model") != "" {
		return nil, nil, usagef("--shape and --model: want one of them")
	}
	config, dtype, err := parseShape(c, shapes[0])
	if err != nil {
		return nil, nil, err
	}
	return openShape(c.Context, shapes[0], config, dtype, machine)
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

// openShape makes a model of random weights.
func openShape(ctx context.Context, name string, config *checkpoint.Config, dtype backend.DType, machine machineOptions) (*engine, checkpoint.Source, error) {
	src := synthetic.RandomSource(config, dtype, 1)
	e := &engine{name: name, machine: machine}
	if err := e.start(ctx, src); err != nil {
		e.Close()
		return nil, nil, err
	}
	return e, src, nil
}

// fit refuses what the model's context cannot hold.
func (p *benchPlan) fit(context int) error {
	rows := 1
	if len(p.rows) > 0 {
		rows = p.rows[len(p.rows)-1]
	}
	for _, n := range slices.Concat(p.prefill, p.contexts, []int{p.context}) {
		if n+rows > context {
			return usagef("%d tokens and %d rows: the model's context is %d", n, rows, context)
		}
	}
	for _, b := range p.batches {
		if p.context+b.rows > context {
			return usagef("%d tokens and %d rows: the model's context is %d", p.context, b.rows, context)
		}
	}
	return nil
}

// addModes plans the modes that the model can run, on the first prompts.
// Verified comes with an adaptive window too, wedlm where one is asked for.
func (p *benchPlan) addModes(c *cli.Context, e *engine, o decoder.Options, window *windowChoice) error {
	modes := []decoder.Mode{decoder.AR}
	if e.adapt(o, decoder.AR).Vocabulary.MaskID >= 0 {
		modes = append(modes, decoder.WeDLM, decoder.Verified)
	}
	if c.IsSet("mode") {
		modes = nil
		for _, s := range c.StringSlice("mode") {
			m, err := decoder.ParseMode(s)
			if err != nil {
				return optionError(err)
			}
			modes = append(modes, m)
		}
	}
	for _, m := range modes {
		mo := e.adapt(o, m)
		if !c.IsSet("max-tokens") {
			mo.MaxTokens = e.defaultMaxTokens()
		}
		if err := e.checkMode(mo); err != nil {
			return err
		}
		p.modes = append(p.modes, benchedMode{string(m), mo})
		if m == decoder.Verified || window.adaptive(mo) {
			asked := windowChoice{auto: true, measured: window.measured, cost: window.cost}
			if mo = asked.apply(c.Context, e, mo); mo.Cost != nil {
				p.modes = append(p.modes, benchedMode{string(m) + " (auto)", mo})
			}
			window.measured, window.cost, p.cost = true, asked.cost, asked.cost
		}
	}
	names := c.StringSlice("data")
	if len(names) == 0 {
		names = []string{"tinygsm", "gsm8k"}
	}
	for _, name := range names {
		if err := p.addText(c.Context, e, name, c.Int("prompts")); err != nil {
			return err
		}
	}
	return nil
}

// addText plans the first n prompts of a data set.
func (p *benchPlan) addText(ctx context.Context, e *engine, name string, n int) error {
	data, err := unless.Cancelled(ctx, func() (*eval.Dataset, error) { return eval.Load(name) }, nil)
	if err != nil {
		return err
	}
	problems, err := data.Slice(0, n)
	if err != nil {
		return err
	}
	text := benchText{name: name}
	for _, problem := range problems {
		ids, err := e.encode(ctx, conversation("", problem.Question), !e.tokens.HasChatTemplate())
		if err != nil {
			return err
		}
		for _, mode := range p.modes {
			if len(ids)+mode.options.MaxTokens > e.model.Config().MaxPositions {
				return usagef("a prompt of %d tokens and --max-tokens %d: the context of %s is %d", len(ids), mode.options.MaxTokens, e.name, e.model.Config().MaxPositions)
			}
		}
		text.prompts = append(text.prompts, ids)
	}
	p.texts = append(p.texts, text)
	return nil
}

// run measures everything once a repetition.
func (p *benchPlan) run(ctx context.Context, e *engine, src checkpoint.Source, bar *progress) (*benchReport, error) {
	s := newStopwatch(e, timed)
	defer s.Close()
	m := newMeasurements(len(p.texts), len(p.modes))
	m.batches = make([][]float64, len(p.batches))
	parts := len(p.prefill) + len(p.rows) + len(p.contexts) + len(p.batches)
	for _, text := range p.texts {
		parts += len(text.prompts) * len(p.modes)
	}
	done := 0
	step := func(note string) { bar.update(done, parts*p.reps, note); done++ }
	bandwidth := func() float64 {
		b := e.backend.bandwidth(bandwidthTime)
		m.bandwidth = append(m.bandwidth, b)
		return b
	}
	for range p.reps {
		for _, n := range p.prefill {
			step(fmt.Sprintf("prefill of %d", n))
			rate, err := s.prefill(ctx, n)
			if err != nil {
				return nil, err
			}
			m.prefill[n] = append(m.prefill[n], rate)
		}
		for _, rows := range p.rows {
			step(fmt.Sprintf("%d rows at context %d", rows, p.context))
			before := 0.0
			if rows == 1 {
				before = bandwidth()
			}
			t, err := s.step(ctx, rows, p.context)
			if err != nil {
				return nil, err
			}
			m.steps[rows] = append(m.steps[rows], 1000*t)
			m.c[rows] = append(m.c[rows], 1000*t/m.steps[1][len(m.steps[1])-1])
			if rows == 1 {
				read := float64(s.stepBytes(src, p.context)) / t / 1e9
				if mean := (before + bandwidth()) / 2; mean > 0 {
					m.share = append(m.share, read/mean)
				}
			}
		}
		for _, context := range p.contexts {
			step(fmt.Sprintf("one row at context %d", context))
			t, err := s.step(ctx, 1, context)
			if err != nil {
				return nil, err
			}
			m.contexts[context] = append(m.contexts[context], 1000*t)
		}
		for i, b := range p.batches {
			step(fmt.Sprintf("%d sequences of %d rows", b.sequences, b.rows))
			t, err := s.batch(ctx, b.sequences, b.rows, p.context)
			if err != nil {
				return nil, err
			}
			m.batches[i] = append(m.batches[i], 1000*t)
		}
		for t, text := range p.texts {
			sums := make([]modeRun, len(p.modes))
			for _, ids := range text.prompts {
				for i, mode := range p.modes {
					step(fmt.Sprintf("mode %s on %s", mode.name, text.name))
					if err := sums[i].answer(ctx, e, ids, mode.options); err != nil {
						return nil, err
					}
				}
			}
			for i, sum := range sums {
				m.modes[t][i] = append(m.modes[t][i], sum)
			}
		}
	}
	return p.report(e, src, s, m), nil
}
