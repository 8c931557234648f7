package answer

import (
	"encoding/json"
	"strings"
)

// object reads the object of a FormJSON call: "name", and "arguments" or, as
// some models have it, "parameters"; other keys are ignored. Arguments are an
// object, a string that holds one, or null for none.
type object struct {
	scan  scanner
	from  int    // where in Parser.raw the current key or value begins
	key   string // of the current value, at the object's first level
	named bool   // there was a name

	arguments argumentsKind
	argsFrom  int // what Parser.raw has of an argumentsObject
	argsTo    int // 0: it still grows
	sent      int // bytes of Parser.raw up to here are given out
	text      string
}

type argumentsKind uint8

const (
	noArguments     argumentsKind = iota
	emptyArguments                // null, or a key without its value yet
	argumentsObject               // given out as it is generated
	argumentsString               // given out when it ends
)

// stepJSON takes a byte of the object. What cannot be part of a call breaks it,
// before that byte; a key or a value that is no part of one, after it.
func (p *Parser) stepJSON(b byte) bool {
	o := &p.object
	before, depth := o.scan.state, len(o.scan.nest)
	atValue := depth == 1 && before == wantValue && !isSpace(b)
	if atValue && !o.mayBegin(b) || !o.scan.step(b) {
		p.broken()
		return false
	}
	p.raw = append(p.raw, b)
	end := len(p.raw)
	ok := true
	switch {
	case atValue:
		o.beginValue(b, end-1)
	case depth == 1 && b == '"' && o.scan.key && before != inString && before != inEscape:
		o.from = end - 1
	case depth == 1 && before == inString && b == '"' && o.scan.key:
		ok = o.endKey(p.raw[o.from:])
	case depth == 1 && before == inString && b == '"':
		ok = p.endString(p.raw[o.from:])
	case depth == 2 && len(o.scan.nest) == 1 && o.arguments == argumentsObject && o.argsTo == 0:
		o.argsTo = end
	case depth == 1 && len(o.scan.nest) == 0:
		ok = o.named
	}
	if !ok {
		p.broken()
		return true
	}
	p.giveArguments()
	if len(o.scan.nest) == 0 {
		if !p.call.begun {
			p.beginCall()
		}
		if o.arguments < argumentsObject {
			p.emit(Arguments, "{}")
		}
		p.endCall()
	}
	return true
}

// mayBegin reports whether the value of the current key may begin with b.
func (o *object) mayBegin(b byte) bool {
	switch o.key {
	case "name":
		return b == '"'
	case "arguments", "parameters":
		return b == '{' || b == '"' || b == 'n'
	}
	return true
}

func (o *object) beginValue(b byte, at int) {
	o.from = at
	if o.key == "arguments" || o.key == "parameters" {
		switch b {
		case '{':
			o.arguments, o.argsFrom, o.sent = argumentsObject, at, at
		case '"':
			o.arguments = argumentsString
		}
	}
}

// endKey takes a key with its quotes. A call has one name and one value for its
// arguments.
func (o *object) endKey(quoted []byte) bool {
	o.key = ""
	json.Unmarshal(quoted, &o.key)
	switch o.key {
	case "name":
		ok := !o.named
		o.named = true
		return ok
	case "arguments", "parameters":
		ok := o.arguments == noArguments
		o.arguments = emptyArguments
		return ok
	}
	return true
}

// endString takes a string at the object's first level, with its quotes.
func (p *Parser) endString(quoted []byte) bool {
	var s string
	switch p.object.key {
	case "name":
		json.Unmarshal(quoted, &s)
		p.call.name = s
		return s != ""
	case "arguments", "parameters":
		json.Unmarshal(quoted, &s)
		if s = strings.Trim(s, space); s == "" {
			s = "{}"
		}
		p.object.text = s
		return isObject(s)
	}
	return true
}

// giveArguments gives out what there is of the arguments, once the name is known.
func (p *Parser) giveArguments() {
	o := &p.object
	ready := o.arguments == argumentsObject || o.text != ""
	if p.call.name == "" || !ready {
		return
	}
	if !p.call.begun {
		p.beginCall()
	}
	if o.text != "" {
		p.emit(Arguments, o.text)
		o.text = ""
		return
	}
	if o.arguments == argumentsObject {
		to := o.argsTo
		if to == 0 {
			to = len(p.raw)
		}
		p.emit(Arguments, string(p.raw[o.sent:to]))
		o.sent = to
	}
}

// isObject reports whether s is one JSON object.
func isObject(s string) bool {
	return strings.HasPrefix(strings.TrimLeft(s, space), "{") && json.Valid([]byte(s))
}
