package cuda

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend"
)

func init() {
	registerSelfTest("row statistics", checkRowStats)
	registerSelfTest("row statistics, not finite", checkRowStatsNotFinite)
}

// statsCase is one launch of the row statistics self-test.
type statsCase struct {
	vocab, top    int
	limit, except int32
	grain         float64 // logits are multiples of it: ties; 0: as they come
	spread        float64
}

var statsCases = []statsCase{
	{vocab: 1, top: 1, except: -1},
	{vocab: 7, top: 7, except: 3},
	{vocab: 512, top: 64, except: -1, spread: 3},
	{vocab: 513, top: 5, limit: 512, except: 0, grain: 0.5, spread: 3},
	{vocab: 2000, top: 64, limit: 40, except: 7, spread: 5},
	{vocab: 4096, top: 33, except: -1, grain: 1, spread: 1},
	{vocab: 4096, top: 64, except: 1, grain: 1e9, spread: 1}, // all equal
	{vocab: 40003, top: 64, limit: 39000, except: 5, grain: 0.25, spread: 3},
	{vocab: 40003, top: 1, limit: 39000, except: -1, spread: 10},
	{vocab: 530001, top: 20, except: -1, spread: 3},
}

// logits of one row. A grain of 1e9 leaves zeros of both signs.
func (c statsCase) logits(r *rand.Rand) []float32 {
	x := normals(r, c.vocab)
	for i, v := range x {
		y := float64(v) * max(c.spread, 1)
		if c.grain > 0 {
			y = math.Round(y/c.grain) * c.grain
		}
		x[i] = float32(y)
	}
	return x
}

func checkRowStats(d *device) error {
	r := rand.New(rand.NewPCG(7, 1))
	for _, c := range statsCases {
		if err := checkStatsCase(d, r, c); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

func checkStatsCase(d *device, r *rand.Rand, c statsCase) error {
	const rows, bucket = 3, 8
	b := &bed{d: d}
	defer b.free()
	var all []float32
	for i := range rows {
		z := c.logits(r)
		if i == 1 && c.vocab > 600 { // a chunk, and half of another, that cannot be chosen
			for j := range 300 {
				z[j] = float32(math.Inf(-1))
			}
			for j := 512; j < min(1024, c.vocab); j++ {
				z[j] = float32(math.Inf(-1))
			}
		}
		all = append(all, z...)
	}
	v := &stepValues{want: make([]int32, rows), top: c.top, limit: c.limit, except: c.except}
	partials, size := statsBytes(c.vocab, bucket, c.top)
	logits, out := b.floats(all), b.empty(size)
	d.rowStats(out, logits, c.vocab, bucket, c.top, b.step(v, stepShape{bucket: bucket}), b.empty(partials))
	records := b.read(out, size)
	for i := range rows {
		got, err := decodeStats(records, i, c.top)
		if err != nil {
			return err
		}
		if err := c.hold(got, all[i*c.vocab:(i+1)*c.vocab]); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	// The last row alone.
	one, lone := statsBytes(c.vocab, 1, c.top)
	v.want = v.want[:1]
	alone := b.empty(lone)
	d.rowStats(alone, past(logits, 2*c.vocab, 4), c.vocab, 1, c.top, b.step(v, stepShape{bucket: 1}), b.empty(one))
	if !bytes.Equal(b.read(alone, lone), records[2*lone:3*lone]) {
		return fmt.Errorf("row 2 alone gives another record than among %d rows", rows)
	}
	return nil
}

// hold compares a result with the definition in float64.
func (c statsCase) hold(got backend.Result, z []float32) error {
	peak := math.Inf(-1)
	for _, v := range z {
		peak = max(peak, float64(v))
	}
	var s0, s1 float64
	for _, v := range z {
		if e := math.Exp(float64(v) - peak); e != 0 {
			s0 += e
			s1 += e * (float64(v) - peak)
		}
	}
	entropy, sum := math.Log(s0)-s1/s0, peak+math.Log(s0)
	if d := math.Abs(float64(got.Entropy) - entropy); !(d <= 2e-6*max(1, entropy)) {
		return fmt.Errorf("entropy %v, want %v", got.Entropy, entropy)
	}
	if d := math.Abs(float64(got.LogSumExp) - sum); !(d <= 1e-6*max(1, math.Abs(sum))) {
		return fmt.Errorf("log-sum-exp %v, want %v", got.LogSumExp, sum)
	}
	var want []backend.Candidate // the definition: taken in the order of ids, put before what is smaller
	for id, v := range z {
		if c.limit > 0 && int32(id) >= c.limit || int32(id) == c.except {
			continue
		}
		at := len(want)
		for at > 0 && v > want[at-1].Logit {
			at--
		}
		if at < c.top {
			want = slices.Insert(want, at, backend.Candidate{ID: int32(id), Logit: v})
			want = want[:min(len(want), c.top)]
		}
	}
	if !slices.Equal(got.Top, want) {
		return fmt.Errorf("candidates %v, want %v", got.Top, want)
	}
	if len(want) > 0 && got.Argmax != want[0].ID {
		return fmt.Errorf("argmax %d, want %d", got.Argmax, want[0].ID)
	}
	return nil
}

// checkRowStatsNotFinite plants one bad logit at a time.
func checkRowStatsNotFinite(d *device) error {
	const vocab, top = 2100, 4
	r := rand.New(rand.NewPCG(8, 1))
	for _, bad := range []float64{math.NaN(), math.Inf(1), -math.NaN()} {
		for _, run := range [][2]int{{0, 1}, {700, 701}, {vocab - 1, vocab}, {512, 1024}, {0, vocab}} {
			if err := func() error {
				b := &bed{d: d}
				defer b.free()
				z := normals(r, vocab)
				for i := run[0]; i < run[1]; i++ {
					z[i] = float32(bad)
				}
				partials, size := statsBytes(vocab, 1, top)
				out := b.empty(size)
				d.rowStats(out, b.floats(z), vocab, 1, top, b.step(&stepValues{want: []int32{0}, top: top, except: -1}, stepShape{bucket: 1}), b.empty(partials))
				got, err := decodeStats(b.read(out, size), 0, top)
				if l := float64(got.LogSumExp); err == nil && !math.IsNaN(l) && !math.IsInf(l, 0) {
					err = fmt.Errorf("log-sum-exp %v", l)
				}
				return err
			}(); err != nil {
				return fmt.Errorf("%v at %d to %d: %w", bad, run[0], run[1], err)
			}
		}
	}
	return nil
}
