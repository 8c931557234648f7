package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The vocabulary and the merges are nearly all of an 11 MB file. Reading them
// by reflection takes half a second and a string per token; these two readers
// take views of one string. They are given JSON that is known to be valid, and
// keep their errors until the model's type has been looked at.

// vocabJSON reads {"token": id, …} in file order.
type vocabJSON struct {
	tokens []string
	ids    []int64
	err    error
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *vocabJSON) UnmarshalJSON(data []byte) error {
	r := reader{text: string(data)}
	*v = vocabJSON{}
	if r.peek() == 'n' {
		return nil
	}
	if !r.skip('{') {
		v.err = errors.New("an object of tokens and ids is expected")
		return nil
	}
	entries := strings.Count(r.text, ":") // or somewhat more
	v.tokens, v.ids = make([]string, 0, entries), make([]int64, 0, entries)
	for r.peek() == '"' {
		token := r.str()
		r.skip(':')
		number := r.bare()
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			v.err = fmt.Errorf("the id of token %.40q is not a whole number: %.40q", token, number)
			return nil
		}
		v.tokens = append(v.tokens, token)
		v.ids = append(v.ids, id)
		r.skip(',')
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
	r := reader{text: string(data)}
	*m = mergesJSON{}
	if r.peek() == 'n' {
		return nil
	}
	if !r.skip('[') {
		m.err = errors.New("a list is expected")
		return nil
	}
	m.parts = make([]string, 0, strings.Count(r.text, ",")+2) // or somewhat more
	for r.peek() != ']' && r.at < len(r.text) {
		switch r.peek() {
		case '"':
			line := r.str()
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				m.err = fmt.Errorf("entry %d is %.40q; two parts with a space between them are expected", m.count(), line)
				return nil
			}
			m.parts = append(m.parts, left, right)
		case '[':
			r.skip('[')
			before := len(m.parts)
			for r.peek() == '"' {
				m.parts = append(m.parts, r.str())
				r.skip(',')
			}
			if !r.skip(']') || len(m.parts) != before+2 {
				m.err = fmt.Errorf("entry %d is not a pair of strings", before/2)
				return nil
			}
		default:
			m.err = fmt.Errorf("entry %d is neither a string nor a pair of strings", m.count())
			return nil
		}
		r.skip(',')
	}
	return nil
}

// reader walks over valid JSON.
type reader struct {
	text string
	at   int
}

// peek returns the next byte that is not white space; 0 at the end.
func (r *reader) peek() byte {
	for ; r.at < len(r.text); r.at++ {
		if c := r.text[r.at]; c > ' ' {
			return c
		}
	}
	return 0
}

// skip passes over c if it is next.
func (r *reader) skip(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

// str reads the string that is next: a view of the text unless it has escapes.
func (r *reader) str() string {
	start, escaped := r.at, false
	for r.at++; r.at < len(r.text); r.at++ {
		switch r.text[r.at] {
		case '\\':
			escaped = true
			r.at++
		case '"':
			r.at++
			if !escaped {
				return r.text[start+1 : r.at-1]
			}
			var s string
			if json.Unmarshal([]byte(r.text[start:r.at]), &s) != nil {
				return ""
			}
			return s
		}
	}
	return ""
}

// bare reads up to the next comma, bracket or space.
func (r *reader) bare() string {
	r.peek()
	start := r.at
	for r.at < len(r.text) && !strings.ContainsRune(",]} \t\r\n", rune(r.text[r.at])) {
		r.at++
	}
	return r.text[start:r.at]
}
