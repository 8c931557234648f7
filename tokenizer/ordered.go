package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// JSON in and out of templates with the order of keys kept: tool descriptions
// are rendered into the prompt, and a model has seen them in Python's order
// and spelling.

// jsonDepth bounds lists and objects within each other.
const jsonDepth = 100

// decodeValue reads JSON into a template's values: *exec.Dict, list, string,
// int, float64, bool, nil. Empty input is nil. Each string goes through onText.
func decodeValue(raw json.RawMessage, onText func(string) string) (any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := nextValue(d, 0, onText)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not valid JSON: something follows the value")
	}
	return v, nil
}

func nextValue(d *json.Decoder, depth int, onText func(string) string) (any, error) {
	if depth > jsonDepth {
		return nil, fmt.Errorf("lists and objects are nested more than %d deep", jsonDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case string:
		return onText(token), nil
	case json.Number:
		return pythonNumber(token)
	case json.Delim:
		if token == '[' {
			l := list{}
			for d.More() {
				v, err := nextValue(d, depth+1, onText)
				if err != nil {
					return nil, err
				}
				l = append(l, v)
			}
			_, err := d.Token()
			return l, err
		}
		return nextDict(d, depth, onText)
	}
	return token, nil // bool, nil
}

// nextDict reads the rest of an object. A key given twice keeps its first
// place and its last value, as in Python.
func nextDict(d *json.Decoder, depth int, onText func(string) string) (any, error) {
	dict := exec.NewDict()
	at := make(map[string]int)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("%v is not a key", token)
		}
		key = onText(key)
		v, err := nextValue(d, depth+1, onText)
		if err != nil {
			return nil, err
		}
		if i, twice := at[key]; twice {
			dict.Pairs[i].Value = exec.AsValue(v)
			continue
		}
		at[key] = len(dict.Pairs)
		dict.Pairs = append(dict.Pairs, &exec.Pair{Key: exec.AsValue(key), Value: exec.AsValue(v)})
	}
	_, err := d.Token()
	return dict, err
}

// pythonNumber keeps whole numbers whole, as Python does. One that no int holds
// stays in its spelling.
func pythonNumber(n json.Number) (any, error) {
	if !strings.ContainsAny(string(n), ".eE") {
		if i, err := strconv.Atoi(string(n)); err == nil {
			return i, nil
		}
		return n, nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %.40s is out of range", n)
	}
	return f, nil
}

// filterToJSON is the tojson filter of transformers: Python's json.dumps with
// ensure_ascii=False, its separators and its floats, nothing escaped for HTML.
func filterToJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	w := jsonWriter{indent: -1}
	for name, v := range params.KwArgs {
		switch name {
		case "indent":
			if v.IsInteger() {
				w.indent = min(max(v.Integer(), 0), 16)
			}
		case "sort_keys":
			w.sorted = v.IsTrue()
		case "ensure_ascii", "separators":
		default:
			return exec.AsValue(fmt.Errorf("tojson has no argument %q", name))
		}
	}
	if err := w.value(in.Interface(), 0); err != nil {
		return exec.AsValue(fmt.Errorf("tojson: %w", err))
	}
	return exec.AsSafeValue(w.String())
}

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	strings.Builder
	indent int // spaces for each level; -1: all on one line
	sorted bool
}

func (w *jsonWriter) value(v any, depth int) error {
	if depth > jsonDepth {
		return fmt.Errorf("lists and objects are nested more than %d deep", jsonDepth)
	}
	switch v := v.(type) {
	case nil:
		w.WriteString("null")
	case bool:
		w.WriteString(strconv.FormatBool(v))
	case string:
		w.str(v)
	case int:
		w.WriteString(strconv.Itoa(v))
	case json.Number:
		w.WriteString(v.String())
	case float64:
		w.WriteString(pythonFloat(v))
	case *exec.Value:
		return w.value(v.Interface(), depth)
	case list:
		return w.list('[', ']', len(v), depth, func(i int) error { return w.value(v[i], depth+1) })
	case []any:
		return w.list('[', ']', len(v), depth, func(i int) error { return w.value(v[i], depth+1) })
	case []int:
		return w.list('[', ']', len(v), depth, func(i int) error { return w.value(v[i], depth+1) })
	case exec.ValuesList:
		return w.list('[', ']', len(v), depth, func(i int) error { return w.value(v[i], depth+1) })
	case *exec.Dict:
		return w.dict(v, depth)
	case exec.Dict:
		return w.dict(&v, depth)
	case map[string]any:
		keys := sortedKeys(v)
		return w.list('{', '}', len(keys), depth, func(i int) error {
			w.str(keys[i])
			w.WriteString(": ")
			return w.value(v[keys[i]], depth+1)
		})
	default:
		return fmt.Errorf("a %T cannot be written as JSON", v)
	}
	return nil
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func (w *jsonWriter) dict(d *exec.Dict, depth int) error {
	pairs := d.Pairs
	if w.sorted {
		pairs = append([]*exec.Pair(nil), pairs...)
		sort.SliceStable(pairs, func(i, j int) bool { return pairs[i].Key.String() < pairs[j].Key.String() })
	}
	return w.list('{', '}', len(pairs), depth, func(i int) error {
		w.str(pairs[i].Key.String())
		w.WriteString(": ")
		return w.value(pairs[i].Value, depth+1)
	})
}

// list writes n items between brackets.
func (w *jsonWriter) list(open, close byte, n, depth int, item func(int) error) error {
	w.WriteByte(open)
	for i := range n {
		switch {
		case w.indent >= 0 && i > 0:
			w.WriteByte(',')
		case i > 0:
			w.WriteString(", ")
		}
		w.line(depth + 1)
		if err := item(i); err != nil {
			return err
		}
	}
	if n > 0 {
		w.line(depth)
	}
	w.WriteByte(close)
	return nil
}

func (w *jsonWriter) line(depth int) {
	if w.indent >= 0 {
		w.WriteByte('\n')
		w.WriteString(strings.Repeat(" ", w.indent*depth))
	}
}

func (w *jsonWriter) str(s string) {
	w.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.WriteByte('\\')
			w.WriteRune(r)
		case r == '\n':
			w.WriteString(`\n`)
		case r == '\r':
			w.WriteString(`\r`)
		case r == '\t':
			w.WriteString(`\t`)
		case r == '\b':
			w.WriteString(`\b`)
		case r == '\f':
			w.WriteString(`\f`)
		case r < 0x20:
			fmt.Fprintf(w, `\u%04x`, r)
		default:
			w.WriteRune(r)
		}
	}
	w.WriteByte('"')
}

// pythonFloat is Python's repr of a float: shortest, with an exponent from
// 1e16 on and below 1e-4, and always a point or an exponent.
func pythonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	if a := math.Abs(f); a != 0 && (a >= 1e16 || a < 1e-4) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
