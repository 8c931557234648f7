package session

import (
	"runtime"
	"time"
)

// aheadBytes is how large pages are from which on one is read while the one before is put
// where it belongs: with smaller ones, and where two processors have all to do, that gained
// nothing (docs/performance.md).
const aheadBytes = 4 << 20

// readsAhead reports whether it pays for pages of so many bytes.
func readsAhead(pageBytes int) bool { return pageBytes >= aheadBytes && runtime.GOMAXPROCS(0) > 2 }

// pageRead is a page that was read.
type pageRead struct {
	page []byte
	err  error
	took time.Duration
}

// pages reads pages of a segment, one after the other.
type pages struct {
	file   *segmentFile
	end    int // of them
	room   *[2][]byte
	ahead  bool
	coming chan pageRead // nil: none is being read
}

// next is page i. It is good until the one after the next is asked for, which must be i+1.
func (p *pages) next(i int) pageRead {
	if !p.ahead {
		return p.read(i)
	}
	if p.coming == nil {
		p.begin(i)
	}
	r := <-p.coming
	p.coming = nil
	if r.err == nil && i+1 < p.end {
		p.begin(i + 1)
	}
	return r
}

func (p *pages) begin(i int) {
	c := make(chan pageRead, 1)
	p.coming = c
	go func() { c <- p.read(i) }()
}

func (p *pages) read(i int) pageRead {
	began := time.Now()
	page, err := p.file.page(i, p.room[i%2])
	return pageRead{page, err, time.Since(began)}
}

// stop waits for what is being read.
func (p *pages) stop() {
	if p.coming != nil {
		<-p.coming
	}
}
