package eval

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// answerMark is what GSM8K puts before the final answer.
const answerMark = "####"

// Answer extracts the final number of a worked answer: the last number on the
// line of the last "####", else the last one after that mark, else the last
// one in the text. Model outputs and references go through the same rule.
//
// The number comes back in canonical decimal form, so that equal values are
// equal strings: no commas, currency signs, units, leading or trailing zeros
// ("$1,250.00" is "1250", "5.0" is "5", "-.50" is "-0.5"). Without a number
// the result is "".
func Answer(text string) string {
	if i := strings.LastIndex(text, answerMark); i >= 0 {
		after := text[i+len(answerMark):]
		line, _, _ := strings.Cut(after, "\n")
		if n := lastNumber(line); n != "" {
			return n
		}
		if n := lastNumber(after); n != "" {
			return n
		}
	}
	return lastNumber(text)
}

// Correct reports whether a prediction has the reference's value; both are
// results of Answer.
func Correct(prediction, reference string) bool {
	return prediction != "" && prediction == reference
}

// lastNumber finds the last number of a text that is not an exponent: "45
// m^2" is 45.
func lastNumber(s string) string {
	// LaTeX writes 1{,}000 to keep its comma tight.
	s = strings.ReplaceAll(s, "{,}", ",")
	last := ""
	for i := 0; i < len(s); {
		if !isDigit(s[i]) {
			i++
			continue
		}
		number, end := scanNumber(s, i)
		if i == 0 || s[i-1] != '^' {
			last = number
		}
		i = end
	}
	return last
}

// scanNumber reads the number whose first digit is s[start] and returns its
// canonical form and where it ends. Of a list such as "1,2,3" it is the last.
func scanNumber(s string, start int) (number string, end int) {
	before := s[:start]
	end = digitsEnd(s, start)
	for end+1 < len(s) && s[end] == ',' && isDigit(s[end+1]) {
		end = digitsEnd(s, end+1)
	}
	groups := strings.Split(s[start:end], ",")
	whole, fraction := strings.Join(groups, ""), ""
	if !isThousands(groups) {
		whole, before = groups[len(groups)-1], ""
	}
	if end+1 < len(s) && s[end] == '.' && isDigit(s[end+1]) {
		from := end + 1
		end = digitsEnd(s, from)
		fraction = s[from:end]
	} else if len(groups) == 1 && startsFraction(before) {
		before = before[:len(before)-1]
		whole, fraction = "", whole
	}

	whole = strings.TrimLeft(whole, "0")
	if whole == "" {
		whole = "0"
	}
	number = whole
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		number += "." + fraction
	}
	if number != "0" && hasSign(before) {
		number = "-" + number
	}
	return number, end
}

// isThousands reports whether groups of digits between commas are one number:
// 1,234,567 or, as written in India, 12,34,567.
func isThousands(groups []string) bool {
	last := len(groups) - 1
	for i, g := range groups {
		switch {
		case last == 0:
		case i == 0 && len(g) > 3,
			i > 0 && i < last && len(g) != 2 && len(g) != 3,
			i == last && len(g) != 3:
			return false
		}
	}
	return true
}

// startsFraction reports whether before ends in the point of a number such as
// ".5", and not in that of a sentence, an ellipsis or another number.
func startsFraction(before string) bool {
	if !strings.HasSuffix(before, ".") {
		return false
	}
	r, size := utf8.DecodeLastRuneInString(before[:len(before)-1])
	return size == 0 || !(r == '.' || r == ')' || unicode.IsLetter(r) || unicode.IsDigit(r))
}

// hasSign reports whether the text before a number ends in its minus sign, a
// currency sign allowed on either side. After an operand the minus subtracts:
// "16-5" ends in 5.
func hasSign(before string) bool {
	before = trimCurrency(before)
	r, size := utf8.DecodeLastRuneInString(before)
	if r != '-' && r != '−' {
		return false
	}
	before = trimCurrency(before[:len(before)-size])
	r, size = utf8.DecodeLastRuneInString(before)
	return size == 0 || !(strings.ContainsRune(")]}%-.−", r) || unicode.IsLetter(r) || unicode.IsDigit(r))
}

func trimCurrency(s string) string { return strings.TrimRight(s, `$€£\`) }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// digitsEnd returns where the digits that begin at i end.
func digitsEnd(s string, i int) int {
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}
