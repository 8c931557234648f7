package terminal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readInterrupted reads all that a reader hands on; a ctrl-C becomes "|".
func readInterrupted(t *testing.T, in io.Reader, size int) string {
	t.Helper()
	r, p := &interruptReader{r: in}, make([]byte, size)
	var b strings.Builder
	for {
		n, err := r.Read(p)
		b.Write(p[:n])
		switch {
		case errors.Is(err, errLineDropped):
			b.WriteByte('|')
		case err == io.EOF:
			return b.String()
		case err != nil:
			t.Fatal(err)
		}
	}
}

// FuzzInterruptReader: how a terminal's bytes come does not matter; without a
// ctrl-C they all pass, and each ctrl-C ends a line.
func FuzzInterruptReader(f *testing.F) {
	for _, s := range []string{"", "line\r", "a\x03b", "\x03\x03", pasteStart + "one\x03two" + pasteEnd + "three", pasteStart + "\x03\x03\x03" + pasteStart,
		pasteEnd + "\x03" + pasteStart[:3] + "\x03" + pasteStart[3:], strings.Repeat("x", 600) + "\x03"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, keys []byte) {
		keys = bytes.ReplaceAll(keys, []byte("|"), nil)
		whole := readInterrupted(t, bytes.NewReader(keys), 300)
		if one := readInterrupted(t, iotest.OneByteReader(bytes.NewReader(keys)), 300); one != whole {
			t.Fatalf("%q: %q by single bytes, %q at once", keys, one, whole)
		}
		if narrow := readInterrupted(t, iotest.DataErrReader(bytes.NewReader(keys)), 1); narrow != whole {
			t.Fatalf("%q: %q into a narrow buffer, %q into a wide one", keys, narrow, whole)
		}
		if n := bytes.Count(keys, []byte{keyInterrupt}); strings.Count(whole, "|") != n || n == 0 && whole != string(keys) {
			t.Fatalf("%q: became %q", keys, whole)
		}
	})
}
