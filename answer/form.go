package answer

import (
	"regexp"
	"strings"
)

// Form is how a model writes tool calls.
type Form uint8

const (
	// FormNone: not at all, or in a way that this package does not know.
	FormNone Form = iota
	// FormJSON is Qwen's, Hermes' and others':
	//
	//	<tool_call>
	//	{"name": "add", "arguments": {"a": 1, "b": 2}}
	//	</tool_call>
	FormJSON
	// FormCoder is Qwen3-Coder's and Qwen3.5's. A value is text, whose type
	// the tool's schema says:
	//
	//	<tool_call>
	//	<function=add>
	//	<parameter=a>
	//	1
	//	</parameter>
	//	<parameter=b>
	//	2
	//	</parameter>
	//	</function>
	//	</tool_call>
	FormCoder
)

// String is the form's name: "none", "json" or "coder".
func (f Form) String() string {
	switch f {
	case FormJSON:
		return "json"
	case FormCoder:
		return "coder"
	}
	return "none"
}

// The literal text of calls.
const (
	callOpen       = "<tool_call>"
	callClose      = "</tool_call>"
	functionOpen   = "<function="
	functionClose  = "</function>"
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"
)

// jsonCall finds the key of a call's name in a template's text, where its
// quotes may be escaped.
var jsonCall = regexp.MustCompile(`\\?"name\\?"\s*:`)

// FormOf returns the form that a chat template, a Jinja source, asks its model
// for. Other forms that begin calls with <tool_call>, such as GLM's with
// <arg_key>, are none.
func FormOf(template string) Form {
	has := func(s string) bool { return strings.Contains(template, s) }
	switch {
	case !has(callOpen) || has("<arg_key>"):
		return FormNone
	case has(functionOpen) && has(parameterOpen):
		return FormCoder
	case jsonCall.MatchString(template) && has("arguments"):
		return FormJSON
	}
	return FormNone
}

// Syntax is the literal text of a form, as chat templates write it: a call is
//
//	Open + BeforeName + name + AfterName + ARGUMENTS + AfterArguments + Close
//
// where ARGUMENTS is a JSON object (Key is empty), or for each argument
//
//	Key + key + AfterKey + value + AfterValue
//
// The parser takes other white space between tags, too. A grammar that is to
// hold a model to its tools begins where Open was generated; one that forces a
// call begins with Open, after [ThinkClose] where the model thinks, and one that
// forces a call of a given name with [Form.Force].
type Syntax struct {
	Open           string // one token in Qwen's vocabularies; begins a call wherever it stands in content
	BeforeName     string
	AfterName      string
	Key            string
	AfterKey       string
	AfterValue     string
	AfterArguments string
	Close          string // one token in Qwen's vocabularies
	Between        string // between two calls
	// JSONName: the name stands in a JSON string, so it is escaped as one.
	JSONName bool
}

// Syntax returns the form's literal text; of FormNone, nothing.
func (f Form) Syntax() Syntax {
	switch f {
	case FormJSON:
		return Syntax{
			Open: callOpen, BeforeName: "\n{\"name\": \"", AfterName: "\", \"arguments\": ",
			AfterArguments: "}\n", Close: callClose, Between: "\n", JSONName: true,
		}
	case FormCoder:
		return Syntax{
			Open: callOpen, BeforeName: "\n" + functionOpen, AfterName: ">\n",
			Key: parameterOpen, AfterKey: ">\n", AfterValue: "\n" + parameterClose + "\n",
			AfterArguments: functionClose + "\n", Close: callClose, Between: "\n",
		}
	}
	return Syntax{}
}

// Force returns the text that makes a model call the function of that name:
// what comes next are the arguments. It is "" for FormNone.
func (f Form) Force(name string) string {
	if f == FormNone {
		return ""
	}
	s := f.Syntax()
	if s.JSONName {
		quoted := appendString(nil, name)
		name = string(quoted[1 : len(quoted)-1])
	}
	return s.Open + s.BeforeName + name + s.AfterName
}

// openers lists what begins a call in content. The coder models leave out
// <tool_call> at times; then only the name of a known tool makes it a call.
func openers(f Form, tools []tool) []string {
	switch f {
	case FormJSON:
		return []string{callOpen}
	case FormCoder:
		list := []string{callOpen}
		for _, t := range tools {
			if isName(t.name) {
				list = append(list, functionOpen+t.name+">")
			}
		}
		return list
	}
	return nil
}

// maxName bounds names in tags, in bytes: what is longer is no tag.
const maxName = 256

// isName reports whether s can stand in a tag.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsAny(s, "<>\n")
}

// stepOpen looks for what must follow <tool_call>.
func (p *Parser) stepOpen(b byte) bool {
	switch {
	case len(p.coder.literal) == 0 && isSpace(b):
		p.raw = append(p.raw, b)
		return true
	case p.form == FormCoder:
		return p.stepCoder(b)
	case b == '{':
		p.state = inJSON
		return false
	}
	p.broken()
	return false
}
