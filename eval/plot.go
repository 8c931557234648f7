package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// The plot's size and margins, in SVG units (pixels at full width).
const (
	plotWidth, plotHeight  = 860.0, 450.0
	plotLeft, plotRight    = 70.0, 24.0
	plotTop, plotBottom    = 30.0, 58.0
	markerSize             = 5.5
	labelSize, labelHeight = 6.3, 15.0 // width of a character at 12 px, height of a line
)

// plot is accuracy over tokens per forward, ready for the template.
type plot struct {
	Width, Height            float64
	Left, Right, Top, Bottom float64 // the frame
	XTicks, YTicks           []plotTick
	Series                   []plotSeries
	Frontier                 string // path; empty where there is no choice
}

type plotTick struct {
	At    float64
	Label string
}

// plotSeries are settings that differ in their threshold only, joined by a
// line.
type plotSeries struct {
	Name   string
	Color  int // index into the palette
	Line   string
	Marker string // path around 0, 0
	Points []plotPoint
}

type plotPoint struct {
	Title           string
	X, Y, Low, High float64
	Label, Anchor   string // no label where none fits
	LabelX, LabelY  float64
}

// palette is the number of colours that the template defines.
const palette = 8

// newPlot lays out the settings that have answers; nil where there are fewer
// than two to compare.
func newPlot(all []SettingReport) *plot {
	var shown []SettingReport
	xMax, yMin, yMax := 0.0, 100.0, 0.0
	for _, s := range all {
		if s.N == 0 {
			continue
		}
		shown = append(shown, s)
		xMax = max(xMax, s.TokensPerForward)
		yMin, yMax = min(yMin, 100*s.AccuracyLow), max(yMax, 100*s.AccuracyHigh)
	}
	if len(shown) < 2 {
		return nil
	}
	p := &plot{
		Width: plotWidth, Height: plotHeight,
		Left: plotLeft, Right: plotWidth - plotRight, Top: plotTop, Bottom: plotHeight - plotBottom,
	}
	xs := ticks(0, 1.06*max(xMax, 1))
	ys := ticks(yMin, max(yMax, yMin+1))
	x := func(v float64) float64 { return pixel(p.Left + (p.Right-p.Left)*(v-xs[0])/(xs[len(xs)-1]-xs[0])) }
	y := func(v float64) float64 { return pixel(p.Bottom - (p.Bottom-p.Top)*(v-ys[0])/(ys[len(ys)-1]-ys[0])) }
	for _, v := range xs {
		p.XTicks = append(p.XTicks, plotTick{x(v), tickLabel(v, xs)})
	}
	for _, v := range ys {
		p.YTicks = append(p.YTicks, plotTick{y(v), tickLabel(v, ys)})
	}
	p.group(shown, x, y)
	frontier := frontierPoints(shown, x, y)
	p.Frontier = linePath(frontier)
	p.placeLabels(frontier)
	return p
}

// group makes the series: one for each mode, window and penalty.
func (p *plot) group(shown []SettingReport, x, y func(float64) float64) {
	shown = slices.Clone(shown)
	name := func(s SettingReport) string {
		return strings.Replace(s.Name, " τ"+thresholdName(s.EntropyThreshold), "", 1)
	}
	members := map[string][]SettingReport{}
	var order []string
	for _, s := range shown {
		n := name(s)
		if members[n] == nil {
			order = append(order, n)
		}
		members[n] = append(members[n], s)
	}
	for i, n := range order {
		settings := members[n]
		slices.SortStableFunc(settings, func(a, b SettingReport) int {
			return cmp.Compare(thresholdOrder(a), thresholdOrder(b))
		})
		series := plotSeries{Name: n, Color: i % palette, Marker: marker(i)}
		if len(settings) == 1 {
			series.Name = settings[0].Name
		}
		for _, s := range settings {
			point := plotPoint{
				Title: fmt.Sprintf("%s: %s (%s), %.2f tokens per forward, p_cache %.3f, %.1f tokens/s",
					s.Name, percent(s.Accuracy), s.interval()+" %", s.TokensPerForward, s.PCache, s.TokensPerSecond),
				X: x(s.TokensPerForward), Y: y(100 * s.Accuracy),
				Low: y(100 * s.AccuracyLow), High: y(100 * s.AccuracyHigh),
				Label: series.Name,
			}
			if len(settings) > 1 {
				point.Label = "τ " + thresholdName(s.EntropyThreshold)
			}
			series.Points = append(series.Points, point)
		}
		series.Line = linePath(series.Points)
		p.Series = append(p.Series, series)
	}
}

// thresholdOrder sorts by boldness: no threshold is the most careful.
func thresholdOrder(s SettingReport) float32 {
	if s.EntropyThreshold == nil {
		return -1
	}
	return *s.EntropyThreshold
}

// box is a rectangle that a label must keep clear of.
type box struct{ x0, y0, x1, y1 float64 }

func (a box) overlaps(b box) bool {
	return a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1
}

// alongLine covers the line through points with boxes of 4 px.
func alongLine(points []plotPoint) []box {
	var all []box
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		n := math.Ceil(max(math.Abs(b.X-a.X), math.Abs(b.Y-a.Y), 1) / 4)
		for k := 0.0; k <= n; k++ {
			x, y := a.X+(b.X-a.X)*k/n, a.Y+(b.Y-a.Y)*k/n
			all = append(all, box{x - 2, y - 2, x + 2, y + 2})
		}
	}
	return all
}

// placeLabels puts each label beside its point, clear of all points, error
// bars, lines and earlier labels, or drops it: the tooltip and the table have it too.
func (p *plot) placeLabels(frontier []plotPoint) {
	taken := alongLine(frontier)
	for _, s := range p.Series {
		for _, q := range s.Points {
			taken = append(taken,
				box{q.X - markerSize, q.Y - markerSize, q.X + markerSize, q.Y + markerSize},
				box{q.X - 4, q.High, q.X + 4, q.Low})
		}
		taken = append(taken, alongLine(s.Points)...)
	}
	for i := range p.Series {
		for j := range p.Series[i].Points {
			q := &p.Series[i].Points[j]
			width := labelSize * float64(utf8.RuneCountInString(q.Label))
			if !q.place(width, func(b box) bool {
				return b.x0 < p.Left || b.x1 > p.Right || b.y0 < 0 || b.y1 > p.Bottom || slices.ContainsFunc(taken, b.overlaps)
			}, &taken) {
				q.Label = ""
			}
		}
	}
}

// place tries the places around a point, the nearest first, and takes one
// that is not blocked.
func (q *plotPoint) place(width float64, blocked func(box) bool, taken *[]box) bool {
	for _, dy := range []float64{0, -labelHeight, labelHeight, -2 * labelHeight, 2 * labelHeight} {
		for _, side := range []float64{1, -1} {
			near := q.X + 9*side
			b := box{near, q.Y + dy - labelHeight/2, near + side*width, q.Y + dy + labelHeight/2}
			q.Anchor = "start"
			if side < 0 {
				b.x0, b.x1 = b.x1, b.x0
				q.Anchor = "end"
			}
			if blocked(b) {
				continue
			}
			*taken = append(*taken, b)
			// The baseline lies 4 px below a line's middle at 12 px.
			q.LabelX, q.LabelY = pixel(near), pixel(q.Y+dy+4)
			return true
		}
	}
	return false
}

// frontierPoints are the settings worth choosing, from careful to bold; none
// where there is no choice.
func frontierPoints(shown []SettingReport, x, y func(float64) float64) []plotPoint {
	var best []plotPoint
	for _, s := range shown {
		if s.Frontier {
			best = append(best, plotPoint{X: x(s.TokensPerForward), Y: y(100 * s.Accuracy)})
		}
	}
	if len(shown) < 3 {
		return nil
	}
	slices.SortStableFunc(best, func(a, b plotPoint) int { return cmp.Compare(a.X, b.X) })
	return best
}

// linePath joins points; a single one makes no line.
func linePath(points []plotPoint) string {
	if len(points) < 2 {
		return ""
	}
	var line []string
	for _, q := range points {
		line = append(line, fmt.Sprintf("%.1f %.1f", q.X, q.Y))
	}
	return "M" + strings.Join(line, "L")
}

// ticks are 4 to 11 round values that cover low to high.
func ticks(low, high float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	for _, f := range []float64{0.2, 0.5, 1, 2} {
		if (high-low)/(f*step) <= 9 {
			step *= f
			break
		}
	}
	first, last := math.Floor(low/step+1e-9), math.Ceil(high/step-1e-9)
	var all []float64
	for i := first; i <= last; i++ {
		all = append(all, i*step)
	}
	return all
}

// tickLabel gives as many decimals as the ticks' distance needs.
func tickLabel(v float64, all []float64) string {
	decimals := max(0, -int(math.Floor(math.Log10(all[1]-all[0])+1e-9)))
	return fmt.Sprintf("%.*f", decimals, v)
}

// marker is the outline of the i-th series' points.
func marker(i int) string {
	return [...]string{
		"M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z", // circle
		"M-4.5 -4.5H4.5V4.5H-4.5Z",              // square
		"M0 -6.2L6.2 0L0 6.2L-6.2 0Z",           // diamond
		"M0 -5.8L5.6 4.4H-5.6Z",                 // triangle
		"M0 5.8L5.6 -4.4H-5.6Z",                 // triangle, point down
		"M-6 -2H-2V-6H2V-2H6V2H2V6H-2V2H-6Z",    // plus
	}[i%6]
}

// pixel rounds to a tenth; the small shift keeps values that lie between two
// tenths from falling to different sides on different machines.
func pixel(v float64) float64 { return math.Round(v*10+1e-6) / 10 }
