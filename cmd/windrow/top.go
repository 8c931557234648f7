package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rivo/uniseg"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"windrow/internal/terminal"
	"windrow/server"
)

func topCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "top",
		Usage: "watch a server at work",
		Description: "Draws a line a model, again and again, in a terminal; q ends it. Elsewhere it prints one line and ends;\n" +
			"with --json it prints a line each time until it is interrupted.",
		Flags: []cli.Flag{atFlag(),
			&cli.DurationFlag{Name: "interval", Category: categoryOutput, Value: time.Second, Usage: "`TIME` between two looks"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print JSON objects, one a line"},
		},
		Action: top,
	}, "windrow top")
}

func top(c *cli.Context) error {
	s, err := dial(c)
	if err != nil {
		return err
	}
	defer s.Close()
	interval := c.Duration("interval")
	if interval < 10*time.Millisecond {
		return usagef("--interval %s: want 10ms or more", interval)
	}
	look := func() (server.Slots, error) {
		ctx, cancel := context.WithTimeout(c.Context, askTime)
		defer cancel()
		return s.Slots(ctx)
	}
	last, err := look()
	if err != nil {
		return err
	}
	screen, drawing := terminal.Is(c.App.Writer)
	if !c.Bool("json") && !drawing {
		_, err := fmt.Fprintln(c.App.Writer, topLine(last))
		return err
	}
	ctx, quit := context.WithCancel(c.Context)
	defer quit()
	canvas := terminal.Screen{Out: screen}
	if drawing && !c.Bool("json") {
		if in, ok := terminal.Is(c.App.Reader); ok {
			if restore := watchQuit(in, quit); restore != nil {
				defer restore()
			}
		}
		defer canvas.Clear()
	}
	at := time.Now()
	for now := last; ; {
		if c.Bool("json") {
			if err := writeJSONLine(c.App.Writer, now); err != nil {
				return err
			}
		} else {
			canvas.Draw(topLines(s.Where, last, now, time.Since(at), terminal.Width(screen)))
		}
		last, at = now, time.Now()
		select {
		case <-ctx.Done():
			return context.Cause(c.Context) // nil after q
		case <-time.After(interval):
		}
		if now, err = look(); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// watchQuit calls quit at the key q or ctrl-C, and returns what makes the terminal as it
// was; nil: it cannot be watched.
func watchQuit(in *os.File, quit func()) (restore func()) {
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil
	}
	go func() {
		for b := make([]byte, 1); ; {
			n, err := in.Read(b)
			if err != nil || n == 1 && (b[0] == 'q' || b[0] == 3 || b[0] == 4) {
				quit()
				return
			}
		}
	}()
	return func() { term.Restore(int(in.Fd()), state) }
}

// topLine is a server in one line.
func topLine(s server.Slots) string {
	loaded := 0
	for _, m := range s.Models {
		if m.State == "loaded" {
			loaded++
		}
	}
	return fmt.Sprintf("%d of %d models loaded, %d requests run, %d wait, %.0f tokens/s", loaded, len(s.Models), s.Running, s.Waiting, s.TokensPerSecond)
}

// topLines are what is drawn: what came of the time between two looks. No line is wider
// than the terminal.
func topLines(where string, before, now server.Slots, took time.Duration, width int) []string {
	lines := []string{where + ": " + topLine(now), "",
		fmt.Sprintf("%-24s %-9s %9s %7s %13s %11s %9s %8s", "MODEL", "STATE", "RUNNING", "WAITING", "PAGES", "TOKENS/s", "PROMPT/s", "TOK/FWD")}
	for i, m := range now.Models {
		old := m
		if i < len(before.Models) && before.Models[i].Model == m.Model {
			old = before.Models[i]
		}
		second := max(took.Seconds(), 1e-3)
		perForward := 0.0
		if n := m.Forwards - old.Forwards; n > 0 {
			perForward = float64(m.Tokens-old.Tokens) / float64(n)
		}
		lines = append(lines, fmt.Sprintf("%-24s %-9s %9s %7d %13s %11.0f %9.0f %8.2f", cutTo(escaped(m.Model), 24), escaped(m.State),
			fmt.Sprintf("%d/%d", m.Running, m.Total), m.Waiting, fmt.Sprintf("%d/%d", m.Pages, m.MostPages),
			float64(m.Tokens-old.Tokens)/second, float64(m.PromptTokens-m.CachedTokens-old.PromptTokens+old.CachedTokens)/second, perForward))
	}
	lines = append(lines, "", "q ends")
	for i := range lines {
		lines[i] = cutTo(lines[i], width-1)
	}
	return lines
}

// cutTo is the start of s that fits into width columns.
func cutTo(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	var b strings.Builder
	used := 0
	for g := uniseg.NewGraphemes(s); g.Next() && used+g.Width() <= width; used += g.Width() {
		b.WriteString(g.Str())
	}
	return b.String()
}
