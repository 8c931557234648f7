package terminal

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"

	"windrow/decoder"
)

// cellState is what a slot of the window holds after a step.
type cellState uint8

const (
	cellMask    cellState = iota
	cellFilled            // filled by an earlier step, waiting for the slots left of it
	cellFresh             // filled by this step
	cellDropped           // a draft that this step rejected
)

// cell is one slot as it is drawn.
type cell struct {
	State   cellState
	Text    string  // of a filled slot
	Entropy float32 // nats, of a mask; negative: not known
}

// frame is the picture of one step: the text so far, the window that the step
// leaves behind, and the counters.
type frame struct {
	Text                   string
	Cells                  []cell
	Forwards, Tokens, Rows int
}

// filmstrip turns the steps of one generation into frames. It is fed from the
// decoder's hooks and keeps no clock: the same steps give the same frames.
type filmstrip struct {
	mode   decoder.Mode
	piece  func(id int32) string
	text   strings.Builder
	counts frame
}

// write notes visible text; it is decoder.Hooks.Text.
func (f *filmstrip) write(piece string) { f.text.WriteString(piece) }

// step makes the frame that shows the window after s.
func (f *filmstrip) step(s decoder.Step) frame {
	f.counts.Forwards++
	f.counts.Tokens += len(s.Committed)
	f.counts.Rows += len(s.Slots)
	out := f.counts
	out.Text = f.text.String()
	if len(s.Filled) == 0 {
		return out // the end: what is left of the window is dropped
	}
	if f.mode != decoder.WeDLM { // the newest token is known, and in the window still
		out.Text = strings.TrimSuffix(out.Text, f.piece(s.Filled[0].Token))
	}
	left := s.Slots[min(len(s.Committed), len(s.Slots)):]
	entropy := s.Entropy
	for _, slot := range left {
		c := cell{Entropy: -1}
		switch {
		case !slot.Filled:
			if len(entropy) > 0 {
				c.Entropy, entropy = entropy[0], entropy[1:]
			}
		case f.mode == decoder.Verified:
			// Verified mode keeps nothing behind a rejected draft.
			c.State, c.Text = cellDropped, f.piece(slot.Token)
		default:
			c.State, c.Text = cellFilled, f.piece(slot.Token)
		}
		out.Cells = append(out.Cells, c)
	}
	for _, fill := range s.Filled {
		for fill.Slot >= len(out.Cells) {
			out.Cells = append(out.Cells, cell{Entropy: -1})
		}
		if fill.Slot >= 0 {
			out.Cells[fill.Slot] = cell{State: cellFresh, Text: f.piece(fill.Token)}
		}
	}
	return out
}

// counters is the line under the window.
func (f frame) counters() string {
	return fmt.Sprintf("forward %d · %d tokens · %.2f tokens per forward · p_cache %.2f · %.1f rows",
		f.Forwards, f.Tokens, over(f.Tokens, f.Forwards), over(f.Tokens, f.Rows), over(f.Rows, f.Forwards))
}

func over(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// shades draw a mask's entropy: the surer the model, the lighter the block.
var shades = []struct {
	below float32 // nats
	block string
}{{0.4, "░░"}, {0.75, "▒▒"}, {1.5, "▓▓"}}

// shade is the block for an entropy; not known is full.
func shade(entropy float32) string {
	if entropy >= 0 {
		for _, s := range shades {
			if entropy < s.below {
				return s.block
			}
		}
	}
	return "██"
}

// visible makes a token's text fit for one cell: no control characters.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '⏎'
		case r == '\t':
			return '⇥'
		case unicode.IsControl(r) || r == unicode.ReplacementChar:
			return '·'
		}
		return r
	}, s)
}

// tail is the end of s that fits into width columns, padded on the left.
func tail(s string, width int) string {
	if pad := width - uniseg.StringWidth(s); pad >= 0 {
		return strings.Repeat(" ", pad) + s
	}
	for s != "" && uniseg.StringWidth(s) > width-1 {
		_, s, _, _ = uniseg.FirstGraphemeClusterInString(s, -1)
	}
	return strings.Repeat(" ", width-1-uniseg.StringWidth(s)) + "…" + s
}

// wrapLines breaks text into lines of at most width columns, at spaces where it can.
func wrapLines(text string, width int) []string {
	var lines []string
	for para := range strings.SplitSeq(text, "\n") {
		line, used := "", 0
		for word := range strings.SplitAfterSeq(para, " ") {
			for word != "" {
				w := uniseg.StringWidth(strings.TrimRight(word, " "))
				if used+w <= width {
					line, used = line+word, used+uniseg.StringWidth(word)
					break
				}
				if used > 0 {
					lines, line, used = append(lines, strings.TrimRight(line, " ")), "", 0
					continue
				}
				head := cut(word, width)
				lines, word = append(lines, head), word[len(head):]
			}
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// cut is the start of s that fits into width columns: at least one character.
func cut(s string, width int) string {
	used, n := 0, 0
	for rest, state := s, -1; rest != ""; {
		cluster, next, w, st := uniseg.FirstGraphemeClusterInString(rest, state)
		if used+w > width && n > 0 {
			break
		}
		used, n, rest, state = used+w, n+len(cluster), next, st
	}
	return s[:n]
}

// textLines is how many lines of the text stand above the window.
const textLines = 6

// ansi draws the frame for a terminal: the last lines of the text, the strip
// (what was committed slides out to the left, the window stands right of the
// bar), and the counters. No line is wider than width.
func (f frame) ansi(width int) []string {
	width = max(width, 20)
	lines := wrapLines(printable(f.Text), width-1)
	if len(lines) > textLines {
		lines = lines[len(lines)-textLines:]
	}
	return append(lines, f.strip(width-1), cut(f.counters(), width-1))
}

// printable keeps a model's text from driving the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// The strip's colours: background and foreground of the 256-colour palette,
// two a state so that neighbours can be told apart.
var stripColours = map[cellState][2]string{
	cellFilled:  {"\x1b[48;5;24;38;5;255m", "\x1b[48;5;25;38;5;255m"},
	cellFresh:   {"\x1b[48;5;28;38;5;255m", "\x1b[48;5;29;38;5;255m"},
	cellDropped: {"\x1b[48;5;52;38;5;245m", "\x1b[48;5;53;38;5;245m"},
	cellMask:    {"\x1b[38;5;240m", "\x1b[38;5;243m"},
}

const ansiReset = "\x1b[0m"

// strip is the window as one line of at most width columns.
func (f frame) strip(width int) string {
	left := width / 3
	var b strings.Builder
	b.WriteString("\x1b[2m" + tail(visible(f.Text), left) + ansiReset + "▐")
	used := left + 1
	for i, c := range f.Cells {
		text := c.label()
		w := uniseg.StringWidth(text)
		if used+w > width {
			break
		}
		used += w
		b.WriteString(stripColours[c.State][i%2] + text + ansiReset)
	}
	return b.String()
}

// label is what stands in the cell.
func (c cell) label() string {
	if c.State == cellMask {
		return shade(c.Entropy)
	}
	if t := visible(c.Text); t != "" {
		return t
	}
	return "·"
}
