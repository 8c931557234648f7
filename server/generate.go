package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"windrow/answer"
	"windrow/decoder"
	"windrow/schedule"
)

// run is a request whose prompt is known: one generation for each of its choices.
type run struct {
	model   *Model
	prompt  []int32
	params  *params
	parsing answer.Options
	owner   string // the key's name
	choices []*choice
	began   time.Time
}

// choice is one generation of a request.
type choice struct {
	index  int
	stream Stream
	parser *answer.Parser
	mode   decoder.Mode

	tokens, reasoning int       // generated, and those of them that are reasoning
	uncached          int       // tokens of the prompt that were computed
	first, last       time.Time // when text came
	reason            answer.Reason
	summary           decoder.Summary
	timings           schedule.Timings
}

// update is what is new of a choice; after one with done or err set there are no more.
type update struct {
	choice *choice
	events []answer.Event
	done   bool
	err    error
}

// start submits all choices, or none.
func (r *run) start(ctx context.Context) (err error) {
	r.began = time.Now()
	defer func() {
		if err != nil {
			for _, c := range r.choices {
				c.stream.Cancel()
			}
		}
	}()
	constraint, err := r.constraint()
	if err != nil {
		return err
	}
	for i := range r.params.choices {
		o := r.params.options(r.model, i)
		o.Constraint = constraint
		o, err := r.model.Complete(o, len(r.prompt), r.params.window == 0)
		if err != nil {
			return err
		}
		if r.params.maxTokens == 0 {
			// Not the model's suggestion: what was not asked to be short ends by itself.
			o.MaxTokens = r.model.Context - len(r.prompt)
		}
		if r.params.ignoreEOS {
			o.StopIDs = nil
		}
		parsing := r.parsing
		parsing.NewID = answer.IDs(string(binary.LittleEndian.AppendUint64(promptKey(r.prompt), o.Sampling.Seed)))
		parser, err := answer.New(parsing)
		if err != nil {
			return badValue("tools", "%v", err)
		}
		stream, err := r.model.Scheduler.Submit(ctx, schedule.Request{
			Prompt: r.prompt, Options: o, Detokenizer: r.model.Tokenizer.NewStream(true),
			Owner: r.owner, Salt: r.owner + "\x00" + r.params.salt,
		})
		if err != nil {
			return err
		}
		r.choices = append(r.choices, &choice{index: i, stream: stream, parser: parser, mode: o.Mode})
	}
	return nil
}

// constraint is that of the form that is asked for; nil: there is none.
func (r *run) constraint() (decoder.Constraint, error) {
	x := r.params.form
	if x == nil {
		return nil, nil
	}
	if r.parsing.Thinking != answer.ThinkingOff {
		return nil, unsupported(x.param, "a form of the answer beside thinking: set chat_template_kwargs.enable_thinking to false, for thinking before it")
	}
	return r.model.forms.constraint(r.model, x)
}

// promptKey is a prompt's ids as bytes.
func promptKey(ids []int32) []byte {
	key := make([]byte, 0, 4*len(ids)+8)
	for _, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, uint32(id))
	}
	return key
}

// follow sends what the choices bring. stop must be called in the end: it ends those
// that still run, and waits until nothing changes any more.
func (r *run) follow(ctx context.Context) (updates <-chan update, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan update)
	var all sync.WaitGroup
	for _, c := range r.choices {
		all.Go(func() {
			for {
				u := c.next(ctx)
				select {
				case out <- u:
				case <-ctx.Done():
					return
				}
				if u.done || u.err != nil {
					return
				}
			}
		})
	}
	return out, func() {
		cancel()
		for _, c := range r.choices {
			c.stream.Cancel()
		}
		all.Wait()
	}
}

// next waits for the next events of a choice that mean something.
func (c *choice) next(ctx context.Context) update {
	u := update{choice: c}
	if c.reason != "" { // the end was held back behind its text
		u.err = c.settle(ctx)
		u.done = u.err == nil
		return u
	}
	events, err := c.stream.Next(ctx)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("a stream ended before its generation")
		}
		u.err = err
		return u
	}
	for _, e := range events {
		switch e := e.(type) {
		case decoder.Prefilled:
			c.uncached = e.Total
		case decoder.Token:
			c.tokens++
			if c.parser.InReasoning() {
				c.reasoning++
			}
		case decoder.Text:
			u.add(c.parser.Write(string(e)))
			if c.parser.Stopped() {
				c.stream.Cancel()
				u.add(c.parser.Close(answer.Ended))
			}
		case decoder.Finished:
			if e.Reason == decoder.FinishCancelled {
				u.err = context.Canceled
				return u
			}
			how := answer.Ended
			if e.Reason == decoder.FinishLength {
				how = answer.Limit
			}
			u.add(c.parser.Close(how))
		}
		if c.reason != "" {
			break
		}
	}
	u.events = joined(u.events)
	return u
}

// joined makes one event of neighbours of a kind: one event a step, however many
// tokens it made.
func joined(events []answer.Event) (list []answer.Event) {
	for i := 0; i < len(events); {
		e := events[i]
		var text strings.Builder
		n := i
		for ; n < len(events) && events[n].Kind == e.Kind && events[n].Index == e.Index && events[n].Text != ""; n++ {
			text.WriteString(events[n].Text)
		}
		if n > i {
			e.Text = text.String()
		}
		list = append(list, e)
		i = max(n, i+1)
	}
	return list
}

// add takes events, of which the last of all says why the answer ended.
func (u *update) add(events []answer.Event) {
	c := u.choice
	for _, e := range events {
		if c.last = time.Now(); c.first.IsZero() {
			c.first = c.last
		}
		if e.Kind == answer.Finish {
			c.reason = e.Reason
			continue
		}
		u.events = append(u.events, e)
	}
}

// settle waits until the scheduler is done with a generation, for its counters. One
// that was stopped ends after the forward that runs.
func (c *choice) settle(ctx context.Context) error {
	for {
		if _, err := c.stream.Next(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			break
		}
	}
	c.summary, c.timings = c.stream.Summary(), c.stream.Timings()
	return nil
}

// usage is what a request took, once its choices have ended.
func (r *run) usage() *usage {
	u := &usage{PromptTokens: len(r.prompt)}
	for _, c := range r.choices {
		u.CompletionTokens += c.tokens
		u.CompletionTokensDetails.ReasoningTokens += c.reasoning
	}
	u.PromptTokensDetails.CachedTokens = max(0, len(r.prompt)-r.choices[0].uncached)
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}
