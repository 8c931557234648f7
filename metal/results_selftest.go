package metal

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend/vectors"
)

func init() {
	registerSelfTest("row results", checkRowResults)
	registerSelfTest("row results, not finite", checkRowResultsNotFinite)
}

var resultCases = append(slices.Clone(vectors.Cases),
	vectors.Logits{Vocab: 9003, Top: 64, Limit: 8000, Except: 5, Grain: 0.25, Spread: 3},
	vectors.Logits{Vocab: 9003, Top: 1, Limit: 8000, Except: -1, Spread: 10},
	vectors.Logits{Vocab: 140001, Top: 64, Except: -1, Spread: 3},
	vectors.Logits{Vocab: 1030, Top: 3, Except: -1, Spread: 1e37},
)

func checkRowResults(d *device) error {
	r := rand.New(rand.NewPCG(7, 1))
	for _, c := range resultCases {
		if err := checkResultCase(d, r, c); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

func checkResultCase(d *device, r *rand.Rand, c vectors.Logits) error {
	rows := 3
	if c.Vocab > 1e5 {
		rows = 1
	}
	last := rows - 1
	all := c.Rows(r, rows)
	return withBed(d, func(b *bed) error {
		logits, size := b.floats(all), resultBytes(c.Top)
		out, alone := b.empty(rows*size/4, elemU32), b.empty(size/4, elemU32)
		partials := b.empty(partialBytes(rows, c.Vocab, c.Top)/4, elemU32)
		again := b.empty(partialBytes(1, c.Vocab, c.Top)/4, elemU32)
		b.run(func(e encoder) {
			rowResults(e, out, partials, logits, rows, c.Vocab, c.Limit, c.Except, c.Top)
			if rows > 1 {
				rowResults(e, alone, again, logits.at(4*last*c.Vocab), 1, c.Vocab, c.Limit, c.Except, c.Top)
			}
		})
		results, err := decodeResults(out.bytes(), rows, c.Top)
		if err != nil {
			return err
		}
		for i, got := range results {
			if err := c.Hold(got, all[i*c.Vocab:(i+1)*c.Vocab]); err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
		}
		if rows > 1 && !bytes.Equal(alone.bytes()[:size], out.bytes()[last*size:rows*size]) {
			return fmt.Errorf("row %d alone gives another result than among %d rows", last, rows)
		}
		return nil
	})
}

// checkRowResultsNotFinite plants runs of bad logits: the statistics must tell.
func checkRowResultsNotFinite(d *device) error {
	const few, many, top = 2100, 140001, 4 // many: a thread of row_merge has several chunks
	r := rand.New(rand.NewPCG(8, 1))
	for _, bad := range []float64{math.NaN(), math.Inf(1), -math.NaN(), math.Inf(-1)} {
		for _, run := range [][3]int{{0, 1, few}, {700, 701, few}, {few - 1, few, few}, {512, 1024, few}, {0, few, few}, {0, 1, many}} {
			vocab := run[2]
			if math.IsInf(bad, -1) && run[1]-run[0] < vocab {
				continue // some logits of −∞ are right
			}
			if vocab == many && !math.IsNaN(bad) { // one kind is enough
				continue
			}
			z := vectors.Normals(r, vocab)
			for i := run[0]; i < run[1]; i++ {
				z[i] = float32(bad)
			}
			if err := withBed(d, func(b *bed) error {
				out := b.empty(resultBytes(top)/4, elemU32)
				partials := b.empty(partialBytes(1, vocab, top)/4, elemU32)
				b.run(func(e encoder) { rowResults(e, out, partials, b.floats(z), 1, vocab, 0, -1, top) })
				got, err := decodeResults(out.bytes(), 1, top)
				if err != nil {
					return err
				}
				for _, v := range []float32{got[0].Entropy, got[0].LogSumExp} {
					if l := float64(v); !math.IsNaN(l) && !math.IsInf(l, 0) {
						return fmt.Errorf("entropy %v, log-sum-exp %v", got[0].Entropy, got[0].LogSumExp)
					}
				}
				return nil
			}); err != nil {
				return fmt.Errorf("%v at %d to %d: %w", bad, run[0], run[1], err)
			}
		}
	}
	return nil
}
