package session

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// aheadBytes is how large pages are from which on one is read while the one before is put
// where it belongs: with smaller ones, and where two processors have all to do, that gained
// nothing (docs/performance.md).
const aheadBytes = 4 << 20

// readsAhead reports whether it pays for pages of so many bytes.
func readsAhead(pageBytes int) bool { return pageBytes >= aheadBytes && runtime.GOMAXPROCS(0) > 2 }

// maxReaders is how many pages are read at once where each is read to where it belongs:
// two processors take 0.7 times what one does, and a forward may want the others.
const maxReaders = 4

// batchBytes is about how much is read before it is handed over: few turns on the device,
// none of which is long where what was read must be brought in order.
const batchBytes = 16 << 20

// fill reads pages of a segment from one on to where they belong, and hands them over.
// damage is what is wrong with them.
func (l *loading) fill(f *segmentFile, first int, rooms [][]byte) (damage, err error) {
	batch := max(l.readers, batchBytes/f.pageSize())
	for len(rooms) > 0 {
		if err := l.ctx.Err(); err != nil {
			return nil, err
		}
		list := rooms[:min(batch, len(rooms))]
		if damage := f.readAll(first, list, l.readers, l.to.Filled); damage != nil {
			for _, room := range list {
				clear(room)
			}
			return damage, nil
		}
		if err := l.to.Put(list...); err != nil {
			return nil, err
		}
		first, rooms = first+len(list), rooms[len(list):]
	}
	return nil, nil
}

// readAll reads pages from one on, so many at once.
func (f *segmentFile) readAll(first int, rooms [][]byte, readers int, filled func(page []byte)) error {
	errs := make([]error, len(rooms))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(readers, len(rooms)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(rooms); i = int(next.Add(1)) - 1 {
				if errs[i] = f.page(first+i, rooms[i]); errs[i] != nil {
					return
				}
				if filled != nil {
					filled(rooms[i])
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// carry reads pages of a segment from one on, each into a buffer, and hands them over.
// damage is what is wrong with them.
func (l *loading) carry(f *segmentFile, from, end int) (damage, err error) {
	list := pages{file: f, end: end, room: &l.buffers, ahead: l.ahead && end-from > 1}
	if l.buffers[0] == nil {
		l.buffers[0] = make([]byte, f.pageSize())
	}
	if list.ahead && l.buffers[1] == nil {
		l.buffers[1] = make([]byte, f.pageSize())
	}
	defer list.stop()
	for i := from; i < end; i++ {
		if err := l.ctx.Err(); err != nil {
			return nil, err
		}
		page, damage := list.next(i)
		if damage != nil {
			return damage, nil
		}
		if err := l.to.Put(page); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// pages reads pages of a segment, one after the other.
type pages struct {
	file   *segmentFile
	end    int        // of them
	room   *[2][]byte // the second where pages are read ahead
	ahead  bool
	coming chan error // nil: none is being read
}

// next is page i. It is good until the one after the next is asked for, which must be i+1.
func (p *pages) next(i int) (page []byte, err error) {
	if !p.ahead {
		return p.room[0], p.file.page(i, p.room[0])
	}
	page = p.room[i%2]
	if p.coming == nil {
		p.begin(i)
	}
	err = <-p.coming
	p.coming = nil
	if err == nil && i+1 < p.end {
		p.begin(i + 1)
	}
	return page, err
}

func (p *pages) begin(i int) {
	c := make(chan error, 1)
	p.coming = c
	go func() { c <- p.file.page(i, p.room[i%2]) }()
}

// stop waits for what is being read.
func (p *pages) stop() {
	if p.coming != nil {
		<-p.coming
	}
}
