package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"windrow/hub"
	"windrow/hub/fetch"
	"windrow/internal/units"
)

const categoryCache = "Cache"

// openCache is the cache that the environment names.
func openCache() (*hub.Cache, error) { return hub.Locate(os.Getenv) }

// oneName reads a command's only argument, a model's name.
func oneName(c *cli.Context) (hub.Name, error) {
	if c.NArg() != 1 {
		return hub.Name{}, usagef("%d names, want one, such as hf:Qwen/Qwen3-0.6B", c.NArg())
	}
	return modelNamed(c.Args().First())
}

func modelNamed(s string) (hub.Name, error) {
	n, err := hub.ParseName(s)
	if err != nil {
		return n, &usageError{err}
	}
	return n, nil
}

func listCommand() *cli.Command {
	return command(&cli.Command{
		Name:      "list",
		Usage:     "list the models in the cache",
		ArgsUsage: " ",
		Description: "The cache is the one that Hugging Face's tools share: HF_HUB_CACHE, else HF_HOME/hub, else\n" +
			"~/.cache/huggingface/hub. CHECK says whether all files were hashed, and by whom the hashes are.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "partial", Category: categoryCache, Usage: "list the files that are not whole, in place of the models"},
			jsonFlag(),
		},
		Action: listModels,
	}, "windrow list", "windrow list --partial")
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"}
}

// listing is the object that list --json prints.
type listing struct {
	Cache  string      `json:"cache"`
	Models []hub.Model `json:"models"`
}

func listModels(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q", c.Args().First())
	}
	cache, err := openCache()
	if err != nil {
		return err
	}
	if c.Bool("partial") {
		return listPartials(c, cache)
	}
	models, err := cache.List()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, listing{cache.Root, append([]hub.Model{}, models...)})
	}
	if len(models) == 0 {
		fmt.Fprintf(c.App.Writer, "no models in %s\n", escaped(cache.Root))
		return nil
	}
	return writeModels(c.App.Writer, models)
}

// listPartials shows what interrupted downloads have left.
func listPartials(c *cli.Context, cache *hub.Cache) error {
	list, err := fetch.Partials(cache)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, map[string]any{"cache": cache.Root, "partials": append([]fetch.Partial{}, list...)})
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FILE\tKEPT\tSIZE\tMODEL\tLAST WRITTEN")
	for _, p := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", escaped(p.Path), units.Bytes(p.Kept), units.Bytes(p.Size), escaped(p.Repo), p.Changed.Local().Format("2006-01-02 15:04"))
	}
	return t.Flush()
}

// writeModels is the table of list.
func writeModels(w io.Writer, models []hub.Model) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODEL\tCOMMIT\tSIZE\tFILES\tCHECK")
	for _, m := range models {
		files := fmt.Sprint(m.Want)
		if !m.Complete() {
			files = fmt.Sprintf("%d of %d", m.Have, m.Want)
		}
		name := m.Name()
		if hub.IsCommit(name.Revision) {
			name.Revision = name.Revision[:12] // beside the whole of it in --json
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", escaped(name.String()), m.Commit[:12], units.Bytes(m.Bytes), files, escaped(checked(m)))
	}
	return t.Flush()
}

// checked says what is known of a model's files.
func checked(m hub.Model) string {
	switch {
	case m.First != "":
		return "unverified (first seen " + m.First + ", " + m.Source + ")"
	case m.Verified:
		return "verified, " + m.Source
	case !m.Complete():
		return "not whole"
	case m.Source != "":
		return "changed since it was verified"
	}
	return "by another tool"
}

func pathCommand() *cli.Command {
	return command(&cli.Command{
		Name:        "path",
		Usage:       "print where a model lies in the cache",
		ArgsUsage:   "NAME",
		Description: "Prints the snapshot's folder, or the .gguf file, of a model all of whose files are there.",
		Flags:       []cli.Flag{jsonFlag()},
		Action:      printPath,
	}, "windrow path hf:Qwen/Qwen3-0.6B")
}

func printPath(c *cli.Context) error {
	n, err := oneName(c)
	if err != nil {
		return err
	}
	cache, err := openCache()
	if err != nil {
		return err
	}
	found, err := cache.Find(n)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, map[string]string{"name": n.String(), "commit": found.Commit, "snapshot": found.Snapshot, "path": found.Path})
	}
	fmt.Fprintln(c.App.Writer, found.Path)
	return nil
}

func verifyCommand() *cli.Command {
	return command(&cli.Command{
		Name:        "verify",
		Usage:       "hash the files of models in the cache",
		ArgsUsage:   "[NAME]",
		Description: "Reads every file and compares its hash with the Hub's. A file that is wrong is fetched again by pull.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Category: categoryCache, Usage: "all models in the cache"},
			jsonFlag(),
		},
		Action: verifyModels,
	}, "windrow verify hf:Qwen/Qwen3-0.6B", "windrow verify --all")
}

// verification is what verify prints of a revision.
type verification struct {
	Name   string `json:"name"`
	Commit string `json:"commit"`
	*hub.Check
}

func verifyModels(c *cli.Context) error {
	cache, err := openCache()
	if err != nil {
		return err
	}
	var models []hub.Model
	switch all := c.Bool("all"); {
	case all && c.Args().Present():
		return usagef("--all and a name: want one of them")
	case all:
		if models, err = cache.List(); err != nil {
			return err
		}
	default:
		n, err := oneName(c)
		if err != nil {
			return err
		}
		model, err := oneModel(cache, n)
		if err != nil {
			return err
		}
		models = []hub.Model{*model}
	}
	list, faults := []verification{}, 0
	bar, total, done := newProgress(c.App.ErrWriter, "verify"), int64(0), int64(0)
	for _, m := range models {
		total += m.Bytes
	}
	for _, m := range models {
		check, err := cache.Verify(c.Context, m.Repo, m.Commit, func(n int64) {
			done += n
			bar.update(int(done>>20), int(max(total>>20, 1)), "MiB")
		})
		if err != nil {
			bar.finish()
			return err
		}
		faults += len(check.Faults)
		list = append(list, verification{m.Name().String(), m.Commit, check})
	}
	bar.finish()
	if c.Bool("json") {
		err = writeJSON(c.App.Writer, map[string]any{"models": list})
	} else {
		for _, v := range list {
			for _, f := range v.Faults {
				fmt.Fprintf(c.App.Writer, "%s: %s %s\n", escaped(v.Name), escaped(f.Path), escaped(f.Found))
			}
			if len(v.Faults) == 0 {
				fmt.Fprintf(c.App.Writer, "%s: %s, %s: all right\n", escaped(v.Name), counted(v.Files, "file"), units.Bytes(v.Bytes))
			}
		}
	}
	if err == nil && faults > 0 {
		var pulls []string
		for i, v := range list {
			for _, f := range v.Faults {
				name := v.Name
				switch m := models[i]; {
				case m.Source != "" && (strings.HasPrefix(m.Repo, "local/") || strings.HasPrefix(m.Repo, "url/")):
					name = m.Source // the Hub does not have it
				case strings.HasSuffix(strings.ToLower(f.Path), ".gguf"):
					name += ":" + f.Path // of several in a repository one is pulled at a time
				}
				if !slices.Contains(pulls, name) {
					pulls = append(pulls, name)
				}
			}
		}
		verb := "is"
		if faults > 1 {
			verb = "are"
		}
		err = fmt.Errorf("%s %s wrong: to fetch again: windrow pull %s", counted(faults, "file"), verb, escaped(strings.Join(pulls, ", windrow pull ")))
	}
	return err
}

// oneModel is the revision in the cache that a name means, whole or not.
func oneModel(cache *hub.Cache, n hub.Name) (*hub.Model, error) {
	list, err := cache.Models(n)
	if err == nil && len(list) == 0 {
		err = &hub.MissingError{Name: n, Cache: cache.Root}
	}
	if err != nil {
		return nil, err
	}
	if len(list) > 1 {
		return nil, errors.New("several revisions: want one: " + n.Repo + "@REVISION")
	}
	return &list[0], nil
}
