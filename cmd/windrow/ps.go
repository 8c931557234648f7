package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"windrow/internal/units"
	"windrow/server"
)

func psCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "ps",
		Usage: "list a server's models: requests, pages, memory",
		Description: "PAGES are of 64 tokens each, used and at most; KV is what they take.\n" +
			"A server with keys wants one, in " + apiKeyVariable + ".",
		Flags:  []cli.Flag{atFlag(), &cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"}},
		Action: ps,
	}, "windrow ps", "windrow ps --server http://127.0.0.1:8484 --json")
}

func ps(c *cli.Context) error {
	s, err := dial(c)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(c.Context, askTime)
	defer cancel()
	slots, err := s.Slots(ctx)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, slots)
	}
	return writeSlots(c.App.Writer, slots)
}

// writeSlots is the table of ps.
func writeSlots(w io.Writer, slots server.Slots) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODEL\tSTATE\tRUNNING\tWAITING\tPAGES\tKV\tWEIGHTS\tTOKENS")
	for _, m := range slots.Models {
		state := m.State
		if m.Progress > 0 {
			state += fmt.Sprintf(" %.0f %%", 100*m.Progress)
		}
		pages := fmt.Sprintf("%d of %d", m.Pages, m.MostPages)
		if m.MostPages == 0 {
			pages = fmt.Sprint(m.Pages)
		}
		fmt.Fprintf(t, "%s\t%s\t%d of %d\t%d\t%s\t%s\t%s\t%d\n", escaped(m.Model), escaped(state), m.Running, m.Total, m.Waiting,
			pages, units.Bytes(m.MemoryUsed), units.Bytes(m.WeightBytes), m.Tokens)
	}
	return t.Flush()
}
