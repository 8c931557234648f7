package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	checks "windrow/backend/doctor"
	"windrow/cpu"
	"windrow/cuda"
	"windrow/engine"
	"windrow/internal/atomicfile"
	"windrow/metal"
)

// backendAll is the doctor's name for every backend that this machine has.
const backendAll = "all"

// machineGPU is the kind of GPU that a machine of this system can have.
func machineGPU() string {
	if runtime.GOOS == "darwin" {
		return engine.Metal
	}
	return engine.CUDA
}

func doctorCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "doctor",
		Usage: "test the GPU, its driver and every kernel, and measure it",
		Description: "Prints what was found and one line for each check, ok or FAIL; the exit code is 1 if one fails or\n" +
			"there is no GPU to check. Its output is what a report about a GPU should carry. Metal has not yet run on\n" +
			"hardware: the file that it writes on a Mac, attached to an issue, is the most useful report there is.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "backend", Category: categoryModel, DefaultText: "metal on macOS, else cuda", Usage: "`DEVICE` to examine: cuda, metal, or all, where a GPU may be missing"},
			&cli.StringFlag{Name: "library", Category: categoryModel, DefaultText: "searched for", Usage: "`PATH` of the CUDA driver's library"},
			&cli.StringFlag{Name: "only", Category: categoryModel, DefaultText: "all", Usage: "run the checks whose name matches `REGEXP`"},
			&cli.StringFlag{Name: "report", Category: categoryOutput, DefaultText: metalReport + " with metal", Usage: "write everything to a `FILE` too"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"},
		},
		Action: doctor,
	}, "windrow doctor", "windrow doctor --json > doctor.json")
}

// metalReport is the file that a Mac's examination is written to.
const metalReport = "windrow-metal-report.txt"

// doctorReport is the object that doctor --json prints.
type doctorReport struct {
	Version string         `json:"version"`
	Checks  []checks.Check `json:"checks"`
	Failed  int            `json:"failed"`
	Pass    bool           `json:"pass"`
	show    io.Writer      // gets a line of each check; nil: none
}

func (r *doctorReport) add(check checks.Check) {
	r.Checks = append(r.Checks, check)
	if check.Status == checks.StatusFailed {
		r.Failed++
	}
	if r.show != nil {
		printCheck(r.show, check, doctorLine)
	}
}

func doctor(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q", c.Args().First())
	}
	name := c.String("backend")
	switch name {
	case "":
		name = machineGPU()
	case engine.CUDA, engine.Metal, backendAll:
	default:
		return usagef("--backend %q: want cuda, metal or all", name)
	}
	only, err := regexp.Compile(c.String("only"))
	if err != nil {
		return usagef("--only: %v", err)
	}
	r := doctorReport{Version: versionLine()}
	if !c.Bool("json") {
		r.show = &headed{head: r.Version, to: c.App.Writer}
	}
	if name == backendAll {
		r.add(examineCPU())
	}
	path := c.String("report")
	if name == engine.Metal || name == backendAll && machineGPU() == engine.Metal {
		err = examineMetal(c.Context, &r, only)
		if path == "" && len(r.Checks) > 0 && err == nil {
			path = metalReport
		}
	} else {
		_, err = cuda.Doctor(c.String("library"), measurements().Kernels(), checks.Options{Only: only, Report: r.add})
	}
	if name == backendAll && (errors.Is(err, cuda.ErrNoDriver) || errors.Is(err, cuda.ErrNoDevice) || errors.Is(err, metal.ErrNoDevice)) {
		r.add(checks.Check{Name: machineGPU(), Status: checks.StatusFact, Detail: err.Error()})
		err = nil
	}
	r.Pass = err == nil && r.Failed == 0
	if c.Bool("json") {
		err = errors.Join(err, writeJSON(c.App.Writer, r))
	}
	if path != "" && len(r.Checks) > 0 {
		if saved := r.save(path); saved != nil {
			err = errors.Join(err, saved)
		} else if r.show != nil {
			fmt.Fprintf(c.App.Writer, "written to %s\n", path)
		}
	}
	if err == nil && r.Failed > 0 {
		err = fmt.Errorf("%d of %d checks failed", r.Failed, len(r.Checks))
	}
	return err
}

// headed writes a line before the first.
type headed struct {
	head string
	to   io.Writer
}

func (h *headed) Write(p []byte) (int, error) {
	if h.head != "" {
		fmt.Fprintln(h.to, h.head)
		h.head = ""
	}
	return h.to.Write(p)
}

// save writes all of the report, with nothing shortened.
func (r *doctorReport) save(path string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		var text bytes.Buffer
		fmt.Fprintf(&text, "%s\n%s/%s, %s\n", r.Version, runtime.GOOS, runtime.GOARCH, time.Now().UTC().Format("2006-01-02"))
		for _, check := range r.Checks {
			printCheck(&text, check, 1<<20)
		}
		fmt.Fprintf(&text, "%d of %d checks failed\n", r.Failed, len(r.Checks))
		_, err := text.WriteTo(w)
		return err
	})
}

// examineCPU says which kernels the CPU would run.
func examineCPU() checks.Check {
	check := checks.Check{Name: engine.CPU, Status: checks.StatusFact}
	b, err := cpu.New(cpu.Options{Verdicts: measurements()})
	if err != nil {
		check.Status, check.Detail = checks.StatusFailed, err.Error()
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

// printCheck writes one line: the verdict, the name, and what was measured, in
// at most so many characters.
func printCheck(w io.Writer, c checks.Check, most int) {
	var parts []string
	if c.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%.1f GB/s", c.Rate))
	}
	if c.Status == checks.StatusOK && c.Rate == 0 {
		parts = append(parts, fmt.Sprintf("%.1f ms", c.Millis))
	}
	if c.Detail != "" {
		parts = append(parts, shortened(oneLine(c.Detail), most))
	}
	fmt.Fprintf(w, "%-4s  %-28s  %s\n", c.Status, c.Name, strings.Join(parts, ", "))
}
