package server

import (
	"strings"

	"windrow/answer"
)

// sections follows an answer's events as a list of its parts: reasoning, text and calls,
// in the order in which they come. APIs that have an item for each tell of them as they
// happen; the functions may be nil.
type sections struct {
	list []*section
	open bool // the last one goes on

	// likely, where not nil, has the tokens; sections keep theirs if keep says so.
	likely *likely
	keep   bool

	begin func(i int, x *section)
	delta func(i int, x *section, text string)
	end   func(i int, x *section)
}

// section is a part of an answer.
type section struct {
	kind   answer.Kind // Reasoning, Content or CallBegin
	id     string      // of a call
	name   string      // of the function that is called
	text   strings.Builder
	item   string         // the id of what tells of it, where there is one
	cut    bool           // a limit cut it
	broken bool           // what was begun is no call: its text follows
	likely []tokenLogprob // of the text, or of the last delta
}

// add takes an event.
func (s *sections) add(e answer.Event) {
	switch e.Kind {
	case answer.Reasoning, answer.Content:
		if !s.open || s.last().kind != e.Kind {
			s.next(&section{kind: e.Kind})
		}
		s.write(e.Text)
	case answer.CallBegin:
		s.next(&section{kind: e.Kind, id: e.ID, name: e.Name})
	case answer.Arguments:
		s.write(e.Text)
	case answer.CallEnd:
		s.last().cut = e.Cut
		s.close()
	case answer.CallBroken:
		s.last().broken = true
		s.close()
	}
}

func (s *sections) last() *section { return s.list[len(s.list)-1] }

func (s *sections) next(x *section) {
	s.close()
	s.list, s.open = append(s.list, x), true
	if s.begin != nil {
		s.begin(len(s.list)-1, x)
	}
}

func (s *sections) write(text string) {
	x := s.last()
	x.text.WriteString(text)
	for _, piece := range pieces(text) {
		fresh := s.likely.take(piece)
		if s.keep {
			x.likely = append(x.likely, fresh...)
		} else {
			x.likely = fresh
		}
		if s.delta != nil {
			s.delta(len(s.list)-1, x, piece)
		}
	}
}

// finish is the answer's end; limited: at a limit, which cuts what goes on.
func (s *sections) finish(limited bool) {
	if s.open && limited {
		s.last().cut = true
	}
	s.close()
}

// close ends the section that goes on, if one does.
func (s *sections) close() {
	if s.open && s.end != nil {
		s.end(len(s.list)-1, s.last())
	}
	s.open = false
}
