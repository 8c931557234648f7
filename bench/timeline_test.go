package bench

import (
	"strings"
	"testing"
	"text/tabwriter"

	"windrow/backend"
)

// TestTimelineTable: launches that are alike are told together, from the end of the one before.
func TestTimelineTable(t *testing.T) {
	at := func(name string, blocks int, us ...float64) backend.Launched {
		l := backend.Launched{Name: name, Blocks: blocks, Threads: 64}
		for i, to := range []*float64{&l.Begun, &l.Half, &l.Ready, &l.Released, &l.First, &l.Middle, &l.Last} {
			*to = us[i] / 1e6
		}
		return l
	}
	line := Timeline{Sequences: 1, Rows: 4, Launches: []backend.Launched{
		at("a", 2, 0, 2, 2, 3, 4, 5, 10),
		at("b", 1, 8, 9, 9, 11, 12, 13, 14),
		at("a", 2, 12, 13, 14, 15, 17, 20, 22),
		at("a", 3, 20, 21, 22, 23, 24, 25, 26),
	}}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	line.table(w)
	w.Flush()
	want := `
kernels of a 4-row step, 4 in 0.03 ms; µs from the end of the one before
kernel  launches  blocks × threads  begun (half)  ready  released  first ends  half  last
a       2         2 × 64            -1.0 (0.5)    1.0    2.0       3.5         5.5   9.0
b       1         1 × 64            -2.0 (-1.0)   -1.0   1.0       2.0         3.0   4.0
a       1         3 × 64            -2.0 (-1.0)   0.0    1.0       2.0         3.0   4.0
`
	if text.String() != want {
		t.Errorf("got\n%s, want\n%s", text.String(), want)
	}
	text.Reset()
	(&Timeline{Sequences: 8, Rows: 16, Launches: line.Launches[:1]}).table(&text)
	if first := "\nkernels of a step of 8x16 rows, 1 in 0.01 ms; "; !strings.HasPrefix(text.String(), first) {
		t.Errorf("got\n%s, want first\n%s", text.String(), first)
	}
	text.Reset()
	(&Timeline{Prompt: 2048, Launches: line.Launches[:1]}).table(&text)
	if first := "\nkernels of a prompt of 2048, 1 in 0.01 ms; "; !strings.HasPrefix(text.String(), first) {
		t.Errorf("got\n%s, want first\n%s", text.String(), first)
	}
	text.Reset()
	(&Timeline{Rows: 1}).table(&text)
	if text.Len() > 0 {
		t.Errorf("of no launches: %q", text.String())
	}
}
