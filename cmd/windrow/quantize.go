package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/checkpoint"
	"windrow/convert"
	"windrow/engine"
	"windrow/eval"
)

// The headings of quantize's help.
const (
	categoryFormat  = "Format"
	categoryMeasure = "Measuring"
)

func quantizeCommand() *cli.Command {
	d := convert.DefaultPolicy()
	flags := []cli.Flag{
		&cli.IntFlag{Name: "bits", Category: categoryFormat, Value: d.Bits, Usage: "`BITS` of a weight: 4 or 8"},
		&cli.IntFlag{Name: "group", Category: categoryFormat, Value: d.Group, Usage: "`WEIGHTS` that share a scale and a bias: 32, 64 or 128"},
		&cli.IntFlag{Name: "expert-bits", Category: categoryFormat, DefaultText: "as --bits", Usage: "`BITS` of a weight of a mixture's experts: 4, 8, or 16 to keep them"},
		&cli.StringFlag{Name: "policy", Category: categoryFormat, Value: "selective", Usage: "`POLICY`: selective keeps embed_tokens and lm_head in bf16, all does not; norms are always kept"},
		&cli.StringSliceFlag{Name: "exclude", Category: categoryFormat, Usage: "keep what matches `PATTERN`, part of a tensor's name: down_proj, layers.0, layers.*.mlp (repeatable)"},
		&cli.StringSliceFlag{Name: "include", Category: categoryFormat, Usage: "quantise what matches `PATTERN`, whatever the policy says (repeatable)"},
		&cli.StringSliceFlag{Name: "width", Category: categoryFormat, Usage: "bits for a pattern, `PATTERN=BITS`: 4, 8, or 16 to keep (repeatable, the last match counts)"},
		&cli.BoolFlag{Name: "sensitivity", Category: categoryMeasure, Usage: "measure SRC with one kind of layer quantised at a time; write nothing"},
		&cli.BoolFlag{Name: "compare", Category: categoryMeasure, Usage: "measure SRC, 4-bit all, 4-bit selective and 8-bit all; write nothing"},
		&cli.BoolFlag{Name: "accept", Category: categoryMeasure, Usage: "measure first, write only if the losses are within the limits"},
		&cli.Float64Flag{Name: "max-accuracy-loss", Category: categoryMeasure, Value: 1, Usage: "with --accept: `POINTS` of accuracy that may be lost"},
		&cli.Float64Flag{Name: "max-tpf-loss", Category: categoryMeasure, Value: 5, Usage: "with --accept: `PERCENT` of the tokens per forward that may be lost"},
		&cli.StringFlag{Name: "data", Category: categoryMeasure, DefaultText: "tinygsm for the embedded model, else gsm8k", Usage: "problems: gsm8k, tinygsm, or a JSONL `FILE` with question and answer"},
		&cli.IntFlag{Name: "limit", Category: categoryMeasure, Usage: "the first `N` problems only (0: all)"},
		&cli.IntFlag{Name: "offset", Category: categoryMeasure, Usage: "leave out the first `N` problems"},
		&cli.IntFlag{Name: "few-shot", Category: categoryMeasure, Usage: "show `N` solved problems first, 8 at most"},
	}
	flags = append(flags, slices.Concat(machineFlags(), promptFlags())...)
	for _, f := range decodeFlags(modeFlag()) {
		// Measures are greedy: sampling would drown the differences.
		if f, ok := f.(cli.CategorizableFlag); ok && f.GetCategory() == categoryDecoding {
			flags = append(flags, f.(cli.Flag))
		}
	}
	return command(&cli.Command{
		Name:      "quantize",
		Usage:     "write a model in 4 or 8 bits, or measure what that would cost",
		ArgsUsage: "SRC DST",
		Description: "Writes SRC, a model folder, a GGUF file of floats or " + embeddedName + ", as a new folder DST in MLX's layout. With --sensitivity or\n" +
			"--compare, accuracy, tokens per forward and the divergence (KL) of the next-token distribution are measured\n" +
			"instead. Both forms are then in memory; with --compare, all four are.",
		Flags: append(flags, rawFlag(),
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"}),
		Action: quantize,
	},
		"windrow quantize ./Qwen3-0.6B ./Qwen3-0.6B-4bit",
		"windrow quantize ./Qwen3-0.6B ./q --policy all --width down_proj=8 --exclude layers.0 --accept --limit 200",
		"windrow quantize "+embeddedName+" --sensitivity --limit 100",
		"windrow quantize "+embeddedName+" --compare --limit 500")
}

func quantize(c *cli.Context) error {
	p, err := parsePolicy(c)
	if err != nil {
		return err
	}
	if err := checkMeasureFlags(c); err != nil {
		return err
	}
	src, dst, err := quantizePaths(c)
	if err != nil {
		return err
	}
	switch {
	case c.Bool("sensitivity"):
		return measureForms(c, src, func(c *checkpoint.Config) []convert.Named { return convert.Sensitivity(p, c) }, "class", eval.RunSensitivity)
	case c.Bool("compare"):
		return measureForms(c, src, func(*checkpoint.Config) []convert.Named { return convert.Comparison(p.Group) }, "format", eval.CompareForms)
	case c.Bool("accept"):
		return acceptQuantized(c, src, dst, p)
	}
	source, err := engine.OpenCheckpoint(c.Context, src)
	if err != nil {
		return err
	}
	defer source.Close()
	report, err := writeQuantized(c, source, dst, p)
	if err != nil {
		return err
	}
	written := quantization{Source: engine.ModelName(src), Destination: dst, Report: report}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, written)
	}
	return written.table(c)
}

// quantization is the object that quantize --json prints.
type quantization struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	convert.Report
}

func (q quantization) table(c *cli.Context) error {
	if err := q.Table(c.App.Writer); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.App.Writer, "%s: %.2f MB became %.2f MB, %.3f bits a weight became %.3f, in %s\n", q.Source,
		float64(q.BytesBefore)/1e6, float64(q.BytesAfter)/1e6, q.BitsBefore, q.BitsAfter, q.Destination)
	return err
}

// writeQuantized quantises to dst under a progress bar.
func writeQuantized(c *cli.Context, src *checkpoint.Checkpoint, dst string, p convert.Policy) (convert.Report, error) {
	bar := newProgress(c.App.ErrWriter, "quantize")
	defer bar.finish()
	r, err := convert.Quantize(c.Context, src, dst, p, func(q convert.Progress) {
		bar.update(int(q.Done>>10), max(1, int(q.Total>>10)), "KiB "+q.Tensor)
	})
	return r, withoutPrefix(err)
}

// withoutPrefix takes off the "quantize: " of package convert, which is the
// command's prefix, too.
func withoutPrefix(err error) error {
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "quantize: ") {
		return inner
	}
	return err
}

// acceptQuantized measures first, and writes what is within the limits.
func acceptQuantized(c *cli.Context, src, dst string, p convert.Policy) error {
	limits := eval.AcceptLimits{AccuracyPoints: c.Float64("max-accuracy-loss"), TokensPerForwardPercent: c.Float64("max-tpf-loss")}
	// What cannot be written should not come to light after hours.
	switch _, err := os.Lstat(dst); {
	case err == nil:
		return fmt.Errorf("%s: exists: want the name of a new folder", dst)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if info, err := os.Stat(filepath.Dir(dst)); err != nil || !info.IsDir() {
		return fmt.Errorf("%s: no such folder to write %s in", filepath.Dir(dst), filepath.Base(dst))
	}
	m, config, err := openForms(c, src)
	if err != nil {
		return err
	}
	defer m.Close()
	bar := newProgress(c.App.ErrWriter, "accept")
	config.Progress = bar.update
	verdict, err := eval.Accept(c.Context, m.source(), m.quantized(convert.Named{Name: p.Name(), Policy: p}), limits, config)
	bar.finish()
	if verdict == nil {
		return withoutPrefix(err)
	}
	if !c.Bool("json") {
		err = errors.Join(err, eval.WriteAcceptance(c.App.Writer, verdict))
	}
	if err != nil {
		return err
	}
	result := acceptedQuantization{Acceptance: verdict}
	if verdict.Accepted {
		r, err := writeQuantized(c, m.checkpoint, dst, p)
		if err != nil {
			return err
		}
		result.Written = &quantization{Source: m.Name(), Destination: dst, Report: r}
	}
	switch {
	case c.Bool("json"):
		err = writeJSON(c.App.Writer, result)
	case result.Written != nil:
		fmt.Fprintln(c.App.Writer)
		err = result.Written.table(c)
	}
	if err == nil && !verdict.Accepted {
		err = fmt.Errorf("%s not written: %s", dst, strings.Join(verdict.Reasons, "; "))
	}
	return err
}

// acceptedQuantization is the object that quantize --accept --json prints.
type acceptedQuantization struct {
	*eval.Acceptance
	Written *quantization `json:"written"` // nil: not accepted
}
