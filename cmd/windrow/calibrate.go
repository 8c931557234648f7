package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/engine"
	"windrow/eval"
	"windrow/internal/unless"
	"windrow/tokenizer"
)

func calibrateCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "calibrate",
		Usage: "measure what a model's drafts are worth, and keep it",
		Description: "Answers the problems of --data in mode verified, and keeps beside c(rows) how often drafts stood, by\n" +
			"entropy and by match, and the τ and λ that were best. generate, chat, serve and eval begin with that in mode\n" +
			"verified, unless --entropy-threshold or --pos-penalty is given. It changes speed, never text.",
		Flags: slices.Concat(modelFlags(), promptFlags(), []cli.Flag{
			&cli.StringFlag{Name: "data", Category: categoryPrompt, Value: "gsm8k", Usage: "gsm8k, tinygsm (for the embedded model), or a JSONL `FILE` with question and answer: texts like those to come"},
			&cli.IntFlag{Name: "limit", Category: categoryPrompt, Value: 40, Usage: "the first `N` problems only (0: all)"},
			&cli.IntFlag{Name: "max-tokens", Aliases: []string{"n"}, Category: categoryDecoding, Value: 256, Usage: "most `TOKENS` of an answer"},
			&cli.IntFlag{Name: "mask-id", Category: categoryDecoding, Value: -1, DefaultText: "the config's", Usage: "mask token `ID`"},
			&cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print what is kept as one JSON object"},
		}),
		Action: calibrate,
	}, "windrow calibrate --data tinygsm --limit 40")
}

func calibrate(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("takes no arguments, got %q", c.Args().First())
	}
	if n := c.Int("limit"); n < 0 {
		return usagef("--limit %d: want 0 or more", n)
	}
	if n := c.Int("max-tokens"); n < 1 {
		return usagef("--max-tokens %d: want 1 or more", n)
	}
	machine, err := parseMachine(c)
	if err != nil {
		return err
	}
	data, err := unless.Cancelled(c.Context, func() (*eval.Dataset, error) { return eval.Load(c.String("data")) }, nil)
	if err != nil {
		return err
	}
	e, err := engine.Open(c.Context, c.String("model"), machine)
	if err != nil {
		return err
	}
	defer e.Close()
	prompts, err := calibrationPrompts(c, e, data)
	if err != nil {
		return err
	}
	bar := newProgress(c.App.ErrWriter, "calibrate")
	y, err := e.Calibrate(c.Context, data.Name, prompts, decoder.Options{MaxTokens: c.Int("max-tokens")}, func(done, total int) { bar.update(done, total, "") })
	bar.finish()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, y)
	}
	return writeCalibration(c.App.Writer, e.Name(), y)
}

// calibrationPrompts are the questions that fit the model's context with their answers.
func calibrationPrompts(c *cli.Context, e *engine.Engine, data *eval.Dataset) (prompts [][]int32, err error) {
	problems := data.Problems
	if n := c.Int("limit"); n > 0 {
		problems = problems[:min(n, len(problems))]
	}
	for _, p := range problems {
		prompt := engine.Prompt{Raw: "Question: " + p.Question + "\nAnswer:"}
		if e.Tokenizer().HasChatTemplate() {
			messages := []tokenizer.Message{{Role: "user", Content: p.Question}}
			if s := c.String("system"); s != "" {
				messages = append([]tokenizer.Message{{Role: "system", Content: s}}, messages...)
			}
			prompt = engine.Prompt{Messages: messages}
		}
		ids, err := e.Encode(c.Context, prompt)
		if err != nil {
			return nil, err
		}
		if len(ids)+c.Int("max-tokens") <= e.Config().MaxPositions {
			prompts = append(prompts, ids)
		}
	}
	if len(prompts) == 0 {
		return nil, usagef("--data %s: no problem and %d tokens fit the context of %s, %d", c.String("data"), c.Int("max-tokens"), e.Name(), e.Config().MaxPositions)
	}
	return prompts, nil
}

// writeCalibration prints what was measured.
func writeCalibration(w io.Writer, model string, y *engine.Calibration) error {
	fmt.Fprintf(w, "%s · %s: %d prompts, %d tokens\n\n", model, y.Data, y.Prompts, y.Tokens)
	for i, x := range y.Known.Classes {
		if x.Seen > 0 {
			fmt.Fprintf(w, "%-36s%5.1f %% of %.0f drafts stood\n", decoder.ClassName(i), 100*x.Rate(), x.Seen)
		}
	}
	for i, t := range y.Trials {
		if i == 0 {
			fmt.Fprintln(w)
		}
		best := ""
		if t.EntropyThreshold == *y.EntropyThreshold && t.PosPenalty == *y.PosPenalty {
			best = ", the best"
		}
		fmt.Fprintf(w, "τ %-4v λ %-5v %6.2f tokens in the time of a one-row forward%s\n", t.EntropyThreshold, t.PosPenalty, t.Rate, best)
	}
	_, err := fmt.Fprintln(w, "\nKept for mode verified.")
	return err
}
