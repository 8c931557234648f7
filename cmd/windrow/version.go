package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"windrow/cpu"
)

// version is the release that this source leads to.
const version = "0.1.0"

func versionCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "version",
		Usage: "print the version, the commit, and the kernels chosen for this CPU",
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("takes no arguments, got %q", c.Args().First())
			}
			b, err := cpu.New(cpu.Options{Verdicts: verdictCache{}})
			if err != nil {
				return err
			}
			defer b.Close()
			f := b.Features()
			fmt.Fprintf(c.App.Writer, "%s\nkernels %s (%s)\n", versionLine(), f.Kernels, f.Description)
			return nil
		},
	}, "windrow version")
}

// versionLine is name, version, commit, Go and platform in one line.
func versionLine() string {
	return fmt.Sprintf("windrow %s (%s) %s %s/%s", version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// commit is the revision that the Go tool recorded in the binary.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "no build info"
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = ", modified"
			}
		}
	}
	if revision == "" {
		return "commit unknown"
	}
	return "commit " + revision[:min(12, len(revision))] + dirty
}
