package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/cpu"
)

// version is the release that this source leads to.
var version = "0.1.0"

// What scripts/build-stamp.sh knows of the source: the linker sets them.
var stampedCommit, stampedDate, stampedModified string

func versionCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "version",
		Usage: "print the version, the commit, the CPU's features and the kernels chosen for it",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("takes no arguments, got %q", c.Args().First())
			}
			b, err := cpu.New(cpu.Options{Verdicts: measurements()})
			if err != nil {
				return err
			}
			defer b.Close()
			f, s := b.Features(), buildSource()
			v := versionReport{Version: version, Commit: s.commit, Modified: s.modified, Date: s.date,
				Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
				Kernels: f.Kernels, Description: f.Description, Threads: f.Threads}
			v.CPU, v.Features = cpu.Machine()
			if c.Bool("json") {
				return writeJSON(c.App.Writer, v)
			}
			return v.write(c.App.Writer)
		},
	}, "windrow version")
}

// versionReport is the object that version --json prints.
type versionReport struct {
	Version     string   `json:"version"`
	Commit      string   `json:"commit"` // "": unknown
	Modified    bool     `json:"modified"`
	Date        string   `json:"date"` // of the commit, RFC 3339
	Go          string   `json:"go"`
	Platform    string   `json:"platform"`
	CPU         string   `json:"cpu"`
	Features    []string `json:"features"`
	Kernels     string   `json:"kernels"`
	Description string   `json:"description"`
	Threads     int      `json:"threads"`
}

func (v versionReport) write(w io.Writer) error {
	features := cmp.Or(strings.Join(v.Features, " "), "nothing that kernels use")
	_, err := fmt.Fprintf(w, "%s\ncpu: %s; %s\nkernels %s (%s)\n", versionLine(), cmp.Or(escaped(v.CPU), "unnamed"), features, v.Kernels, v.Description)
	return err
}

// versionLine is name, version, commit, Go and platform in one line.
func versionLine() string {
	return fmt.Sprintf("windrow %s (%s) %s %s/%s", version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// source is the source that a binary was built from.
type source struct {
	commit, date string // "": unknown; the date is RFC 3339
	modified     bool
	module       string // the version of the module, where there is no commit
}

// buildSource is this binary's source: what make build stamped, or else what
// the Go tool recorded.
func buildSource() source {
	if stampedCommit != "" {
		return source{commit: stampedCommit, date: stampedDate, modified: stampedModified == "true"}
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return source{}
	}
	return recordedSource(info)
}

// recordedSource is the source by the Go tool: a clone's commit, or the version
// of a module that go install downloaded.
func recordedSource(info *debug.BuildInfo) (s source) {
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			s.commit = setting.Value
		case "vcs.time":
			s.date = setting.Value
		case "vcs.modified":
			s.modified = setting.Value == "true"
		}
	}
	if info.Main.Version != "(devel)" {
		s.module = info.Main.Version
	}
	return s
}

// commit names this binary's source.
func commit() string { return buildSource().String() }

// String is the commit in short with the day, or what else is known.
func (s source) String() string {
	switch {
	case s.commit == "" && s.module == "":
		return "commit unknown"
	case s.commit == "":
		return "module " + s.module
	}
	text := "commit " + s.commit[:min(12, len(s.commit))]
	if day, _, ok := strings.Cut(s.date, "T"); ok {
		text += " of " + day
	}
	if s.modified {
		text += ", modified"
	}
	return text
}
