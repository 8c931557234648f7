package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"windrow/decoder"
)

// Pacing of --watch. A small model makes a step in milliseconds, faster than
// an eye follows: frames are shown at most one per slowest, and faster the
// more of them wait, so that the picture ends at most about catchUp behind.
const (
	slowest = 200 * time.Millisecond
	fastest = 15 * time.Millisecond
	catchUp = 3 * time.Second
)

// watcher draws frames into a terminal, over each other. Drawing runs in a
// goroutine of its own: the decoder never waits for the picture, and the
// timings of --stats stay true.
type watcher struct {
	out    io.Writer
	width  func() int
	pause  func(time.Duration)
	film   filmstrip
	frames chan frame
	done   chan struct{}
	drawn  int // lines of the frame on the screen
}

// newWatcher starts drawing to a terminal.
func newWatcher(terminal *os.File, mode decoder.Mode, piece func(int32) string) *watcher {
	w := &watcher{
		out: terminal,
		width: func() int {
			if n, _, err := term.GetSize(int(terminal.Fd())); err == nil && n > 0 {
				return n
			}
			return 80
		},
		pause: time.Sleep,
		film:  filmstrip{mode: mode, piece: piece},
	}
	w.start()
	return w
}

func (w *watcher) start() {
	// Room for one frame a token of a long answer: the decoder does not wait.
	w.frames, w.done = make(chan frame, 8192), make(chan struct{})
	go func() {
		defer close(w.done)
		for f := range w.frames {
			w.draw(f)
			w.pause(min(slowest, max(fastest, catchUp/time.Duration(len(w.frames)+1))))
		}
	}()
}

// text and step are the decoder's hooks.
func (w *watcher) text(piece string) error { w.film.write(piece); return nil }
func (w *watcher) step(s decoder.Step)     { w.frames <- w.film.step(s) }
func (w *watcher) write(s string)          { io.WriteString(w.out, s) }
func (w *watcher) draw(f frame)            { w.replace(f.ansi(w.width())) }
func (w *watcher) discard()                { w.pause = func(time.Duration) {} }
func isTerminal(v any) (f *os.File, ok bool) {
	if f, ok = v.(*os.File); ok {
		ok = term.IsTerminal(int(f.Fd()))
	}
	return f, ok
}

// replace draws lines over those drawn before.
func (w *watcher) replace(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[?25l") // no cursor while drawing
	if w.drawn > 1 {
		fmt.Fprintf(&b, "\x1b[%dA", w.drawn-1)
	}
	b.WriteString("\r\x1b[J" + strings.Join(lines, "\r\n"))
	w.drawn = len(lines)
	w.write(b.String())
}

// finish shows the frames that still wait and takes the picture away: the
// text itself is a result and goes to stdout.
func (w *watcher) finish() {
	close(w.frames)
	<-w.done
	if w.drawn > 0 {
		w.replace(nil)
		w.write("\x1b[?25h")
	}
}
