package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/engine"
	"windrow/internal/terminal"
	"windrow/internal/unless"
	"windrow/tokenizer"
)

func generateCommand() *cli.Command {
	flags := slices.Concat(modelFlags(), cacheFlags(), promptFlags(), adaptiveFlags(modeFlag()), draftFlags(draftFlag()), []cli.Flag{serverFlag()})
	return command(&cli.Command{
		Name:      "generate",
		Aliases:   []string{"run"},
		Usage:     "answer a prompt",
		ArgsUsage: "PROMPT|-",
		Description: "Answers PROMPT, or standard input where PROMPT is -, and streams the text to standard output.\n" +
			"The prompt goes through the model's chat template unless --raw is given.",
		Flags: append(flags,
			rawFlag(),
			&cli.BoolFlag{Name: "stats", Category: categoryOutput, Usage: "print speed and counters to standard error"},
			&cli.BoolFlag{Name: "watch", Category: categoryOutput, Usage: "draw the window live (where standard error is a terminal)"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object instead of the text"},
		),
		Action: generate,
	},
		`windrow generate "A hall has 5 rows with 9 chairs in each row. How many chairs are there?"`,
		`echo "What is 17 + 25?" | windrow generate --mode wedlm --stats -`)
}

func generate(c *cli.Context) error {
	o, window, machine, err := parseGeneration(c)
	if err != nil {
		return err
	}
	prompt, err := readPrompt(c)
	if err != nil {
		return err
	}
	server, err := findServer(c, o, window, machine)
	if err != nil {
		return err
	}
	if server != nil {
		defer server.Close()
		out := &answerWriter{w: c.App.Writer}
		_, err := server.answer(c.Context, prompt, o, out.text)
		if !server.gaveUp(err, out.written) {
			if err == nil || out.written > 0 {
				out.end()
			}
			return cmp.Or(interruption(err), out.err)
		}
	}
	e, err := engine.Open(c.Context, c.String("model"), machine)
	if err != nil {
		return err
	}
	defer e.Close()
	closeDrafter, err := openDrafter(c, e, machine, c.String("draft"))
	if err != nil {
		return err
	}
	defer closeDrafter()
	ids, err := e.Encode(c.Context, prompt)
	if err != nil {
		return err
	}
	if o, err = e.Complete(o, len(ids)); err != nil {
		return err
	}
	o = window.apply(c.Context, e, o)
	out := &answerWriter{w: c.App.Writer}
	hooks, finish := generationHooks(c, e, o.Mode, len(ids), out)
	s, err := e.Answer(c.Context, ids, o, hooks)
	finish()
	if err != nil {
		if out.written > 0 {
			out.end() // the error gets a line of its own
		}
		return err
	}
	switch {
	case c.Bool("json"):
		if err := writeJSONLine(c.App.Writer, newGeneration(o, s)); err != nil {
			return err
		}
	case c.Bool("watch"):
		out.text(s.Text[min(out.written, len(s.Text)):])
		fallthrough
	default:
		out.end()
	}
	if c.Bool("stats") {
		writeStats(c.App.ErrWriter, o, s, e.Features(), e.Calibration())
	}
	if s.FinishReason == decoder.FinishCancelled {
		return errInterrupted
	}
	return out.err
}

// parseGeneration reads all flags of a generation; the mode is empty for auto.
func parseGeneration(c *cli.Context) (o decoder.Options, w windowChoice, machine engine.Options, err error) {
	if machine, err = parseMachine(c); err != nil {
		return
	}
	mode, err := parseMode(c.String("mode"))
	if err != nil {
		return
	}
	o, w, err = parseAdaptive(c)
	if o.Mode = mode; err == nil {
		err = setDraft(c, &o)
	}
	machine.NoHead, machine.NeedHead = !mayUseHead(o), o.Draft == decoder.DraftMTP
	return
}

// generationHooks streams the text, or draws the window with --watch, or
// does neither with --json. finish must be called when the generation is over.
func generationHooks(c *cli.Context, e *engine.Engine, mode decoder.Mode, promptTokens int, out *answerWriter) (h decoder.Hooks, finish func()) {
	finish = func() {}
	if !c.Bool("json") {
		h.Text = out.text
	}
	// A prompt of one chunk is over before a bar can be read.
	if chunk := e.Features().PrefillRows; promptTokens > chunk {
		bar := newProgress(c.App.ErrWriter, "prefill")
		h.Prefill = func(done, total int) {
			if bar.update(done, total, ""); done == total {
				bar.finish()
			}
		}
	}
	if !c.Bool("watch") {
		return h, finish
	}
	screen, ok := terminal.Is(c.App.ErrWriter)
	if !ok {
		instead := "streaming instead"
		if c.Bool("json") {
			instead = "nothing is drawn"
		}
		fmt.Fprintln(c.App.ErrWriter, "windrow: --watch: standard error is no terminal, "+instead)
		return h, finish
	}
	w := terminal.NewWatcher(screen, mode, func(id int32) string { return e.Tokenizer().Decode([]int32{id}, false) })
	h.Text, h.Step = w.Text, w.Step
	return h, func() {
		if c.Context.Err() != nil {
			w.Discard()
		}
		w.Finish()
	}
}

// answerWriter passes text on and remembers how the answer ended, so that the
// shell's prompt starts on a line of its own.
type answerWriter struct {
	w       io.Writer
	written int // bytes
	last    string
	err     error
}

func (a *answerWriter) text(piece string) error {
	if piece != "" && a.err == nil {
		_, a.err = io.WriteString(a.w, piece)
		a.written, a.last = a.written+len(piece), piece
	}
	return a.err
}

func (a *answerWriter) end() {
	if !strings.HasSuffix(a.last, "\n") {
		a.text("\n")
	}
}

// maxPrompt bounds what is read from standard input: 64 MiB is more text than
// any context holds.
const maxPrompt = 64 << 20

// readPrompt returns the one argument, standard input for "-", as a prompt.
func readPrompt(c *cli.Context) (none engine.Prompt, err error) {
	switch n := c.NArg(); {
	case n == 0:
		return none, usagef("no prompt: give it as an argument, or - to read standard input")
	case n > 1:
		return none, usagef("%d arguments, want one prompt: put it in quotes", n)
	}
	text := c.Args().First()
	if text == "-" {
		b, err := unless.Cancelled(c.Context, func() ([]byte, error) {
			return io.ReadAll(io.LimitReader(c.App.Reader, maxPrompt+1))
		}, nil)
		if err != nil {
			return none, fmt.Errorf("standard input: %w", err)
		}
		if len(b) > maxPrompt {
			return none, fmt.Errorf("standard input: more than %d MiB", maxPrompt>>20)
		}
		// The newline that ends the last line belongs to the pipe.
		text = strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	}
	if strings.TrimSpace(text) == "" && (text == "" || !c.Bool("raw")) {
		return none, usagef("the prompt is empty")
	}
	if !utf8.ValidString(text) {
		return none, usagef("the prompt is not UTF-8 text")
	}
	system := c.String("system")
	switch raw := c.Bool("raw"); {
	case raw && system != "":
		return none, errRawSystem
	case raw:
		return engine.Prompt{Raw: text}, nil
	}
	return engine.Prompt{Messages: conversation(system, text)}, nil
}

var errRawSystem = &usageError{errors.New("--raw takes the prompt as it stands: it has no place for --system")}

// conversation is one user message, with the system message before it if any.
func conversation(system, user string) []tokenizer.Message {
	var m []tokenizer.Message
	if system != "" {
		m = append(m, tokenizer.Message{Role: "system", Content: system})
	}
	return append(m, tokenizer.Message{Role: "user", Content: user})
}
