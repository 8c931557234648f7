package server

import (
	"time"

	"windrow/decoder"
	"windrow/schedule"
	"windrow/tokenizer"
)

// The wire format of decoding steps: docs/page.md has the fields.
type (
	stepChunk struct {
		head
		Choices []chunkChoice `json:"choices"` // none
		Windrow stepList      `json:"windrow"`
	}
	stepList struct {
		Choice  int       `json:"choice"`
		Dropped int       `json:"dropped"`
		Steps   []oneStep `json:"steps"`
		Rest    string    `json:"rest,omitempty"`
	}
	oneStep struct {
		Forward int        `json:"forward"`
		MS      float64    `json:"ms"`
		Base    int        `json:"base"`
		Rows    int        `json:"rows"`
		Tokens  int        `json:"tokens"`
		Text    string     `json:"text"`
		Pass    passRows   `json:"pass"`
		Slots   []stepSlot `json:"slots"`
		Next    []stepFill `json:"next"`
	}
	passRows struct {
		Rows      int `json:"rows"`
		Sequences int `json:"sequences"`
	}
	stepSlot struct {
		State   string   `json:"state"`
		Text    string   `json:"text,omitempty"`
		Entropy *float32 `json:"entropy,omitempty"`
	}
	stepFill struct {
		Slot  int    `json:"slot"`
		State string `json:"state"`
		Text  string `json:"text"`
	}
)

const (
	// stepsEvery is the least time between two events of steps.
	stepsEvery = time.Second / 30
	// mostSlots bounds the slots that wait to be sent; slotsOfEvent those of an event,
	// whose line stays under 64 KiB, like others (maxPiece). A step counts as stepSlots
	// of them besides its own.
	mostSlots    = 6000
	slotsOfEvent = 800
	stepSlots    = 4
)

// readSteps reads windrow.steps.
func readSteps(f *fields, stream bool) bool {
	o := f.object("windrow")
	if o == nil {
		return false
	}
	steps := o.isTrue("steps")
	if steps && !stream {
		o.bad("steps", "want stream to be true beside it")
	}
	for _, name := range o.unknown() {
		o.bad(shortName(name), "want no field but steps")
	}
	f.join(o)
	return steps
}

// film makes the steps of a choice as clients see them; a nil film makes none.
type film struct {
	tokenizer *tokenizer.Tokenizer
	mode      decoder.Mode
	prompt    int // its tokens
	forwards  int
	known     int    // tokens so far
	text      string // visible, and not yet in a step
	ahead     string // that of the newest token, which the next step commits: not in wedlm

	steps   []oneStep // not yet sent
	slots   int       // of those
	through int       // the forward of the last that was sent
	sent    time.Time
}

// token notes that a token begins, write what is visible of it.
func (f *film) token() {
	if f != nil {
		f.text, f.ahead = f.text+f.ahead, ""
		f.known++
	}
}

func (f *film) write(text string) {
	switch {
	case f == nil:
	case f.mode == decoder.WeDLM:
		f.text += text
	default:
		f.ahead += text
	}
}

// step makes a step of the text since the last.
func (f *film) step(e schedule.Step) oneStep {
	f.forwards += 1 + e.Dropped
	if e.Base+len(e.Committed) >= f.prompt+f.known { // a draft that was the last
		f.text, f.ahead = f.text+f.ahead, ""
	}
	s := oneStep{
		Forward: f.forwards, MS: milliseconds(e.Took), Base: e.Base, Rows: len(e.Slots), Tokens: len(e.Committed), Text: f.text,
		Pass: passRows{e.PassRows, e.Sequences}, Slots: make([]stepSlot, 0, len(e.Slots)), Next: make([]stepFill, 0, len(e.Filled)),
	}
	f.text = ""
	entropy := e.Entropy
	for i, slot := range e.Slots {
		to := stepSlot{State: slotState(f.mode, i, slot.Filled, i < len(e.Committed))}
		if slot.Filled {
			to.Text = f.piece(slot.Token)
		} else if len(entropy) > 0 {
			to.Entropy, entropy = &entropy[0], entropy[1:]
		}
		s.Slots = append(s.Slots, to)
	}
	for i, fill := range e.Filled {
		state := "filled"
		switch {
		case f.mode != decoder.WeDLM && i == 0:
			state = "causal"
		case f.mode == decoder.Verified:
			state = "draft"
		}
		s.Next = append(s.Next, stepFill{fill.Slot, state, f.piece(fill.Token)})
	}
	return s
}

// slotState is what became of a slot.
func slotState(mode decoder.Mode, i int, filled, committed bool) string {
	verified := mode == decoder.Verified
	switch {
	case !filled:
		return "mask"
	case committed && verified && i > 0:
		return "accepted"
	case committed:
		return "committed"
	case verified:
		return "struck" // verified keeps nothing behind the commit
	}
	return "kept"
}

// piece is a token's text; part of a character is U+FFFD.
func (f *film) piece(id int32) string { return f.tokenizer.Decode([]int32{id}, false) }

// rest makes the steps among events that are left.
func (f *film) rest(steps []oneStep, events []decoder.Event) []oneStep {
	if f == nil {
		return steps
	}
	for _, e := range events {
		if e, ok := e.(schedule.Step); ok {
			steps = append(steps, f.step(e))
		}
	}
	return steps
}

// size is what a step takes in an event, in slots, about.
func (s *oneStep) size() int { return stepSlots + len(s.Slots) + len(s.Next) }

// some takes as many of the steps that wait as an event holds.
func (f *film) some() []oneStep {
	n, size := 0, 0
	for n < len(f.steps) && (n == 0 || size+f.steps[n].size() <= slotsOfEvent) {
		size += f.steps[n].size()
		n++
	}
	list := append([]oneStep{}, f.steps[:n]...)
	f.steps = f.steps[n:]
	return list
}

// show takes steps, and sends those that wait: 30 times a second, and all in the end.
// Where too many wait the oldest are left out.
func (f *film) show(out *events, h head, choice int, steps []oneStep, last bool) {
	if f == nil {
		return
	}
	for _, s := range steps {
		f.steps = append(f.steps, s)
		f.slots += s.size()
	}
	for f.slots > mostSlots && len(f.steps) > 1 {
		f.slots -= f.steps[0].size()
		f.steps = f.steps[1:]
	}
	now, rest := time.Now(), ""
	if last {
		rest = f.text + f.ahead
	}
	if len(f.steps) == 0 && rest == "" || !last && now.Sub(f.sent) < stepsEvery {
		return
	}
	for {
		list := stepList{Choice: choice, Steps: f.some()}
		if n := len(list.Steps); n > 0 {
			list.Dropped = list.Steps[n-1].Forward - f.through - n
			f.through = list.Steps[n-1].Forward
		}
		if len(f.steps) == 0 {
			list.Rest = rest
		}
		out.send(stepChunk{head: h, Choices: []chunkChoice{}, Windrow: list})
		if len(f.steps) == 0 {
			break
		}
	}
	f.slots, f.sent = 0, now
}
