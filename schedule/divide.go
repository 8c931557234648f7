package schedule

import (
	"math"
	"slices"

	"windrow/decoder"
	"windrow/model"
)

// division deals out the rows of a forward among the sequences that choose theirs: so many
// that what they are worth, less what the time of the forward is, is the most.
//
// The price of a row is right on average; a forward has its own rows beside, its own drafts
// at hand, and c(rows) has stairs. What a sequence would make of more rows it says itself
// (decoder.Sequence.Worths). The rows that are worth the most come first, whoever's they
// are, and there are as many as pay for the time of all: up to a stair, or past it where
// that is worth it.
type division struct {
	parts []part
	// worths has those of all parts; gains are the steps from fewer rows to more, of
	// all, the best first; corners is scratch.
	worths  []float64
	gains   []gain
	found   []gain
	corners []int
	turn    int
}

// part is what a sequence has of a forward.
type part struct {
	job   *job
	worth []float64 // in tokens, by rows from 1 on
	rows  int
}

// gain is that a part has so many rows and not fewer.
type gain struct {
	class, part, rows int
}

// begin forgets the parts of the last forward.
func (d *division) begin() {
	clear(d.parts)
	d.parts, d.worths = d.parts[:0], d.worths[:0]
}

// add weighs the rows of a sequence, and reports whether it can say what they are worth.
func (d *division) add(j *job) bool {
	n := len(d.worths)
	d.worths = j.sequence.Worths(d.worths)
	if len(d.worths) == n {
		return false
	}
	d.parts = append(d.parts, part{job: j, worth: d.worths[n:], rows: 1})
	return true
}

// divide gives each part its rows, where others have so many; rate is what a second is
// worth in tokens, and edges are the numbers of rows after which they get dearer.
func (d *division) divide(others int, rate float64, seconds func(rows int) float64, edges []int) {
	d.rank()
	rows, worth := others+len(d.parts), 0.0
	for _, p := range d.parts {
		worth += p.worth[0]
	}
	// The best so far: with the first so many gains, and one part beside that has more rows
	// than by these.
	best, gains, more, most := worth-rate*seconds(rows), 0, -1, 0
	for n, g := range d.gains {
		p := &d.parts[g.part]
		end := rows + g.rows - p.rows
		// Between two good numbers of rows of one sequence an edge may lie: what is left up
		// to there is for who makes the most of it.
		for len(edges) > 0 && edges[0] < end {
			if room := edges[0] - rows; room > 0 {
				paid := rate * seconds(edges[0])
				for i, q := range d.parts {
					to := min(q.rows+room, len(q.worth))
					if x := worth + q.worth[to-1] - q.worth[q.rows-1] - paid; x > best {
						best, gains, more, most = x, n, i, to
					}
				}
			}
			edges = edges[1:]
		}
		worth += p.worth[g.rows-1] - p.worth[p.rows-1]
		rows, p.rows = end, g.rows
		if x := worth - rate*seconds(rows); x > best {
			best, gains, more = x, n+1, -1
		}
	}
	for i := range d.parts {
		d.parts[i].rows = 1
	}
	for _, g := range d.gains[:gains] {
		d.parts[g.part].rows = g.rows
	}
	if more >= 0 {
		d.parts[more].rows = most
	}
}

// rank finds the gains of all parts and puts them in order, as well as classOf tells them
// apart. Of equals each part is the first in turn.
func (d *division) rank() {
	d.found = d.found[:0]
	d.turn++
	for k := range d.parts {
		d.gain((k + d.turn) % len(d.parts))
	}
	var from [classes + 1]int // where the gains of a class begin
	for _, g := range d.found {
		from[1+g.class]++
	}
	for c := range classes {
		from[1+c] += from[c]
	}
	d.gains = slices.Grow(d.gains[:0], len(d.found))[:len(d.found)]
	for _, g := range d.found {
		d.gains[from[g.class]] = g
		from[g.class]++
	}
}

// classes are those of gains: 16 in each octave, from more than a row can bring down to
// what nobody misses.
const classes = 16 * (1 + 10)

// classOf is the class of a gain of so many tokens a row, a positive number: 0 for the
// most. Sorting hundreds of gains by it takes a tenth of what comparing them does.
func classOf(each float64) int {
	const perOctave = 52 - 4 // bits of a float64 below those that tell 16 of an octave apart
	of := func(x float64) int { return int(math.Float64bits(x) >> perOctave) }
	return min(max(0, of(2)-1-of(each)), classes-1)
}

// gain appends the gains of a part: over numbers of rows between which no other is worth
// more than its share, so that each gain brings less a row than the one before it.
func (d *division) gain(i int) {
	w := d.parts[i].worth
	each := func(from, to int) float64 { return (w[to-1] - w[from-1]) / float64(to-from) }
	c := append(d.corners[:0], 1)
	for to := 2; to <= len(w); to++ {
		for n := len(c); n > 1 && each(c[n-1], to) >= each(c[n-2], c[n-1]); n-- {
			c = c[:n-1]
		}
		c = append(c, to)
	}
	d.corners = c
	for n := 1; n < len(c); n++ {
		if x := each(c[n-1], c[n]); x > 0 {
			d.found = append(d.found, gain{classOf(x), i, c[n]})
		}
	}
}

// edges are the numbers of rows after which one more costs more than the one before.
func edges(c *decoder.CostModel) (list []int) {
	points := c.Points()
	for i := 1; i+1 < len(points); i++ {
		at := points[i].Rows
		if now := c.Seconds(at); c.Seconds(at+1)-now > now-c.Seconds(at-1) {
			list = append(list, at)
		}
	}
	return list
}

// weigh asks an elastic sequence what its rows are worth, and reports whether they are to be
// dealt out: not while there is a loss to make up for, when what rows promise is in doubt.
func (x *shares) weigh(j *job) bool {
	j.sequence.Share(x.pass.price)
	return x.pass.price != nil && x.balance >= 0 && x.division.add(j)
}

// divide deals out the rows of all that were weighed.
func (x *shares) divide() []part {
	d := &x.division
	if len(d.parts) > 0 {
		d.divide(x.pass.prompts+x.pass.rows, x.worth, x.seconds, x.edges)
	}
	return d.parts
}

// plan has an elastic sequence plan its step: of so many rows at most, or, with 0, of as
// many as are worth their price.
func (x *shares) plan(j *job, b *model.Batch, rows int) {
	before := len(b.Tokens)
	j.sequence.Plan(b, rows)
	x.pass.rows += len(b.Tokens) - before
}
