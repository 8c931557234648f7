// Command windrow runs Qwen3-style language models and decodes several tokens
// per forward. It has flags, calls and printing, a file per command; what it calls
// is in the packages that docs/architecture.md lists, engine before all.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"windrow/internal/terminal"
)

// The exit codes. Interrupted is 128 + SIGINT, as shells report it.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// errInterrupted is the cause of a context that ctrl-C cancelled.
var errInterrupted = terminal.ErrInterrupted

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// run is main with its surroundings as arguments; it returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		if _, ok := <-signals; ok {
			// A second signal ends the program at once.
			signal.Stop(signals)
			cancel(errInterrupted)
		}
	}()
	out := &watchedWriter{Writer: stdout}
	app := newApp(stdin, out, stderr)
	args, err := arrange(app, args)
	if err == nil {
		app.Metadata[argumentsKey] = args[min(2, len(args)):]
		err = app.RunContext(ctx, args)
	}
	if err == nil && out.err != nil {
		err = fmt.Errorf("standard output: %w", out.err)
	}
	return report(ctx, stderr, err)
}

// watchedWriter keeps the first error of a writer: help, and much else that is
// printed, has nobody who looks at it.
type watchedWriter struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// report prints an error as one line and returns the exit code that it means.
func report(ctx context.Context, stderr io.Writer, err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errInterrupted):
		fmt.Fprintln(stderr, "windrow: interrupted")
		return exitInterrupted
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code // everything has been said
	}
	fmt.Fprintln(stderr, "windrow: "+oneLine(err.Error()))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// usageError is a wrong way to call the program: exit code 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usage error.
func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	cli.VersionPrinter = func(c *cli.Context) { fmt.Fprintln(c.App.Writer, versionLine()) }
	return &cli.App{
		Name:      "windrow",
		Usage:     "run Qwen3-style language models, several tokens per forward",
		UsageText: "windrow COMMAND [flags] [arguments]",
		Version:   version,
		Reader:    stdin, Writer: stdout, ErrWriter: stderr,
		Commands: []*cli.Command{
			generateCommand(), chatCommand(), serveCommand(), startCommand(), stopCommand(), statusCommand(), psCommand(), topCommand(), evalCommand(), benchCommand(), calibrateCommand(),
			pullCommand(), listCommand(), verifyCommand(), removeCommand(), gcCommand(), pathCommand(),
			quantizeCommand(), inspectCommand(), validateCommand(), doctorCommand(), versionCommand(), completionCommand(), completeCommand(),
		},
		CustomAppHelpTemplate: cli.AppHelpTemplate + examples(
			`windrow generate "A hall has 5 rows with 9 chairs in each row. How many chairs are there?"`,
			`windrow COMMAND --help`),
		Metadata: map[string]any{},
		// A stop string or a prompt may hold a comma.
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              func(_ *cli.Context, err error, _ bool) error { return flagError(err) },
	}
}

// command fills in what all commands share: help that ends with examples, and
// errors that carry the command's name.
func command(c *cli.Command, example ...string) *cli.Command {
	c.CustomHelpTemplate = cli.CommandHelpTemplate + examples(example...)
	if len(c.Subcommands) != 0 {
		c.CustomHelpTemplate = cli.SubcommandHelpTemplate + examples(example...)
	}
	for _, f := range c.Flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = !b.Value
		}
	}
	// Otherwise the prompt "help" would be taken for a command.
	c.HideHelpCommand = true
	c.OnUsageError = func(_ *cli.Context, err error, _ bool) error {
		return fmt.Errorf("%s: %w", c.Name, flagError(err))
	}
	if action := c.Action; action != nil {
		c.Action = func(ctx *cli.Context) error {
			if err := action(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.Name, advised(err))
			}
			return nil
		}
	}
	return c
}

// examples is the last part of a help template.
func examples(lines ...string) string {
	s := "\nEXAMPLE:\n"
	if len(lines) > 1 {
		s = "\nEXAMPLES:\n"
	}
	for _, l := range lines {
		s += "   " + l + "\n"
	}
	return s
}
