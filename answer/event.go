package answer

// Kind says what an [Event] is.
type Kind uint8

const (
	// Reasoning is text of the model's thinking, in Text.
	Reasoning Kind = iota + 1
	// Content is text of the answer, in Text.
	Content
	// CallBegin begins a tool call: Index, ID and Name are set. Calls never
	// overlap: all events of one come before the next one's.
	CallBegin
	// Arguments is a piece of the arguments of call Index, in Text. The pieces
	// of a call that was ended join to one JSON object, "{}" for no arguments.
	Arguments
	// CallEnd ends call Index. With Cut the text ended inside the call, at a
	// limit, and its arguments are the beginning of an object.
	CallEnd
	// CallBroken takes call Index back: what followed is not what a call looks
	// like. Its text, from its first tag on, comes again as Content. A program
	// that has not yet passed the call on drops it; its index is not used again.
	CallBroken
	// Finish is the last event, and comes once: Reason is set, and Stop if the
	// text was cut at a stop string.
	Finish
)

var kindNames = [...]string{"none", "reasoning", "content", "call begin", "arguments", "call end", "call broken", "finish"}

// String is the kind's name, in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}

// Event is one thing that a [Parser] found. Which fields are set depends on
// Kind; Text is valid UTF-8 and never empty where it is used.
type Event struct {
	Kind   Kind
	Text   string
	Index  int    // of a call, in the order of their beginnings: 0, 1, 2, …
	ID     string // of a call, such as "call_3f…"
	Name   string // of the function that is called
	Cut    bool   // the call is incomplete, at a limit
	Reason Reason
	Stop   string // the stop string that was found, or ""
}

// Reason is why an answer ended, under the names of the chat completions API
// (finish_reason).
type Reason string

const (
	// ReasonStop: the model ended its answer, or a stop string was found.
	ReasonStop Reason = "stop"
	// ReasonLength: a limit cut the text, perhaps inside a call.
	ReasonLength Reason = "length"
	// ReasonToolCalls: as ReasonStop, and at least one whole call was made.
	ReasonToolCalls Reason = "tool_calls"
)

// Ending is how the text given to a [Parser] came to its end.
type Ending uint8

const (
	// Ended: the model said that it is done (an end token, a grammar's end).
	Ended Ending = iota
	// Limit: the number of tokens or the context was used up.
	Limit
)
