package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of a request.
const (
	maxBody     = 8 << 20
	maxDepth    = 64
	maxMessages = 4096
	maxTools    = 256
	maxChoices  = 16
	maxStops    = 16
	maxBiases   = 4096
	bodyTime    = 60 * time.Second
)

// fields is a JSON object whose members are taken by name; it keeps the first error.
// A member that is null is absent.
type fields struct {
	path    string // how errors name the object: "" or "messages[3]."
	members map[string]json.RawMessage
	taken   map[string]bool
	err     error
}

// readFields reads a request's body: one JSON object, UTF-8, of bounded size and depth.
func readFields(w http.ResponseWriter, r *http.Request) (*fields, error) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTime)) // where there are none, there is nobody to wait for
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), 1<<16)) + bytes.MinRead) // what is said may be a lie
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, err
		}
		return nil, newError(http.StatusBadRequest, typeInvalid, codeValue, "the body could not be read")
	}
	// A deadline that passes later would end the request as if its client had gone.
	control.SetReadDeadline(time.Time{})
	return parseFields(body.Bytes())
}

func parseFields(data []byte) (*fields, error) {
	bad := func(format string, args ...any) error {
		return newError(http.StatusBadRequest, typeInvalid, codeValue, "the body "+format, args...)
	}
	if !utf8.Valid(data) {
		return nil, bad("is not UTF-8")
	}
	if depth(data) > maxDepth {
		return nil, bad("is nested more than %d deep", maxDepth)
	}
	if !json.Valid(data) {
		var syntax *json.SyntaxError
		errors.As(json.Unmarshal(data, new(any)), &syntax)
		return nil, bad("is no JSON: byte %d: %v", syntax.Offset, syntax)
	}
	all, ok := members(data)
	if !ok {
		return nil, bad("is no JSON object")
	}
	return &fields{taken: map[string]bool{}, members: all}, nil
}

// depth is how deep brackets are nested in a JSON text.
func depth(data []byte) (most int) {
	now := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = textEnd(data, i)
		case '{', '[':
			now++
			most = max(most, now)
		case '}', ']':
			now--
		}
	}
	return most
}

// object reads a member's fields; nil where it is absent.
func (f *fields) object(name string) *fields {
	raw := f.raw(name)
	if raw == nil {
		return nil
	}
	return f.nested(name, raw)
}

// nested reads the fields of a value, whose errors are f's.
func (f *fields) nested(name string, raw json.RawMessage) *fields {
	sub := &fields{path: f.path + name + ".", taken: map[string]bool{}}
	var ok bool
	if sub.members, ok = members(raw); !ok {
		f.fail(badValue(f.path+name, "want an object"))
		sub.members = map[string]json.RawMessage{}
	}
	return sub
}

// join takes what a nested object's fields found wrong.
func (f *fields) join(sub *fields) {
	if sub != nil && sub.err != nil {
		f.fail(sub.err)
	}
}

// raw is a member's text; nil where it is absent.
func (f *fields) raw(name string) json.RawMessage {
	raw, there := f.members[name]
	if !there {
		return nil
	}
	f.taken[name] = true
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func (f *fields) has(name string) bool { return f.raw(name) != nil }

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// bad notes that a member is not what it must be.
func (f *fields) bad(name, format string, args ...any) {
	f.fail(badValue(f.path+name, format, args...))
}

func (f *fields) text(name string) string {
	raw := f.raw(name)
	if raw == nil {
		return ""
	}
	s, ok := textOf(raw)
	if !ok {
		f.bad(name, "want a string")
	}
	return s
}

// textOf is the string that valid JSON is. One without escapes, as most long ones are,
// need not be read again.
func textOf(raw json.RawMessage) (s string, ok bool) {
	if n := len(raw); n >= 2 && raw[0] == '"' && raw[n-1] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : n-1]), true
	}
	ok = json.Unmarshal(raw, &s) == nil
	return s, ok
}

// optional is a text; nil where it is absent.
func (f *fields) optional(name string) *string {
	if !f.has(name) {
		return nil
	}
	s := f.text(name)
	return &s
}

func (f *fields) boolean(name string) *bool {
	raw := f.raw(name)
	if raw == nil {
		return nil
	}
	var b bool
	if json.Unmarshal(raw, &b) != nil {
		f.bad(name, "want true or false")
	}
	return &b
}

func (f *fields) isTrue(name string) bool {
	b := f.boolean(name)
	return b != nil && *b
}

// integer reads a whole number within bounds; nil where it is absent.
func (f *fields) integer(name string, low, high int) *int {
	raw := f.raw(name)
	if raw == nil {
		return nil
	}
	// Some clients write 100.0.
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || x != math.Trunc(x) || x < float64(low) || x > float64(high) {
		f.bad(name, "%s: want a whole number from %d to %d", short(raw), low, high)
		return nil
	}
	n := int(x)
	return &n
}

// number reads a number within bounds; nil where it is absent.
func (f *fields) number(name string, low, high float64) *float32 {
	raw := f.raw(name)
	if raw == nil {
		return nil
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(x >= low && x <= high) {
		f.bad(name, "%s: want a number from %g to %g", short(raw), low, high)
		return nil
	}
	v := float32(x)
	return &v
}

// list reads the values of a list, of at most that many; nil where it is absent.
func (f *fields) list(name string, most int) []json.RawMessage {
	raw := f.raw(name)
	if raw == nil {
		return nil
	}
	list, ok := items(raw)
	if !ok {
		f.bad(name, "want a list")
		return nil
	}
	if len(list) > most {
		f.bad(name, "%d of them: want at most %d", len(list), most)
		return nil
	}
	return list
}

// unknown are the members that nobody asked for, in order.
func (f *fields) unknown() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		if !f.taken[name] {
			names = append(names, name)
		}
	}
	return names
}

// short is a value as it may stand in a message.
func short(raw json.RawMessage) string {
	const most = 40
	raw = bytes.TrimSpace(raw)
	if len(raw) <= most {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw[:most]), "") + "…"
}

// index names an item of a list.
func index(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }
