package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/convert"
	"windrow/models/tinygsm"
)

const embeddedName = tinygsm.Name

// parsePolicy reads the flags that say what is quantised, and how.
func parsePolicy(c *cli.Context) (convert.Policy, error) {
	p := convert.Policy{Bits: c.Int("bits"), Group: c.Int("group"), Experts: c.Int("expert-bits"), Include: c.StringSlice("include"), Exclude: c.StringSlice("exclude")}
	switch name := c.String("policy"); name {
	case "selective":
		p.Selective = true
	case "all":
	default:
		return p, usagef("--policy %q: want selective or all", name)
	}
	for _, s := range c.StringSlice("width") {
		w, err := convert.ParseWidth(s)
		if err != nil {
			return p, usagef("--%w", err)
		}
		p.Widths = append(p.Widths, w)
	}
	if _, err := p.Rules(); err != nil {
		return p, &usageError{err}
	}
	return p, nil
}

// checkMeasureFlags refuses flags that would be passed over.
func checkMeasureFlags(c *cli.Context) error {
	var tasks []string
	for _, name := range []string{"sensitivity", "compare", "accept"} {
		if c.Bool(name) {
			tasks = append(tasks, "--"+name)
		}
	}
	if len(tasks) > 1 {
		return usagef("%s: want one of them", strings.Join(tasks, " and "))
	}
	given := func(names ...string) string {
		for _, name := range names {
			if c.IsSet(name) {
				return "--" + name
			}
		}
		return ""
	}
	switch {
	case len(tasks) == 0:
		if name := given("data", "limit", "offset", "few-shot", "mode"); name != "" {
			return usagef("%s: goes with --sensitivity, --compare or --accept", name)
		}
	case c.Bool("sensitivity"):
		if name := given("policy", "expert-bits", "include", "exclude", "width"); name != "" {
			return usagef("%s: --sensitivity goes through the kinds of layers itself", name)
		}
	case c.Bool("compare"):
		if name := given("bits", "expert-bits", "policy", "include", "exclude", "width"); name != "" {
			return usagef("%s: --compare has formats of its own", name)
		}
	}
	if name := given("max-accuracy-loss", "max-tpf-loss"); name != "" && !c.Bool("accept") {
		return usagef("%s: goes with --accept", name)
	}
	for _, name := range []string{"max-accuracy-loss", "max-tpf-loss"} {
		if v := c.Float64(name); !(v >= 0 && v <= 100) {
			return usagef("--%s %v: want 0 to 100", name, v)
		}
	}
	for _, name := range []string{"limit", "offset", "few-shot"} {
		if c.Int(name) < 0 {
			return usagef("--%s %d: want 0 or more", name, c.Int(name))
		}
	}
	if c.Int("few-shot") > 8 {
		return usagef("--few-shot %d: want 0 to 8", c.Int("few-shot"))
	}
	return nil
}

// quantizePaths reads the arguments: SRC and DST, or SRC alone, which may be
// left out, where nothing is written.
func quantizePaths(c *cli.Context) (src, dst string, err error) {
	src, dst = c.Args().Get(0), c.Args().Get(1)
	if c.Bool("sensitivity") || c.Bool("compare") {
		if c.NArg() > 1 {
			return "", "", usagef("%d arguments, want the model alone: nothing is written", c.NArg())
		}
		return src, "", nil
	}
	if c.NArg() != 2 || src == "" || dst == "" {
		return "", "", usagef("%s, want a model (%s for the embedded one) and the name of a new folder", counted(c.NArg(), "argument"), embeddedName)
	}
	return src, dst, nil
}
