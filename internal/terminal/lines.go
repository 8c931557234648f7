package terminal

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Lines are the messages that somebody types. Next returns io.EOF when there are no
// more, or when a signal says so.
type Lines interface {
	Next(signals <-chan os.Signal) (string, error)
	Close()
}

// NewLines edits lines where standard input is a terminal, and else
// reads them as they are.
func NewLines(in io.Reader, out io.Writer) Lines {
	if f, ok := Is(in); ok {
		return newTerminalLines(f, out)
	}
	return newPlainLines(in)
}

// plainLines reads lines from a pipe or a file. A goroutine reads, so that a
// signal can end the wait.
type plainLines struct {
	lines chan string
	err   error
	done  chan struct{}
}

// ErrInterrupted is the error of a wait that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// maxMessage bounds a line of chat: 16 MiB is more than any context holds.
const maxMessage = 16 << 20

func newPlainLines(in io.Reader) *plainLines {
	p := &plainLines{lines: make(chan string), done: make(chan struct{})}
	go func() {
		defer close(p.lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, maxMessage)
		for s.Scan() {
			select {
			case p.lines <- s.Text():
			case <-p.done:
				return
			}
		}
		p.err = s.Err()
	}()
	return p
}

// Next implements Lines.
func (p *plainLines) Next(signals <-chan os.Signal) (string, error) {
	select {
	case line, ok := <-p.lines:
		if ok {
			return line, nil
		}
		if p.err != nil {
			return "", p.err
		}
	case <-signals:
		// No answer to stop: this interrupt means the program.
		return "", ErrInterrupted
	}
	return "", io.EOF
}

// Close implements Lines.
func (p *plainLines) Close() { close(p.done) }

// terminalLines is a line editor with history. The terminal is raw only while
// a line is read: during an answer ctrl-C is a signal, as usual.
type terminalLines struct {
	file   *os.File
	out    io.Writer
	in     *interruptReader
	editor *term.Terminal
}

func newTerminalLines(f *os.File, out io.Writer) *terminalLines {
	t := &terminalLines{file: f, out: out, in: &interruptReader{r: f}}
	t.editor = t.newEditor()
	return t
}

func (t *terminalLines) newEditor() *term.Terminal {
	return term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{t.in, t.out}, "> ")
}

// line is what one read of the terminal gave.
type line struct {
	text string
	err  error
}

// Next implements Lines.
func (t *terminalLines) Next(signals <-chan os.Signal) (string, error) {
	for {
		state, err := term.MakeRaw(int(t.file.Fd()))
		if err != nil {
			return "", err
		}
		read := make(chan line, 1)
		go func() {
			text, err := t.readLine()
			read <- line{text, err}
		}()
		var got line
		select {
		case got = <-read:
		case <-signals:
			// Keys make no signals now: somebody else wants the program to end.
			got.err = ErrInterrupted
		}
		if err := term.Restore(int(t.file.Fd()), state); err != nil && got.err == nil {
			got.err = err
		}
		switch {
		case errors.Is(got.err, errLineDropped):
			t.drop()
			continue
		case got.err == io.EOF:
			io.WriteString(t.out, "\n")
		}
		return got.text, got.err
	}
}

// drop forgets the line that was being edited. The editor keeps it after an
// error of its reader, half a paste and half a key sequence too: so a new one
// takes its place, with its history. What the line had below the cursor is
// cleared.
func (t *terminalLines) drop() {
	history := t.editor.History
	t.editor = t.newEditor()
	t.editor.History = history
	io.WriteString(t.out, "\n\x1b[J(ctrl-D or /exit leaves)\n")
}

// readLine reads one message: a line, or the pasted lines before one.
func (t *terminalLines) readLine() (string, error) {
	if width, height, err := term.GetSize(int(t.file.Fd())); err == nil && width > 0 {
		t.editor.SetSize(width, height)
	}
	t.editor.SetBracketedPasteMode(true)
	defer t.editor.SetBracketedPasteMode(false)
	var lines []string
	for {
		line, err := t.editor.ReadLine()
		lines = append(lines, line)
		if errors.Is(err, term.ErrPasteIndicator) {
			continue
		}
		return strings.Join(lines, "\n"), err
	}
}

// Close implements Lines.
func (t *terminalLines) Close() {}
