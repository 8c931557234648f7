package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/engine"
)

// draftModel begins a --draft that names a model.
const draftModel = string(decoder.DraftModel) + ":"

const draftUsage = "who drafts in verified, `WHO`: auto (masks or the model's own head where it has them, and lookups), mask, lookup (what followed the same text before; any model), mtp (the model's own head for drafts), model:PATH (a small model with the same vocabulary), or none; the text stays the same"

// draftFlags say who drafts; draft is the flag itself, which eval can repeat.
func draftFlags(draft cli.Flag) []cli.Flag {
	return []cli.Flag{
		draft,
		&cli.IntFlag{Name: "drafts", Category: categoryDecoding, DefaultText: "as many as pay; 3 with --window N", Usage: "the most `N` drafts a step takes of the model's own head (--draft mtp, auto)"},
		&cli.StringFlag{Name: "draft-backend", Category: categoryDecoding, DefaultText: "that of --backend", Usage: "`DEVICE` of --draft model:PATH: auto, cpu, cuda or metal"},
	}
}

func draftFlag() cli.Flag {
	return &cli.StringFlag{Name: "draft", Category: categoryDecoding, DefaultText: "auto", Usage: draftUsage}
}

// parseDraft reads a --draft, and the path of the model that it names.
func parseDraft(s string) (decoder.DraftChoice, string, error) {
	if path, ok := strings.CutPrefix(s, draftModel); ok {
		if path == "" {
			return "", "", usagef("--draft %s: want model:PATH, a folder or a .gguf file", s)
		}
		return decoder.DraftModel, path, nil
	}
	d, err := decoder.ParseDraft(s)
	if err != nil || d == decoder.DraftModel || s == "" {
		return "", "", usagef("--draft %q: want auto, mask, lookup, mtp, model:PATH or none", s)
	}
	return d, "", nil
}

// setDraft reads --draft of a command that takes one.
func setDraft(c *cli.Context, o *decoder.Options) (err error) {
	if err := setDrafts(c, o); err != nil || !c.IsSet("draft") {
		if err != nil {
			return err
		}
		return noDraftBackend(c, "")
	}
	var path string
	if o.Draft, path, err = parseDraft(c.String("draft")); err != nil {
		return err
	}
	if o.Mode != "" && o.Mode != decoder.Verified {
		return usagef("--draft %s: --mode %s has no drafts, want verified", c.String("draft"), o.Mode)
	}
	return noDraftBackend(c, path)
}

// mayUseHead reports whether a generation may draft with the model's own head.
func mayUseHead(o decoder.Options) bool {
	return (o.Mode == "" || o.Mode == decoder.Verified) && (o.Draft == "" || o.Draft == decoder.DraftAuto || o.Draft == decoder.DraftMTP)
}

// setDrafts reads --drafts.
func setDrafts(c *cli.Context, o *decoder.Options) error {
	if n := c.Int("drafts"); c.IsSet("drafts") && (n < 1 || n > decoder.MaxWindow) {
		return usagef("--drafts %d: want 1 to %d", n, decoder.MaxWindow)
	}
	o.Drafts = c.Int("drafts")
	return nil
}

func noDraftBackend(c *cli.Context, path string) error {
	if path == "" && c.IsSet("draft-backend") {
		return usagef("--draft-backend %s: want --draft model:PATH beside it", c.String("draft-backend"))
	}
	return nil
}

// openDrafter opens the model of --draft model:PATH beside e, and returns what closes it.
func openDrafter(c *cli.Context, e *engine.Engine, machine engine.Options, drafts ...string) (closes func(), err error) {
	for _, draft := range drafts {
		_, path, err := parseDraft(draft)
		if err != nil || path == "" {
			continue // it was parsed before
		}
		d, err := draftWith(c.Context, e, path, draftMachine(machine, c.String("draft-backend")))
		if err != nil {
			return nil, err
		}
		return d.Close, nil
	}
	return func() {}, nil
}

// draftMachine is where a model drafts for one that runs on a machine: there, or on another
// backend.
func draftMachine(machine engine.Options, backend string) engine.Options {
	machine.MaskID, machine.HostLayers = nil, 0
	if backend != "" {
		machine.Backend = backend
		if backend != engine.CUDA {
			machine.GPUs = 1
		}
	}
	return machine
}

// draftWith opens the model of --draft model:PATH and has it draft for e.
func draftWith(ctx context.Context, e *engine.Engine, path string, machine engine.Options) (*engine.Engine, error) {
	d, err := engine.Open(ctx, path, machine)
	if err != nil {
		return nil, fmt.Errorf("--draft %s%s: %w", draftModel, path, err)
	}
	if err := e.DraftWith(ctx, d); err != nil {
		d.Close()
		return nil, usagef("--draft %s%s: %w", draftModel, path, err)
	}
	return d, nil
}
