package answer

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// value turns the text of a FormCoder parameter into JSON. A string is given
// out as it comes; another type when its end is known, since text that is not
// of the type becomes a string.
type value struct {
	types types
	mode  valueMode
	text  []byte // what is not given out yet

	started bool // a byte came: a first newline is layout
	filled  bool // text came
	newline bool // a newline that is layout if the value ends here
}

type valueMode uint8

const (
	asString     valueMode = iota
	perhapsNull            // a string, unless all of it is null
	untilItsEnd            // another type
	stringToOpen           // a string whose quote is not out yet
)

func newValue(t types) value {
	v := value{types: t, mode: stringToOpen}
	switch {
	case t&^(typeString|typeNull) != 0, t == typeNull:
		v.mode = untilItsEnd
	case t&typeNull != 0:
		v.mode = perhapsNull
	}
	return v
}

// atLine reports whether the value's text so far ends at the beginning of a line.
func (v *value) atLine() bool { return v.newline || !v.filled }

// add takes a byte and returns JSON.
func (v *value) add(b byte) (out string) {
	first := !v.started
	v.started = true
	if b == '\n' {
		if first {
			return ""
		}
		if v.newline {
			return v.take('\n')
		}
		v.newline = true
		return ""
	}
	if v.newline {
		v.newline = false
		out = v.take('\n')
	}
	return out + v.take(b)
}

// take takes a byte that is surely of the value.
func (v *value) take(b byte) string {
	v.filled = true
	if v.mode == untilItsEnd {
		v.text = append(v.text, b)
		return ""
	}
	if v.mode == perhapsNull {
		v.text = append(v.text, b)
		if mayBeNull(v.text) {
			return ""
		}
		return v.open()
	}
	if v.mode == stringToOpen {
		v.mode = asString
		return `"` + string(appendEscaped(nil, b))
	}
	return string(appendEscaped(nil, b))
}

// open begins the string, with what was held of it.
func (v *value) open() string {
	out := []byte{'"'}
	for _, b := range v.text {
		out = appendEscaped(out, b)
	}
	v.mode, v.text = asString, nil
	return string(out)
}

// end ends the value and returns the rest of its JSON.
func (v *value) end() string {
	text := string(v.text)
	switch v.mode {
	case untilItsEnd:
		return convert(text, v.types)
	case perhapsNull:
		if isNull(text) {
			return "null"
		}
		return v.open() + `"`
	case stringToOpen:
		return `""`
	}
	return `"`
}

// cut returns what is known of a value whose end never came: of a string, all
// of it.
func (v *value) cut() (out string) {
	if v.newline {
		v.newline = false
		out = v.take('\n')
	}
	if v.mode == perhapsNull || v.mode == stringToOpen {
		out += v.open()
	}
	return out
}

// mayBeNull reports whether s is the beginning of null or None.
func mayBeNull(s []byte) bool {
	low := strings.ToLower(string(s))
	return strings.HasPrefix("null", low) || strings.HasPrefix("none", low)
}

// isNull reports whether s is how JSON or Python writes null. The templates of
// these models print Python's None.
func isNull(s string) bool {
	return strings.EqualFold(s, "null") || strings.EqualFold(s, "none")
}

// convert returns the JSON of a whole value: of the first of null, number,
// boolean, object and array that is among t and that the text is; else a
// string. A number stays as it is written.
func convert(text string, t types) string {
	bare := strings.Trim(text, space)
	switch {
	case isNull(bare) && (t&typeNull != 0 || t != 0 && t&typeString == 0):
		return "null"
	case t&typeNumber != 0 && isNumber(bare):
		return bare
	case t&typeBoolean != 0 && (strings.EqualFold(bare, "true") || strings.EqualFold(bare, "false")):
		return strings.ToLower(bare)
	case t&typeObject != 0 && strings.HasPrefix(bare, "{") && json.Valid([]byte(bare)),
		t&typeArray != 0 && strings.HasPrefix(bare, "[") && json.Valid([]byte(bare)):
		return bare
	}
	return string(appendString(nil, text))
}

func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || '0' <= s[0] && s[0] <= '9') && json.Valid([]byte(s))
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	dst = append(dst, '"')
	for i := range len(s) {
		dst = appendEscaped(dst, s[i])
	}
	return append(dst, '"')
}

// appendEscaped appends a byte of a JSON string. What need not be escaped is
// not, since clients show what they get.
func appendEscaped(dst []byte, b byte) []byte {
	const hex = "0123456789abcdef"
	switch b {
	case '"', '\\':
		return append(dst, '\\', b)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if b < ' ' {
		return append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
	}
	return append(dst, b)
}
