package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/cuda/driver"
)

// Kernels of results.cu, and the shapes it has.
var (
	kernelRowChunks = kernel{file: "results", name: "row_chunks"}
	kernelRowMerge  = kernel{file: "results", name: "row_merge"}
)

const (
	statChunk         = 512 // logits
	statChunksABlock  = 4
	statChunkBytes    = 16 + 8 // statistics; the best candidate
	statRecordHeader  = 16
	statCandidateSize = 8
	noCandidate       = math.MaxUint32
)

// statsBytes is what rowStats needs for its partial statistics, and for the
// records of that many wanted rows with topK candidates each.
func statsBytes(vocab, wanted, topK int) (partials, out int) {
	return wanted * statChunks(vocab) * statChunkBytes, wanted * statRecordBytes(topK)
}

func statChunks(vocab int) int { return (vocab + statChunk - 1) / statChunk }

func statRecordBytes(topK int) int { return statRecordHeader + topK*statCandidateSize }

// rowStats takes the statistics and the best topK candidates (1 to mostTop) of
// the step's wanted rows of logits, [wanted bucket, vocab] in f32. The step's
// limit and except bar candidates. Neither rows nor bucket change a bit.
func (d *device) rowStats(out, logits driver.Ptr, vocab, wantedBucket, topK int, step, partials driver.Ptr) {
	if topK < 1 || topK > mostTop {
		if d.err == nil {
			d.err = fmt.Errorf("cuda: %d candidates a row: want 1 to %d", topK, mostTop)
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

// decodeStats reads record i of rowStats: entropy and log-sum-exp, which are
// not finite where some logit is not, and Top with the candidates there are,
// at most topK. Argmax is the first of them; without one it is -1.
func decodeStats(records []byte, i, topK int) (backend.Result, error) {
	size := statRecordBytes(topK)
	if i < 0 || len(records)/size <= i {
		return backend.Result{}, fmt.Errorf("cuda: record %d of row statistics in %d bytes", i, len(records))
	}
	rec := records[i*size : (i+1)*size]
	float := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(rec[at:])) }
	peak, s0, s1 := float64(float(0)), float64(float(4)), float64(float(8))
	// The logarithm is taken here: the device's loses digits near 1.
	log := math.Log(s0)
	entropy := log - s1/s0
	if entropy < 0 {
		entropy = 0
	}
	r := backend.Result{Argmax: -1, Entropy: float32(entropy), LogSumExp: float32(peak + log)}
	for at := statRecordHeader; at < size; at += statCandidateSize {
		id := binary.LittleEndian.Uint32(rec[at:])
		if id == noCandidate {
			break
		}
		r.Top = append(r.Top, backend.Candidate{ID: int32(id), Logit: float(at + 4)})
	}
	if len(r.Top) > 0 {
		r.Argmax = r.Top[0].ID
	}
	return r, nil
}
