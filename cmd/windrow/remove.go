package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/hub"
	"windrow/internal/units"
)

func removeCommand() *cli.Command {
	return command(&cli.Command{
		Name:      "rm",
		Usage:     "remove a model from the cache",
		ArgsUsage: "NAME",
		Description: "Removes hf:ORG/NAME with all of its revisions, or the one of hf:ORG/NAME@REVISION: a file goes when no other\n" +
			"revision has it. What a process has open stays readable to it (on Windows it cannot be removed).",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "dry-run", Category: categoryCache, Usage: "show what would be removed"}, jsonFlag()},
		Action: removeModel,
	}, "windrow rm hf:Qwen/Qwen3-0.6B")
}

func removeModel(c *cli.Context) error {
	n, err := oneName(c)
	if err != nil {
		return err
	}
	if n.File != "" {
		return usagef("%s: a model is removed with all of its files: want hf:%s", n, n.Repo)
	}
	cache, err := openCache()
	if err != nil {
		return err
	}
	plan, err := cache.PlanRemoval(n, !strings.Contains(c.Args().First(), "@"))
	var gone *hub.MissingError
	if errors.As(err, &gone) {
		return errors.New(gone.Error()) // and need not be fetched
	}
	if err != nil {
		return err
	}
	return carryOut(c, cache, plan, !c.Bool("dry-run"), "")
}

// defaultPartials is after how long a part that nobody goes on with is garbage.
const defaultPartials = "7d"

func gcCommand() *cli.Command {
	return command(&cli.Command{
		Name:      "gc",
		Usage:     "remove from the cache what no model needs",
		ArgsUsage: " ",
		Description: "Shows revisions that their branch has left, contents that no revision has, and parts of downloads that nobody\n" +
			"went on with; --yes removes them. Models of other tools, revisions that were pulled by their commit, and what is\n" +
			"younger than a day stay.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "yes", Category: categoryCache, Usage: "remove it"},
			&cli.StringFlag{Name: "partials", Category: categoryCache, Value: defaultPartials, Usage: "parts that were not written for `TIME`, such as 7d or 12h"},
			jsonFlag(),
		},
		Action: collect,
	}, "windrow gc", "windrow gc --yes --partials 1d")
}

func collect(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q", c.Args().First())
	}
	age, err := parseAge(c.String("partials"))
	if err != nil {
		return err
	}
	cache, err := openCache()
	if err != nil {
		return err
	}
	plan, err := cache.PlanGC(age, time.Now())
	if err != nil {
		return err
	}
	return carryOut(c, cache, plan, c.Bool("yes"), ": --yes removes it")
}

// parseAge reads a time of days, or as Go writes them.
func parseAge(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < 1e5 {
			return time.Duration(n * 24 * float64(time.Hour)), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return d, nil
	}
	return 0, usagef("--partials %q: want a time such as 7d or 12h", s)
}

// carryOut shows a removal, and does it; how says what would.
func carryOut(c *cli.Context, cache *hub.Cache, plan *hub.Removal, really bool, how string) error {
	if c.Bool("json") {
		if err := writeJSON(c.App.Writer, plan); err != nil {
			return err
		}
	} else {
		for _, i := range plan.Items {
			name, err := filepath.Rel(cache.Root, i.Path)
			if err != nil {
				name = i.Path
			}
			fmt.Fprintf(c.App.Writer, "%s (%s)\n", escaped(name), i.Why)
		}
	}
	if really {
		if err := plan.Remove(); err != nil {
			return err
		}
	}
	if !c.Bool("json") {
		verb := "would free"
		if really {
			verb = "freed"
		}
		if really || len(plan.Items) == 0 {
			how = ""
		}
		fmt.Fprintf(c.App.Writer, "%s %s%s\n", verb, units.Bytes(plan.Bytes), how)
	}
	return nil
}
