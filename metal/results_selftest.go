package metal

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend"
)

func init() {
	registerSelfTest("row results", checkRowResults)
	registerSelfTest("row results, not finite", checkRowResultsNotFinite)
}

// resultCase is one launch of the self-test of row results.
type resultCase struct {
	vocab, top, limit, except int
	grain                     float64 // logits are multiples of it: ties; 0: as they come
	spread                    float64
}

var resultCases = []resultCase{
	{vocab: 1, top: 1, except: -1},
	{vocab: 7, top: 7, except: 3},
	{vocab: 512, top: 64, except: -1, spread: 3},
	{vocab: 513, top: 5, limit: 512, except: 0, grain: 0.5, spread: 3},
	{vocab: 2000, top: 64, limit: 40, except: 7, spread: 5},
	{vocab: 4096, top: 33, except: -1, grain: 1, spread: 1},
	{vocab: 4096, top: 64, except: 1, grain: 1e9, spread: 1}, // all equal
	{vocab: 9003, top: 64, limit: 8000, except: 5, grain: 0.25, spread: 3},
	{vocab: 9003, top: 1, limit: 8000, except: -1, spread: 10},
	{vocab: 140001, top: 64, except: -1, spread: 3},
	{vocab: 1030, top: 3, except: -1, spread: 1e37},
}

// logits of one row. A grain of 1e9 leaves zeros of both signs.
func (c resultCase) logits(r *rand.Rand) []float32 {
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

func checkRowResults(d *device) error {
	r := rand.New(rand.NewPCG(7, 1))
	for _, c := range resultCases {
		if err := c.check(d, r); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

func (c resultCase) check(d *device, r *rand.Rand) error {
	rows := 3
	if c.vocab > 1e5 {
		rows = 1
	}
	last := rows - 1
	var all []float32
	for i := range rows {
		z := c.logits(r)
		if i == 1 && c.vocab > 600 { // a chunk, and half of another, of −∞
			for j := range 300 {
				z[j] = float32(math.Inf(-1))
			}
			for j := 512; j < min(1024, c.vocab); j++ {
				z[j] = float32(math.Inf(-1))
			}
		}
		all = append(all, z...)
	}
	return withBed(d, func(b *bed) error {
		logits, size := b.floats(all), resultBytes(c.top)
		out, alone := b.empty(rows*size/4, elemU32), b.empty(size/4, elemU32)
		partials := b.empty(partialBytes(rows, c.vocab, c.top)/4, elemU32)
		again := b.empty(partialBytes(1, c.vocab, c.top)/4, elemU32)
		b.run(func(e encoder) {
			rowResults(e, out, partials, logits, rows, c.vocab, c.limit, c.except, c.top)
			if rows > 1 {
				rowResults(e, alone, again, logits.at(4*last*c.vocab), 1, c.vocab, c.limit, c.except, c.top)
			}
		})
		results, err := decodeResults(out.bytes(), rows, c.top)
		if err != nil {
			return err
		}
		for i, got := range results {
			if err := c.hold(got, all[i*c.vocab:(i+1)*c.vocab]); err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
		}
		if rows > 1 && !bytes.Equal(alone.bytes()[:size], out.bytes()[last*size:rows*size]) {
			return fmt.Errorf("row %d alone gives another result than among %d rows", last, rows)
		}
		return nil
	})
}

// hold compares a result with the definition in float64.
func (c resultCase) hold(got backend.Result, z []float32) error {
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
		if c.limit > 0 && id >= c.limit || id == c.except {
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
			z := normals(r, vocab)
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
