package clients

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"windrow/decoder"
	"windrow/engine"
	"windrow/models/tinygsm"
	"windrow/schedule"
	"windrow/server"
	"windrow/tokenizer"
)

// script is what a generation is to say. It stands in the last message of its prompt,
// as JSON after "script:".
type script struct {
	Pieces []string `json:"pieces"` // the text of a step each
	Times  int      `json:"times"`  // how long the last piece is, as often it is repeated
	Cut    bool     `json:"cut"`    // a byte a step, in place of a piece
	Limit  bool     `json:"limit"`  // ends by its limit
	Fail   string   `json:"fail"`   // an error after the pieces
	WaitMS int      `json:"wait"`   // before the first piece
	Hang   bool     `json:"hang"`   // never ends
	Busy   int      `json:"busy"`   // so many times the queue is full first
	Key    string   `json:"key"`    // whose times are counted
}

// scriptMark is before a script.
const scriptMark = "script:"

// scripts is a scheduler that runs them.
type scripts struct {
	tokens  *tokenizer.Tokenizer
	mutex   sync.Mutex
	refused map[string]int
	running int
}

// serveScripts serves scripts by the server's own handler.
func serveScripts() (string, error) {
	template, err := toolTemplate()
	if err != nil {
		return "", err
	}
	config, err := with(tinygsm.Files()["tokenizer_config.json"], "chat_template", template)
	if err != nil {
		return "", err
	}
	tokens, err := tokenizer.New(tinygsm.Files()["tokenizer.json"], config)
	if err != nil {
		return "", err
	}
	const length = 32768
	m := &server.Model{
		Name: "scripted", Created: time.Now(), Context: length, Vocabulary: tokens.Size(), Fingerprint: "fp_scripted",
		Tokenizer: tokens, Scheduler: &scripts{tokens: tokens, refused: map[string]int{}}, Sequences: 8,
		Complete: func(o decoder.Options, prompt int, _ bool) (decoder.Options, error) {
			if prompt+max(o.MaxTokens, 1) > length {
				return o, &engine.ContextError{Model: "scripted", PromptTokens: prompt, MaxTokens: o.MaxTokens, Context: length}
			}
			o.Mode, o.StopIDs = decoder.Verified, []int32{2}
			return o, nil
		},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go server.New(m, server.Options{KeepAlive: 40 * time.Millisecond}).Serve(context.Background(), 0, l)
	return "http://" + l.Addr().String(), nil
}

// Submit implements server.Scheduler.
func (s *scripts) Submit(ctx context.Context, r schedule.Request) (server.Stream, error) {
	prompt := s.tokens.Decode(r.Prompt, false)
	at := strings.LastIndex(prompt, scriptMark)
	if at < 0 {
		return nil, errors.New("there is no script in the prompt")
	}
	var x script
	if err := json.NewDecoder(strings.NewReader(prompt[at+len(scriptMark):])).Decode(&x); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.refused[x.Key] < x.Busy {
		s.refused[x.Key]++
		return nil, &schedule.FullError{What: "the queue", RetryAfter: time.Second}
	}
	if n := len(x.Pieces) - 1; x.Times > 0 {
		x.Pieces[n] = strings.Repeat(x.Pieces[n], x.Times)
	}
	if x.Cut {
		whole := strings.Join(x.Pieces, "")
		x.Pieces = nil
		for i := range len(whole) {
			x.Pieces = append(x.Pieces, whole[i:i+1])
		}
	}
	s.running++
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { // as the scheduler does when a request's context ends
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.running--
	})
	return &generation{script: x, ctx: ctx, cancel: cancel, prompt: len(r.Prompt)}, nil
}

// Drain implements server.Scheduler.
func (s *scripts) Drain(context.Context) error { return nil }

// Requests implements server.Scheduler.
func (s *scripts) Requests() []schedule.RequestState { return nil }

// State implements server.Scheduler.
func (s *scripts) State() schedule.State {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return schedule.State{Running: s.running}
}

// generation runs one script.
type generation struct {
	script
	ctx    context.Context
	cancel func()
	prompt int
	step   int
	ended  bool
}

// Next implements server.Stream.
func (g *generation) Next(ctx context.Context) ([]decoder.Event, error) {
	if g.ended || g.ctx.Err() != nil {
		g.cancel()
		return nil, io.EOF
	}
	n := g.step - 1
	g.step++
	if n < 0 {
		return []decoder.Event{decoder.Prefilled{Done: g.prompt, Total: g.prompt}}, nil
	}
	if n == 0 && g.WaitMS > 0 {
		select {
		case <-time.After(time.Duration(g.WaitMS) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if n < len(g.Pieces) {
		return []decoder.Event{decoder.Token(1), decoder.Text(g.Pieces[n]), decoder.Step{}}, nil
	}
	if g.Hang {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-g.ctx.Done():
			return nil, io.EOF
		}
	}
	g.ended = true
	g.cancel()
	if g.Fail != "" {
		return nil, errors.New(g.Fail)
	}
	reason := decoder.FinishStop
	if g.Limit {
		reason = decoder.FinishLength
	}
	return []decoder.Event{decoder.Token(2), decoder.Finished{Reason: reason}}, nil
}

// Summary implements server.Stream.
func (g *generation) Summary() decoder.Summary {
	return decoder.Summary{Stats: decoder.Stats{Forwards: g.step}}
}

// Timings implements server.Stream.
func (g *generation) Timings() schedule.Timings { return schedule.Timings{} }

// Cancel implements server.Stream.
func (g *generation) Cancel() { g.cancel() }
