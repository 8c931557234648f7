package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/client"
	"windrow/decoder"
	"windrow/engine"
	"windrow/server"
)

// The values of --server that are no addresses.
const (
	serverAuto = "auto" // the user's own, where it gives the same text
	serverOff  = "off"
)

func serverFlag() cli.Flag {
	return &cli.StringFlag{Name: "server", Category: categoryModel, Value: serverAuto, Usage: "answer by a running server: auto (the user's own, where it has this model loaded and gives the same text), off, or its `ADDRESS`: unix:PATH, HOST:PORT, a URL"}
}

// found is a server that answers in the place of a model.
type found struct {
	*client.Client
	auto    bool
	model   string
	props   server.Props
	window  windowChoice
	noThink bool
	err     io.Writer
	said    bool
}

// findTime is how long is looked for a server that nobody asked for.
const findTime = 2 * time.Second

// findServer finds the server that --server means; nil: the model is loaded here.
func findServer(c *cli.Context, o decoder.Options, w windowChoice, machine engine.Options) (*found, error) {
	where, lacks := c.String("server"), needsModel(c, o, w)
	f := &found{auto: where == serverAuto, window: w, noThink: machine.NoThink, err: c.App.ErrWriter}
	switch {
	case where == serverOff, f.auto && lacks != "":
		return nil, nil
	case lacks != "":
		return nil, usagef("--server %s: a server cannot do what %s asks for: want --server off, or no %s", where, lacks, lacks)
	case f.auto:
		where = ""
	}
	var err error
	if f.Client, err = client.New(where, os.Getenv(apiKeyVariable)); err != nil {
		if f.auto {
			return nil, nil
		}
		return nil, usagef("--server %w", err)
	}
	if !f.auto {
		if f.model = c.String("model"); f.model != "" {
			f.model = engine.ModelName(f.model)
		}
		f.props, err = f.Props(c.Context, f.model)
		return f, err
	}
	if _, err := os.Lstat(f.Socket); err != nil || !f.match(c, machine) {
		f.Close()
		return nil, nil
	}
	return f, nil
}

// needsModel is a flag that asks for what only a model that is open here can give; "":
// there is none.
func needsModel(c *cli.Context, o decoder.Options, w windowChoice) string {
	for _, name := range []string{"watch", "stats", "json"} {
		if c.Bool(name) {
			return "--" + name
		}
	}
	for _, name := range []string{"entropy-threshold", "pos-penalty", "threads", "kernels", "kv-window", "kv-keep", "mask-id", "drafts", "draft-backend"} {
		if c.IsSet(name) {
			return "--" + name
		}
	}
	if o.Draft == decoder.DraftModel { // a server has what it was started with
		return "--draft " + c.String("draft")
	}
	if c.String("server") != serverAuto {
		for _, name := range []string{"backend", "exact", "kv-dtype", "batch-invariant", "tensor-parallel-size", "cpu-moe", "n-cpu-moe"} {
			if c.IsSet(name) {
				return "--" + name
			}
		}
	}
	s := o.Sampling
	bounded := func(x, low, high float32) bool { return x >= low && x <= high }
	for name, ok := range map[string]bool{
		"--window auto with --mode wedlm": !w.auto || o.Mode != decoder.WeDLM,
		"--repetition-penalty":            bounded(s.RepetitionPenalty, 1e-3, 1000),
		"--presence-penalty":              bounded(s.PresencePenalty, -2, 2),
		"--frequency-penalty":             bounded(s.FrequencyPenalty, -2, 2),
		"--temperature":                   bounded(s.Temperature, 0, 1000),
		"--stop":                          len(o.StopStrings) <= 16,
		"--logit-bias":                    len(s.LogitBias) <= 4096,
	} {
		if !ok {
			return name
		}
	}
	for _, stop := range o.StopStrings {
		if len(stop) > 1024 {
			return "--stop"
		}
	}
	for _, b := range s.LogitBias {
		if !bounded(b, -100, 100) {
			return "--logit-bias"
		}
	}
	return ""
}

// match finds a loaded model of the server that gives the text that the model would give
// here: of the same files, program, device and arithmetic.
func (f *found) match(c *cli.Context, machine engine.Options) bool {
	ctx, cancel := context.WithTimeout(c.Context, findTime)
	defer cancel()
	slots, err := f.Slots(ctx)
	if err != nil {
		return false
	}
	digest := ""
	for _, m := range slots.Models {
		if m.State != "loaded" {
			continue
		}
		p, err := f.Props(ctx, m.Model)
		if err != nil || p.Weights == "" || p.Version != versionLine() || !p.BatchInvariant || !sameMachine(machineLine(machine), p) || p.NoThink && !machine.NoThink {
			continue
		}
		if digest == "" {
			files, err := engine.OpenCheckpoint(ctx, c.String("model"))
			if err != nil {
				return false // said when it is loaded
			}
			digest = files.Digest()
			files.Close()
		}
		if p.Weights == digest {
			f.model, f.props = m.Model, p
			return true
		}
	}
	return false
}

// sameMachine reports whether what is asked for here is what the server was asked for,
// or what it came to.
func sameMachine(line string, p server.Props) bool {
	asked, rest, _ := strings.Cut(line, " ")
	theirs, theirRest, _ := strings.Cut(p.Machine, " ")
	return rest == theirRest && (asked == theirs || asked == "backend="+strings.ToLower(p.Backend))
}

// mode is what the server makes of a mode.
func (f *found) mode(o decoder.Options) (decoder.Mode, error) {
	switch {
	case o.Mode == "" && o.Draft != "" && o.Draft != decoder.DraftNone:
		return decoder.Verified, nil
	case o.Mode == "":
		return decoder.Mode(f.props.Mode), nil
	case o.Mode == decoder.WeDLM && decoder.Mode(f.props.Mode) == decoder.AR:
		return o.Mode, &engine.ModeError{Model: f.props.Model, Mode: o.Mode}
	}
	return o.Mode, nil
}

// fits reports whether a conversation can begin: what is wrong is said by the model,
// where that can be loaded, which alone knows what it can draft with.
func (f *found) fits(o decoder.Options) bool {
	_, err := f.mode(o)
	return !f.auto || err == nil && f.props.ChatTemplate != "" && o.Draft != decoder.DraftMask && o.Draft != decoder.DraftMTP
}

// gaveUp reports whether the model is to be loaded after all: the server was not asked
// for, and it did not begin to answer. What is wrong with the prompt is said by the
// model, too.
func (f *found) gaveUp(err error, written int) bool {
	return f.auto && err != nil && written == 0 && !errors.Is(err, context.Canceled)
}

// interruption makes one of an end by ctrl-C.
func interruption(err error) error {
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}

// answer streams the answer to a prompt: the text that the model would give here.
func (f *found) answer(ctx context.Context, prompt engine.Prompt, o decoder.Options, text func(string) error) (end client.Ending, err error) {
	var ids []int32
	if len(prompt.Messages) == 0 {
		ids, err = f.Tokenize(ctx, f.model, prompt.Raw)
	} else {
		messages := make([]client.Message, len(prompt.Messages))
		for i, m := range prompt.Messages {
			messages[i] = client.Message{Role: m.Role, Content: m.Content}
		}
		ids, err = f.Prompt(ctx, f.model, messages, f.noThink)
	}
	if err != nil {
		return end, err
	}
	left := f.props.Context - len(ids)
	switch {
	case len(ids) == 0:
		return end, engine.ErrEmptyPrompt
	case left < 1, o.MaxTokens > left:
		return end, &engine.ContextError{Model: f.props.Model, PromptTokens: len(ids), MaxTokens: o.MaxTokens, Context: f.props.Context}
	case o.MaxTokens == 0:
		o.MaxTokens = min(f.props.MaxTokens, left)
	}
	return f.Complete(ctx, f.request(ids, o), f.begun, text)
}

// begun says, once, who answers.
func (f *found) begun() {
	if !f.said {
		fmt.Fprintf(f.err, "windrow: %s answers, at %s (--server off loads the model here)\n", f.props.Model, f.Where)
	}
	f.said = true
}

// request is a completion with all that the command's flags say: nothing is left to the
// model's suggestions of sampling, which the command does not use.
func (f *found) request(ids []int32, o decoder.Options) map[string]any {
	s := o.Sampling
	r := map[string]any{
		"model": f.model, "prompt": ids, "max_tokens": o.MaxTokens, "seed": s.Seed,
		"temperature": s.Temperature, "top_p": s.TopP, "min_p": s.MinP, "top_k": min(s.TopK, math.MaxInt32),
		"repetition_penalty": s.RepetitionPenalty, "presence_penalty": s.PresencePenalty, "frequency_penalty": s.FrequencyPenalty,
	}
	if len(o.StopStrings) > 0 {
		r["stop"] = o.StopStrings
	}
	if o.Mode != "" {
		r["mode"] = o.Mode
	}
	if o.Draft != "" {
		r["draft"] = o.Draft
	}
	if o.Mode == decoder.WeDLM || f.window.given && !f.window.auto {
		r["window"] = o.Window
	}
	if len(s.LogitBias) > 0 {
		bias := map[string]float32{}
		for id, b := range s.LogitBias {
			bias[strconv.Itoa(int(id))] = b
		}
		r["logit_bias"] = bias
	}
	return r
}
