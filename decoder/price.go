package decoder

// Price is what a row costs in a forward that several sequences share, for adaptive
// windows of [Verified]: it changes which drafts and masks are fed, never the text.
type Price struct {
	// Row is the cost of a row in tokens: what all sequences together would make in
	// the time that it adds to the forward.
	Row float64
	// Masks is how many are weighed at most.
	Masks int
}

func (p *Price) equal(q *Price) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Row == q.Row && p.Masks == q.Masks
}

// Offer is what sequences do at a price: tokens and rows of a step, on average.
type Offer struct {
	Price
	Tokens, Rows float64
}

// Offers says what a sequence of whose text nothing is known yet is expected to do at
// each of some prices of a row, from nearly nothing to more than a row can bring, with
// up to so many masks; 0: the model has none. What lookups had to offer in recent steps
// is counted as often as they had. It takes some 0.1 ms.
func (e *Experience) Offers(masks int) (list []Offer) {
	none := masks == 0
	masks = max(2, min(masks, maxAdaptive))
	p := newPolicy(masks-1, nil)
	e.mutex.Lock()
	found := e.found.clone()
	e.lessons.promise.each(nil, func(i int, chance float64) {
		if i < masks-1 {
			p.typical.set(i, chance)
		}
	})
	e.mutex.Unlock()
	const least, most, step = 0.004, 1.3, 1.3
	for row := least; row < most; row *= step {
		price := Price{Row: row, Masks: masks}
		o := Offer{Price: price, Tokens: 1, Rows: 1}
		if !none {
			p.solve(&price)
			o.Tokens = p.average(func(d, _ int) float64 { return p.typical.earned[d] })
			o.Rows = p.average(func(d, m int) float64 { return float64(1 + d + m) })
		}
		found.mix(&o)
		list = append(list, o)
	}
	return list
}
