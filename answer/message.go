package answer

// Call is a tool call of a message.
type Call struct {
	ID        string
	Name      string
	Arguments string // a JSON object, unless Cut or made by another program
	Cut       bool   // the text ended inside the call
}

// Message is a whole answer.
type Message struct {
	Reasoning string
	Content   string
	Calls     []Call
	Reason    Reason // "" before the end
	Stop      string // the stop string that was found, or ""
}

// Add adds an event to the message. After [Finish] it is complete.
func (m *Message) Add(e Event) {
	last := len(m.Calls) - 1
	switch e.Kind {
	case Reasoning:
		m.Reasoning += e.Text
	case Content:
		m.Content += e.Text
	case CallBegin:
		m.Calls = append(m.Calls, Call{ID: e.ID, Name: e.Name})
	case Arguments:
		m.Calls[last].Arguments += e.Text
	case CallEnd:
		m.Calls[last].Cut = e.Cut
	case CallBroken:
		m.Calls = m.Calls[:last]
	case Finish:
		m.Reason, m.Stop = e.Reason, e.Stop
	}
}

// Parse returns what a whole text means. It fails as [New] does.
func Parse(text string, how Ending, o Options) (Message, error) {
	var m Message
	p, err := New(o)
	if err != nil {
		return m, err
	}
	for _, e := range p.Write(text) {
		m.Add(e)
	}
	for _, e := range p.Close(how) {
		m.Add(e)
	}
	return m, nil
}
