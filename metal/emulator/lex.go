package emulator

import (
	"fmt"
	"strings"
)

// token is a token of preprocessed source: its text, and where that lies.
type token struct {
	text       string
	begin, end int
}

func word(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || digit(c)
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// operators of two characters that matter; others may fall apart. "]]" and
// ">>" have to, as each half may close something of its own.
var operators = []string{"::", "[[", "->", "==", "<=", ">=", "!=", "&&", "||", "<<"}

// lex splits preprocessed source, in which comments are gone and directives are
// line markers.
func lex(source string) ([]token, error) {
	var tokens []token
	for i := 0; i < len(source); {
		c := source[i]
		end := i + 1
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case c == '#':
			for i < len(source) && source[i] != '\n' {
				i++
			}
			continue
		case c == '"' || c == '\'':
			for end < len(source) && source[end] != c {
				if source[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(source) {
				return nil, fmt.Errorf("a literal does not end: %.40q", source[i:])
			}
			end++
		case digit(c) || c == '.' && end < len(source) && digit(source[end]):
			for end < len(source) {
				exponent := source[end] == '+' || source[end] == '-'
				if exponent && (strings.ContainsRune("pP", rune(source[end-1])) || strings.ContainsRune("eE", rune(source[end-1])) && !strings.HasPrefix(source[i:end], "0x")) {
					end++
					continue
				}
				if !word(source[end]) && source[end] != '.' {
					break
				}
				end++
			}
		case word(c):
			for end < len(source) && word(source[end]) {
				end++
			}
		default:
			for _, o := range operators {
				if strings.HasPrefix(source[i:], o) {
					end = i + len(o)
				}
			}
		}
		tokens = append(tokens, token{source[i:end], i, end})
		i = end
	}
	return tokens, nil
}

// stream is a list of tokens that may be asked beyond its ends.
type stream struct {
	source string
	tokens []token
}

// at returns the text of a token, "" beyond the ends.
func (s stream) at(i int) string {
	if i < 0 || i >= len(s.tokens) {
		return ""
	}
	return s.tokens[i].text
}

// name reports whether a token is an identifier or a keyword.
func (s stream) name(i int) bool {
	t := s.at(i)
	return t != "" && word(t[0]) && !digit(t[0])
}

// text returns the source from token i to before token j.
func (s stream) text(i, j int) string {
	if i >= j {
		return ""
	}
	return s.source[s.tokens[i].begin:s.tokens[j-1].end]
}

// closing returns the token that closes the bracket at i, or -1.
func (s stream) closing(i int) int {
	var open []string
	for ; i < len(s.tokens); i++ {
		switch t := s.tokens[i].text; t {
		case "(", "{", "[":
			open = append(open, t)
		case "[[":
			open = append(open, "[", "[")
		case ")", "}", "]":
			want := map[string]string{")": "(", "}": "{", "]": "["}[t]
			if len(open) == 0 || open[len(open)-1] != want {
				return -1
			}
			if open = open[:len(open)-1]; len(open) == 0 {
				return i
			}
		}
	}
	return -1
}

// closingAngle returns the ">" that closes the "<" at i, or -1 where that is
// a comparison.
func (s stream) closingAngle(i int) int {
	depth := 0
	for ; i < len(s.tokens); i++ {
		switch s.tokens[i].text {
		case "(", "[", "{", "[[":
			if i = s.closing(i); i < 0 {
				return -1
			}
		case ")", "]", "}", ";", "&&", "||":
			return -1
		case "<":
			depth++
		case ">":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// split returns the ranges between commas in tokens i to before j.
func (s stream) split(i, j int) [][2]int {
	var parts [][2]int
	begin := i
	for k := i; k < j; k++ {
		switch s.tokens[k].text {
		case "(", "[", "{", "[[":
			if c := s.closing(k); c > 0 && c < j {
				k = c
			}
		case "<":
			if c := s.closingAngle(k); c > 0 && c < j {
				k = c
			}
		case ",":
			parts = append(parts, [2]int{begin, k})
			begin = k + 1
		}
	}
	if begin < j {
		parts = append(parts, [2]int{begin, j})
	}
	return parts
}
