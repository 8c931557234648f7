// Package manpage writes man pages of a command line's table of commands, as the macros
// of man(7) have them: one page of the program, and one of each command. What cli/v2
// writes itself is one page without the groups of flags and the examples, whose text
// goes through Markdown.
package manpage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Page is what belongs into the pages of a program besides its commands.
type Page struct {
	Version     string
	Description string    // of the program, paragraphs parted by empty lines
	Sections    []Section // of the program's own page, behind its commands
}

// Section is a heading with its entries.
type Section struct {
	Title   string
	Entries []Entry
}

// Entry is a name and what it is about.
type Entry struct{ Name, Text string }

// Write returns the pages of a program by file name, PROGRAM.1 and PROGRAM-COMMAND.1.
// Hidden commands and flags are left out. Pages are ASCII: other characters are written
// as roff escapes.
func Write(app *cli.App, p Page) map[string][]byte {
	pages := map[string][]byte{}
	var all []string
	var visit func(commands []*cli.Command, above string)
	visit = func(commands []*cli.Command, above string) {
		for _, c := range commands {
			if c.Hidden || c.Name == "help" {
				continue
			}
			name := above + " " + c.Name
			dashed := strings.ReplaceAll(name, " ", "-")
			all = append(all, dashed)
			pages[dashed+".1"] = commandPage(app, c, name, p)
			visit(c.Subcommands, name)
		}
	}
	visit(app.Commands, app.Name)
	pages[app.Name+".1"] = programPage(app, all, p)
	return pages
}

func programPage(app *cli.App, pages []string, p Page) []byte {
	var r roff
	r.head(app.Name, app.Name, app.Usage, p)
	r.section("SYNOPSIS")
	r.synopsis(app.Name, "COMMAND [flags] [arguments]")
	r.section("DESCRIPTION")
	r.paragraphs(p.Description)
	r.section("COMMANDS")
	for _, c := range app.Commands {
		if !c.Hidden && c.Name != "help" {
			r.entry(reference(app.Name+"-"+c.Name), c.Usage)
		}
	}
	for _, s := range p.Sections {
		r.section(strings.ToUpper(s.Title))
		for _, e := range s.Entries {
			r.entry(`\fB`+escape(e.Name)+`\fR`, e.Text)
		}
	}
	r.examples(app.CustomAppHelpTemplate)
	slices.Sort(pages)
	r.seeAlso(pages)
	return r.bytes()
}

func commandPage(app *cli.App, c *cli.Command, name string, p Page) []byte {
	var r roff
	dashed := strings.ReplaceAll(name, " ", "-")
	r.head(app.Name, dashed, c.Usage, p)
	r.section("SYNOPSIS")
	arguments := c.ArgsUsage
	if len(c.VisibleFlags()) > 0 {
		arguments = strings.TrimSpace("[flags] " + arguments)
	}
	if len(c.Subcommands) > 0 {
		r.synopsis(name, "COMMAND [flags]")
	}
	if len(c.Subcommands) == 0 || len(c.Flags) > 0 {
		r.synopsis(name, arguments)
	}
	if len(c.Aliases) > 0 || c.Description != "" {
		r.section("DESCRIPTION")
		// Lines are broken where help shows them; here they are filled.
		r.paragraphs(c.Description)
		if len(c.Aliases) > 0 {
			r.paragraphs("Its other name is " + strings.Join(c.Aliases, ", ") + ".")
		}
	}
	see := []string{app.Name}
	if len(c.Subcommands) > 0 {
		r.section("COMMANDS")
		for _, s := range c.Subcommands {
			if !s.Hidden {
				r.entry(reference(dashed+"-"+s.Name), s.Usage)
				see = append(see, dashed+"-"+s.Name)
			}
		}
	}
	r.flags(c)
	r.examples(c.CustomHelpTemplate)
	r.seeAlso(see)
	return r.bytes()
}

// flags writes a command's flags by category, as its help has them.
func (r *roff) flags(c *cli.Command) {
	headed := false
	for _, category := range c.VisibleFlagCategories() {
		flags := slices.Clone(category.Flags())
		if len(flags) == 0 {
			continue
		}
		if !headed {
			r.section("FLAGS")
			headed = true
		}
		if category.Name() != "" {
			r.line(".SS " + escape(category.Name()))
		}
		slices.SortFunc(flags, func(a, b cli.VisibleFlag) int { return strings.Compare(a.Names()[0], b.Names()[0]) })
		for _, f := range flags {
			if doc, ok := f.(cli.DocGenerationFlag); ok {
				r.flag(doc)
			}
		}
	}
}

func (r *roff) flag(f cli.DocGenerationFlag) {
	usage, value := strings.ReplaceAll(f.GetUsage(), "`", ""), ""
	if parts := strings.Split(f.GetUsage(), "`"); len(parts) == 3 {
		value = parts[1]
	}
	var names []string
	for _, name := range f.Names() {
		dashes := "--"
		if len(name) == 1 {
			dashes = "-"
		}
		names = append(names, `\fB`+escape(dashes+name)+`\fR`)
	}
	tag := strings.Join(names, ", ")
	if f.TakesValue() {
		tag += ` \fI` + escape(orElse(value, "VALUE")) + `\fR`
	}
	text := usage
	def := f.GetDefaultText()
	if def == "" {
		def = strings.Trim(f.GetValue(), "[]")
	}
	if _, isBool := f.(*cli.BoolFlag); isBool && f.GetValue() != "true" {
		def = ""
	}
	if def != "" && def != `""` {
		text += " (default: " + strings.Trim(def, `"`) + ")"
	}
	if env := f.GetEnvVars(); len(env) > 0 {
		text += " [$" + strings.Join(env, ", $") + "]"
	}
	r.entry(tag, text)
}

// reference is a page's name as it stands in text.
func reference(page string) string { return `\fB` + escape(page) + `\fR(1)` }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// roff collects the lines of a page.
type roff struct {
	text  strings.Builder
	begun bool // a section in which nothing stands yet
}

func (r *roff) bytes() []byte { return []byte(r.text.String()) }

func (r *roff) line(s string) { r.text.WriteString(s + "\n") }

func (r *roff) section(title string) {
	r.line(".SH " + escape(title))
	r.begun = true
}

// paragraph begins a paragraph; a section begins with one by itself.
func (r *roff) paragraph() {
	if !r.begun {
		r.line(".PP")
	}
	r.begun = false
}

// head is the title and the line that apropos reads. The date is left out: pages are the
// same for the same commands.
func (r *roff) head(program, page, usage string, p Page) {
	r.line(`.\" Made from the table of commands: make man`)
	r.line(fmt.Sprintf(`.TH "%s" 1 "" "%s" "%s"`, escape(strings.ToUpper(page)), escape(program+" "+p.Version), escape(strings.ToUpper(program[:1])+program[1:])))
	r.section("NAME")
	r.line(escape(page) + ` \- ` + escape(usage))
}

// synopsis is a command in bold, with its arguments behind it.
func (r *roff) synopsis(name, arguments string) {
	r.line(".TP")
	r.line(strings.TrimSpace(`\fB` + escape(name) + `\fR ` + escape(arguments)))
}

func (r *roff) paragraphs(text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if paragraph = strings.Join(strings.Fields(paragraph), " "); paragraph != "" {
			r.paragraph()
			r.line(escape(paragraph))
		}
	}
}

// entry is a tag, which is roff, and a text.
func (r *roff) entry(tag, text string) {
	r.line(".TP")
	r.line(tag)
	r.line(escape(strings.Join(strings.Fields(text), " ")))
}

// examples writes what stands behind "EXAMPLE:" in a help template.
func (r *roff) examples(template string) {
	_, text, ok := strings.Cut(template, "\nEXAMPLE")
	if !ok {
		return
	}
	_, text, _ = strings.Cut(text, "\n")
	r.section("EXAMPLES")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			r.paragraph()
			r.line(".nf")
			r.line(`    ` + escape(line))
			r.line(".fi")
		}
	}
}

func (r *roff) seeAlso(pages []string) {
	r.section("SEE ALSO")
	for i, page := range pages {
		end := ","
		if i == len(pages)-1 {
			end = ""
		}
		r.line(`.BR ` + escape(page) + ` (1)` + end)
	}
}

// escape writes a text so that roff prints it as it stands: backslashes, hyphens that
// are to be copied, quotes, what a line must not begin with, and what is not ASCII.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '"':
			b.WriteString(`\(dq`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '.' && i == 0:
			b.WriteString(`\&.`)
		case r < ' ' || r == 0x7f:
			b.WriteByte(' ')
		case r > 0x7e:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
