package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange brings the arguments into the order that the cli package can parse:
// command, flags, "--", the rest. That package stops parsing flags at the
// first positional argument and then takes what follows as arguments, flags
// too; here a flag works on either side of the prompt. "--" ends the flags, a
// lone "-" is an argument, and what looks like a flag but is none is refused,
// with the nearest flag's name.
func arrange(app *cli.App, args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	out, rest := args[:1:1], args[1:]
	commands, command := app.Commands, (*cli.Command)(nil)
	for len(commands) > 0 {
		if len(rest) == 0 {
			return out, nil // the help of the program or of the group
		}
		name := rest[0]
		if command != nil && len(command.Flags) > 0 && find(commands, name) == nil {
			break // a group that is a command itself
		}
		if strings.HasPrefix(name, "-") {
			if !topLevelFlag(name, command == nil) {
				return nil, usagef("%sunknown flag %s before the command; flags follow it: windrow COMMAND --flag", prefix(command), name)
			}
			return append(out, name), nil
		}
		if command == nil && (name == "help" || name == "h") {
			return helpPath(app, append(out, name), rest[1:])
		}
		next := find(commands, name)
		if next == nil {
			return nil, usagef("%sunknown command %q%s", prefix(command), name, didYouMean(nearestCommand(commands, name)))
		}
		out, rest = append(out, name), rest[1:]
		command, commands = next, next.Subcommands
	}
	flags, positional, help, err := split(command, rest)
	if err != nil {
		return nil, err
	}
	if help {
		return append(out, "--help"), nil
	}
	return append(append(append(out, flags...), "--"), positional...), nil
}

// helpPath checks "help COMMAND [SUBCOMMAND]" and turns it into that
// command's --help.
func helpPath(app *cli.App, out, names []string) ([]string, error) {
	commands := app.Commands
	path := out[:len(out)-1]
	for _, name := range names {
		next := find(commands, name)
		if next == nil {
			return nil, usagef("help: unknown command %q%s", name, didYouMean(nearestCommand(commands, name)))
		}
		path, commands = append(path, name), next.Subcommands
	}
	return append(path, "--help"), nil
}

// split parts a command's arguments into flags with their values, and the rest.
func split(command *cli.Command, args []string) (flags, positional []string, help bool, err error) {
	known := map[string]cli.Flag{}
	for _, f := range command.Flags {
		for _, n := range f.Names() {
			known[n] = f
		}
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return flags, append(positional, args[i+1:]...), help, nil
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			positional = append(positional, arg)
			continue
		}
		name, _, assigned := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if name == "help" || name == "h" {
			help = true
			continue
		}
		f, ok := known[name]
		if !ok {
			return nil, nil, false, unknownFlag(command, arg, name)
		}
		flags = append(flags, arg)
		if _, isBool := f.(*cli.BoolFlag); isBool || assigned {
			continue
		}
		if i++; i == len(args) {
			return nil, nil, false, usagef("%s: flag %s needs a value", command.Name, arg)
		}
		flags = append(flags, args[i])
	}
	return flags, positional, help, nil
}

// unknownFlag is the error for an argument that starts with "-" and is no flag.
func unknownFlag(command *cli.Command, arg, name string) error {
	if strings.ContainsAny(arg, " \n\t") {
		return usagef("%s: the argument %.40q starts with '-' but is no flag; put '--' before a prompt that does", command.Name, arg)
	}
	return usagef("%s: unknown flag %s%s; put '--' before a prompt that starts with '-'",
		command.Name, arg, didYouMean(nearestFlag(command, name)))
}

func topLevelFlag(arg string, root bool) bool {
	switch strings.TrimLeft(arg, "-") {
	case "help", "h":
		return true
	case "version", "v":
		return root
	}
	return false
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// nearestFlag is the likeliest flag meant by name. A word was not meant to be a
// letter, which the cli package finds close to many.
func nearestFlag(command *cli.Command, name string) string {
	nearest := cli.SuggestFlag(command.Flags, name, false)
	if len(strings.TrimLeft(nearest, "-")) == 1 && len(name) > 1 {
		return ""
	}
	return nearest
}

// nearestCommand is the likeliest command meant by name. The cli package's
// own answer is a sentence; the name is what stands in quotes in it.
func nearestCommand(commands []*cli.Command, name string) string {
	if m := quoted.FindStringSubmatch(cli.SuggestCommand(commands, name)); m != nil {
		return m[1]
	}
	return ""
}

var quoted = regexp.MustCompile(`"([^"]+)"`)

func didYouMean(name string) string {
	if name == "" {
		return ""
	}
	return ", did you mean " + name + "?"
}

func prefix(c *cli.Command) string {
	if c == nil {
		return ""
	}
	return c.Name + ": "
}

// flagError makes the flag package's errors ours: a usage error that names
// the flag as the user writes it.
func flagError(err error) error {
	s := flagName.ReplaceAllString(err.Error(), "for --$1:")
	s = strings.TrimSuffix(s, ": parse error")
	s = strings.ReplaceAll(s, ": strconv.", ": ")
	return &usageError{errors.New(s)}
}

var flagName = regexp.MustCompile(`for flag -([a-z0-9-]+):`)
