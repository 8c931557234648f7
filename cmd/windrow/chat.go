package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/engine"
	"windrow/internal/units"
	"windrow/tokenizer"
)

func chatCommand() *cli.Command {
	flags := slices.Concat(modelFlags(), promptFlags(), adaptiveFlags(modeFlag()))
	return command(&cli.Command{
		Name:  "chat",
		Usage: "talk with a model in a terminal",
		Description: "Reads a message a line and answers it; the keys and values of earlier turns are reused.\n" +
			"Lines that start with / are commands: " + chatHelp,
		Flags: append(flags,
			&cli.BoolFlag{Name: "stats", Category: categoryOutput, Usage: "print speed and counters after each answer"},
		),
		Action: chat,
	}, "windrow chat --mode verified --system \"You are a maths tutor.\"")
}

const chatHelp = "/reset forgets the conversation, /mode auto|ar|wedlm|verified, /stats, /help, /exit; ctrl-C stops an answer, ctrl-D leaves."

func chat(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q: messages are read from standard input", c.Args().First())
	}
	o, window, machine, err := parseGeneration(c)
	if err != nil {
		return err
	}
	e, err := engine.Open(c.Context, c.String("model"), machine)
	if err != nil {
		return err
	}
	defer e.Close()
	if !e.Tokenizer().HasChatTemplate() {
		return fmt.Errorf("%s has no chat template: use windrow generate --raw", e.Name())
	}
	if err := e.Check(e.Defaults(o)); err != nil {
		return err
	}
	s := &chatSession{
		engine: e, conversation: e.NewConversation(), options: o, window: window,
		system: c.String("system"), showStats: c.Bool("stats"), out: c.App.Writer, err: c.App.ErrWriter,
	}
	defer s.conversation.Close()
	lines := newLineSource(c.App.Reader, c.App.ErrWriter)
	defer lines.Close()
	return s.run(c.Context, lines)
}

// chatSession is one conversation in a terminal.
type chatSession struct {
	engine       *engine.Engine
	conversation *engine.Conversation
	options      decoder.Options // as given: the mode is empty for auto
	window       windowChoice
	system       string
	showStats    bool
	out, err     io.Writer

	messages    []tokenizer.Message
	last        *decoder.Summary
	lastOptions decoder.Options
}

// run reads and answers until the input ends.
func (s *chatSession) run(ctx context.Context, lines lineSource) error {
	// Interrupts end answers here, not the program, so what the rest of the
	// program makes of them is left out; a request to terminate still ends it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	for {
		line, err := lines.next(signals)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasPrefix(line, "/"):
			if s.command(line) {
				return nil
			}
		default:
			if terminated, err := s.answer(ctx, signals, line); err != nil || terminated {
				return err
			}
		}
	}
}

// command runs a line that starts with "/"; it reports whether to leave.
func (s *chatSession) command(line string) (exit bool) {
	name, argument, _ := strings.Cut(line, " ")
	argument = strings.TrimSpace(argument)
	switch name {
	case "/exit", "/quit", "/bye":
		return true
	case "/help":
		fmt.Fprintln(s.err, chatHelp)
	case "/reset":
		s.reset()
		fmt.Fprintln(s.err, "the conversation is forgotten")
	case "/stats":
		s.stats()
	case "/mode":
		s.setMode(argument)
	default:
		fmt.Fprintf(s.err, "unknown command %s; %s\n", name, chatHelp)
	}
	return false
}

func (s *chatSession) setMode(name string) {
	mode, err := parseMode(name)
	o := s.options
	o.Mode = mode
	if err == nil {
		err = s.engine.Check(s.engine.Defaults(o))
	}
	if err != nil {
		fmt.Fprintln(s.err, oneLine(advised(err).Error()))
		return
	}
	s.options = o
	fmt.Fprintf(s.err, "mode %s\n", s.engine.Defaults(o).Mode)
}

func (s *chatSession) stats() {
	if s.last == nil {
		fmt.Fprintln(s.err, "no answer yet")
		return
	}
	writeStats(s.err, s.lastOptions, *s.last, s.engine.Features())
	if s.conversation.Bytes() > 0 {
		fmt.Fprintf(s.err, "context   %d of %d tokens, %s of keys and values\n",
			s.conversation.Held(), s.engine.Config().MaxPositions, units.Bytes(s.conversation.Bytes()))
	}
}

// reset forgets the conversation and frees its keys and values.
func (s *chatSession) reset() {
	s.conversation.Close()
	s.messages = nil
}

// answer generates the reply to one message. What goes wrong with a message
// (too long for the context, say) is printed and the conversation goes on
// without it; only what makes the session useless is an error.
//
// A signal ends the reply alone, in the template as in the generation;
// SIGTERM ends the session too.
func (s *chatSession) answer(ctx context.Context, signals <-chan os.Signal, text string) (terminated bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case sig := <-signals:
			terminated = sig == syscall.SIGTERM
			stop()
		case <-done:
		}
	}()
	err = s.reply(ctx, text)
	close(done)
	<-watched
	return terminated, err
}

// reply is answer until ctx is done.
func (s *chatSession) reply(ctx context.Context, text string) error {
	messages := s.messages
	if len(messages) == 0 {
		messages = conversation(s.system, text)
	} else {
		messages = append(messages[:len(messages):len(messages)], tokenizer.Message{Role: "user", Content: text})
	}
	ids, err := s.engine.Encode(ctx, engine.Prompt{Messages: messages})
	if errors.Is(err, context.Canceled) {
		return s.complain(errInterrupted)
	}
	if err != nil {
		return s.complain(err)
	}
	o, err := s.engine.Complete(s.options, len(ids))
	if err != nil {
		return s.complain(fmt.Errorf("%w; /reset starts anew", err))
	}
	o = s.window.apply(ctx, s.engine, o)
	out := &answerWriter{w: s.out}
	sum, err := s.conversation.Answer(ctx, ids, o, decoder.Hooks{Text: out.text})
	out.end()
	if err != nil {
		return s.complain(err)
	}
	s.messages = append(messages, tokenizer.Message{Role: "assistant", Content: sum.Text})
	s.last, s.lastOptions = &sum, o
	if s.showStats {
		s.stats()
	}
	return out.err
}

func (s *chatSession) complain(err error) error {
	fmt.Fprintln(s.err, "windrow: "+oneLine(advised(err).Error()))
	return nil
}
