package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Case and kinds of characters as in Python.

func upper(s string) string {
	if strings.Contains(s, "ß") {
		s = strings.ReplaceAll(s, "ß", "SS")
	}
	return strings.ToUpper(s)
}

// lower is Python's: a final sigma has a form of its own.
func lower(s string) string {
	if !strings.ContainsAny(s, "Σİ") {
		return strings.ToLower(s)
	}
	all := []rune(s)
	var b strings.Builder
	for i, r := range all {
		switch {
		case r == 'İ':
			b.WriteString("i̇")
		case r == 'Σ':
			before, after := i-1, i+1
			for before >= 0 && caseIgnorable(all[before]) {
				before--
			}
			for after < len(all) && caseIgnorable(all[after]) {
				after++
			}
			if before >= 0 && isCased(all[before]) && (after >= len(all) || !isCased(all[after])) {
				b.WriteRune('ς')
			} else {
				b.WriteRune('σ')
			}
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

func caseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:·՟״‘’․‧︓", r)
}

func isCased(r rune) bool { return isUpperRune(r) || isLowerRune(r) || unicode.IsTitle(r) }

func isLowerRune(r rune) bool {
	return unicode.IsLower(r) || r >= 0x80 && unicode.Is(unicode.Other_Lowercase, r)
}

func isUpperRune(r rune) bool {
	return unicode.IsUpper(r) || r >= 0x80 && unicode.Is(unicode.Other_Uppercase, r)
}

func casefold(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(s), "ß", "ss"), "ς", "σ")
}

func capitalize(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return ""
	}
	return titleRune(r) + lower(s[size:])
}

func titleRune(r rune) string {
	if r == 'ß' {
		return "Ss"
	}
	return string(unicode.ToTitle(r))
}

func title(s string) string {
	var b strings.Builder
	cased := false
	for _, r := range s {
		if cased {
			b.WriteRune(unicode.ToLower(r))
		} else {
			b.WriteString(titleRune(r))
		}
		cased = isCased(r)
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsUpper(r) {
			b.WriteRune(unicode.ToLower(r))
		} else {
			b.WriteString(upper(string(r)))
		}
	}
	return b.String()
}

func every(s string, is func(rune) bool) bool {
	for _, r := range s {
		if !is(r) {
			return false
		}
	}
	return true
}

func everyMethod(name string, is func(rune) bool) stringMethod {
	return plain(name, func(_ *evaluator, s string) value { return s != "" && every(s, is) })
}

// isDigit is Python's: decimal digits and superscripts and the like.
func isDigit(r rune) bool {
	return unicode.Is(unicode.Nd, r) || unicode.Is(unicode.No, r) && (strings.ContainsRune("²³¹⁰", r) || r >= 0x2074 && r <= 0x2079 || r >= 0x2080 && r <= 0x2089 ||
		r >= 0x2460 && r <= 0x2468 || r >= 0x2474 && r <= 0x247c || r >= 0x2488 && r <= 0x2490 || r == 0x24ea || r >= 0x24f5 && r <= 0x24fd || r == 0x24ff || r >= 0x2776 && r <= 0x277e || r >= 0x2780 && r <= 0x2788 || r >= 0x278a && r <= 0x2792)
}

func isNumeric(r rune) bool {
	return unicode.IsNumber(r) || strings.ContainsRune("一二三四五六七八九十百千万億兆零", r)
}

func isLower(s string) bool {
	cased := false
	for _, r := range s {
		if isUpperRune(r) || unicode.IsTitle(r) {
			return false
		}
		cased = cased || isLowerRune(r)
	}
	return cased
}

func isUpper(s string) bool {
	cased := false
	for _, r := range s {
		if isLowerRune(r) || unicode.IsTitle(r) {
			return false
		}
		cased = cased || isUpperRune(r)
	}
	return cased
}

func isTitle(s string) bool {
	cased, previous := false, false
	for _, r := range s {
		switch {
		case isUpperRune(r) || unicode.IsTitle(r):
			if previous {
				return false
			}
			previous, cased = true, true
		case isLowerRune(r):
			if !previous {
				return false
			}
			cased = true
		default:
			previous = false
		}
	}
	return cased
}
