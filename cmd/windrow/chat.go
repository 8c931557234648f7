package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/internal/terminal"
	"windrow/tokenizer"
)

func chatCommand() *cli.Command {
	flags := slices.Concat(modelFlags(), promptFlags(), adaptiveFlags(modeFlag()), draftFlags(draftFlag()), []cli.Flag{serverFlag()})
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
	s := &chatSession{
		options: o, system: c.String("system"), showStats: c.Bool("stats"), out: c.App.Writer, err: c.App.ErrWriter,
	}
	load := func() (partner, error) { return openPartner(c, o, window, machine) }
	server, err := findServer(c, o, window, machine)
	if err != nil {
		return err
	}
	if server != nil && server.fits(o) {
		s.partner = &serverPartner{server: server}
		if server.auto {
			s.load = load
		}
	} else if s.partner, err = load(); err != nil {
		return err
	}
	defer func() { s.partner.close() }()
	lines := terminal.NewLines(c.App.Reader, c.App.ErrWriter)
	defer lines.Close()
	return s.run(c.Context, lines)
}

// chatSession is one conversation in a terminal.
type chatSession struct {
	partner   partner
	load      func() (partner, error) // the model itself, where the server ends; nil: there is none
	options   decoder.Options         // as given: the mode is empty for auto
	system    string
	showStats bool
	out, err  io.Writer

	messages []tokenizer.Message
	answered bool
}

// run reads and answers until the input ends.
func (s *chatSession) run(ctx context.Context, lines terminal.Lines) error {
	// Interrupts end answers here, not the program, so what the rest of the
	// program makes of them is left out; a request to terminate still ends it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	for {
		line, err := lines.Next(signals)
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
		mode, err = s.partner.mode(o)
	}
	if err != nil {
		fmt.Fprintln(s.err, oneLine(advised(err).Error()))
		return
	}
	s.options = o
	fmt.Fprintf(s.err, "mode %s\n", mode)
}

func (s *chatSession) stats() {
	if !s.answered {
		fmt.Fprintln(s.err, "no answer yet")
		return
	}
	s.partner.stats(s.err)
}

// reset forgets the conversation and frees its keys and values.
func (s *chatSession) reset() {
	s.partner.reset()
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
	out := &answerWriter{w: s.out}
	text, begun, err := s.partner.answer(ctx, messages, s.options, out.text)
	if s.load != nil && out.written == 0 && err != nil && ctx.Err() == nil {
		// The server went, or takes no more: the model itself answers from now on.
		own, loadErr := s.load()
		if loadErr != nil {
			return s.complain(loadErr)
		}
		s.partner.close()
		s.partner, s.load = own, nil
		fmt.Fprintln(s.err, "windrow: the server does not answer any more; the model is loaded here")
		text, begun, err = s.partner.answer(ctx, messages, s.options, out.text)
	}
	if begun {
		out.end()
	}
	if err != nil {
		return s.complain(err)
	}
	s.messages = append(messages, tokenizer.Message{Role: "assistant", Content: text})
	s.answered = true
	if s.showStats {
		s.stats()
	}
	return out.err
}

func (s *chatSession) complain(err error) error {
	fmt.Fprintln(s.err, "windrow: "+oneLine(advised(err).Error()))
	return nil
}
