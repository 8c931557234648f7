package terminal

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"windrow/decoder"
	"windrow/engine"
	"windrow/models/tinygsm"
	"windrow/tokenizer"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recording is what a generation told its hooks: the picture's raw material.
type recording struct {
	Command string
	Mode    decoder.Mode
	Pieces  map[int32]string
	Steps   []recordedStep
}

type recordedStep struct {
	Text string // what became visible before the step's hook
	Step decoder.Step
}

const recorded = "testdata/watch_steps.json"

// The picture's problem: held-out problem 59, one of the few that the model is
// not sure of at once.
const (
	pictureMode     = decoder.WeDLM
	pictureTau      = float32(0.4)
	pictureQuestion = "Uma has 30 oranges. She donates 22 of them to the school. She gives 6 of them to Sam. Then she receives 57 oranges as a gift. How many oranges are there now?"
	pictureCommand  = `windrow generate --watch --mode wedlm "Uma has 30 oranges. She donates 22 of them to the school. She gives 6 …"`
)

// record runs the embedded model; only -update does.
func record(t *testing.T) recording {
	e, err := engine.Open(t.Context(), "", engine.Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ids, err := e.Encode(t.Context(), engine.Prompt{Messages: []tokenizer.Message{{Role: "user", Content: pictureQuestion}}})
	if err != nil {
		t.Fatal(err)
	}
	tau := pictureTau
	o := decoder.Options{Mode: pictureMode, Window: 16, EntropyThreshold: &tau, PosPenalty: 0.02}
	piece := func(id int32) string { return e.Tokenizer().Decode([]int32{id}, false) }
	r := recording{Command: pictureCommand, Mode: pictureMode, Pieces: map[int32]string{}}
	var text strings.Builder
	_, err = e.Answer(t.Context(), ids, o, decoder.Hooks{
		Text: func(s string) error { text.WriteString(s); return nil },
		Step: func(s decoder.Step) {
			for _, slot := range s.Slots {
				if slot.Filled {
					r.Pieces[slot.Token] = piece(slot.Token)
				}
			}
			for _, f := range s.Filled {
				r.Pieces[f.Token] = piece(f.Token)
			}
			r.Steps = append(r.Steps, recordedStep{text.String(), s})
			text.Reset()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// frames replays a recording.
func (r recording) frames() []frame {
	film := filmstrip{mode: r.Mode, piece: func(id int32) string { return r.Pieces[id] }}
	var frames []frame
	for _, s := range r.Steps {
		film.write(s.Text)
		frames = append(frames, film.step(s.Step))
	}
	return frames
}

// TestWatchPicture compares docs/watch.svg and the terminal frames with the
// recorded steps; -update records them anew from the embedded model.
func TestWatchPicture(t *testing.T) {
	if *update && tinygsm.Available {
		data, err := json.Marshal(record(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(recorded, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	frames := r.frames()
	golden(t, filepath.Join("..", "..", "..", "docs", "watch.svg"), []byte(svg(r.Command, frames)))
	var screen bytes.Buffer
	for i, f := range frames {
		fmt.Fprintf(&screen, "--- frame %d\n%s\n", i+1, strings.Join(f.ansi(100), "\n"))
	}
	golden(t, "watch_frames.ansi", screen.Bytes())
}

// golden compares with a file of the test data; -update writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -run %s -update writes it anew); got:\n%s", path, t.Name(), got)
	}
}

// letters names token i by the i-th letter.
func letters(id int32) string { return string(rune('A' + id)) }

// TestFrames follows the worked trace of WeDLM with W 3, and a rejection in
// verified mode.
func TestFrames(t *testing.T) {
	mask := decoder.Slot{}
	filled := func(id int32) decoder.Slot { return decoder.Slot{Token: id, Filled: true} }
	for _, test := range []struct {
		name  string
		mode  decoder.Mode
		steps []decoder.Step
		want  []string
	}{
		{"wedlm", decoder.WeDLM, []decoder.Step{
			{Slots: []decoder.Slot{mask, mask, mask}, Entropy: []float32{0, 0.3, 1}, Filled: []decoder.Fill{{Slot: 0, Token: 0}, {Slot: 1, Token: 1}}},
			{Slots: []decoder.Slot{filled(0), filled(1), mask, mask, mask}, Committed: []int32{0, 1}, Entropy: []float32{0.1, 2.5, 0.2},
				Filled: []decoder.Fill{{Slot: 0, Token: 2}, {Slot: 2, Token: 4}}},
			{Slots: []decoder.Slot{filled(2), mask, filled(4), mask}, Committed: []int32{2}, Entropy: []float32{0.05, 0.1},
				Filled: []decoder.Fill{{Slot: 0, Token: 3}}},
		}, []string{"+A +B 1.0", "+C 2.5 +E", "+D E 0.1"}},
		{"rejection", decoder.Verified, []decoder.Step{
			{Slots: []decoder.Slot{filled(0), filled(1), filled(2), mask, mask}, Committed: []int32{0}, Filled: []decoder.Fill{{Slot: 0, Token: 9}}, Drafts: 2},
		}, []string{"+J -C -1.0 -1.0"}},
		{"last", decoder.Verified, []decoder.Step{{Slots: []decoder.Slot{filled(0)}, Committed: []int32{0}}}, []string{""}},
	} {
		film := filmstrip{mode: test.mode, piece: letters}
		for i, s := range test.steps {
			f := film.step(s)
			var cells []string
			for _, c := range f.Cells {
				switch c.State {
				case cellMask:
					cells = append(cells, fmt.Sprintf("%.1f", c.Entropy))
				default:
					cells = append(cells, map[cellState]string{cellFilled: "", cellFresh: "+", cellDropped: "-"}[c.State]+c.Text)
				}
			}
			if got := strings.Join(cells, " "); got != test.want[i] {
				t.Errorf("%s: frame %d: %s, want %s", test.name, i+1, got, test.want[i])
			}
			if f.Forwards != i+1 {
				t.Errorf("%s: frame %d counts %d forwards", test.name, i+1, f.Forwards)
			}
		}
	}
}

func TestWrapLines(t *testing.T) {
	for _, test := range []struct {
		text string
		want string
	}{
		{"", ""},
		{"one two", "one two"},
		{"one two three", "one two|three"},
		{"a\n\nb", "a||b"},
		{"abcdefghijklm", "abcdefgh|ijklm"},
		{"漢字漢字漢字", "漢字漢字|漢字"},
	} {
		if got := strings.Join(wrapLines(test.text, 8), "|"); got != test.want {
			t.Errorf("%q: %s, want %s", test.text, got, test.want)
		}
	}
}

func TestTail(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"ab", "   ab"}, {"abcde", "abcde"}, {"abcdef", "…cdef"}, {"漢字漢字", "…漢字"}, {"a漢字", "a漢字"}, {"漢字漢x", " …漢x"},
	} {
		if got := tail(test.text, 5); got != test.want {
			t.Errorf("%q: %q, want %q", test.text, got, test.want)
		}
	}
}

// TestFrameKeepsTheTerminal: no text of a model reaches the terminal as a
// control sequence, and no line is too wide.
func TestFrameKeepsTheTerminal(t *testing.T) {
	f := frame{Text: "a\x1b[2Jb\r\nc\x07", Cells: []cell{{State: cellFilled, Text: "\x1b]0;x\x07"}, {Entropy: 1}}}
	for _, line := range f.ansi(40) {
		plain := line
		for _, s := range []string{ansiReset, "\x1b[2m", "\x1b[48;5;24;38;5;255m", "\x1b[38;5;243m", "\x1b[38;5;240m"} {
			plain = strings.ReplaceAll(plain, s, "")
		}
		if strings.ContainsAny(plain, "\x1b\x07\r") {
			t.Errorf("%q holds a control character", plain)
		}
	}
}

// TestWatcher: every frame is drawn over the one before, and at the end the
// screen is clean.
func TestWatcher(t *testing.T) {
	var screen bytes.Buffer
	pauses := 0
	w := &Watcher{
		screen: Screen{Out: &screen}, width: func() int { return 60 },
		pause: func(d time.Duration) {
			if pauses++; d < fastest || d > slowest {
				t.Errorf("pause of %v", d)
			}
		},
		film: filmstrip{mode: decoder.AR, piece: letters},
	}
	w.start()
	for id := range int32(3) {
		w.Text(letters(id))
		w.Step(decoder.Step{Slots: []decoder.Slot{{Token: id, Filled: true}}, Committed: []int32{id}, Filled: []decoder.Fill{{Token: id + 1}}})
	}
	w.Finish()
	if pauses != 3 {
		t.Errorf("%d frames, want 3", pauses)
	}
	if got := strings.Count(screen.String(), "\x1b[2A\r\x1b[J"); got != 3 {
		t.Errorf("drawn over %d times, want 3: %q", got, screen.String())
	}
	if !strings.HasSuffix(screen.String(), "\r\x1b[J\x1b[?25h") {
		t.Errorf("the screen is not clean at the end: %q", screen.String())
	}
}

// TestNewestInWindow: the token that verified and ar know already is drawn once, in the
// window, and as text when it is permanent; the last one is text.
func TestNewestInWindow(t *testing.T) {
	for _, mode := range []decoder.Mode{decoder.AR, decoder.Verified} {
		f := filmstrip{mode: mode, piece: func(id int32) string { return string(rune('A' + id)) }}
		f.write("A")
		f.write("B")
		got := f.step(decoder.Step{Slots: []decoder.Slot{{Token: 0, Filled: true}}, Committed: []int32{0}, Filled: []decoder.Fill{{Slot: 0, Token: 1}}})
		if got.Text != "A" || len(got.Cells) != 1 || got.Cells[0].Text != "B" {
			t.Errorf("%v: %+v", mode, got)
		}
		f.write("C")
		if got = f.step(decoder.Step{Slots: []decoder.Slot{{Token: 1, Filled: true}}, Committed: []int32{1}}); got.Text != "ABC" || len(got.Cells) != 0 {
			t.Errorf("%v: at the end %+v", mode, got)
		}
	}
}
