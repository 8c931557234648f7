package decoder

import "math"

// logitHeap gives ids by logit, largest first, lower id first on a tie. To
// make it costs O(n), each pop O(log n): top-k and top-p need few of many.
type logitHeap struct {
	z   []float32
	ids []int32
}

// newLogitHeap leaves out ids whose logit is -inf or NaN.
func newLogitHeap(z []float32) *logitHeap {
	h := &logitHeap{z: z, ids: make([]int32, 0, len(z))}
	for i, v := range z {
		if float64(v) > math.Inf(-1) {
			h.ids = append(h.ids, int32(i))
		}
	}
	for i := len(h.ids)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	return h
}

func (h *logitHeap) len() int { return len(h.ids) }

func (h *logitHeap) before(a, b int32) bool {
	return h.z[a] > h.z[b] || h.z[a] == h.z[b] && a < b
}

func (h *logitHeap) pop() int32 {
	top, last := h.ids[0], len(h.ids)-1
	h.ids[0] = h.ids[last]
	h.ids = h.ids[:last]
	h.down(0)
	return top
}

func (h *logitHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.ids) {
			return
		}
		if right := child + 1; right < len(h.ids) && h.before(h.ids[right], h.ids[child]) {
			child = right
		}
		if !h.before(h.ids[child], h.ids[i]) {
			return
		}
		h.ids[i], h.ids[child] = h.ids[child], h.ids[i]
		i = child
	}
}
