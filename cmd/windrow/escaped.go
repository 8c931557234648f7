package main

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxErrorLine bounds an error's line, in bytes: enough for a long path and
// what is wrong with it.
const maxErrorLine = 1000

// oneLine joins the lines of a message and takes out what a terminal would
// obey: an error is one line, whatever a library or a file's content put into
// it. Of a long one the beginning and the end are kept.
func oneLine(s string) string {
	s = escaped(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
	if len(s) > maxErrorLine {
		s = strings.ToValidUTF8(s[:maxErrorLine*2/3], "") + " … " + strings.ToValidUTF8(s[len(s)-maxErrorLine/4:], "")
	}
	return s
}

// escaped writes control characters, and others that do not print, as Go
// does in quotes: ESC as \x1b.
func escaped(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			b.WriteString(strings.Trim(strconv.Quote(s[i:i+1]), `"`))
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// asciiControls writes the characters of JSON that a terminal would obey, or
// that change the order of what it shows, as \u escapes. In JSON they can stand
// in strings only; the encoder escapes those below a space itself.
type asciiControls struct{ io.Writer }

// Write implements io.Writer; p holds whole characters.
func (w asciiControls) Write(p []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(p) {
		if r == '\n' || strconv.IsPrint(r) || r > 0xffff {
			b.WriteRune(r)
			continue
		}
		b.WriteString(`\u` + strconv.FormatInt(int64(r)+0x10000, 16)[1:])
	}
	if _, err := io.WriteString(w.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}
