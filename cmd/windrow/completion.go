package main

import (
	"embed"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Each script asks "windrow __complete" what may stand at the cursor, so that it need
// not be made anew where commands, flags or models change.
//
//go:embed completion
var completionScripts embed.FS

// shells are those that there are scripts for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionCommand() *cli.Command {
	return command(&cli.Command{
		Name:      "completion",
		Usage:     "print a shell's script that completes commands, flags and models",
		ArgsUsage: strings.Join(shells, "|"),
		Description: "Packages bring the scripts. Else, in ~/.bashrc: eval \"$(windrow completion bash)\"; in ~/.zshrc, after compinit:\n" +
			"eval \"$(windrow completion zsh)\"; once: windrow completion fish > ~/.config/fish/completions/windrow.fish; in\n" +
			"$PROFILE of PowerShell: windrow completion powershell | Out-String | Invoke-Expression",
		Action: func(c *cli.Context) error {
			shell := c.Args().First()
			if c.NArg() != 1 || !slices.Contains(shells, shell) {
				return usagef("got %q, want one of %s", strings.Join(c.Args().Slice(), " "), strings.Join(shells, ", "))
			}
			script, err := completionScripts.ReadFile("completion/windrow." + shell)
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write(script)
			return err
		},
	}, "windrow completion bash")
}

// completeName is the command that the scripts call, with "--" and the words up to the
// cursor, the program's name apart; the last one is what is being written.
const completeName = "__complete"

func completeCommand() *cli.Command {
	return command(&cli.Command{
		Name:   completeName,
		Usage:  "print what may stand at the cursor, for a shell's script",
		Hidden: true,
		Action: func(c *cli.Context) error {
			return complete(c.App, c.Args().Slice()).write(c.App.Writer)
		},
	})
}

// completion is what may stand at the cursor.
type completion struct {
	candidates []candidate
	paths      paths
}

// candidate is a word that may stand at the cursor.
type candidate struct {
	word, about string // about: what it means, "" where that is plain
}

// paths says which of the file system's names may stand at the cursor besides.
type paths int

const (
	noPaths paths = iota
	folders
	files
)

// write prints a line for each candidate, with a tab before what it means; then, where
// paths may stand there, ":files" or ":folders". A candidate never begins with a colon.
func (c completion) write(w io.Writer) error {
	var b strings.Builder
	for _, x := range c.candidates {
		b.WriteString(escaped(x.word))
		if x.about != "" {
			b.WriteString("\t" + escaped(x.about))
		}
		b.WriteByte('\n')
	}
	switch c.paths {
	case folders:
		b.WriteString(":folders\n")
	case files:
		b.WriteString(":files\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// complete says what may stand in the place of the last word. It follows the rules of
// arrange: flags come before and after arguments, "--" ends them.
func complete(app *cli.App, words []string) (c completion) {
	if len(words) == 0 {
		return c
	}
	current, before := words[len(words)-1], words[:len(words)-1]
	helped := len(before) > 0 && (before[0] == "help" || before[0] == "h")
	if helped {
		before = before[1:]
	}
	commands, command := app.Commands, (*cli.Command)(nil)
	for len(before) > 0 && len(commands) > 0 {
		next := find(commands, before[0])
		if next == nil {
			if command == nil || len(command.Flags) == 0 {
				return c // a command that there is not
			}
			commands = nil // a group that is a command itself
			break
		}
		command, commands, before = next, next.Subcommands, before[1:]
	}
	flag, ended := pending(command, before)
	switch {
	case helped:
		c.candidates = named(commands)
	case flag != nil:
		c = flagValues(command, flag, current)
	case !ended && strings.HasPrefix(current, "-"):
		c = flagNames(command, before, current)
	default:
		if len(before) == 0 {
			c.candidates = named(commands) // with the cli package's help
		}
		values := argumentValues(command)
		c.candidates, c.paths = append(c.candidates, values.candidates...), values.paths
	}
	c.candidates = slices.DeleteFunc(c.candidates, func(x candidate) bool { return !strings.HasPrefix(x.word, current) })
	return c
}

// named are the commands that are shown in help.
func named(commands []*cli.Command) (list []candidate) {
	for _, c := range commands {
		if !c.Hidden {
			list = append(list, candidate{c.Name, short(c.Usage)})
		}
	}
	return list
}

// pending finds the flag that the next word is the value of, and whether "--" has ended
// the flags.
func pending(command *cli.Command, words []string) (flag cli.Flag, ended bool) {
	for i := 0; i < len(words); i++ {
		if words[i] == "--" {
			return nil, true
		}
		f, assigned := flagOf(command, words[i])
		if _, isBool := f.(*cli.BoolFlag); f == nil || isBool || assigned {
			continue
		}
		if i++; i == len(words) {
			return f, false
		}
	}
	return nil, false
}

// flagOf is the flag that a word names, and whether the word has its value, too.
func flagOf(command *cli.Command, word string) (flag cli.Flag, assigned bool) {
	if command == nil || len(word) < 2 || word[0] != '-' {
		return nil, false
	}
	name, _, assigned := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
	for _, f := range command.Flags {
		if slices.Contains(f.Names(), name) {
			return f, assigned
		}
	}
	return nil, false
}

// flagNames are the flags of a command, those apart that were given and count once; or,
// after "--flag=", the flag's values.
func flagNames(command *cli.Command, before []string, current string) (c completion) {
	if command == nil {
		return completion{candidates: []candidate{{"--help", "show help"}, {"--version", "print the version"}}}
	}
	if f, assigned := flagOf(command, current); assigned && f != nil {
		name, value, _ := strings.Cut(current, "=")
		c = flagValues(command, f, value)
		for i := range c.candidates {
			c.candidates[i].word = name + "=" + c.candidates[i].word
		}
		return c
	}
	for _, f := range command.VisibleFlags() {
		doc, ok := f.(cli.DocGenerationFlag)
		if !ok || f.Names()[0] == "help" {
			continue
		}
		given := slices.ContainsFunc(before, func(word string) bool {
			g, _ := flagOf(command, word)
			return g != nil && g.Names()[0] == f.Names()[0]
		})
		if repeatable, ok := f.(cli.DocGenerationSliceFlag); given && (!ok || !repeatable.IsSliceFlag()) {
			continue
		}
		c.candidates = append(c.candidates, candidate{"--" + f.Names()[0], short(doc.GetUsage())})
	}
	slices.SortFunc(c.candidates, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	c.candidates = append(c.candidates, candidate{"--help", "show help"})
	return c
}

// aboutWidth is how many characters of a usage are shown beside a word.
const aboutWidth = 60

// short is the beginning of a usage, in one line and without the quotes of its placeholder.
func short(usage string) string {
	text := []rune(strings.ReplaceAll(usage, "`", ""))
	if len(text) <= aboutWidth {
		return string(text)
	}
	cut := string(text[:aboutWidth])
	return strings.TrimRight(cut[:strings.LastIndexByte(cut, ' ')], " ,;:(") + "…"
}
