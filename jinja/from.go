package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
)

// Dict is a dictionary of Go's side: its keys keep the order in which they
// were set. The zero value is empty.
type Dict struct {
	keys   []string
	values []any
	at     map[string]int
}

// Set gives a key a value. A key set before keeps its place.
func (d *Dict) Set(key string, v any) {
	if i, ok := d.at[key]; ok {
		d.values[i] = v
		return
	}
	if d.at == nil {
		d.at = make(map[string]int)
	}
	d.at[key] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, v)
}

// fromGo makes a value of a variable: nil, bool, int, int64, float64,
// json.Number, string, []any and *Dict of them.
func (ev *evaluator) fromGo(v any, depth int) value {
	ev.deep(depth)
	switch v := v.(type) {
	case nil:
		return none
	case bool, int64, float64:
		return v
	case int:
		return int64(v)
	case string:
		return validText(v)
	case json.Number:
		i, ok := new(big.Int).SetString(string(v), 10)
		if !ok || len(v) > maxDigits {
			fail("%s is no number", quote(string(v)))
		}
		return fromBig(i)
	case []any:
		l := ev.newList(len(v))
		for _, item := range v {
			l.items = append(l.items, ev.fromGo(item, depth+1))
		}
		return l
	case *Dict:
		d := &dict{}
		for i, key := range v.keys {
			d.set(ev, validText(key), ev.fromGo(v.values[i], depth+1))
		}
		return d
	}
	fail("a variable of type %T is not supported", v)
	return nil
}

// jsonDepth bounds lists and objects within each other.
const jsonDepth = 100

// FromJSON reads JSON into what Render takes, with the keys of objects in
// order; a key given twice keeps its first place and its last value, as in
// Python. Empty input is nil. Each string, keys too, goes through onText where
// that is not nil.
func FromJSON(raw []byte, onText func(string) string) (any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	if onText == nil {
		onText = func(s string) string { return s }
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := nextJSON(d, 0, onText)
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

func nextJSON(d *json.Decoder, depth int, onText func(string) string) (any, error) {
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
		return jsonNumber(token)
	case json.Delim:
		if token == '[' {
			l := []any{}
			for d.More() {
				v, err := nextJSON(d, depth+1, onText)
				if err != nil {
					return nil, err
				}
				l = append(l, v)
			}
			_, err := d.Token()
			return l, err
		}
		dict := &Dict{}
		for d.More() {
			token, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, ok := token.(string)
			if !ok {
				return nil, fmt.Errorf("%v is not a key", token)
			}
			v, err := nextJSON(d, depth+1, onText)
			if err != nil {
				return nil, err
			}
			dict.Set(onText(key), v)
		}
		_, err := d.Token()
		return dict, err
	}
	return token, nil // bool, nil
}

// jsonNumber keeps whole numbers whole, as Python does.
func jsonNumber(n json.Number) (any, error) {
	if !strings.ContainsAny(string(n), ".eE") {
		if i, err := n.Int64(); err == nil {
			return i, nil
		}
		if len(n) > maxDigits {
			return nil, fmt.Errorf("a number has more than %d digits", maxDigits)
		}
		return n, nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %.40s is out of range", n)
	}
	return f, nil
}
