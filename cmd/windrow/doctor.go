package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/cpu"
	"windrow/cuda"
)

// backendAll is the doctor's name for every backend that this machine has.
const backendAll = "all"

func doctorCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "doctor",
		Usage: "test the GPU, its driver and every kernel, and measure its copies",
		Description: "Prints what was found and one line for each check, ok or FAIL; the exit code is 1 if one fails or\n" +
			"there is no GPU to check. Its output is what a report about a GPU should carry.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "backend", Category: categoryModel, Value: backendCUDA, Usage: "`DEVICE` to examine: cuda, or all, where a GPU may be missing"},
			&cli.StringFlag{Name: "library", Category: categoryModel, DefaultText: "searched for", Usage: "`PATH` of the driver's library"},
			&cli.StringFlag{Name: "only", Category: categoryModel, DefaultText: "all", Usage: "run the checks whose name matches `REGEXP`"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"},
		},
		Action: doctor,
	}, "windrow doctor", "windrow doctor --json > doctor.json")
}

// doctorReport is the object that doctor --json prints.
type doctorReport struct {
	Version string       `json:"version"`
	Checks  []cuda.Check `json:"checks"`
	Failed  int          `json:"failed"`
	Pass    bool         `json:"pass"`
}

func doctor(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q", c.Args().First())
	}
	name := c.String("backend")
	if name != backendCUDA && name != backendAll {
		return usagef("--backend %q: want cuda or all", name)
	}
	only, err := regexp.Compile(c.String("only"))
	if err != nil {
		return usagef("--only: %v", err)
	}
	r := doctorReport{Version: versionLine()}
	report := func(check cuda.Check) {
		if !c.Bool("json") && len(r.Checks) == 0 {
			fmt.Fprintln(c.App.Writer, r.Version)
		}
		r.Checks = append(r.Checks, check)
		if check.Status == cuda.StatusFailed {
			r.Failed++
		}
		if !c.Bool("json") {
			printCheck(c.App.Writer, check)
		}
	}
	if name == backendAll {
		report(examineCPU())
	}
	_, err = cuda.Doctor(cuda.DoctorOptions{Library: c.String("library"), Only: only, Report: report})
	if name == backendAll && (errors.Is(err, cuda.ErrNoDriver) || errors.Is(err, cuda.ErrNoDevice)) {
		report(cuda.Check{Name: backendCUDA, Status: cuda.StatusFact, Detail: err.Error()})
		err = nil
	}
	r.Pass = err == nil && r.Failed == 0
	if c.Bool("json") {
		err = errors.Join(err, writeJSON(c.App.Writer, r))
	}
	if err == nil && r.Failed > 0 {
		err = fmt.Errorf("%d of %d checks failed", r.Failed, len(r.Checks))
	}
	return err
}

// examineCPU says which kernels the CPU would run.
func examineCPU() cuda.Check {
	check := cuda.Check{Name: backendCPU, Status: cuda.StatusFact}
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		check.Status, check.Detail = cuda.StatusFailed, err.Error()
		return check
	}
	defer b.Close()
	f := b.Features()
	check.Detail = fmt.Sprintf("kernels %s, %s", f.Kernels, f.Description)
	return check
}

// doctorLine bounds what a line says of a check; --json has all of it.
const doctorLine = 400

func shortened(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// printCheck writes one line: the verdict, the name, and what was measured.
func printCheck(w io.Writer, c cuda.Check) {
	var parts []string
	if c.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%.1f GB/s", c.Rate))
	}
	if c.Status == cuda.StatusOK && c.Rate == 0 {
		parts = append(parts, fmt.Sprintf("%.1f ms", c.Millis))
	}
	if c.Detail != "" {
		parts = append(parts, shortened(oneLine(c.Detail), doctorLine))
	}
	fmt.Fprintf(w, "%-4s  %-28s  %s\n", c.Status, c.Name, strings.Join(parts, ", "))
}
