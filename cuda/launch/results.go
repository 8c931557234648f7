package launch

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
)

// Kernels of results.cu, and the shapes it has.
var (
	kernelRowChunks = kernel{file: "results", name: "row_chunks"}
	kernelRowMerge  = kernel{file: "results", name: "row_merge"}
)

// MostTop is how many candidates a row the device finds; where more are
// wanted the host takes them from the logits.
const MostTop = 64

const (
	statChunk         = 512 // logits
	statChunksABlock  = 4
	statChunkBytes    = 16 + 8 // statistics; the best candidate
	statRecordHeader  = 16
	statCandidateSize = 8
	noCandidate       = math.MaxUint32
)

// StatsBytes is what RowStats needs for its partial statistics, and for the
// records of that many wanted rows with topK candidates each.
func StatsBytes(vocab, wanted, topK int) (partials, out int) {
	return wanted * statChunks(vocab) * statChunkBytes, wanted * statRecordBytes(topK)
}

func statChunks(vocab int) int { return (vocab + statChunk - 1) / statChunk }

func statRecordBytes(topK int) int { return statRecordHeader + topK*statCandidateSize }

// RowStats takes the statistics and the best topK candidates (1 to MostTop) of
// the step's wanted rows of logits, [wanted bucket, vocab] in f32. The step's
// limit and except bar candidates. Neither rows nor bucket change a bit.
func (d *Device) RowStats(out, logits driver.Ptr, vocab, wantedBucket, topK int, step, partials driver.Ptr) {
	if topK < 1 || topK > MostTop {
		if d.err == nil {
			d.err = fmt.Errorf("cuda: %d candidates a row: want 1 to %d", topK, MostTop)
		}
		return
	}
	chunks := statChunks(vocab)
	best := partials + driver.Ptr(16*wantedBucket*chunks)
	d.launch(kernelRowChunks, dim{x: (chunks + statChunksABlock - 1) / statChunksABlock, y: wantedBucket}, 32*statChunksABlock,
		uint64(logits), uint64(vocab), uint64(chunks), uint64(partials), uint64(best), uint64(step))
	d.launch(kernelRowMerge, dim{x: wantedBucket}, 1024,
		uint64(out), uint64(logits), uint64(vocab), uint64(chunks), uint64(topK), uint64(partials), uint64(best), uint64(step))
}

// Statistics are those of a row of logits z, and its best candidates in
// their order.
type Statistics struct {
	peak, s0, s1 float64 // the largest, Σ e^(z−peak), Σ e^(z−peak)·(z−peak)
	Top          []backend.Candidate
}

// ReadStats reads record i of RowStats, with the candidates there are, at most
// topK.
func ReadStats(records []byte, i, topK int) (Statistics, error) {
	size := statRecordBytes(topK)
	if i < 0 || len(records)/size <= i {
		return Statistics{}, fmt.Errorf("cuda: record %d of row statistics in %d bytes", i, len(records))
	}
	rec := records[i*size : (i+1)*size]
	float := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(rec[at:])) }
	s := Statistics{peak: float64(float(0)), s0: float64(float(4)), s1: float64(float(8))}
	for at := statRecordHeader; at < size; at += statCandidateSize {
		id := binary.LittleEndian.Uint32(rec[at:])
		if id == noCandidate {
			break
		}
		s.Top = append(s.Top, backend.Candidate{ID: int32(id), Logit: float(at + 4)})
	}
	return s, nil
}

// Result is a row's entropy and log-sum-exp, which are not finite where some
// logit is not, and its candidates. Argmax is the first of them; without one it
// is -1.
func (s Statistics) Result() backend.Result {
	// The logarithm is taken here: the device's loses digits near 1.
	log := math.Log(s.s0)
	entropy := log - s.s1/s.s0
	if entropy < 0 {
		entropy = 0
	}
	r := backend.Result{Argmax: -1, Entropy: float32(entropy), LogSumExp: float32(s.peak + log), Top: s.Top}
	if len(r.Top) > 0 {
		r.Argmax = r.Top[0].ID
	}
	return r
}

// JoinStats joins the statistics of parts of a row, which are in the order of
// their ids, and keeps the best top candidates; the lower id comes first on a tie.
func JoinStats(parts []Statistics, top int) Statistics {
	y := Statistics{peak: math.Inf(-1)}
	for _, p := range parts {
		y.peak = max(y.peak, p.peak) // NaN where one is
	}
	for _, p := range parts {
		d := 0.0
		if p.peak != y.peak {
			d = p.peak - y.peak
		}
		if f := math.Exp(d); f != 0 { // a part of −∞ alone has d = −∞
			y.s0 += f * p.s0
			y.s1 += f * (p.s1 + d*p.s0)
		}
		y.Top = append(y.Top, p.Top...)
	}
	slices.SortStableFunc(y.Top, func(a, b backend.Candidate) int { return cmp.Compare(b.Logit, a.Logit) })
	y.Top = y.Top[:min(top, len(y.Top))]
	return y
}
