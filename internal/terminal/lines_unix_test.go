//go:build darwin || freebsd || linux || netbsd || openbsd

package terminal

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"windrow/internal/testhelp"
)

const hint = "(ctrl-D or /exit leaves)"

func openTerminal(t *testing.T) (keys, terminal *os.File) {
	t.Helper()
	keys, terminal, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { keys.Close(); terminal.Close() })
	return keys, terminal
}

// TestCtrlCAtThePrompt: ctrl-C drops the line, says so once, and the session
// goes on with its history.
func TestCtrlCAtThePrompt(t *testing.T) {
	const up = "\x1b[A"
	for name, test := range map[string]struct {
		keys  string
		want  []string
		hints int
	}{
		"an empty line":                {"\x03a\r", []string{"a"}, 1},
		"half a line":                  {"half\x03b\r", []string{"b"}, 1},
		"the cursor within it":         {"half\x1b[D\x1b[D\x03b\r", []string{"b"}, 1},
		"a line longer than the width": {strings.Repeat("long ", 50) + "\x03b\r", []string{"b"}, 1},
		"two":                          {"\x03\x03c\r", []string{"c"}, 2},
		"two, and letters":             {"a\x03b\x03c\r", []string{"c"}, 2},
		"behind ctrl-D in a line":      {"ab\x01\x04\x03d\r", []string{"d"}, 1},
		"behind half a key":            {"\x1b\x03e\r", []string{"e"}, 1},
		"behind half a character":      {"\xc3\x03e\r", []string{"e"}, 1},
		"behind a key without an end":  {"\x1b[" + strings.Repeat("1", 250) + "\x03f\r", []string{"f"}, 1},
		"behind a line":                {"g\r\x03h\r", []string{"g", "h"}, 1},
		"history stays":                {"first\rhalf\x03" + up + "\r", []string{"first", "first"}, 1},
		"half a line is no history":    {"first\r" + "half\x03x" + up + "\r", []string{"first", "first"}, 1},
		"in a paste":                   {pasteStart + "one\rtwo\x03three\rfour" + pasteEnd + "i\r", []string{"i"}, 1},
		"in a paste without an end":    {pasteStart + "one\rtwo\x03three\r\x03j\r", []string{"j"}, 2},
		"between pastes":               {pasteStart + "one" + pasteEnd + "\x03" + pasteStart + "two" + pasteEnd + "\r", []string{"two"}, 1},
		"behind a paste of lines":      {pasteStart + "one\rtwo" + pasteEnd + "\x03k\r", []string{"k"}, 1},
	} {
		for _, piece := range []int{1, 7, len(test.keys)} {
			t.Run(fmt.Sprintf("%s, %d bytes at once", name, piece), func(t *testing.T) {
				t.Parallel()
				keys, terminal := openTerminal(t)
				// Raw from the start: between two lines it would else be cooked, and
				// what a line of the test becomes a matter of time.
				if _, err := term.MakeRaw(int(terminal.Fd())); err != nil {
					t.Fatal(err)
				}
				var shown testhelp.Screen
				lines := newTerminalLines(terminal, &shown)
				got := make(chan []string, 1)
				go func() {
					var list []string
					for {
						text, err := lines.Next(nil)
						if err != nil {
							got <- append(list, fmt.Sprint(err))
							return
						}
						list = append(list, text)
					}
				}()
				for part := range slices.Chunk([]byte(test.keys+"\x04"), piece) {
					if _, err := keys.Write(part); err != nil {
						t.Fatal(err)
					}
				}
				select {
				case list := <-got:
					if want := append(slices.Clone(test.want), "EOF"); !slices.Equal(list, want) {
						t.Errorf("read %q, want %q", list, want)
					}
				case <-time.After(2 * time.Minute):
					t.Errorf("hangs after %d hints", shown.Count(hint))
				}
				if n := shown.Count(hint); n != test.hints {
					t.Errorf("%d hints, want %d", n, test.hints)
				}
			})
		}
	}
}

// TestInterruptReaderFull: an editor whose buffer is full of half a key gets
// an error, not nothing for ever.
func TestInterruptReaderFull(t *testing.T) {
	r := &interruptReader{r: strings.NewReader("abc")}
	if n, err := r.Read(nil); n != 0 || err != errLineDropped {
		t.Errorf("%d bytes, %v, want %v", n, err, errLineDropped)
	}
}
