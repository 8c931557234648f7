package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// NFC as the reference engine computes it. Its tables are those of Unicode 9,
// x/text's of Unicode 15, and x/text puts U+034F after 30 combining marks in a
// row (the stream-safe form). Text where that can matter takes the slow path
// below; without it one string in three of random marks comes out differently,
// though none of natural text.

// laterMarks are the combining marks that Unicode got after version 9, as
// first and last of each run: the reference takes them for ordinary
// characters (combining class 0). Found by asking the engine about every code
// point; see testdata/parity.
var laterMarks = [...][2]rune{
	{0x07FD, 0x07FD}, {0x0898, 0x089F}, {0x08CA, 0x08D3}, {0x09FE, 0x09FE}, {0x0C3C, 0x0C3C},
	{0x0D3B, 0x0D3C}, {0x0EBA, 0x0EBA}, {0x1715, 0x1715}, {0x1ABF, 0x1ACE}, {0x1DF6, 0x1DFA},
	{0xA82C, 0xA82C}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
	{0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
	{0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
	{0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
	{0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
	{0x1E4EC, 0x1E4EF},
}

// laterComposite and its parts: the one composition added since Unicode 9.
const (
	laterComposite      = '\U00011938'
	laterCompositeFirst = '\U00011935'
)

// streamSafeMarks is the number of combining marks in a row from which the
// slow path is taken. x/text changes text after 30; a character may decompose
// to two or three marks (they are counted).
const streamSafeMarks = 24

// nfc returns s, valid UTF-8, in normalisation form C.
func nfc(s string) string {
	ascii := true
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return s
	}
	if needsSlowNFC(s) {
		return slowNFC(s)
	}
	return norm.NFC.String(s)
}

// needsSlowNFC reports whether x/text and the reference may differ on s.
func needsSlowNFC(s string) bool {
	marks := 0
	for i, r := range s {
		if r < 0x300 {
			marks = 0
			continue
		}
		if r == laterComposite || r == laterCompositeFirst || isLaterMark(r) {
			return true
		}
		p := norm.NFC.PropertiesString(s[i:])
		if p.CCC() == 0 && p.BoundaryBefore() {
			marks = 0
			continue
		}
		if d := p.Decomposition(); d != nil {
			marks += utf8.RuneCount(d)
		} else {
			marks++
		}
		if marks > streamSafeMarks {
			return true
		}
	}
	return false
}

func isLaterMark(r rune) bool {
	if r < laterMarks[0][0] {
		return false
	}
	_, found := slices.BinarySearchFunc(laterMarks[:], r, func(run [2]rune, r rune) int {
		switch {
		case run[1] < r:
			return -1
		case run[0] > r:
			return 1
		}
		return 0
	})
	return found
}

// combining is a character with its combining class by the reference's tables.
type combining struct {
	r   rune
	ccc uint8
}

// slowNFC is the algorithm of Unicode's chapter 3.11 as it stands: decompose,
// order the marks, compose.
func slowNFC(s string) string {
	var chars []combining
	for i, r := range s {
		// What stays whole in the reference must not be decomposed here.
		if r == laterComposite || isLaterMark(r) {
			chars = append(chars, combining{r, 0})
			continue
		}
		p := norm.NFC.PropertiesString(s[i:])
		switch d := p.Decomposition(); {
		case d != nil:
			for _, r := range string(d) {
				chars = append(chars, combining{r, norm.NFC.PropertiesString(string(r)).CCC()})
			}
		case r >= 0xAC00 && r <= 0xD7A3:
			for _, r := range norm.NFD.String(string(r)) { // Hangul: by arithmetic
				chars = append(chars, combining{r, 0})
			}
		default:
			chars = append(chars, combining{r, p.CCC()})
		}
	}
	for i := 0; i < len(chars); {
		j := i
		for j < len(chars) && chars[j].ccc != 0 {
			j++
		}
		slices.SortStableFunc(chars[i:j], func(a, b combining) int { return int(a.ccc) - int(b.ccc) })
		i = j + 1
	}

	out := make([]rune, 0, len(chars))
	starter, lastClass := -1, uint8(0)
	for _, c := range chars {
		adjacent := starter >= 0 && starter == len(out)-1
		if starter >= 0 && (adjacent || lastClass < c.ccc) {
			if r, ok := compose(out[starter], c.r); ok {
				out[starter] = r
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		lastClass = c.ccc
		out = append(out, c.r)
	}
	return string(out)
}

// compose returns the primary composite of two characters, if there is one.
func compose(a, b rune) (rune, bool) {
	if b < 0x300 || a == laterCompositeFirst || norm.NFC.PropertiesString(string(b)).BoundaryBefore() {
		return 0, false
	}
	composed := norm.NFC.String(string([]rune{a, b}))
	r, n := utf8.DecodeRuneInString(composed)
	return r, n == len(composed)
}
