package eval

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"windrow/decoder"
)

func sweepReport(t *testing.T) *Report {
	t.Helper()
	grid, err := ParseGrid(decoder.WeDLM, "8,16", "0.1,0.3,0.5,0.7,none", "0.02")
	if err != nil {
		t.Fatal(err)
	}
	c := evaluation("")
	c.Settings = grid.Settings()
	c.Model = "a <model>"
	report, err := RunGSM8K(context.Background(), &scripted{}, c)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestWriteHTML(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, sweepReport(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.html", b.Bytes())
	page := b.String()
	for _, bad := range []string{"<b>", "<model>", "<script", "http://", "https://", "url(", "@import", "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"I &lt;b&gt;think&lt;/b&gt; &amp; think", "a &lt;model&gt;", "tokens per forward", "accuracy (%)", "prefers-color-scheme: dark"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestWriteHTMLEdges(t *testing.T) {
	one := evaluation("")
	one.Settings, one.Limit = one.Settings[:1], 2
	right, err := RunGSM8K(context.Background(), &scripted{}, one)
	if err != nil {
		t.Fatal(err)
	}
	many := &Report{Settings: []SettingReport{{Name: "ar", Score: Score{N: 400}}}}
	for i := range 400 {
		many.Items = append(many.Items, Item{Index: i, Text: strings.Repeat("é", 3000), Setting: Setting{Mode: decoder.AR}})
	}
	for _, test := range []struct {
		name   string
		report *Report
		want   []string
	}{
		{"empty", &Report{}, []string{"nothing was answered"}},
		{"nothing answered", &Report{Settings: []SettingReport{{Name: "ar"}}}, []string{"nothing was answered"}},
		{"all right", right, []string{"<p>None.</p>"}},
		{"all wrong", many, []string{"400 of 400 problems", "the first 300 are shown", "é …</pre>"}},
	} {
		var b bytes.Buffer
		if err := WriteHTML(&b, test.report); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: the page lacks %q", test.name, want)
			}
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s: a figure is not finite", test.name)
		}
	}
}

func TestSaveHTML(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.html")
	for range 2 {
		if err := SaveHTML(path, &Report{Model: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(string(data), "</html>\n") {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "folder", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{filepath.Join(dir, "folder"), filepath.Join(dir, "none", "report.html")} {
		if err := SaveHTML(bad, &Report{}); err == nil {
			t.Errorf("SaveHTML(%s): no error", bad)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("files left behind: %v, %v", entries, err)
	}
}

// TestPlotLabels checks that no label lies on a point, on another label or
// outside the frame, on a crowded plot.
func TestPlotLabels(t *testing.T) {
	p := newPlot(sweepReport(t).Settings)
	var labels, points []box
	for _, s := range p.Series {
		for _, q := range s.Points {
			points = append(points, box{q.X - 3, q.Y - 3, q.X + 3, q.Y + 3})
			if q.X < p.Left || q.X > p.Right || q.High < p.Top || q.Low > p.Bottom || q.Y < q.High || q.Y > q.Low {
				t.Errorf("%s: outside the frame or its bar: %+v", s.Name, q)
			}
			if q.Label == "" {
				continue
			}
			width := labelSize * float64(utf8.RuneCountInString(q.Label))
			b := box{q.LabelX, q.LabelY - 11, q.LabelX + width, q.LabelY + 3}
			if q.Anchor == "end" {
				b.x0, b.x1 = q.LabelX-width, q.LabelX
			}
			for _, other := range labels {
				if b.overlaps(other) {
					t.Errorf("label %q of %s overlaps another", q.Label, s.Name)
				}
			}
			labels = append(labels, b)
		}
	}
	for _, l := range labels {
		for _, q := range points {
			if l.overlaps(q) {
				t.Errorf("label %+v lies on point %+v", l, q)
			}
		}
	}
	if len(labels) < len(points)/2 {
		t.Errorf("%d labels for %d points", len(labels), len(points))
	}
}

func TestTicks(t *testing.T) {
	for _, test := range []struct {
		low, high   float64
		first, last string
		n           int
	}{
		{0, 10.5, "0", "12", 7},
		{0, 1.06, "0.0", "1.2", 7},
		{98.2, 100, "98.2", "100.0", 10},
		{43.8, 100, "40", "100", 7},
		{0, 100, "0", "100", 6},
		{99.5, 100, "99.5", "100.0", 6},
	} {
		got := ticks(test.low, test.high)
		if len(got) != test.n || tickLabel(got[0], got) != test.first || tickLabel(got[len(got)-1], got) != test.last {
			t.Errorf("ticks(%v, %v) = %v, %s to %s", test.low, test.high, got, tickLabel(got[0], got), tickLabel(got[len(got)-1], got))
		}
	}
}
