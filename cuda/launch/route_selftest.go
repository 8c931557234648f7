package launch

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
	"windrow/quant"
)

func init() { registerSelfTest("route", checkRoute) }

// checkRoute compares routing with float64, and the lists with the routing.
func checkRoute(d *Device) error {
	defer d.FreeMixtures()
	b := newProjectBench(d, 41)
	for i, s := range []struct{ experts, chosen, width int }{{8, 2, 128}, {12, 3, 40}, {512, 10, 64}, {16, 16, 30}, {1, 1, 8}, {130, 32, 2056}} {
		for j, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16} {
			if d.brief && (i+j)%3 != 0 {
				continue
			}
			for _, rows := range []int{1, 9, 35} {
				b.checkRouter(dt, s.experts, s.chosen, s.width, rows, true)
			}
		}
	}
	for _, s := range []struct{ experts, chosen, width, rows int }{{8, 2, 128, 33}, {512, 10, 64, 70}, {1, 1, 32, 40}, {130, 32, 2080, 100}, {72, 4, 96, 1100}} {
		for _, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16} {
			if d.brief && (dt == backend.F16 && s.experts != 8 || s.rows > 1000 && dt != backend.BF16) {
				continue
			}
			b.checkRouter(dt, s.experts, s.chosen, s.width, s.rows, false)
		}
	}
	for _, width := range []int{4, 64, 2048, 9216} {
		b.checkNormedRoute(backend.F32, 12, 3, width, 1)
	}
	for i, rows := range []int{2, 3, 7, 9, fewRouteRowsNormed} {
		for j, width := range []int{64, 4 * normThreads} {
			d.Tuning.routeEach = 1 << ((i + j) % 3) // of experts of a group
			b.checkNormedRoute(backend.BF16, 37, 3, width, rows)
			d.Tuning.routeEach = 0
			b.checkNormedRoute(backend.F32, 37, 3, width, rows)
		}
	}
	b.checkStrangeLogits()
	return b.close()
}

// routed is what Route is to find of a row of logits: its experts, and their weights.
func routed(logits []float64, k int, renormalise bool) (experts []int, weights []float64) {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	largest, sum := logits[order[0]], 0.0
	for i, e := range order {
		if i < k || !renormalise {
			sum += math.Exp(logits[e] - largest)
		}
	}
	experts = order[:k]
	slices.Sort(experts)
	for _, e := range experts {
		weights = append(weights, math.Exp(logits[e]-largest)/sum)
	}
	return experts, weights
}

// checkRouter compares the routing of a step's rows, or of a prompt's. A prompt's row has
// the same bits among fewer rows.
func (b *projectBench) checkRouter(dt backend.DType, experts, k, width, rows int, decode bool) {
	w := b.logits(experts, width, 4)
	if experts > 2 { // two that are equal, whatever the row
		copy(w[(experts-1)*width:], w[width:2*width])
	}
	data := make([]byte, dt.Size()*len(w))
	quant.Blocks(data, dt, w)
	t := backend.Tensor{Name: "router", DType: dt, Shape: []int{experts, width}, Data: data}
	x, bucket := b.normals(rows*width), RowBucket(rows)
	r := Router{Weight: &Weight{DType: dt, Out: experts, In: width, Raw: b.upload(data)}, Chosen: k, Renormalise: rows%2 == 1, Joined: k%2 == 0, Rounded: !decode}
	from, to := b.uploadF32(append(slices.Clone(x), nans((bucket-rows)*width)...)), b.alloc(4*bucket*2*k)
	step := b.step(rows)
	if b.err != nil {
		return
	}
	if _, b.err = b.d.PrepareRoute(&r, bucket); b.err != nil {
		return
	}
	all := Rows{Count: bucket, Prompt: !decode}
	b.d.Route(to, from, &r, Normed{}, step, decode, all)
	got := b.downloadF32(rows*2*k, to)
	b.note(b.checkLists(got, experts, k, r.each(decode, all), rows, bucket))
	if !decode && b.err == nil {
		b.checkFewer(&r, to, from, got, rows/2+1)
	}
	if dt == backend.BF16 && width%8 == 0 && bucket > 1 && bucket <= fewRows {
		for each := 1; each <= 4; each *= 2 {
			b.d.Tuning.routeEach = each
			b.d.Route(to, from, &r, Normed{}, step, decode, all)
			if err := vectors.Equal(b.downloadF32(rows*2*k, to), got); err != nil {
				b.note(fmt.Errorf("%d of %d experts, %d rows: with %d a group: %w", k, experts, rows, each, err))
			}
		}
		b.d.Tuning.routeEach = 0
	}
	logits := product(x, widened(t), nil, rows, experts, width)
	for row := range rows {
		ids, weights := routed(logits[row*experts:(row+1)*experts], k, r.Renormalise)
		for i, e := range ids {
			id, weight := got[row*2*k+i], float64(got[row*2*k+k+i])
			if id != float32(e) || !(math.Abs(weight-weights[i]) <= 1e-5*max(1e-3, weights[i])) {
				b.note(fmt.Errorf("%v, %d of %d experts, %d rows: row %d has expert %v with %v, want %d with %v", dt, k, experts, rows, row, id, weight, e, weights[i]))
				return
			}
		}
	}
}

// checkFewer compares the routing of a prompt's first rows by themselves with what it was
// among others.
func (b *projectBench) checkFewer(r *Router, to, from driver.Ptr, want []float32, rows int) {
	// There is room: more rows were routed before.
	b.d.Route(to, from, r, Normed{}, b.step(rows), false, Rows{Count: max(RowBucket(rows), fewRows+1), Prompt: true})
	got := b.downloadF32(rows*2*r.Chosen, to)
	if b.err != nil {
		return
	}
	if err := vectors.Equal(got, want[:len(got)]); err != nil {
		b.note(fmt.Errorf("%v, %d of %d experts: the first %d rows of a prompt by themselves: %w", r.Weight.DType, r.Chosen, r.Weight.Out, rows, err))
	}
}

// checkLists: each pair is in the list of its expert, in the order of the rows, and, where
// each is more than k, all rows in that of the shared one, which is the first.
func (b *projectBench) checkLists(routing []float32, experts, k, each, rows, bucket int) error {
	l := routeLayoutOf(experts, k, bucket)
	memory := b.download(l.size, b.d.mixtures.route.data)
	word := func(at int) int { return int(binary.LittleEndian.Uint32(memory[at:])) }
	least, most := 0, rows // pairs of a slot
	if bucket <= fewRows {
		least, most = 1, slotRows
	}
	seen, before, room, last := 0, -1, 0, -1
	for slot := range word(l.tables) {
		at := l.tables + 16 + 16*slot
		e, first, count := word(at), word(at+4), word(at+8)
		place := (e + 1) % (experts + 1)
		if e > experts || place < before || place == before && room > 0 || count < least || count > most {
			return fmt.Errorf("slot %d is of expert %d, %d pairs, behind number %d, which has room for %d more", slot, e, count, before, room)
		}
		if place != before {
			last = -1
		}
		before, room = place, most-count
		for i := first; i < first+count; i++ {
			pair := word(l.pairs + 4*i)
			if pair <= last || pair >= rows*each || (pair%each == k) != (e == experts) || e < experts && routing[pair/each*2*k+pair%each] != float32(e) {
				return fmt.Errorf("%d of %d experts, %d rows: expert %d has pair %d behind %d", k, experts, rows, e, pair, last)
			}
			last = pair
		}
		seen += count
	}
	if seen != rows*each {
		return fmt.Errorf("%d of %d pairs are listed", seen, rows*each)
	}
	if bucket <= fewRows {
		return nil
	}
	tiled, next := 0, 0
	if each > k {
		next = rows * k
	}
	for i := range word(l.tables + 4) {
		if next == rows*each && each > k { // behind the shared one's
			next = 0
		}
		at := l.tables + 4*l.tiles + 16*i
		if e, first, n := word(at), word(at+4), word(at+8); first != next || n < 1 || n > groupedRows || (e == experts) != (first >= rows*k) {
			return fmt.Errorf("tile %d has %d pairs from %d on, of expert %d, want those from %d", i, n, first, e, next)
		}
		next += word(at + 8)
		tiled += word(at + 8)
	}
	if tiled != rows*each {
		return fmt.Errorf("%d of %d pairs are in tiles", tiled, rows*each)
	}
	return nil
}

// checkStrangeLogits: no number is no reason for an expert that is not there.
func (b *projectBench) checkStrangeLogits() {
	const experts, k, width = 40, 4, 8
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for i, fill := range []func(e int) float32{
		func(int) float32 { return nan },
		func(e int) float32 { return []float32{nan, 1, inf, -inf}[e%4] },
		func(int) float32 { return -inf },
		func(e int) float32 { return []float32{1e30, -1e30}[e%2] },
	} {
		w := make([]float32, experts*width)
		for e := range experts {
			w[e*width] = fill(e)
		}
		for _, rows := range []int{1, 3, 40} {
			x, bucket := make([]float32, RowBucket(rows)*width), RowBucket(rows)
			for r := range rows {
				x[r*width] = 1
			}
			r := Router{Weight: &Weight{DType: backend.F32, Out: experts, In: width, Raw: b.uploadF32(w)}, Chosen: k, Renormalise: true}
			from, to, step := b.uploadF32(x), b.alloc(4*bucket*2*k), b.step(rows)
			if b.err != nil {
				return
			}
			if _, b.err = b.d.PrepareRoute(&r, bucket); b.err != nil {
				return
			}
			b.d.Route(to, from, &r, Normed{}, step, true, Rows{Count: bucket})
			got := b.downloadF32(rows*2*k, to)
			want := [][]float32{{0, 1, 2, 3}, {2, 6, 10, 14}, {0, 1, 2, 3}, {0, 2, 4, 6}}[i]
			for row := range rows {
				if ids := got[row*2*k : row*2*k+k]; !slices.Equal(ids, want) {
					b.note(fmt.Errorf("case %d, row %d of %d: experts %v, want %v", i, row, rows, ids, want))
				}
			}
			b.note(b.checkLists(got, experts, k, k, rows, bucket))
		}
	}
}

// checkNormedRoute compares rows that are normed on the way with the two launches.
func (b *projectBench) checkNormedRoute(dt backend.DType, experts, k, width, rows int) {
	bucket := RowBucket(rows)
	noise, norm, x := b.uploadF32(b.normals(bucket*width)), b.uploadF32(b.normals(width)), b.alloc(4*bucket*width)
	r := Router{Weight: b.matrix(b.tensor(dt, 0, experts, width)), Share: b.matrix(b.tensor(dt, 0, 1, width)), Chosen: k}
	var routing, f32s, halves [2]driver.Ptr
	for i := range 2 {
		routing[i], f32s[i], halves[i] = b.alloc(4*2*k*bucket), b.alloc(4*width*bucket), b.alloc(2*width*bucket)
	}
	step := b.step(rows)
	if b.err != nil {
		return
	}
	if _, b.err = b.d.PrepareRoute(&r, bucket); b.err != nil {
		return
	}
	if !b.d.RouteTakesNorm(&r, bucket) { // for want of multiprocessors
		if bucket == 1 || b.d.Tuning.routeEach > 0 {
			b.note(fmt.Errorf("%d rows of %d inputs are not normed on the way", rows, width))
		}
		return
	}
	makeX := func() { b.d.RMSNorm(x, 0, noise, norm, width, bucket, 1e-5) } // right before it is read, as in a step
	makeX()
	b.d.RMSNorm(f32s[0], halves[0], x, norm, width, bucket, 1e-5)
	b.d.Route(routing[0], f32s[0], &r, Normed{}, step, true, Rows{Count: bucket})
	makeX()
	b.d.Route(routing[1], x, &r, Normed{Weight: norm, Eps: 1e-5, F32: f32s[1], BF16: halves[1]}, step, true, Rows{Count: bucket})
	for what, p := range map[string][2]driver.Ptr{"routing": routing, "normed rows": f32s, "normed rows in bf16": halves} {
		n := rows * map[string]int{"routing": 8 * k, "normed rows": 4 * width, "normed rows in bf16": 2 * width}[what]
		if !bytes.Equal(b.download(n, p[0]), b.download(n, p[1])) {
			b.note(fmt.Errorf("%d of %d experts, width %d, %d rows: other %s than those of two launches", k, experts, width, rows, what))
		}
	}
}
