package launch

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend/vectors"
)

func init() {
	registerSelfTest("row statistics", checkRowStats)
	registerSelfTest("row statistics, not finite", checkRowStatsNotFinite)
}

var statsCases = append(slices.Clone(vectors.Cases),
	vectors.Logits{Vocab: 40003, Top: 64, Limit: 39000, Except: 5, Grain: 0.25, Spread: 3},
	vectors.Logits{Vocab: 40003, Top: 1, Limit: 39000, Except: -1, Spread: 10},
	vectors.Logits{Vocab: 530001, Top: 20, Except: -1, Spread: 3},
)

func checkRowStats(d *Device) error {
	r := rand.New(rand.NewPCG(7, 1))
	for _, c := range statsCases {
		if err := checkStatsCase(d, r, c); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

func checkStatsCase(d *Device, r *rand.Rand, c vectors.Logits) error {
	const rows, bucket = 3, 8
	b := &bed{d: d}
	defer b.free()
	all := c.Rows(r, rows)
	v := &StepValues{Want: make([]int32, rows), Top: c.Top, Limit: int32(c.Limit), Except: int32(c.Except)}
	partials, size := StatsBytes(c.Vocab, bucket, c.Top)
	logits, out := b.floats(all), b.empty(size)
	d.RowStats(out, logits, c.Vocab, bucket, c.Top, b.step(v, StepShape{Bucket: bucket}), b.empty(partials))
	records := b.read(out, size)
	for i := range rows {
		stats, err := ReadStats(records, i, c.Top)
		got := stats.Result()
		if err != nil {
			return err
		}
		if err := c.Hold(got, all[i*c.Vocab:(i+1)*c.Vocab]); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	// The last row alone.
	one, lone := StatsBytes(c.Vocab, 1, c.Top)
	v.Want = v.Want[:1]
	alone := b.empty(lone)
	d.RowStats(alone, past(logits, 2*c.Vocab, 4), c.Vocab, 1, c.Top, b.step(v, StepShape{Bucket: 1}), b.empty(one))
	if !bytes.Equal(b.read(alone, lone), records[2*lone:3*lone]) {
		return fmt.Errorf("row 2 alone gives another record than among %d rows", rows)
	}
	return nil
}

// checkRowStatsNotFinite plants one bad logit at a time.
func checkRowStatsNotFinite(d *Device) error {
	const vocab, top = 2100, 4
	r := rand.New(rand.NewPCG(8, 1))
	for _, bad := range []float64{math.NaN(), math.Inf(1), -math.NaN()} {
		for _, run := range [][2]int{{0, 1}, {700, 701}, {vocab - 1, vocab}, {512, 1024}, {0, vocab}} {
			if err := func() error {
				b := &bed{d: d}
				defer b.free()
				z := vectors.Normals(r, vocab)
				for i := run[0]; i < run[1]; i++ {
					z[i] = float32(bad)
				}
				partials, size := StatsBytes(vocab, 1, top)
				out := b.empty(size)
				d.RowStats(out, b.floats(z), vocab, 1, top, b.step(&StepValues{Want: []int32{0}, Top: top, Except: -1}, StepShape{Bucket: 1}), b.empty(partials))
				stats, err := ReadStats(b.read(out, size), 0, top)
				got := stats.Result()
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
