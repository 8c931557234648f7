package decoder

import (
	"math"
	"sync"
	"time"
)

// Chain learns what a head for drafts is fed with behind its first draft.
//
// The head was trained on the model's hidden states. Of the positions that are drafted
// there are none yet: what it has is its own output, which is something else, unless it
// was trained to be fed with that. So a linear map from its outputs to the states that
// the model then had is learned from each text, and fed where its drafts stand more often
// than those that the output itself leads to (ADR 19). It changes speed, never text.
//
// A Chain is of one model, for all its generations; it is safe for concurrent use.
type Chain struct {
	mutex sync.Mutex
	sums  AddRows
	width int // of a hidden state; 0: nothing was seen yet
	seen  int
	// weights are [width+1, width]: an input's row is what it adds; the last is for 1.
	weights []float32
	// spread is the inverse of the inputs' moments [width+1, width+1], as recursive least
	// squares keep it.
	spread []float32
	gain   []float32
	share  []float32 // of each row in what is added
	input  []float32
	error  []float32
	// stood is how often a second draft did, by what the head was fed with: its output, or
	// the mapped one. Older ones fade.
	stood [2]Chance
	steps int
}

const (
	// mappedWidth bounds hidden states that are mapped. A state that is learned from takes
	// 4·width² multiply-adds, and a draft width²: at 256 some 0.02 and 0.005 ms. Past it
	// heads are fed with their own output, as they are trained to be.
	mappedWidth = 1024
	// leastSeen is from how many states on the map is tried, and mostSeen how many it is
	// learned from.
	leastSeen, mostSeen = 64, 1536
	// ridge is how much the beginning, which maps a state to itself, weighs.
	ridge = 30
	// chainMemory fades what was seen of drafts; every chainTry steps the worse way is
	// taken, so that it can become the better one, and more often in the beginning.
	chainMemory        = 0.99
	chainTry, chainNew = 32, 32
)

// AddRows adds Σ_i x[i]·m[i] to sum [n], with m [len(x), n].
type AddRows func(sum, m, x []float32)

// NewChain has seen nothing. It adds by sums; nil: in plain Go, which takes some ten
// times as long.
func NewChain(sums AddRows) *Chain {
	if sums == nil {
		sums = addRows
	}
	return &Chain{sums: sums}
}

// learning reports whether more states are of use.
func (c *Chain) learning(width int) bool {
	if c == nil || width > mappedWidth {
		return false
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.seen < mostSeen
}

// learn takes an output of the head, and the hidden state that the model had in its
// place.
func (c *Chain) learn(output, state []float32) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.width == 0 {
		c.begin(len(output))
	}
	if c.seen >= mostSeen || len(output) != c.width || len(state) != c.width {
		return
	}
	c.seen++
	n := c.width + 1
	x := c.input
	normed(x[:c.width], output)
	x[c.width] = 1
	// Recursive least squares: gain = spread·x / (1 + x·spread·x).
	clear(c.gain)
	c.sums(c.gain, c.spread, x) // it is symmetric
	norm := float32(1)
	for i, v := range x {
		norm += c.gain[i] * v
	}
	if !(norm < math.MaxFloat32) { // of an output that is not finite
		return
	}
	for i, g := range c.gain {
		c.share[i] = -g / norm
	}
	for i := range n {
		c.sums(c.spread[i*n:(i+1)*n], c.gain, c.share[i:i+1])
	}
	normed(c.error, state)
	for i := range x {
		x[i] = -x[i]
	}
	c.sums(c.error, c.weights, x)
	for i := range n {
		c.share[i] = -c.share[i]
		c.sums(c.weights[i*c.width:(i+1)*c.width], c.error, c.share[i:i+1])
	}
}

func (c *Chain) begin(width int) {
	n := width + 1
	c.width, c.weights, c.spread = width, make([]float32, n*width), make([]float32, n*n)
	c.gain, c.share, c.input, c.error = make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, width)
	for i := range n {
		c.spread[i*n+i] = 1.0 / ridge
		if i < width {
			c.weights[i*width+i] = 1
		}
	}
}

// addRows is AddRows in plain Go. Four rows go together, so that sums are loaded and
// stored once for them.
func addRows(sum, m, x []float32) {
	n := len(sum)
	for ; len(x) >= 4; m, x = m[4*n:], x[4:] {
		a, b, c, d := m[:n], m[n:][:n], m[2*n:][:n], m[3*n:][:n]
		fa, fb, fc, fd := x[0], x[1], x[2], x[3]
		for k := range sum {
			sum[k] += fa*a[k] + fb*b[k] + fc*c[k] + fd*d[k]
		}
	}
	for i, f := range x {
		addTo(sum, m[i*n:(i+1)*n], f)
	}
}

// addTo adds f·x to sum.
func addTo(sum, x []float32, f float32) {
	for sum = sum[:len(x)]; len(x) >= 4; sum, x = sum[4:], x[4:] {
		sum[0] += f * x[0]
		sum[1] += f * x[1]
		sum[2] += f * x[2]
		sum[3] += f * x[3]
	}
	for k, v := range x {
		sum[k] += f * v
	}
}

// mapped is the state that is expected where the head gave an output.
func (c *Chain) mapped(output []float32) []float32 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	normed(c.input[:c.width], output)
	c.input[c.width] = 1
	state := make([]float32, c.width)
	c.sums(state, c.weights, c.input)
	return state
}

// Seconds is what it takes to map a hidden state of that width; 0: it is not mapped.
func (c *Chain) Seconds(width int) float64 {
	if c == nil || width > mappedWidth {
		return 0
	}
	n := width + 1
	sum, m, x := make([]float32, width), make([]float32, n*width), make([]float32, n)
	least := time.Hour
	for range 5 {
		start := time.Now()
		c.sums(sum, m, x)
		least = min(least, time.Since(start))
	}
	return least.Seconds()
}

// choose reports whether the next chain is to be fed with mapped states.
func (c *Chain) choose(width int) bool {
	if c == nil || width > mappedWidth {
		return false
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.seen < leastSeen {
		return false
	}
	c.steps++
	own, other := c.stood[0], c.stood[1]
	better := (other.Stood+1)/(other.Seen+2) >= (own.Stood+1)/(own.Seen+2)
	if c.steps%chainTry == 0 || c.steps%2 == 0 && c.steps < 2*chainNew {
		return !better
	}
	return better
}

// observe counts whether a second draft stood, whose chain was fed so.
func (c *Chain) observe(mapped, stood bool) {
	if c == nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	x := &c.stood[0]
	if mapped {
		x = &c.stood[1]
	}
	x.Seen, x.Stood = x.Seen*chainMemory+1, x.Stood*chainMemory
	if stood {
		x.Stood++
	}
}

// normed sets dst to x with a mean square of 1: the head norms what it is fed.
func normed(dst, x []float32) {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	f := float32(1 / math.Sqrt(sum/float64(len(x))+1e-12))
	for i, v := range x {
		dst[i] = f * v
	}
}
