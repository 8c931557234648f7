package answer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"windrow/answer"
)

// This file says what a whole text means, written apart from the parser and in
// other ways: regular expressions, encoding/json, and no state between bytes.

// testTools are the tools of all tests; kinds has the types of their arguments.
const testTools = `[
	{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
		"a": {"type": "integer"},
		"b": {"type": "number"},
		"flag": {"type": "boolean"},
		"note": {"type": "string"},
		"maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
		"point": {"$ref": "#/$defs/Point"},
		"list": {"type": ["array", "null"]},
		"free": {}}, "$defs": {"Point": {"properties": {"x": {"type": "number"}}}}}}},
	{"type": "function", "function": {"name": "now"}}]`

var kinds = map[string]string{"a": "number", "b": "number", "flag": "boolean", "maybe": "maybe", "point": "object", "list": "array", "note": "string", "free": "string"}

// item is a stretch of content, or a call.
type item struct {
	text string
	call *refCall
}

type refCall struct {
	name, arguments    string
	begun, broken, cut bool
	end                int // in the text: behind the call, or where it breaks
	closed             bool
}

func reference(text string, how answer.Ending, o answer.Options) []answer.Event {
	text = string([]rune(text))
	var events []answer.Event
	add := func(e answer.Event) {
		if e.Text != "" || e.Kind != answer.Content && e.Kind != answer.Reasoning && e.Kind != answer.Arguments {
			events = append(events, e)
		}
	}
	if o.Thinking != answer.ThinkingOff {
		tag := regexp.MustCompile(`^[ \t\r\n]*<think>`).FindString(text)
		if tag != "" || o.Thinking == answer.ThinkingOpened {
			reasoning, rest, closed := strings.Cut(text[len(tag):], "</think>")
			reasoning = strings.TrimLeft(reasoning, "\n")
			if closed {
				reasoning = strings.TrimRight(reasoning, "\n")
			}
			add(answer.Event{Kind: answer.Reasoning, Text: reasoning})
			text = strings.TrimLeft(rest, "\n")
		}
	}
	items := []item{{text: text}}
	if o.Form != answer.FormNone {
		items = refItems(text, how, o.Form)
	}
	items, stop := cutAtStop(items, o.Stop)

	index, made := 0, 0
	blank, touched, some := "", false, false
	words := regexp.MustCompile(`[ \t\r\n]+|[^ \t\r\n]+`)
	for _, it := range items {
		if c := it.call; c != nil && c.begun {
			add(answer.Event{Kind: answer.CallBegin, Index: index, ID: fmt.Sprint("id", index), Name: c.name})
			if c.broken {
				add(answer.Event{Kind: answer.CallBroken, Index: index})
			} else {
				add(answer.Event{Kind: answer.Arguments, Index: index, Text: c.arguments})
				add(answer.Event{Kind: answer.CallEnd, Index: index, Cut: c.cut})
				touched = true
				if !c.cut {
					made++
				}
			}
			index++
		}
		for _, w := range words.FindAllString(it.text, -1) {
			if strings.Trim(w, " \t\r\n") == "" {
				blank += w
				continue
			}
			if touched && !some {
				blank = ""
			}
			add(answer.Event{Kind: answer.Content, Text: blank + w})
			blank, touched, some = "", false, true
		}
	}
	if !touched {
		add(answer.Event{Kind: answer.Content, Text: blank})
	}
	reason := answer.ReasonStop
	if how == answer.Limit && stop == "" {
		reason = answer.ReasonLength
	} else if made > 0 {
		reason = answer.ReasonToolCalls
	}
	add(answer.Event{Kind: answer.Finish, Reason: reason, Stop: stop})
	return merge(events)
}

// cutAtStop cuts at the first place where a stop string ends; of those that end
// there, the longest is cut.
func cutAtStop(items []item, stops []string) ([]item, string) {
	for i, it := range items {
		for end := range len(it.text) + 1 {
			found := ""
			for _, s := range stops {
				if strings.HasSuffix(it.text[:end], s) && len(s) > len(found) {
					found = s
				}
			}
			if found != "" {
				items[i].text = it.text[:end-len(found)]
				return items[:i+1], found
			}
		}
	}
	return items, ""
}

func refItems(s string, how answer.Ending, form answer.Form) (items []item) {
	opener := regexp.MustCompile(`^<tool_call>`)
	if form == answer.FormCoder {
		opener = regexp.MustCompile(`^(<tool_call>|<function=(add|now)>)`)
	}
	current := item{}
	push := func(next item) {
		items = append(items, current)
		current = next
	}
	closing, adjacent := false, false
	for i := 0; i < len(s); {
		open := opener.FindString(s[i:])
		switch {
		case closing && strings.HasPrefix(s[i:], "</tool_call>"):
			push(item{})
			closing, adjacent = false, false
			i += len("</tool_call>")
			continue
		case open == "" && !(adjacent && form == answer.FormJSON && s[i] == '{'):
			current.text += s[i : i+1]
			adjacent = adjacent && strings.ContainsAny(s[i:i+1], " \t\r\n")
			i++
			continue
		}
		var c refCall
		switch {
		case form == answer.FormJSON:
			c = refJSON(s, i+len(open))
		default:
			c = refCoder(s, i, how)
		}
		if c.end < 0 { // the text ends inside
			c.end = len(s)
			c.cut = c.begun && how == answer.Limit
			c.broken = !c.cut
		}
		if c.broken {
			push(item{text: s[i:c.end], call: &c})
		} else {
			push(item{call: &c})
		}
		closing = !c.broken && !c.closed
		adjacent = closing
		i = c.end
	}
	push(item{})
	return items
}

func skip(s string, i int) int { return len(s) - len(strings.TrimLeft(s[i:], " \t\r\n")) }

func refJSON(s string, i int) (c refCall) {
	c.end = -1
	if i = skip(s, i); i == len(s) {
		return c
	}
	if s[i] != '{' {
		return refCall{broken: true, end: i}
	}
	// How far the text goes on as JSON.
	var raw json.RawMessage
	d := json.NewDecoder(strings.NewReader(s[i:]))
	err := d.Decode(&raw)
	var syntax *json.SyntaxError
	object, whole, wrong := s[i:], false, -1
	switch {
	case err == nil:
		object, whole = s[i:i+int(d.InputOffset())], true
	case errors.As(err, &syntax):
		wrong = int(syntax.Offset) - 1
		object = object[:wrong]
	}
	// What its first level means.
	var arguments *string
	ready := func() { c.begun = c.begun || c.name != "" && arguments != nil }
	breaks := func(at int) refCall { return refCall{name: c.name, begun: c.begun, broken: true, end: i + at} }
	seen := map[string]bool{}
	d = json.NewDecoder(strings.NewReader(object))
	d.Token()
	for {
		token, err := d.Token()
		if err != nil {
			break
		}
		key, isKey := token.(string)
		if !isKey {
			break
		}
		kind := strings.Replace(key, "parameters", "arguments", 1)
		if key != "parameters" {
			kind = key
		}
		if seen[kind] && (kind == "name" || kind == "arguments") {
			return breaks(int(d.InputOffset()))
		}
		seen[kind] = true
		colon := skip(object, int(d.InputOffset()))
		if colon == len(object) {
			break
		}
		at := skip(object, colon+1)
		if at == len(object) {
			break
		}
		first := object[at]
		if kind == "name" && first != '"' || kind == "arguments" && !strings.ContainsRune(`{"n`, rune(first)) {
			return breaks(at)
		}
		if kind == "arguments" && first == '{' {
			rest := object[at:]
			arguments = &rest
			ready()
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			break
		}
		var text string
		json.Unmarshal(value, &text)
		switch {
		case kind == "name":
			if c.name = text; text == "" {
				return breaks(int(d.InputOffset()))
			}
		case kind == "arguments" && first == '"':
			text = strings.Trim(text, " \t\r\n")
			if text == "" {
				text = "{}"
			}
			if text[0] != '{' || !json.Valid([]byte(text)) {
				return breaks(int(d.InputOffset()))
			}
			arguments = &text
		case kind == "arguments" && first == '{':
			text = object[at:d.InputOffset()]
			arguments = &text
		}
		ready()
	}
	switch {
	case wrong >= 0:
		return breaks(wrong)
	case whole && c.name == "":
		return breaks(len(object))
	case whole:
		c.begun, c.end = true, i+len(object)
		if arguments == nil {
			c.arguments = "{}"
		}
	}
	if arguments != nil {
		c.arguments = *arguments
	}
	return c
}

// tags returns which of tags s begins with, or how far it begins with one.
func tags(s string, tags ...string) (which string, far int) {
	for _, t := range tags {
		if strings.HasPrefix(s, t) {
			return t, len(t)
		}
		n := 0
		for n < len(s) && s[n] == t[n] {
			n++
		}
		far = max(far, n)
	}
	return "", far
}

// refName reads a name up to '>'; end is where it breaks if !ok, -1 at the end
// of the text.
func refName(s string, i int) (name string, end int, ok bool) {
	// Bytes count, not characters.
	n := 0
	for n < 256 && i+n < len(s) && !strings.ContainsRune("<>\n", rune(s[i+n])) {
		n++
	}
	switch {
	case i+n == len(s):
		return "", -1, false
	case n > 0 && s[i+n] == '>':
		return s[i : i+n], i + n + 1, true
	}
	return "", i + n, false
}

var (
	parameterEnds = regexp.MustCompile(`^</parameter>[ \t\r\n]{0,64}(<parameter=|</function>|</tool_call>)`)
	functionEnds  = regexp.MustCompile(`^</function>[ \t\r\n]{0,64}</tool_call>`)
	atTextsEnd    = regexp.MustCompile(`^</(parameter|function)>[ \t\r\n]{0,64}([^ \t\r\n].*)?$`)
	nextParameter = regexp.MustCompile(`^<parameter=([^<>\n]+)>`)
)

func refCoder(s string, i int, how answer.Ending) (c refCall) {
	if strings.HasPrefix(s[i:], "<tool_call>") {
		i = skip(s, i+len("<tool_call>"))
	}
	fail := func(at int) refCall {
		c.broken, c.end = true, at
		if at == len(s) {
			c.broken, c.end = false, -1
		}
		return c
	}
	which, far := tags(s[i:], "<function=")
	if which == "" {
		return fail(i + far)
	}
	name, at, ok := refName(s, i+far)
	if !ok {
		if at < 0 {
			at = len(s)
		}
		return fail(at)
	}
	c.name, c.begun, c.arguments = name, true, "{"
	given := map[string]bool{}
	for i = at; ; {
		i = skip(s, i)
		if i == len(s) {
			if how == answer.Limit {
				return fail(i)
			}
			c.arguments += "}"
			c.end = i
			return c
		}
		which, far := tags(s[i:], "<parameter=", "</function>", "</tool_call>")
		switch which {
		case "":
			return fail(i + far)
		case "</function>", "</tool_call>":
			c.arguments += "}"
			c.end = i + far
			c.closed = which == "</tool_call>"
			return c
		}
		key, at, ok := refName(s, i+far)
		if !ok {
			if at < 0 {
				at = len(s)
			}
			return fail(at)
		}
		if len(given) > 0 {
			c.arguments += ","
		}
		given[key] = true
		c.arguments += refString(key) + ":"
		kind := kinds[key]
		if c.name != "add" || kind == "" {
			kind = "string"
		}
		text, next, ok := refValue(s, at, c.name, given)
		if !ok {
			if text = strings.TrimPrefix(text, "\n"); kind == "string" || kind == "maybe" {
				c.arguments += strings.TrimSuffix(refString(text), `"`)
			}
			return fail(len(s))
		}
		text = strings.TrimSuffix(strings.TrimPrefix(text, "\n"), "\n")
		c.arguments += refConvert(text, kind)
		i = next
	}
}

func refValue(s string, from int, function string, given map[string]bool) (text string, next int, ok bool) {
	for i := from; i < len(s); i++ {
		rest := s[i:]
		if rest[0] != '<' {
			continue
		}
		if parameterEnds.MatchString(rest) {
			return s[from:i], i + len("</parameter>"), true
		}
		if functionEnds.MatchString(rest) {
			return s[from:i], i, true
		}
		if m := atTextsEnd.FindStringSubmatch(rest); m != nil {
			follow := []string{"</tool_call>"}
			if m[1] == "parameter" {
				follow = append(follow, "<parameter=", "</function>")
			}
			for _, f := range follow {
				if strings.HasPrefix(f, m[2]) {
					if m[1] == "parameter" {
						return s[from:i], i + len("</parameter>"), true
					}
					return s[from:i], i, true
				}
			}
		}
		if m := nextParameter.FindStringSubmatch(rest); m != nil && (i == from || s[i-1] == '\n') {
			if function == "add" && kinds[m[1]] != "" && !given[m[1]] {
				return s[from:i], i, true
			}
		}
	}
	return s[from:], 0, false
}

// refString is encoding/json's form of a string, but for what it escapes for
// the sake of HTML and JavaScript, and what it names.
func refString(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '"', r == '\\':
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

func refConvert(text, kind string) string {
	if kind == "string" {
		return refString(text)
	}
	bare := strings.Trim(text, " \t\r\n")
	low := strings.ToLower(bare)
	if kind == "maybe" {
		if l := strings.ToLower(text); l == "null" || l == "none" {
			return "null"
		}
		return refString(text)
	}
	if low == "null" || low == "none" {
		return "null"
	}
	var v any
	if kind == "boolean" && (low == "true" || low == "false") {
		return low
	}
	if json.Unmarshal([]byte(bare), &v) != nil {
		// A number that no float64 holds is valid, too.
		if kind != "number" || !json.Valid([]byte(bare)) {
			return refString(text)
		}
		return bare
	}
	switch v.(type) {
	case float64:
		if kind == "number" {
			return bare
		}
	case map[string]any:
		if kind == "object" {
			return bare
		}
	case []any:
		if kind == "array" {
			return bare
		}
	}
	return refString(text)
}

// merge joins text events of one kind that follow each other, and takes out the
// arguments of calls that were taken back.
func merge(events []answer.Event) (out []answer.Event) {
	for _, e := range events {
		n := len(out)
		switch {
		case n > 0 && e.Text != "" && out[n-1].Kind == e.Kind && out[n-1].Index == e.Index:
			out[n-1].Text += e.Text
		case n > 0 && e.Kind == answer.CallBroken && out[n-1].Kind == answer.Arguments:
			out[n-1] = e
		default:
			out = append(out, e)
		}
	}
	return out
}
