package cpu

import (
	"slices"
	"sync"
	"time"
)

// hugePage is what the larger pages of x86-64's and arm64's memory have.
const hugePage = 2 << 20

// slabs are the pages of keys and values of one size: a paging.Pool. They are cut from
// slabs of whole huge pages, since a page of keys may be smaller than one, or no multiple:
// the first touch of 82 MB took 38 ms by 4 KiB and 7 ms by 2 MiB (Zen 4). A new slab is
// taken only where no page is free. Those of which no page is taken go back to the system
// after keepSlabs, but for one.
type slabs struct {
	bytes int  // of a page
	each  int  // pages that a slab has
	zero  bool // pages that are taken must be zeros

	mutex sync.Mutex
	open  []*slab     // those with free pages
	timer *time.Timer // of trim; nil: nothing is to go

	closed bool // nothing is kept
}

// keepSlabs is how long memory is kept that nobody has: another conversation may come in
// place of one that went, and what a virtual machine has given back it may have to ask its
// host for: 345 MB took 300 to 500 ms then, in place of 45.
const keepSlabs = 10 * time.Second

// slab is some pages that lie one after the other.
type slab struct {
	mapping []byte // as the system gave it
	used    int    // pages that somebody has
	fresh   []byte // what nobody has had: zeros
	free    [][]byte
}

// page is a page of keys and values, and the slab that it is of.
type page struct {
	memory []byte
	slab   *slab
}

// slabsOf is the pool of pages of that many bytes, of zeros or of anything.
func (b *Backend) slabsOf(bytes int, zero bool) *slabs {
	b.slabsMutex.Lock()
	defer b.slabsMutex.Unlock()
	key := slabsKey{bytes, zero}
	p := b.slabs[key]
	if p == nil {
		p = &slabs{bytes: bytes, each: pagesOfSlab(bytes), zero: zero}
		b.slabs[key] = p
	}
	return p
}

// slabsKey is what pools differ in.
type slabsKey struct {
	bytes int
	zero  bool
}

// pagesOfSlab is the least number of pages that fill huge pages, but for 1/32 or, where
// no number below 32 MiB does, for more.
func pagesOfSlab(bytes int) int {
	for n := 1; ; n++ {
		all := n * bytes
		if all >= hugePage && all%hugePage <= all/32 || all >= 16*hugePage || bytes == 0 {
			return n
		}
	}
}

// Take returns a page from the slab with the fewest free ones, so that others become free
// as a whole.
func (p *slabs) Take() (page, error) {
	if p.bytes == 0 { // no layer has keys
		return page{}, nil
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var s *slab
	for _, x := range p.open {
		if s == nil || x.used > s.used {
			s = x
		}
	}
	if s == nil {
		mapping, memory, err := newSlab(p.each * p.bytes)
		if err != nil {
			return page{}, err
		}
		s = &slab{mapping: mapping, fresh: memory}
		p.open = append(p.open, s)
	}
	var memory []byte
	if n := len(s.free); n > 0 {
		memory = s.free[n-1]
		s.free = s.free[:n-1]
		if p.zero {
			clear(memory)
		}
	} else {
		memory = s.fresh[:p.bytes:p.bytes]
		s.fresh = s.fresh[p.bytes:]
	}
	if s.used++; s.used == p.each {
		p.open = slices.DeleteFunc(p.open, func(x *slab) bool { return x == s })
	}
	return page{memory, s}, nil
}

// Give takes back a page that nobody has any more.
func (p *slabs) Give(x page) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	s := x.slab
	if s == nil {
		return
	}
	if s.used == p.each {
		p.open = append(p.open, s)
	}
	s.used--
	s.free = append(s.free, x.memory)
	switch {
	case s.used > 0:
	case p.closed:
		p.drop(s)
	case p.timer == nil:
		p.timer = time.AfterFunc(keepSlabs, p.trim)
	}
}

// trim drops all slabs that nobody has pages of, but for one.
func (p *slabs) trim() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	kept := false
	for _, s := range slices.Clone(p.open) {
		if s.used > 0 {
			continue
		}
		if kept || p.closed {
			p.drop(s)
		}
		kept = true
	}
}

// drop gives a slab back to the system.
func (p *slabs) drop(s *slab) {
	p.open = slices.DeleteFunc(p.open, func(x *slab) bool { return x == s })
	freeSlab(s.mapping)
	*s = slab{}
}

// close gives slabs back that nobody has pages of, at once, and others when the last page
// is given back: who still has one may read it.
func (p *slabs) close() {
	p.mutex.Lock()
	p.closed = true
	p.mutex.Unlock()
	p.trim()
}

// Copy makes a page like another.
func (p *slabs) Copy(to, from page) error {
	copy(to.memory, from.memory)
	return nil
}
