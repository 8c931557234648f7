package rope

import "math"

const (
	// chunkRows is how many positions are computed together: 64 positions of
	// 64 pairs take about 60 µs.
	chunkRows = 64
	// maxCached is the first position that is computed anew each time: the
	// cache of a 128-wide head stays below 64 MiB.
	maxCached = 131072
)

// Table gives rotation rows by position. It keeps the rows that it has
// computed. A Table may be used by one goroutine at a time.
type Table struct {
	freq   []float64
	scale  float64
	chunks [][]float32 // of chunkRows rows: cosines then sines of one position
}

// New checks c and returns its table.
func New(c Config) (*Table, error) {
	freq, scale, err := c.frequencies()
	if err != nil {
		return nil, err
	}
	return &Table{freq: freq, scale: scale}, nil
}

// Pairs is the width of a row: half the head dimension.
func (t *Table) Pairs() int { return len(t.freq) }

// Scale is the attention factor that cosines and sines carry (1 but for YaRN).
func (t *Table) Scale() float64 { return t.scale }

// Fill sets row r of cos and sin, each [len(positions), head dim/2], to the
// rotation of positions[r], attention factor included. Pair i of a head is
// its elements i and i + head dim/2. It does not allocate for positions below
// 131,072 that it has seen the neighbourhood of.
func (t *Table) Fill(cos, sin []float32, positions []int32) {
	n := len(t.freq)
	for r, position := range positions {
		c, s := cos[r*n:(r+1)*n], sin[r*n:(r+1)*n]
		if position < 0 || position >= maxCached {
			t.compute(c, s, position)
			continue
		}
		row := t.chunk(int(position) / chunkRows)[int(position)%chunkRows*2*n:]
		copy(c, row[:n])
		copy(s, row[n:2*n])
	}
}

func (t *Table) chunk(k int) []float32 {
	if k >= len(t.chunks) {
		t.chunks = append(t.chunks, make([][]float32, k+1-len(t.chunks))...)
	}
	if t.chunks[k] == nil {
		n := len(t.freq)
		rows := make([]float32, chunkRows*2*n)
		for r := range chunkRows {
			row := rows[r*2*n : (r+1)*2*n]
			t.compute(row[:n], row[n:], int32(k*chunkRows+r))
		}
		t.chunks[k] = rows
	}
	return t.chunks[k]
}

func (t *Table) compute(cos, sin []float32, position int32) {
	for i, f := range t.freq {
		s, c := math.Sincos(float64(position) * f)
		cos[i], sin[i] = float32(c*t.scale), float32(s*t.scale)
	}
}
