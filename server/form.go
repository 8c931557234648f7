package server

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"

	"windrow/decoder"
	"windrow/grammar"
)

// form is what an answer is to be held to.
type form struct {
	param  string // the field that asks for it, for errors
	kind   string // "object", "schema", "gbnf" or "regex"
	source string
}

// readForm reads response_format, where the endpoint has it, and the fields grammar
// (GBNF, as llama.cpp's server takes it) and regex; nil: the answer is free.
func readForm(f *fields, chat bool) *form {
	var list []*form
	if chat {
		if x := readResponseFormat(f); x != nil {
			list = append(list, x)
		}
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
		return &form{param: "response_format", kind: "object"}
	case "json_schema":
		s := o.object("json_schema")
		if s == nil {
			o.bad("json_schema", "is missing")
			return nil
		}
		defer o.join(s)
		s.text("name")
		s.text("description")
		s.boolean("strict") // an answer is always held to its schema
		schema := s.raw("schema")
		if schema == nil {
			s.bad("schema", "is missing")
			return nil
		}
		return &form{"response_format.json_schema.schema", "schema", string(schema)}
	default:
		o.bad("type", "%q: want text, json_object or json_schema", kind)
		return nil
	}
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

// constraint compiles a form, or finds it.
func (s *forms) constraint(m *Model, x *form) (decoder.Constraint, error) {
	if m.Constrain == nil {
		return nil, unsupported(x.param, "a form of the answer")
	}
	key := sha256.Sum256([]byte(x.kind + "\x00" + x.source))
	s.mutex.Lock()
	for i, made := range s.list {
		if made.key == key {
			s.list = append(append(s.list[:i:i], s.list[i+1:]...), made)
			s.mutex.Unlock()
			return made.constraint, nil
		}
	}
	s.mutex.Unlock()
	g, err := x.compile()
	if err != nil {
		var why *grammar.Error
		if errors.As(err, &why) {
			return nil, badValue(x.param, "%s", why.Error())
		}
		return nil, badValue(x.param, "%v", err)
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

func (x *form) compile() (*grammar.Grammar, error) {
	switch x.kind {
	case "object":
		return grammar.CompileObject(grammar.Options{})
	case "gbnf":
		return grammar.CompileGBNF(x.source, grammar.Options{})
	case "regex":
		return grammar.CompileRegex(x.source, grammar.Options{})
	}
	if !json.Valid([]byte(x.source)) {
		return nil, errors.New("the schema is not JSON")
	}
	return grammar.CompileSchema([]byte(x.source), grammar.Options{})
}
