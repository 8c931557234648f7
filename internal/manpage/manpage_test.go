package manpage

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	app := &cli.App{Name: "tool", Usage: "does things", Commands: []*cli.Command{
		{Name: "run", Aliases: []string{"go"}, Usage: "run 'it'", ArgsUsage: "FILE", Description: "Runs it,\n.now.", CustomHelpTemplate: "…\nEXAMPLES:\n   tool run a\\b\n   .x\n",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "mode", Aliases: []string{"m"}, Category: "Some", Usage: "τ, the `MODE`", Value: "fast"},
				&cli.BoolFlag{Name: "all-of-it", Category: "Some", Usage: "all"},
				&cli.BoolFlag{Name: "secret", Hidden: true},
				&cli.IntFlag{Name: "n", Usage: "`N`", EnvVars: []string{"TOOL_N"}},
			}},
		{Name: "group", Usage: "has parts", Subcommands: []*cli.Command{{Name: "part", Usage: "is one"}}},
		{Name: "hidden", Hidden: true},
	}}
	app.Setup()
	pages := Write(app, Page{Version: "1.2-x", Description: "One.\n\nTwo.", Sections: []Section{{"Files", []Entry{{"~/x", "a file"}}}}})
	if len(pages) != 4 {
		t.Errorf("%d pages, want 4", len(pages))
	}
	for name, want := range map[string][]string{
		"tool.1": {`.TH "TOOL" 1 "" "tool 1.2\-x" "Tool"`, "tool \\- does things\n", ".SH DESCRIPTION\nOne.\n.PP\nTwo.\n", `\fBtool\-run\fR(1)`, ".SH FILES\n.TP\n\\fB\\(ti/x\\fR\na file\n",
			".BR tool\\-group (1),\n.BR tool\\-group\\-part (1),\n.BR tool\\-run (1)\n"},
		"tool-run.1": {`tool\-run \- run \(aqit\(aq`, `\fBtool run\fR [flags] FILE`, "Runs it, .now.\n", "other name is go.", ".SS Some\n.TP\n\\fB\\-\\-all\\-of\\-it\\fR\nall\n.TP\n",
			"\\fB\\-\\-mode\\fR, \\fB\\-m\\fR \\fIMODE\\fR\n\\[u03C4], the MODE (default: fast)\n", "\\fB\\-n\\fR \\fIN\\fR\nN (default: 0) [$TOOL_N]", "    tool run a\\eb\n", "    \\&.x\n"},
		"tool-group.1":      {`\fBtool group\fR COMMAND [flags]`, `\fBtool\-group\-part\fR(1)`},
		"tool-group-part.1": {`tool\-group\-part \- is one`},
	} {
		text := string(pages[name])
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q:\n%s", name, w, text)
			}
		}
		if strings.Contains(text, "secret") || strings.Contains(text, "hidden") {
			t.Errorf("%s has what is hidden:\n%s", name, text)
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, ".") && !strings.ContainsAny(line[1:2], `"TSPBnf\\`) {
				t.Errorf("%s: %q would be an unknown request", name, line)
			}
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"a", ".x", `\fB`, "'", "τ\x00\xff\n", "\U0010ffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := escape(s)
		if strings.HasPrefix(e, ".") || strings.HasPrefix(e, "'") {
			t.Errorf("%q becomes a request: %q", s, e)
		}
		for _, r := range e {
			if r < ' ' || r > '~' {
				t.Errorf("%q: %q in %q", s, r, e)
			}
		}
	})
}
