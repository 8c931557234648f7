package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"windrow/answer"
	"windrow/decoder"
	"windrow/grammar"
)

// form is what an answer is to be held to.
type form struct {
	param  string // the field that asks for it, for errors
	kind   string // "schema", "gbnf" or "regex"
	source string
}

// readForm reads response_format, at each endpoint, since it must never be dropped, and the
// fields grammar (GBNF, as llama.cpp's server takes it) and regex; nil: the answer is free.
func readForm(f *fields) *form {
	var list []*form
	if x := readResponseFormat(f); x != nil {
		list = append(list, x)
	}
	for _, name := range []string{"grammar", "regex"} {
		if s := f.text(name); s != "" {
			kind := name
			if name == "grammar" {
				kind = "gbnf"
			}
			list = append(list, &form{name, kind, s})
		}
	}
	switch {
	case len(list) == 0:
		return nil
	case len(list) > 1:
		f.bad(list[1].param, "want one form of the answer: %s is given, too", list[0].param)
	}
	return list[0]
}

// readResponseFormat reads OpenAI's response_format.
func readResponseFormat(f *fields) *form {
	o := f.object("response_format")
	if o == nil {
		return nil
	}
	defer f.join(o)
	switch kind := o.text("type"); kind {
	case "text":
		return nil
	case "json_object":
		return &form{"response_format", "schema", `{"type": "object"}`}
	case "json_schema":
		s := o.object("json_schema")
		if s == nil {
			o.bad("json_schema", "is missing")
			return nil
		}
		defer o.join(s)
		return readNamedSchema(s, "response_format.json_schema.schema")
	default:
		o.bad("type", "%q: want text, json_object or json_schema", kind)
		return nil
	}
}

// readNamedSchema reads a schema with its name, as OpenAI's APIs have it.
func readNamedSchema(o *fields, param string) *form {
	o.text("name")
	o.text("description")
	o.boolean("strict") // an answer is always held to its schema
	return readSchema(o, param)
}

// readSchema reads the field schema, whose place is param for errors.
func readSchema(o *fields, param string) *form {
	schema := o.raw("schema")
	if schema == nil {
		o.bad("schema", "is missing")
		return nil
	}
	return &form{param, "schema", string(schema)}
}

// held is what an answer is held to: a form, calls, or either, behind reasoning where
// the model thinks.
type held struct {
	form    *form // nil: none
	options answer.Options
	answer.Held
}

// key tells one from another.
func (h *held) key() [sha256.Size]byte {
	var f form
	if h.form != nil {
		f = *h.form
	}
	o := &h.options
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d %q %t %q %t", f.kind, f.source, o.Thinking, o.Form, o.Tools, h.Required, h.Name, h.Single))
}

// compile makes the grammar. The form is compiled by itself, too: what is wrong with it
// is said in its own words, and how it may begin is asked.
func (h *held) compile() (*grammar.Grammar, error) {
	if h.form != nil {
		alone, err := h.form.compile()
		if err != nil {
			return nil, badValue(h.form.param, "%v", err)
		}
		for _, s := range h.options.Begins() {
			if alone.MayBegin(s) {
				return nil, badValue(h.form.param, "want an answer that does not begin with %q, which would be read as reasoning or as a call", s)
			}
		}
		if h.options.Thinking == answer.ThinkingOff && h.options.Form == answer.FormNone {
			return alone, nil
		}
		h.Form = h.form.piece()
	}
	p, err := h.options.Grammar(h.Held)
	if err != nil {
		return nil, newError(http.StatusBadRequest, typeInvalid, codeValue, "%v", err)
	}
	g, err := grammar.Compose(p, grammar.Limits{})
	if err != nil {
		// Its place is a field, and a pointer into that: tools[0].function.parameters#/not.
		param := "tools"
		if why := (*grammar.Error)(nil); errors.As(err, &why) && strings.HasPrefix(why.Where, param) {
			param, _, _ = strings.Cut(why.Where, "#")
		} else if h.form != nil {
			param = h.form.param
		}
		e := newError(http.StatusBadRequest, typeInvalid, codeValue, "%v", err)
		e.Param = &param
		return nil, e
	}
	return g, nil
}

// compile is the form alone.
func (x *form) compile() (*grammar.Grammar, error) {
	switch x.kind {
	case "gbnf":
		return grammar.CompileGBNF(x.source, grammar.Options{})
	case "regex":
		return grammar.CompileRegex(x.source, grammar.Options{})
	}
	return grammar.CompileSchema([]byte(x.source), grammar.Options{})
}

// piece is the form as a part of a grammar.
func (x *form) piece() grammar.Piece {
	switch x.kind {
	case "gbnf":
		return grammar.GBNF(x.source)
	case "regex":
		return grammar.Regex(x.source)
	}
	return grammar.Schema{JSON: []byte(x.source)}
}

// forms are the constraints of the last requests, by what they were made of: to
// compile one takes milliseconds, and what is learnt of it serves the next request.
type forms struct {
	mutex sync.Mutex
	list  []madeForm // the latest last
}

type madeForm struct {
	key        [sha256.Size]byte
	constraint decoder.Constraint
}

// mostForms bounds what is kept: a constraint may take some 48 MB.
const mostForms = 16

// constraint compiles what an answer is held to, or finds it.
func (s *forms) constraint(m *Model, h *held) (decoder.Constraint, error) {
	key := h.key()
	s.mutex.Lock()
	for i, made := range s.list {
		if made.key == key {
			s.list = append(append(s.list[:i:i], s.list[i+1:]...), made)
			s.mutex.Unlock()
			return made.constraint, nil
		}
	}
	s.mutex.Unlock()
	g, err := h.compile()
	if err != nil {
		return nil, err
	}
	c, err := m.Constrain(g)
	if err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.list = append(s.list, madeForm{key, c})
	if len(s.list) > mostForms {
		s.list = append([]madeForm(nil), s.list[1:]...)
	}
	return c, nil
}
