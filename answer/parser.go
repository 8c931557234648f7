package answer

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// Options say what a [Parser] is to recognise. The zero value makes all text
// content.
type Options struct {
	// Thinking says where reasoning may stand; see [ThinkingOf].
	Thinking Thinking
	// Form is how tool calls are written; see [FormOf]. FormNone: there are
	// none, as where the request has no tools or forbids them.
	Form Form
	// Tools is the request's JSON list of tools,
	// [{"type": "function", "function": {"name": …, "parameters": SCHEMA}}].
	// FormCoder needs it to give arguments their types.
	Tools json.RawMessage
	// Either: the answer is calls or other content, not both. Behind content that is no
	// white space no call is looked for.
	Either bool
	// Stop are the stop strings. Empty ones are ignored.
	Stop []string
	// NewID returns the id of call index. nil: "call_" and 24 random digits;
	// [IDs] gives ones that depend on the request alone.
	NewID func(index int) string
}

// state is where in the text a Parser is.
type state uint8

const (
	inOpening      state = iota // before <think> or the first text
	inReasoning                 // after <think>
	afterReasoning              // after </think>, newlines
	inContent
	afterOpen // after <tool_call>, before what is in it
	inJSON    // in the object of a call
	inName    // FormCoder: after <function=
	inBody    // between parameters
	inKey     // after <parameter=
	inValue   // after <parameter=key>
)

// A Parser takes an answer's text in pieces and returns [Event]s.
type Parser struct {
	thinking Thinking
	form     Form
	tools    []tool
	newID    func(int) string

	state  state
	tail   []byte // the beginning of a character that is not yet whole
	closed bool

	events []Event // of this Write or Close
	text   []byte  // of the last text event, which still grows
	kind   Kind    // of that event; 0: there is none

	// Before and in reasoning.
	held     []byte // blank, and the beginning of <think>
	blank    int    // bytes of held that are white space
	matched  int    // bytes of </think>
	newlines int    // before them
	reasoned bool   // some reasoning was given out

	content  content
	either   bool     // see Options
	wrote    bool     // there was content that is no white space
	openers  []string // what begins a call
	marker   []byte   // the beginning of one of them, or of </tool_call>
	closing  bool     // a call's </tool_call> may still come
	adjacent bool     // nothing but white space came since a call's end

	raw    []byte // the text of the current call, from its tag on
	call   call
	object object // of FormJSON
	coder  coder  // of FormCoder
	begun  int    // calls whose CallBegin is out
	made   int    // calls that are complete
}

// call is what is known of the current call.
type call struct {
	name  string
	begun bool // its CallBegin is out
}

// New returns a parser for one answer. It fails if o.Tools is not a JSON list.
func New(o Options) (*Parser, error) {
	tools, err := parseTools(o.Tools)
	if err != nil {
		return nil, err
	}
	p := &Parser{thinking: o.Thinking, form: o.Form, either: o.Either, tools: tools, newID: o.NewID}
	if p.newID == nil {
		p.newID = randomID
	}
	if p.thinking == ThinkingOff {
		p.state = inContent
	}
	for _, s := range o.Stop {
		// Text is valid UTF-8, and so is what is cut from it.
		if s = strings.ToValidUTF8(s, "\ufffd"); s != "" {
			p.content.stops = append(p.content.stops, newStop(s))
		}
	}
	p.content.holdSpace = p.form != FormNone
	p.openers = openers(p.form, tools)
	return p, nil
}

// Write takes the next piece of the text, which may end inside a character, and
// returns what is certain now. Bytes that are not UTF-8 become U+FFFD. After a
// stop string was found, and after Close, text is ignored.
func (p *Parser) Write(text string) []Event {
	if p.closed || p.Stopped() {
		return nil
	}
	if len(p.tail) > 0 {
		text = string(p.tail) + text
		p.tail = p.tail[:0]
	}
	for len(text) > 0 {
		if !utf8.FullRuneInString(text) {
			p.tail = append(p.tail, text...)
			break
		}
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 {
			p.feedString("\ufffd")
		} else {
			p.feedString(text[:size])
		}
		text = text[size:]
	}
	return p.take()
}

// Close ends the text and returns the remaining events, [Finish] last. Later
// calls return none.
func (p *Parser) Close(how Ending) []Event {
	if p.closed {
		return nil
	}
	p.closed = true
	for range p.tail {
		p.feedString("\ufffd")
	}
	if !p.Stopped() {
		p.end(how)
	}
	p.content.finish(p)
	reason := ReasonStop
	switch {
	case how == Limit && !p.Stopped():
		reason = ReasonLength
	case p.made > 0:
		reason = ReasonToolCalls
	}
	p.event(Event{Kind: Finish, Reason: reason, Stop: p.content.found})
	return p.take()
}

// Stopped reports whether a stop string was found, so that nothing that comes
// can change the answer.
func (p *Parser) Stopped() bool { return p.content.found != "" }

// InReasoning reports whether the text so far ends inside reasoning, to count
// its tokens, and to begin a grammar after it.
func (p *Parser) InReasoning() bool {
	return p.state == inReasoning || p.state == inOpening && p.thinking == ThinkingOpened
}

// InCall reports whether the text so far ends inside a tool call.
func (p *Parser) InCall() bool { return p.state >= afterOpen }

func (p *Parser) feedString(s string) {
	for i := range len(s) {
		p.feed(s[i])
	}
}

// feed takes a byte. A state that does not take it has gone over to another,
// which is asked next.
func (p *Parser) feed(b byte) {
	for !p.Stopped() {
		taken := false
		switch p.state {
		case inOpening:
			taken = p.stepOpening(b)
		case inReasoning:
			taken = p.stepReasoning(b)
		case afterReasoning:
			if taken = b == '\n'; !taken {
				p.state = inContent
			}
		case inContent:
			taken = p.stepContent(b)
		case afterOpen:
			taken = p.stepOpen(b)
		case inJSON:
			taken = p.stepJSON(b)
		default:
			taken = p.stepCoder(b)
		}
		if taken {
			return
		}
	}
}

// end settles what was held back for want of what follows.
func (p *Parser) end(how Ending) {
	switch p.state {
	case inOpening:
		p.endOpening()
	case inValue:
		p.endValue()
	}
	// Both may have gone over to another state.
	switch p.state {
	case inReasoning:
		p.endReasoning()
	case inContent:
		p.endMarker()
	}
	switch {
	case !p.InCall():
	case how == Ended && p.state == inBody && len(p.coder.literal) == 0:
		// The model left out the tags that close a call.
		p.endFunction()
	case how == Limit && p.call.begun:
		p.event(Event{Kind: CallEnd, Index: p.begun - 1, Cut: true})
		p.content.touched = true
	default:
		p.broken()
	}
}

// beginCall says that there is a call of p.call.name.
func (p *Parser) beginCall() {
	p.call.begun = true
	p.event(Event{Kind: CallBegin, Index: p.begun, ID: p.newID(p.begun), Name: p.call.name})
	p.begun++
}

// endCall ends a call that is complete. Its closing tag may still come.
func (p *Parser) endCall() {
	p.event(Event{Kind: CallEnd, Index: p.begun - 1})
	p.made++
	p.content.touched = true
	p.closing, p.adjacent = true, true
	p.leaveCall()
}

// broken makes the text of a call content: it is none.
func (p *Parser) broken() {
	if p.call.begun {
		p.event(Event{Kind: CallBroken, Index: p.begun - 1})
	}
	p.closing, p.adjacent = false, false
	raw := slices.Clone(p.raw)
	p.leaveCall()
	for _, b := range raw {
		if p.Stopped() {
			return
		}
		p.wrote = true
		p.content.add(p, b)
	}
}

func (p *Parser) leaveCall() {
	p.state = inContent
	p.raw, p.call, p.object = p.raw[:0], call{}, object{}
	p.coder = coder{}
}

// emit appends to the last text event if it is of the same kind.
func (p *Parser) emit(kind Kind, s string) {
	if s == "" {
		return
	}
	if p.kind != kind {
		p.settle()
		p.kind = kind
	}
	p.text = append(p.text, s...)
}

// event appends an event that is no text.
func (p *Parser) event(e Event) {
	p.settle()
	p.events = append(p.events, e)
}

// settle ends the text event that still grows.
func (p *Parser) settle() {
	if p.kind == 0 {
		return
	}
	e := Event{Kind: p.kind, Text: string(p.text)}
	if p.kind == Arguments {
		e.Index = p.begun - 1
	}
	p.kind, p.text = 0, p.text[:0]
	p.events = append(p.events, e)
}

func (p *Parser) take() []Event {
	p.settle()
	events := p.events
	p.events = nil
	return events
}

// space is what counts as white space around tags: that of JSON.
const space = " \t\r\n"

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }
