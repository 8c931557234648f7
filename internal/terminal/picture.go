package terminal

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/rivo/uniseg"
)

// The geometry of the picture, in pixels. The font is whatever monospace the
// reader has, so each text carries its own length.
const (
	svgChar   = 8.4 // advance of a 14 px monospace character
	svgLine   = 26
	svgPad    = 18
	svgColumn = 34 // characters of committed text left of the window
	svgWidth  = 116
)

// svg draws frames under each other as one picture of --watch: a line a
// forward, with the text sliding out to the left and the window right of the
// bar. It is made for the README: deterministic, no scripts, no fonts.
func svg(title string, frames []frame) string {
	var b strings.Builder
	rows := len(frames) + 4
	width, height := int(math.Ceil(svgWidth*svgChar))+2*svgPad, rows*svgLine+2*svgPad
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="10" fill="#161b22"/>`+"\n", width, height)
	p := svgPen{b: &b, y: svgPad + svgLine/2}
	p.text(0, "$ "+title, "#e6edf3")
	p.y += svgLine
	for _, f := range frames {
		p.y += svgLine
		p.frame(f)
	}
	p.y += svgLine + svgLine/2
	if n := len(frames); n > 0 {
		p.text(0, frames[n-1].counters(), "#8b949e")
	}
	p.y += svgLine
	p.text(0, "left of the bar: committed; green: filled by this forward; blue: filled before; grey: masks, brighter the less sure", "#8b949e")
	b.WriteString("</svg>\n")
	return b.String()
}

// svgPen writes elements of one line of the picture.
type svgPen struct {
	b *strings.Builder
	y int
}

func (p *svgPen) text(column int, s, colour string) {
	n := uniseg.StringWidth(s)
	if strings.TrimSpace(s) == "" {
		return
	}
	fmt.Fprintf(p.b, `<text x="%.1f" y="%d" fill="%s" textLength="%.1f" xml:space="preserve">%s</text>`+"\n",
		svgPad+float64(column)*svgChar, p.y+5, colour, float64(n)*svgChar, html.EscapeString(s))
}

func (p *svgPen) box(column, width int, fill string, opacity float64) {
	fmt.Fprintf(p.b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="3" fill="%s" fill-opacity="%.2f"/>`+"\n",
		svgPad+float64(column)*svgChar+0.7, p.y-svgLine/2+3, float64(width)*svgChar-1.4, svgLine-6, fill, opacity)
}

// The picture's colours, by state.
var svgColours = map[cellState]struct{ fill, text string }{
	cellMask:    {"#8b949e", ""},
	cellFilled:  {"#1f6feb", "#ffffff"},
	cellFresh:   {"#2ea043", "#ffffff"},
	cellDropped: {"#6e2c2c", "#b9a0a0"},
}

func (p *svgPen) frame(f frame) {
	p.text(0, tail(visible(f.Text), svgColumn), "#c9d1d9")
	fmt.Fprintf(p.b, `<rect x="%.1f" y="%d" width="2" height="%d" fill="#d29922"/>`+"\n", svgPad+(svgColumn+0.5)*svgChar, p.y-svgLine/2+1, svgLine-2)
	column := svgColumn + 1
	for _, c := range f.Cells {
		label := c.label()
		w := uniseg.StringWidth(label)
		if column+w > svgWidth {
			break
		}
		colours := svgColours[c.State]
		if c.State == cellMask {
			p.box(column, w, colours.fill, svgShade(c.Entropy))
		} else {
			p.box(column, w, colours.fill, 1)
			p.text(column, label, colours.text)
		}
		column += w
	}
}

// svgShade is a mask's opacity: darker the less sure the model is. Four steps,
// as in the terminal, so that two CPUs draw the same picture.
func svgShade(entropy float32) float64 {
	for i, s := range shades {
		if entropy >= 0 && entropy < s.below {
			return 0.2 + 0.2*float64(i)
		}
	}
	return 0.85
}
