package answer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"windrow/grammar"
)

// Held says what an answer is held to. The zero value: its calls to the tools, and
// else to nothing.
type Held struct {
	// Required: the answer is at least one call, behind reasoning where there is some.
	Required bool
	// Name is that of the only tool that may be called; "": any.
	Name string
	// Single: one call at most.
	Single bool
	// Form, where not nil, is what an answer that calls no tool is, all of it but its
	// reasoning. [Options.Either] has to be set beside calls.
	Form grammar.Piece
}

// Whole reports whether the answer is held to something even where it calls no tool.
func (h Held) Whole() bool { return h.Required || h.Form != nil }

// newlines may stand between reasoning and what an answer is held to; templates write
// two.
var newlines = grammar.Repeat{Piece: grammar.Literal("\n"), Max: 2}

// Grammar is what a model may write, so that the parser of these options finds in it
// what it is held to: calls are those of the tools, whole, with arguments that satisfy
// their schemas, and where the answer is held as a whole its reasoning is closed.
//
// An error names a tool by its place: "tools[0].function.parameters".
func (o Options) Grammar(h Held) (grammar.Piece, error) {
	list, err := toolGrammars(o.Tools)
	if err != nil {
		return nil, err
	}
	var calls, rest grammar.Choice // with their opening tags, and behind <tool_call>
	var open []grammar.Trigger
	for i, t := range list {
		if o.Form == FormNone || h.Name != "" && t.name != h.Name {
			continue
		}
		p, err := o.Form.call(t, i)
		if err != nil {
			return nil, err
		}
		rest = append(rest, grammar.Sequence{grammar.Literal(p.before), p.rest})
		if o.Form == FormCoder {
			open = append(open, grammar.Trigger{Text: functionOpen + t.name + ">", Then: p.rest, Again: !h.Single})
		}
	}
	if len(rest) > 0 {
		behind := &grammar.Shared{Piece: rest}
		one := grammar.Sequence{grammar.Literal(callOpen), behind}
		calls = append(calls, grammar.Sequence{one})
		if !h.Single {
			more := grammar.Repeat{Piece: grammar.Sequence{grammar.Literal(o.Form.Syntax().Between), one}, Max: -1}
			calls[0] = grammar.Sequence{one, more}
		}
		open = append(open, grammar.Trigger{Text: callOpen, Then: behind, Again: !h.Single})
	}
	if h.Required && len(calls) == 0 {
		return nil, fmt.Errorf("tools: there is none to call")
	}
	switch {
	case h.Required:
		return o.afterThinking(calls), nil
	case h.Form != nil:
		return o.afterThinking(append(calls, h.Form)), nil
	}
	return o.freeThinking(open), nil
}

// afterThinking is reasoning, where there may be some, and a content that is held.
func (o Options) afterThinking(content grammar.Piece) grammar.Piece {
	content = &grammar.Shared{Piece: content}
	reasoning := grammar.Free{Triggers: []grammar.Trigger{{Text: ThinkClose, Then: grammar.Sequence{newlines, content}}}}
	switch o.Thinking {
	case ThinkingOpened:
		return reasoning
	case ThinkingTagged:
		return grammar.Choice{content, grammar.Sequence{grammar.Literal(ThinkOpen), reasoning}}
	}
	return content
}

// freeThinking is reasoning and a content that is free but for its calls, which
// triggers begin. It may end wherever no call stands.
func (o Options) freeThinking(open []grammar.Trigger) grammar.Piece {
	content := grammar.Free{Triggers: open, Ends: true}
	reasoning := grammar.Free{Triggers: []grammar.Trigger{{Text: ThinkClose, Then: content}}, Ends: true}
	switch o.Thinking {
	case ThinkingOpened:
		return reasoning
	case ThinkingTagged:
		content.Triggers = append([]grammar.Trigger{{Text: ThinkOpen, First: true, Then: reasoning}}, open...)
	}
	return content
}

// Begins are the texts that an answer's form must not begin with, since they would be
// read as reasoning or as a call; see [grammar.Grammar.MayBegin].
func (o Options) Begins() (list []string) {
	if o.Thinking == ThinkingTagged {
		list = append(list, ThinkOpen)
	}
	if o.Form != FormNone {
		list = append(list, openers(o.Form, o.tools())...)
	}
	return list
}

func (o Options) tools() []tool {
	list, _ := parseTools(o.Tools)
	return list
}

// toolGrammar is a tool as its request has it.
type toolGrammar struct {
	tool
	schema json.RawMessage // its parameters'; nil: none
	at     string          // where they stand
}

func toolGrammars(raw json.RawMessage) (list []toolGrammar, err error) {
	tools, err := parseTools(raw)
	if err != nil || len(tools) == 0 {
		return nil, err
	}
	var given []struct {
		Function *struct {
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, err
	}
	for i, g := range given {
		if g.Function == nil {
			continue
		}
		t := tools[len(list)]
		p := g.Function.Parameters
		if string(p) == "null" {
			p = nil
		}
		list = append(list, toolGrammar{t, p, fmt.Sprintf("tools[%d].function.parameters", i)})
	}
	return list, nil
}

// noParameters are those of a tool that says nothing of them.
const noParameters = `{"type": "object", "additionalProperties": false}`

// callGrammar is a call: before and what follows it, up to the closing tag.
type callGrammar struct {
	before string // its function's name is at the end
	rest   grammar.Piece
}

// call is a call of one tool, laid out as the model's template does.
func (f Form) call(t toolGrammar, i int) (c callGrammar, err error) {
	schema := []byte(t.schema)
	if schema == nil {
		schema = []byte(noParameters)
	}
	s := f.Syntax()
	c.before = strings.TrimPrefix(f.Force(t.name), s.Open)
	var arguments grammar.Piece
	if f == FormJSON {
		arguments = grammar.Schema{JSON: schema, Closed: true, Object: true, Compact: t.schema == nil}
	} else {
		if !isName(t.name) {
			return c, fmt.Errorf("tools[%d].function.name: %q cannot be written in a tag of this model's calls: want no '<', '>' or line break", i, t.name)
		}
		arguments = t.members(schema, s)
		c.before = strings.TrimSuffix(c.before, "\n")
		arguments = grammar.Sequence{grammar.Literal("\n"), arguments}
	}
	c.rest = &grammar.Shared{Piece: grammar.Sequence{
		grammar.Named{Name: t.at, Piece: arguments},
		grammar.Literal(s.AfterArguments + s.Close),
	}}
	return c, nil
}

// members are the parameters of a call of the coder models.
func (t toolGrammar) members(schema []byte, s Syntax) grammar.Piece {
	var keys []string
	for _, k := range t.parameters.keys() {
		if isName(k) {
			keys = append(keys, regexp.QuoteMeta(k))
		}
	}
	const blank = `[ \t\r\n]*`
	avoid := parameterClose + blank + `(?:` + parameterOpen + `|` + functionClose + `|` + callClose + `)|` + functionClose + blank + callClose
	if len(keys) > 0 {
		avoid += `|(?:\A|\n)` + parameterOpen + `(?:` + strings.Join(keys, "|") + `)>`
	}
	return grammar.Members{
		JSON: schema, Before: s.Key, AfterName: s.AfterKey, After: s.AfterValue,
		Kinds: func(name string) []string { return t.parameters.property(name).names() },
		Names: `[^<>\n]{1,64}`, Avoid: avoid, AvoidLong: `<[/p]`,
	}
}

// names are those of JSON Schema.
func (t types) names() (list []string) {
	for _, n := range []struct {
		t    types
		name string
	}{{typeString, "string"}, {typeNumber, "number"}, {typeBoolean, "boolean"}, {typeObject, "object"}, {typeArray, "array"}, {typeNull, "null"}} {
		if t&n.t != 0 {
			list = append(list, n.name)
		}
	}
	return list
}
