package server

import (
	"bytes"
	"encoding/json"
)

// What a request's body consists of is cut from it without being read again: the whole
// was found to be valid JSON before.

// items are the values of a list; ok reports whether it is one.
func items(valid json.RawMessage) (list []json.RawMessage, ok bool) {
	rest := trimLeft(valid)
	if len(rest) == 0 || rest[0] != '[' {
		return nil, false
	}
	list = []json.RawMessage{}
	for rest = trimLeft(rest[1:]); len(rest) > 0 && rest[0] != ']'; rest = trimComma(rest) {
		n := valueEnd(rest)
		if n == 0 {
			return nil, false
		}
		list, rest = append(list, rest[:n:n]), rest[n:]
	}
	return list, true
}

// members are the members of an object, the last of those of one name; ok reports
// whether it is one.
func members(valid json.RawMessage) (all map[string]json.RawMessage, ok bool) {
	rest := trimLeft(valid)
	if len(rest) == 0 || rest[0] != '{' {
		return nil, false
	}
	all = map[string]json.RawMessage{}
	for rest = trimLeft(rest[1:]); len(rest) > 0 && rest[0] != '}'; rest = trimComma(rest) {
		n := valueEnd(rest)
		name, isText := textOf(rest[:n])
		rest = trimLeft(rest[n:])
		if n == 0 || !isText || len(rest) == 0 || rest[0] != ':' {
			return nil, false
		}
		rest = trimLeft(rest[1:])
		if n = valueEnd(rest); n == 0 {
			return nil, false
		}
		all[name], rest = rest[:n:n], rest[n:]
	}
	return all, true
}

func trimLeft(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

func trimComma(b []byte) []byte {
	if b = trimLeft(b); len(b) > 0 && b[0] == ',' {
		b = trimLeft(b[1:])
	}
	return b
}

// valueEnd is where the value ends that a valid text begins with.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = textEnd(b, i)
			if depth == 0 {
				return min(i+1, len(b))
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 { // of what holds the value
				return i
			}
		case ',', ' ', '\t', '\r', '\n', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}

// textEnd is where the closing quotation mark of a string is that begins at i.
func textEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		slashes := 0
		for end := i + n; slashes < n && b[end-1-slashes] == '\\'; slashes++ {
		}
		if i += n; slashes%2 == 0 {
			return i
		}
	}
	return i
}
