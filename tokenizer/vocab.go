package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What cutLarge leaves of the vocabulary and the merges is read here: the decoder hands over
// JSON that it has found valid. Errors are kept until the model's type has been looked at.

// vocabJSON reads {"token": id, …} in file order.
type vocabJSON struct {
	tokens []string
	ids    []int64
	err    error
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *vocabJSON) UnmarshalJSON(data []byte) error {
	w := walker{data: data}
	*v = vocabJSON{}
	if w.next() == 'n' {
		return nil
	}
	if !w.take('{') {
		v.err = errors.New("an object of tokens and ids is expected")
		return nil
	}
	entries := bytes.Count(data, []byte(":")) // or somewhat more
	v.tokens, v.ids = make([]string, 0, entries), make([]int64, 0, entries)
	for w.next() == '"' {
		token := w.text()
		w.take(':')
		number := w.bare()
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			v.err = fmt.Errorf("the id of token %.40q is not a whole number: %.40q", token, number)
			return nil
		}
		v.tokens = append(v.tokens, token)
		v.ids = append(v.ids, id)
		w.take(',')
	}
	return nil
}

// mergesJSON reads [["a","b"], …] or ["a b", …].
type mergesJSON struct {
	parts []string // two for each merge
	err   error
}

func (m *mergesJSON) count() int { return len(m.parts) / 2 }

func (m *mergesJSON) pair(i int) (left, right string) { return m.parts[2*i], m.parts[2*i+1] }

// UnmarshalJSON implements json.Unmarshaler.
func (m *mergesJSON) UnmarshalJSON(data []byte) error {
	w := walker{data: data}
	*m = mergesJSON{}
	if w.next() == 'n' {
		return nil
	}
	if !w.take('[') {
		m.err = errors.New("a list is expected")
		return nil
	}
	m.parts = make([]string, 0, bytes.Count(data, []byte(","))+2) // or somewhat more
	for w.next() != ']' && w.at < len(data) {
		switch w.next() {
		case '"':
			line := w.text()
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				m.err = fmt.Errorf("entry %d is %.40q; two parts with a space between them are expected", m.count(), line)
				return nil
			}
			m.parts = append(m.parts, left, right)
		case '[':
			w.take('[')
			before := len(m.parts)
			for w.next() == '"' {
				m.parts = append(m.parts, w.text())
				w.take(',')
			}
			if !w.take(']') || len(m.parts) != before+2 {
				m.err = fmt.Errorf("entry %d is not a pair of strings", before/2)
				return nil
			}
		default:
			m.err = fmt.Errorf("entry %d is neither a string nor a pair of strings", m.count())
			return nil
		}
		w.take(',')
	}
	return nil
}
