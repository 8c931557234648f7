package schedule

import (
	"slices"

	"windrow/decoder"
	"windrow/model"
)

// prefix is the beginning of a conversation whose keys and values are kept.
type prefix struct {
	salt   string
	tokens []int32
	// whole is how many of the first tokens were computed as a prompt's chunks are:
	// where bits depend on how rows are cut, only these may be shared.
	whole int
	cache *model.Cache
	used  int64 // when, by a clock that counts uses
}

// prefixes are the beginnings that are kept, each with its cache.
type prefixes struct {
	list  []*prefix
	most  int
	clock int64
	free  func(*model.Cache)
}

// find returns the prefix that shares the most tokens with a prompt, and how many may
// be used: up to a multiple of step, of those computed whole.
func (p *prefixes) find(salt string, prompt []int32, step int) (best *prefix, n int) {
	for _, x := range p.list {
		if x.salt != salt {
			continue
		}
		m := decoder.CommonPrefix(x.tokens, prompt)
		if step > 1 {
			m = min(m, x.whole) / step * step
		}
		if m > n {
			best, n = x, m
		}
	}
	if best != nil {
		p.clock++
		best.used = p.clock
	}
	return best, n
}

// put keeps a cache whose tokens those are. What it continues is not needed beside it;
// where another continues it, it is not needed itself.
func (p *prefixes) put(x *prefix) {
	if p.most <= 0 || len(x.tokens) == 0 {
		p.free(x.cache)
		return
	}
	p.clock++
	x.used = p.clock
	for _, y := range p.list {
		if y.salt == x.salt && y.whole >= x.whole && decoder.CommonPrefix(x.tokens, y.tokens) == len(x.tokens) {
			y.used = p.clock
			p.free(x.cache)
			return
		}
	}
	p.list = slices.DeleteFunc(p.list, func(y *prefix) bool {
		gone := y.salt == x.salt && x.whole >= y.whole && decoder.CommonPrefix(x.tokens, y.tokens) == len(y.tokens)
		if gone {
			p.free(y.cache)
		}
		return gone
	})
	p.list = append(p.list, x)
	for len(p.list) > p.most {
		p.evict()
	}
}

// evict gives the least recently used one up, and reports whether there was one.
func (p *prefixes) evict() bool {
	if len(p.list) == 0 {
		return false
	}
	oldest := 0
	for i, x := range p.list {
		if x.used < p.list[oldest].used {
			oldest = i
		}
	}
	p.free(p.list[oldest].cache)
	p.list[oldest] = p.list[len(p.list)-1]
	p.list[len(p.list)-1] = nil
	p.list = p.list[:len(p.list)-1]
	return true
}

// clear gives all of them up.
func (p *prefixes) clear() {
	for p.evict() {
	}
}
