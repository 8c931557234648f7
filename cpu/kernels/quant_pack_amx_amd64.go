package kernels

//go:noescape
func quantPack(dst, src *int8, stride, rows, blocks int)

//go:noescape
func quantizeRow(q *int8, scale, sum *float32, stride int, x *float32, groups, group, zeroPoint int)

//go:noescape
func permuteBytes(q *int8, order *[quantStep]uint8, blocks int)

// split reports whether 64 elements are decoded to the even ones and the odd
// ones: two instructions instead of three.
func (q quantTiles) split() bool { return q.format == formatAffine4 && q.group >= 64 }

// The orders in which numbers of 4 bits are unpacked: 64 by 64 for tiles, low
// halves first; 128 by 128 for VPDPBUSD, of affine groups and of four blocks of
// Q4_0.
var tileOrder, nibbleOrder, q40Order = func() (tiles, nibbles, q40 [quantStep]uint8) {
	for i := range quantStep {
		tiles[i] = uint8(i&64 | i&31<<1 | i>>5&1)
		nibbles[i] = uint8(i&63<<1 | i>>6)
		q40[i] = uint8(i&48<<1 | i&15 | i>>6<<4)
	}
	return tiles, nibbles, q40
}()

// order is that of the activations; nil for that of the elements. alone tells
// quantAlone from tiles.
func (q quantTiles) order(alone bool) *[quantStep]uint8 {
	switch {
	case alone && q.format == formatAffine4:
		return &nibbleOrder
	case alone && q.format == formatQ4_0:
		return &q40Order
	case !alone && q.split():
		return &tileOrder
	}
	return nil
}

// PackSize is two bytes an element, of which the second half holds rows before
// they are packed, and for each group a scale and a sum. A vector of 16 is read
// from the last of these on.
func (q quantTiles) PackSize(rows, in int) (int, int) {
	if d, ok := q.few(rows); ok {
		return d.PackSize(rows, in)
	}
	return 2*rows*(in/q.group) + tileSpan, rows * in
}

func (q quantTiles) PackRows() int { return q.span }

func (q quantTiles) Pack(p *Packed, x []float32, r0, r1 int) {
	if d, ok := q.few(p.Rows); ok {
		d.Pack(p, x, r0, r1)
		return
	}
	all, groups := bytesOf(p), p.in/q.group
	for r := r0; r < r1; r += q.span {
		n := min(q.span, r1-r)
		packed := all[r*p.in : (r+n)*p.in]
		plain := packed
		if n > 1 {
			plain = all[(p.Rows+r)*p.in : (p.Rows+r+n)*p.in]
		}
		scales := p.f32[2*r*groups : 2*(r+n)*groups]
		for i := range n {
			row := x[(r+i)*p.in : (r+i+1)*p.in]
			quantizeRow(&plain[i*p.in], &scales[i], &scales[n*groups+i], 4*n, &row[0], groups, q.group, q.zeroPoint)
		}
		if order := q.order(q.alone(p.Rows, n)); order != nil {
			permuteBytes(&plain[0], order, n*p.in/quantStep)
		}
		if n > 1 {
			quantPack(&packed[0], &plain[0], p.in, n, p.in/64)
		}
	}
}
