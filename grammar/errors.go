package grammar

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// The kinds of [Error], for errors.Is.
var (
	// ErrSyntax: the text is not what it should be (JSON, a schema, GBNF, a regular expression).
	ErrSyntax = errors.New("grammar: syntax")
	// ErrUnsupported: the text is right, and asks for what this package does not do.
	ErrUnsupported = errors.New("grammar: not supported")
	// ErrLimit: the text exceeds a limit.
	ErrLimit = errors.New("grammar: limit")
	// ErrEmpty: no text satisfies the grammar.
	ErrEmpty = errors.New("grammar: allows nothing")
)

// Error is why a text was not compiled.
type Error struct {
	Kind  error  // one of the above
	Where string // a JSON pointer ("#/properties/x/not"), a line of GBNF ("line 3"), or what the text is
	What  string // what is wrong there, and what would be right
}

// Error gives one line, such as "#/properties/x/not is not supported".
func (e *Error) Error() string { return e.Where + " " + e.What }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// bail carries an error out of a compilation: the builders are recursive, and
// a limit can be met in any of them. Compile recovers it.
type bail struct{ err *Error }

func stop(kind error, where, what string) { panic(bail{&Error{kind, where, what}}) }

// quote shows a stranger's text in a message: short, on one line.
func quote(s string) string {
	const longest = 40
	cut := s
	if len(cut) > longest {
		cut = cut[:longest]
		for len(cut) > 0 && !utf8.ValidString(cut) && utf8.ValidString(s) {
			cut = cut[:len(cut)-1]
		}
		cut += "…"
	}
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F || r == 0x2028 || r == 0x2029 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, cut) + `"`
}
