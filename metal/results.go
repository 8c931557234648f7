package metal

import (
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
)

// mostTop is how many candidates a row the device finds; where more are
// wanted the host takes them from the logits.
const mostTop = 64

const (
	resultChunk      = 512 // logits of one partial
	resultStatBytes  = 16  // of a partial; of the head of a result
	resultKeyBytes   = 8   // of a partial's best candidate; of a candidate
	resultSimdgroups = 8   // of a threadgroup, of both kernels
	noCandidate      = math.MaxUint32
)

// resultParams is results.metal's ResultParams.
type resultParams struct{ vocab, chunks, limit, except, top, wide uint32 }

func resultChunks(vocab int) int { return (vocab + resultChunk - 1) / resultChunk }

// resultBytes is what the result of one row takes in out.
func resultBytes(topK int) int { return resultStatBytes + topK*resultKeyBytes }

// partialBytes is what rowResults needs in partials, whatever topK.
func partialBytes(rows, vocab, topK int) int {
	return rows * resultChunks(vocab) * (resultStatBytes + resultKeyBytes)
}

// rowResults takes statistics and the best topK candidates (1 to mostTop) of
// logits, f32 [rows, vocab], into out, resultBytes(topK) a row. Candidates are
// the ids below limit (0: all), but for except (negative: none). partials is at
// a multiple of 16 bytes. Other rows change no bit of a row's result.
func rowResults(e encoder, out, partials, logits view, rows, vocab, limit, except, topK int) {
	if topK < 1 || topK > mostTop {
		panic(fmt.Sprintf("metal: %d candidates a row, want 1 to %d", topK, mostTop))
	}
	if limit <= 0 || limit > vocab {
		limit = vocab
	}
	chunks := resultChunks(vocab)
	p := resultParams{uint32(vocab), uint32(chunks), uint32(limit), uint32(int32(except)), uint32(topK), wide(vocab, logits)}
	stats, best := partials, partials.at(rows*chunks*resultStatBytes)
	all, parts := 4*int64(rows)*int64(vocab), int64(partialBytes(rows, vocab, topK))
	threads := size3{32 * resultSimdgroups, 1, 1}
	e.dispatch(dispatch{
		file: "results", kernel: "row_chunks",
		args:   []arg{bind(logits), bind(stats), bind(best), params(&p)},
		groups: size3{(chunks + resultSimdgroups - 1) / resultSimdgroups, rows, 1}, threads: threads,
		cost: cost{read: all, written: parts, flops: 8 * int64(rows) * int64(vocab)},
	})
	again := int64(rows) * int64(min(topK, chunks)*min(resultChunk, vocab))
	e.dispatch(dispatch{
		file: "results", kernel: "row_merge",
		args:   []arg{bind(out), bind(logits), bind(stats), bind(best), params(&p)},
		groups: size3{rows, 1, 1}, threads: threads,
		cost: cost{read: parts + 4*again, written: int64(rows * resultBytes(topK)), flops: 8 * int64(rows*chunks)},
	})
}

// decodeResults reads the results of rows rows. Entropy and log-sum-exp are
// not finite where a logit is a NaN or +∞, or all are −∞. Top has the
// candidates there are, at most topK; Argmax is the first, or -1.
func decodeResults(out []byte, rows, topK int) ([]backend.Result, error) {
	size := resultBytes(topK)
	if len(out) < rows*size {
		return nil, fmt.Errorf("metal: %d results of %d bytes in %d", rows, size, len(out))
	}
	results := make([]backend.Result, rows)
	for i := range results {
		results[i] = decodeResult(out[i*size : (i+1)*size])
	}
	return results, nil
}

func decodeResult(record []byte) backend.Result {
	float := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(record[at:])) }
	peak, s0, s1 := float64(float(0)), float64(float(4)), float64(float(8))
	// The logarithm is taken here: a device's loses digits near 1. A NaN peak makes both NaN.
	log := math.Log(s0)
	entropy := log - s1/s0 + 0*peak
	if entropy < 0 {
		entropy = 0
	}
	r := backend.Result{Argmax: -1, Entropy: float32(entropy), LogSumExp: float32(peak + log)}
	for at := resultStatBytes; at < len(record); at += resultKeyBytes {
		id := binary.LittleEndian.Uint32(record[at:])
		if id == noCandidate {
			break
		}
		r.Top = append(r.Top, backend.Candidate{ID: int32(id), Logit: float(at + 4)})
	}
	if len(r.Top) > 0 {
		r.Argmax = r.Top[0].ID
	}
	return r
}
