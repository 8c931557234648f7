package main

import (
	"errors"
	"fmt"
	"strings"

	"windrow/bench"
	"windrow/client"
	"windrow/decoder"
	"windrow/engine"
	"windrow/hub"
)

// advised says what an error of the packages below means on the command line: it
// names the flags that would help, and makes usage errors of what the caller can
// only have meant otherwise. The packages know no flags.
func advised(err error) error {
	var (
		usage    *usageError
		context  *engine.ContextError
		mode     *engine.ModeError
		mask     *engine.MaskError
		bias     *engine.BiasError
		template *engine.TemplateError
		option   *decoder.OptionError
		fit      *bench.FitError
		missing  *hub.MissingError
		head     *engine.HeadError
		memory   *engine.MemoryError
		remote   *client.Error
	)
	switch {
	case err == nil, errors.As(err, &usage):
		return err
	case errors.As(err, &context) && context.MaxTokens > 0:
		return reworded(err, context, "the prompt has %d tokens and --max-tokens is %d, the context of %s is %d",
			context.PromptTokens, context.MaxTokens, context.Model, context.Context)
	case errors.As(err, &template):
		return reworded(err, template, "%v: use --raw", template)
	case errors.As(err, &mode) && mode.Recurrent:
		return &usageError{reworded(err, mode, "--mode %s: %s has recurrent layers, which take tokens in their order: use --mode ar or verified", mode.Mode, mode.Model)}
	case errors.As(err, &mode) && mode.Draft != "": // eval's verified has masks where no --draft says more
		return &usageError{reworded(err, mode, "--mode %s with --draft %s: %s has no mask token in its config: use --draft lookup, --mode ar, or --mask-id", mode.Mode, mode.Draft, mode.Model)}
	case errors.As(err, &mode):
		return &usageError{reworded(err, mode, "--mode %s: %s has no mask token in its config: use --mode ar, or --mask-id", mode.Mode, mode.Model)}
	case errors.As(err, &mask):
		return &usageError{reworded(err, mask, "--mask-id %d: %s has ids 0 to %d", mask.ID, mask.Model, mask.Vocabulary-1)}
	case errors.As(err, &bias):
		return &usageError{reworded(err, bias, "--logit-bias %d=%g: %s has ids 0 to %d", bias.ID, bias.Bias, bias.Model, bias.Vocabulary-1)}
	case errors.As(err, &option) && option.Option == "cpu-moe": // takes no value
		return &usageError{reworded(err, option, "--%s: want %s", option.Option, option.Want)}
	case errors.As(err, &option):
		name := option.Option
		if name != "prompt" && !strings.Contains(name, " ") {
			name = "--" + name
		}
		return &usageError{reworded(err, option, "%s %s: want %s", name, option.Got, option.Want)}
	case errors.As(err, &memory) && memory.HostLayers > 0:
		return reworded(err, memory, "%v: --n-cpu-moe %d leaves them in host memory", memory, memory.HostLayers)
	case errors.As(err, &head):
		return &usageError{reworded(err, head, "--%v", head)}
	case errors.As(err, &remote) && remote.Code == "invalid_value": // of what the flags became
		return &usageError{err}
	case errors.As(err, &missing):
		return reworded(err, missing, "%v: windrow pull %s fetches it", missing, missing.Name)
	case errors.As(err, &fit), errors.Is(err, engine.ErrEmptyPrompt), errors.Is(err, engine.ErrNoEmbeddedModel):
		return &usageError{err}
	}
	return err
}

// rewordedError is an error in other words.
type rewordedError struct {
	text string
	err  error
}

func (e *rewordedError) Error() string { return e.text }
func (e *rewordedError) Unwrap() error { return e.err }

// reworded replaces what part says within err's text.
func reworded(err, part error, format string, args ...any) error {
	return &rewordedError{strings.Replace(err.Error(), part.Error(), fmt.Sprintf(format, args...), 1), err}
}
