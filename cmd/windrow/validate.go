package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/engine"
	"windrow/internal/units"
	"windrow/internal/unless"
	"windrow/model"
)

// The tolerances of validate, on the relative norm and on the largest
// difference as a share of the largest value. In f32 throughout, only the
// order of additions differs (about 1e-6 measured on models of 2 to 8
// layers); bf16 and int8 round values to 8 bits of mantissa or fewer.
const (
	exactTolerance   = 1e-3
	roundedTolerance = 5e-2
)

func validateCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "model", Aliases: []string{"m"}, Category: categoryModel, DefaultText: "the embedded tiny-gsm", Usage: "model `PATH`: a folder or a .gguf file"},
		&cli.StringFlag{Name: "golden", Category: categoryModel, Usage: "`FILE` of golden tensors: prompt.ids, prompt.logits, prompt.hidden.I, mtp.logits, windowK.ids, .positions, .base, .logits"},
	}
	for _, f := range machineFlags() {
		if b, ok := f.(*cli.BoolFlag); ok && b.Name == "exact" {
			b.Value, b.Usage = true, b.Usage+"; --exact=false validates the default arithmetic"
		}
		flags = append(flags, f)
	}
	return command(&cli.Command{
		Name:  "validate",
		Usage: "compare a model's forward with golden tensors",
		Description: "Runs the prompts and windows of a golden file and prints, for each entry, the relative norm of the\n" +
			"difference and its largest element. The exit code is 1 if one is past the tolerance.",
		Flags: append(flags,
			&cli.Float64Flag{Name: "tolerance", Category: categoryOutput, DefaultText: fmt.Sprintf("%g, or %g where values are rounded", exactTolerance, roundedTolerance), Usage: "largest `SHARE` of the golden values that may differ"},
			&cli.BoolFlag{Name: "per-token", Category: categoryOutput, Usage: "run each prompt a second time, one token a forward: prefill and decoding must agree"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"},
		),
		Action: validate,
	}, "windrow validate --model ./Qwen3-0.6B --golden golden.safetensors")
}

// validationReport is the object that validate --json prints.
type validationReport struct {
	Model     string            `json:"model"`
	Kernels   string            `json:"kernels"`
	Exact     bool              `json:"exact"`
	KVDType   string            `json:"kv_dtype"`
	Tolerance float64           `json:"tolerance"`
	Pass      bool              `json:"pass"`
	Entries   []validationEntry `json:"entries"`
	// NotCompared are entries of the golden file that nothing was computed for.
	NotCompared []string `json:"not_compared,omitempty"`
}

type validationEntry struct {
	model.Deviation
	Pass bool `json:"pass"`
}

// within reports whether the relative norm, and the largest difference as a
// share of the largest golden value, are at most the tolerance. NaN never is.
func within(d model.Deviation, tolerance float64) bool {
	return d.RelativeNorm <= tolerance && d.MaxDifference <= tolerance*d.MaxReference
}

func validate(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q", c.Args().First())
	}
	machine, err := parseMachine(c)
	if err != nil {
		return err
	}
	name := c.String("golden")
	if name == "" {
		return usagef("no golden file: give it with --golden")
	}
	tolerance := c.Float64("tolerance")
	switch {
	case c.IsSet("tolerance") && !(tolerance >= 0 && tolerance <= 10):
		return usagef("--tolerance %v: want 0 to 10", tolerance)
	case c.IsSet("tolerance"):
	case machine.Exact && machine.KVType() == backend.KVF32:
		tolerance = exactTolerance
	default:
		tolerance = roundedTolerance
	}
	golden, err := unless.Cancelled(c.Context, func() (*checkpoint.Safetensors, error) { return readGolden(name) }, nil)
	if err != nil {
		return err
	}
	_, machine.NeedHead = golden.Lookup(model.HeadLogits)
	files, err := engine.OpenCheckpoint(c.Context, c.String("model"))
	if err != nil {
		return err
	}
	defer files.Close()
	e, err := engine.OpenSource(c.Context, engine.ModelName(c.String("model")), files, machine)
	if err != nil {
		return err
	}
	defer e.Close()
	deviations, err := e.Validate(c.Context, golden, c.Bool("per-token"))
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	f := e.Features()
	r := validationReport{Model: e.Name(), Kernels: f.Kernels, Exact: f.Exact, KVDType: e.KV().String(), Tolerance: tolerance}
	failed := 0
	for _, d := range deviations {
		pass := within(d, tolerance)
		if !pass {
			failed++
		}
		d.RelativeNorm, d.MaxDifference = finite(d.RelativeNorm), finite(d.MaxDifference)
		r.Entries = append(r.Entries, validationEntry{d, pass})
	}
	r.Pass = failed == 0
	r.NotCompared = model.NotCompared(golden, deviations)
	if c.Bool("json") {
		err = writeJSON(c.App.Writer, r)
	} else {
		err = r.table(c)
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d entries are past the tolerance %g", failed, len(deviations), tolerance)
	}
	return err
}

// maxGolden bounds a golden file, which is read into memory.
const maxGolden = 4 << 30

func readGolden(name string) (*checkpoint.Safetensors, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxGolden {
		return nil, fmt.Errorf("%s: want a file of at most %s", name, units.Bytes(maxGolden))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	golden, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return golden, nil
}

func (r validationReport) table(c *cli.Context) error {
	fmt.Fprintf(c.App.Writer, "%s, kernels %s, exact %v, KV %s, tolerance %g\n", r.Model, r.Kernels, r.Exact, r.KVDType, r.Tolerance)
	w := tabwriter.NewWriter(c.App.Writer, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "entry\trelative norm\tlargest\tof\tequal argmax\t")
	for _, e := range r.Entries {
		verdict, argmax := "ok", ""
		if !e.Pass {
			verdict = "FAIL"
		}
		if strings.Contains(e.Entry, "logits") {
			argmax = fmt.Sprintf("%d/%d", e.ArgmaxEqual, e.Rows)
		}
		fmt.Fprintf(w, "%s\t%.2e\t%.2e\t%.3g\t%s\t%s\n", e.Entry, e.RelativeNorm, e.MaxDifference, e.MaxReference, argmax, verdict)
	}
	if err := w.Flush(); err != nil || len(r.NotCompared) == 0 {
		return err
	}
	const most = 8
	names, more := r.NotCompared, ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	_, err := fmt.Fprintf(c.App.Writer, "not compared: %s%s\n", strings.Join(names, ", "), more)
	return err
}
