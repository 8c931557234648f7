package terminal

import (
	"os"
	"time"

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

// Watcher draws frames into a terminal, over each other. Drawing runs in a
// goroutine of its own: the decoder never waits for the picture, and the
// timings of --stats stay true.
type Watcher struct {
	screen Screen
	width  func() int
	pause  func(time.Duration)
	film   filmstrip
	frames chan frame
	done   chan struct{}
}

// NewWatcher starts drawing a generation of that mode to a terminal; piece is the text
// of a token. Finish must be called in the end.
func NewWatcher(terminal *os.File, mode decoder.Mode, piece func(int32) string) *Watcher {
	w := &Watcher{
		screen: Screen{Out: terminal},
		width:  func() int { return Width(terminal) },
		pause:  time.Sleep,
		film:   filmstrip{mode: mode, piece: piece},
	}
	w.start()
	return w
}

func (w *Watcher) start() {
	// Room for one frame a token of a long answer: the decoder does not wait.
	w.frames, w.done = make(chan frame, 8192), make(chan struct{})
	go func() {
		defer close(w.done)
		for f := range w.frames {
			w.screen.Draw(f.ansi(w.width()))
			w.pause(min(slowest, max(fastest, catchUp/time.Duration(len(w.frames)+1))))
		}
	}()
}

// Text is decoder.Hooks.Text.
func (w *Watcher) Text(piece string) error { w.film.write(piece); return nil }

// Step is decoder.Hooks.Step.
func (w *Watcher) Step(s decoder.Step) { w.frames <- w.film.step(s) }

// Discard shows the frames that still wait without a pause.
func (w *Watcher) Discard() { w.pause = func(time.Duration) {} }

// Finish shows the frames that still wait and takes the picture away: the
// text itself is a result and goes to stdout.
func (w *Watcher) Finish() {
	close(w.frames)
	<-w.done
	w.screen.Clear()
}
