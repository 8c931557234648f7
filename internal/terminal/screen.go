package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Is reports whether a reader or writer is a terminal that obeys escape sequences, and which.
func Is(v any) (f *os.File, ok bool) {
	if f, ok = v.(*os.File); ok {
		ok = term.IsTerminal(int(f.Fd())) && prepared(f)
	}
	return f, ok
}

// Width is a terminal's columns; 80 where it does not say.
func Width(f *os.File) int {
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return 80
}

// Screen draws lines over those that it drew before, in one write.
type Screen struct {
	Out   io.Writer
	drawn int // lines on the screen
}

// Draw replaces what is drawn. A line must not be wider than the terminal, and there
// must not be more of them than it has.
func (s *Screen) Draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[?25l") // no cursor while drawing
	if s.drawn > 1 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn-1)
	}
	b.WriteString("\r\x1b[J" + strings.Join(lines, "\r\n"))
	s.drawn = len(lines)
	io.WriteString(s.Out, b.String())
}

// Clear takes away what is drawn, and shows the cursor again.
func (s *Screen) Clear() {
	if s.drawn > 0 {
		s.Draw(nil)
		io.WriteString(s.Out, "\x1b[?25h")
	}
}
