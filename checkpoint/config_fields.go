package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// fields reads typed values out of a JSON object. It keeps the first error,
// so that a reader can take all its fields and check once. A null counts as
// missing.
type fields struct {
	raw map[string]json.RawMessage
	err error
}

// required as a fallback makes a missing integer an error.
const required = math.MinInt

func parseFields(data []byte) (*fields, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	trimmed := bytes.TrimSpace(data)
	if len(trimmed) == 0 {
		return nil, errors.New("empty: want a JSON object")
	}
	if trimmed[0] != '{' {
		return nil, fmt.Errorf("found %s, want a JSON object", excerpt(trimmed))
	}
	f := &fields{}
	if err := json.Unmarshal(data, &f.raw); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return f, nil
}

// fail keeps the first error.
func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *fields) mismatch(name string, want string, args ...any) {
	f.fail("%s: found %s, want %s", name, excerpt(f.raw[name]), fmt.Sprintf(want, args...))
}

func (f *fields) has(name string) bool {
	raw, ok := f.raw[name]
	return ok && string(raw) != "null"
}

// number reads a number from low to high; fallback where it is missing.
func (f *fields) number(name string, low, high, fallback float64) float64 {
	if !f.has(name) {
		return fallback
	}
	var x float64
	if err := json.Unmarshal(f.raw[name], &x); err != nil {
		f.mismatch(name, "a number")
		return fallback
	}
	if x < low || x > high {
		f.mismatch(name, "a number from %g to %g", low, high)
		return fallback
	}
	return x
}

// integer reads a whole number, which may be written like 1e6 or 4096.0.
func (f *fields) integer(name string, low, high, fallback int) int {
	if !f.has(name) {
		if fallback == required {
			f.fail("%s: missing, want a whole number from %d to %d", name, low, high)
			return low
		}
		return fallback
	}
	var x float64
	if err := json.Unmarshal(f.raw[name], &x); err != nil || x != math.Trunc(x) || x < float64(low) || x > float64(high) {
		f.mismatch(name, "a whole number from %d to %d", low, high)
		return low
	}
	return int(x)
}

func (f *fields) boolean(name string, fallback bool) bool {
	if !f.has(name) {
		return fallback
	}
	var x bool
	if err := json.Unmarshal(f.raw[name], &x); err != nil {
		f.mismatch(name, "true or false")
		return fallback
	}
	return x
}

func (f *fields) text(name, fallback string) string {
	if !f.has(name) {
		return fallback
	}
	var x string
	if err := json.Unmarshal(f.raw[name], &x); err != nil {
		f.mismatch(name, "a string")
		return fallback
	}
	return x
}

func (f *fields) texts(name string) []string {
	if !f.has(name) {
		return nil
	}
	var x []string
	if err := json.Unmarshal(f.raw[name], &x); err != nil {
		f.mismatch(name, "a list of strings")
	}
	return x
}

// integers reads a list of at most limit whole numbers; nil where it is missing.
func (f *fields) integers(name string, limit int) []int {
	if !f.has(name) {
		return nil
	}
	var x []int
	if err := json.Unmarshal(f.raw[name], &x); err != nil || len(x) > limit {
		f.mismatch(name, "a list of at most %d whole numbers", limit)
		return nil
	}
	return x
}

// object reads a nested object; nil where it is missing.
func (f *fields) object(name string) *fields {
	if !f.has(name) {
		return nil
	}
	nested := &fields{}
	if err := json.Unmarshal(f.raw[name], &nested.raw); err != nil {
		f.mismatch(name, "an object")
		return nil
	}
	return nested
}

// tokenIDs reads one id or a list of ids, each below vocabulary (0: no
// bound known).
func (f *fields) tokenIDs(name string, vocabulary int) []int32 {
	if !f.has(name) {
		return nil
	}
	if vocabulary == 0 {
		vocabulary = math.MaxInt32
	}
	var list []*float64 // pointers tell a null from 0
	if f.raw[name][0] != '[' {
		list = make([]*float64, 1)
		if err := json.Unmarshal(f.raw[name], &list[0]); err != nil {
			f.mismatch(name, "a token id or a list of them")
			return nil
		}
	} else if err := json.Unmarshal(f.raw[name], &list); err != nil || len(list) > maxTokenIDs {
		f.mismatch(name, "a token id or a list of at most %d", maxTokenIDs)
		return nil
	}
	ids := make([]int32, 0, len(list))
	for _, x := range list {
		if x == nil || *x != math.Trunc(*x) || *x < 0 || *x >= float64(vocabulary) {
			f.mismatch(name, "token ids from 0 to %d", vocabulary-1)
			return nil
		}
		ids = append(ids, int32(*x))
	}
	return ids
}
