package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"windrow/client"
	"windrow/decoder"
	"windrow/engine"
	"windrow/internal/units"
	"windrow/tokenizer"
)

// partner answers a conversation: a model that is open here, or a server.
type partner interface {
	// answer streams the answer to a conversation and returns its text; begun reports
	// whether it came as far as to answer.
	answer(ctx context.Context, messages []tokenizer.Message, o decoder.Options, out func(string) error) (text string, begun bool, err error)
	// mode is what o's mode comes to.
	mode(o decoder.Options) (decoder.Mode, error)
	// stats prints what the last answer took.
	stats(w io.Writer)
	reset()
	close()
}

// modelPartner is a model that is open here.
type modelPartner struct {
	engine       *engine.Engine
	conversation *engine.Conversation
	window       windowChoice
	closeDrafter func()
	last         decoder.Summary
	lastOptions  decoder.Options
}

// openPartner loads the model.
func openPartner(c *cli.Context, o decoder.Options, window windowChoice, machine engine.Options) (partner, error) {
	e, err := engine.Open(c.Context, c.String("model"), machine)
	if err != nil {
		return nil, err
	}
	if !e.Tokenizer().HasChatTemplate() {
		e.Close()
		return nil, fmt.Errorf("%s has no chat template: use windrow generate --raw", e.Name())
	}
	closeDrafter, err := openDrafter(c, e, machine, c.String("draft"))
	if err == nil {
		if err = e.Check(e.Defaults(o)); err != nil {
			closeDrafter()
		}
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return &modelPartner{engine: e, conversation: e.NewConversation(), window: window, closeDrafter: closeDrafter}, nil
}

func (p *modelPartner) answer(ctx context.Context, messages []tokenizer.Message, o decoder.Options, out func(string) error) (string, bool, error) {
	ids, err := p.engine.Encode(ctx, engine.Prompt{Messages: messages})
	if errors.Is(err, context.Canceled) {
		return "", false, errInterrupted
	}
	if err != nil {
		return "", false, err
	}
	if o, err = p.engine.Complete(o, len(ids)); err != nil {
		return "", false, fmt.Errorf("%w; /reset starts anew", err)
	}
	o = p.window.apply(ctx, p.engine, o)
	sum, err := p.conversation.Answer(ctx, ids, o, decoder.Hooks{Text: out})
	if err == nil {
		p.last, p.lastOptions = sum, o
	}
	return sum.Text, true, err
}

func (p *modelPartner) mode(o decoder.Options) (decoder.Mode, error) {
	o = p.engine.Defaults(o)
	return o.Mode, p.engine.Check(o)
}

func (p *modelPartner) stats(w io.Writer) {
	writeStats(w, p.lastOptions, p.last, p.engine.Features(), p.engine.Calibration())
	if p.conversation.Bytes() > 0 {
		fmt.Fprintf(w, "context   %d of %d tokens, %s of keys and values\n",
			p.conversation.Held(), p.engine.Config().MaxPositions, units.Bytes(p.conversation.Bytes()))
	}
}

func (p *modelPartner) reset() { p.conversation.Close() }

func (p *modelPartner) close() {
	p.conversation.Close()
	p.closeDrafter()
	p.engine.Close()
}

// serverPartner is a server, which keeps what it computed of a conversation as long as
// it has room.
type serverPartner struct {
	server *found
	last   client.Ending
}

func (p *serverPartner) answer(ctx context.Context, messages []tokenizer.Message, o decoder.Options, out func(string) error) (string, bool, error) {
	var text []byte
	end, err := p.server.answer(ctx, engine.Prompt{Messages: messages}, o, func(piece string) error {
		text = append(text, piece...)
		return out(piece)
	})
	switch {
	case err == nil:
		p.last = end
	case ctx.Err() != nil && len(text) > 0:
		err = nil // what there is of an answer that was stopped stays
	case ctx.Err() != nil:
		err = errInterrupted
	default:
		var long *engine.ContextError
		if errors.As(err, &long) {
			err = fmt.Errorf("%w; /reset starts anew", err)
		}
	}
	return string(text), err == nil || len(text) > 0, err
}

func (p *serverPartner) mode(o decoder.Options) (decoder.Mode, error) { return p.server.mode(o) }

func (p *serverPartner) stats(w io.Writer) {
	fmt.Fprintf(w, "prompt    %d tokens, %d of them were there\nanswer    %d tokens, by %s\n", p.last.PromptTokens, p.last.CachedTokens, p.last.Tokens, p.server.Where)
}

func (p *serverPartner) reset() {}
func (p *serverPartner) close() { p.server.Close() }
