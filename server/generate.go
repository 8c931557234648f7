package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strconv"
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
	more    [][]int32 // a completion's other prompts
	params  *params
	parsing answer.Options
	choice  toolChoice   // of parsing's tools
	owner   string       // the key's name
	chat    *chatRequest // of a conversation; nil: it is none
	// thinkingBudget is after how many tokens reasoning is made to end; 0: never.
	thinkingBudget int
	id             string // of the request
	choices        []*choice
	began          time.Time
}

// choice is one generation of a request.
type choice struct {
	index  int
	stream Stream
	parser *answer.Parser
	mode   decoder.Mode
	stops  []int32 // the ids that end it
	film   *film   // nil: nobody asked for steps
	silent bool    // nothing is told of what it generates

	untold            []decoder.Logprobs
	tokens, reasoning int       // generated, and those of them that are reasoning
	uncached          int       // tokens of the prompt that were computed
	first, last       time.Time // when text came
	reason            answer.Reason
	stop              string // the stop string that ended it, or ""
	summary           decoder.Summary
	timings           schedule.Timings
}

// update is what is new of a choice; after one with done or err set there are no more.
type update struct {
	choice *choice
	events []answer.Event
	steps  []oneStep
	// logprobs are those of the tokens since the last update that was told, where the
	// request asks for them, and prompt those of tokens of the prompt.
	logprobs, prompt []decoder.Logprobs
	done             bool
	err              error
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
	if err := r.checkSession(); err != nil {
		return err
	}
	constraint, err := r.constraint()
	if err != nil {
		return err
	}
	if r.thinkingBudget > 0 && r.parsing.Thinking != answer.ThinkingOff {
		if constraint, err = newBudget(r.model.Tokenizer, r.parsing.Thinking, r.thinkingBudget, constraint); err != nil {
			return err
		}
	}
	for i := range r.params.choices * (1 + len(r.more)) {
		prompt := r.promptOf(i)
		o := r.params.options(r.model, i%r.params.choices)
		o.Constraint = constraint
		o, err := r.model.Complete(o, len(prompt), r.params.window == 0)
		if err != nil {
			return err
		}
		if r.params.maxTokens == 0 {
			// Not the model's suggestion: what was not asked to be short ends by itself.
			o.MaxTokens = r.model.Context - len(prompt)
		}
		if r.params.ignoreEOS {
			o.StopIDs = nil
		}
		parsing := r.parsing
		newID := sync.OnceValue(func() func(int) string { // few answers call a tool
			return answer.IDs(string(binary.LittleEndian.AppendUint64(promptKey(prompt), o.Sampling.Seed)))
		})
		parsing.NewID = func(index int) string { return newID()(index) }
		parser, err := answer.New(parsing)
		if err != nil {
			return badValue("tools", "%v", err)
		}
		stream, err := r.model.Scheduler.Submit(ctx, schedule.Request{
			Prompt: prompt, Options: o, Detokenizer: r.model.Tokenizer.NewStream(true),
			Name: r.name(i), Steps: r.params.steps, Owner: r.owner, Salt: r.salt(), Session: r.params.session,
		})
		if err != nil {
			return err
		}
		c := &choice{index: i, stream: stream, parser: parser, mode: o.Mode, stops: o.StopIDs, silent: r.params.silent}
		if r.params.steps {
			c.film = &film{tokenizer: r.model.Tokenizer, mode: o.Mode, prompt: len(prompt)}
		}
		r.choices = append(r.choices, c)
	}
	return nil
}

// salt parts what is kept of prompts: by key, and as the client asks.
func (r *run) salt() string { return r.owner + "\x00" + r.params.salt }

// name is what /slots calls choice i.
func (r *run) name(i int) string {
	if i == 0 {
		return r.id
	}
	return r.id + "/" + strconv.Itoa(i)
}

// constraint is that of what the answer is held to; nil: it is free.
func (r *run) constraint() (decoder.Constraint, error) {
	h := held{form: r.params.form, options: r.parsing, Held: r.choice.held()}
	switch {
	case h.form == nil && h.options.Form == answer.FormNone:
		return nil, nil
	case h.form == nil && r.choice.binding() == "" && (r.model.Constrain == nil || r.params.mode == decoder.WeDLM || r.params.ignoreEOS):
		return nil, nil // the model calls tools as it likes
	case r.model.Constrain == nil && h.form != nil:
		return nil, unsupported(h.form.param, "a form of the answer")
	case r.model.Constrain == nil:
		return nil, unsupported(r.choice.binding(), "what calls are held to")
	}
	return r.model.forms.constraint(r.model, &h)
}

// promptOf is the prompt of choice i: those of one prompt are neighbours.
func (r *run) promptOf(i int) []int32 {
	if k := i / r.params.choices; k > 0 {
		return r.more[k-1]
	}
	return r.prompt
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
		u.logprobs, c.untold = c.untold, nil
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
	for i, e := range events {
		switch e := e.(type) {
		case decoder.Prefilled:
			c.uncached = e.Total
		case decoder.PromptLogprobs:
			u.prompt = append(u.prompt, e.Logprobs)
		case decoder.Token:
			if c.silent {
				break
			}
			c.film.token()
			c.tokens++
			if c.parser.InReasoning() {
				c.reasoning++
			}
		case decoder.Logprobs:
			if !c.silent && !slices.Contains(c.stops, e.Token.ID) {
				c.untold = append(c.untold, e)
			}
		case schedule.Step:
			u.steps = append(u.steps, c.film.step(e))
		case decoder.Text:
			if c.silent {
				break
			}
			c.film.write(string(e))
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
			if e.Reason == decoder.FinishLength || c.silent {
				how = answer.Limit
			}
			u.add(c.parser.Close(how))
		}
		if c.reason != "" {
			u.steps = c.film.rest(u.steps, events[i+1:])
			break
		}
	}
	u.events = joined(u.events)
	if len(u.events) > 0 {
		u.logprobs, c.untold = c.untold, nil
	}
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
			c.reason, c.stop = e.Reason, e.Stop
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

// cached is how many tokens of the prompts were there, once some text has come.
func (r *run) cached() (n int) {
	for i := 0; i < len(r.choices); i += r.params.choices {
		n += max(0, len(r.promptOf(i))-r.choices[i].uncached)
	}
	return n
}

// usage is what a request took, once its choices have ended.
func (r *run) usage() *usage {
	u := &usage{PromptTokens: len(r.prompt)}
	for _, prompt := range r.more {
		u.PromptTokens += len(prompt)
	}
	for _, c := range r.choices {
		u.CompletionTokens += c.tokens
		u.CompletionTokensDetails.ReasoningTokens += c.reasoning
	}
	u.PromptTokensDetails.CachedTokens = r.cached()
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}
