package fetch

import (
	"context"
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"windrow/filelock"
	"windrow/internal/atomicfile"
)

// part is a file that is not whole yet: pieces are written in any order, and the front
// that has been hashed follows what is there from the beginning on without a gap.
type part struct {
	journalHeader
	path    string
	file    *os.File
	journal *atomicfile.Appender

	mu      sync.Mutex
	more    *sync.Cond // the front can go on, or the part is closed
	less    *sync.Cond // the front has gone on, or is followed no more
	pieces  []piece
	whole   int   // pieces before this one are complete
	changed []int // pieces that the journal lags behind on
	hashed  int64 // front, for those who have not hashing
	follows bool  // the hash is being made
	closed  bool
	counted func(n int64) // is told of bytes that were written

	// writing is held by who writes to the file: the system lets one at a time anyway, and
	// keeps the others' processors busy meanwhile.
	writing sync.Mutex
	full    bool // the disk had no room for all of it

	hashing sync.Mutex // guards what follows
	hash    hash.Hash
	front   int64
	saved   int64 // the front that the journal has
}

// piece is a run of bytes that one connection fetches.
type piece struct {
	have int64 // bytes from its beginning on
	crc  uint32
	from uint64 // the bits of the peers who gave some of it
	lags bool   // it is in changed
}

// boot is bootName, as the journal has it.
var boot = sync.OnceValue(func() (id [16]byte) {
	if name := bootName(); name != "" {
		sum := sha256.Sum256([]byte(name))
		copy(id[:], sum[:])
	}
	return id
})

// errPartHeld says that another process writes the part.
var errPartHeld = errors.New("another process fetches the same content")

// openPart opens a part file, or makes one. newHash begins the hash of its content. What
// a journal of the same content says is there is taken: at once where the system has run
// since, else after it was compared with its checksums.
func openPart(ctx context.Context, path string, h journalHeader, newHash func() hash.Hash, counted func(int64)) (_ *part, err error) {
	p := &part{journalHeader: h, path: path, hash: newHash(), pieces: make([]piece, h.pieces()), counted: counted}
	p.more, p.less = sync.NewCond(&p.mu), sync.NewCond(&p.mu)
	if p.boot == [16]byte{} {
		p.boot = boot()
	}
	if p.file, err = atomicfile.Open(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := filelock.TryLock(p.file); errors.Is(err, filelock.ErrHeld) {
		return nil, errPartHeld
	} else if err != nil {
		return nil, err
	}
	info, err := p.file.Stat()
	if err != nil {
		return nil, err
	}
	// A process that ended while it began a journal has left what was to become one.
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".journal.*.tmp"))
	for _, name := range left {
		os.Remove(name)
	}
	old := readJournalFile(p.journalPath())
	if old != nil && info.Size() == h.size && old.key == h.key && old.size == h.size && old.pieceSize == h.pieceSize {
		if err := p.resume(ctx, old, newHash); err != nil {
			return nil, err
		}
	}
	if info.Size() != h.size {
		if err := atomicfile.Resize(p.file, 0); err != nil {
			return nil, err
		}
		if err := atomicfile.Resize(p.file, h.size); err != nil {
			return nil, err
		}
	}
	return p, p.beginJournal()
}

func (p *part) journalPath() string { return p.path + ".journal" }

// readJournalFile reads a journal; nil where there is none that can be used.
func readJournalFile(path string) *journal {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		return nil
	}
	j, err := readJournal(data)
	if err != nil {
		return nil
	}
	return j
}

// resume takes what a journal says is there.
func (p *part) resume(ctx context.Context, old *journal, newHash func() hash.Hash) error {
	trusted := old.boot == p.boot && p.boot != [16]byte{}
	buf := make([]byte, 1<<20)
	for i, n := range old.noted {
		if n.have > 0 && !trusted {
			if err := ctx.Err(); err != nil {
				return err
			}
			crc, err := p.checksum(i, n.have, buf)
			if err != nil || crc != n.crc {
				continue
			}
		}
		p.pieces[i] = piece{have: n.have, crc: n.crc}
		if n.peer {
			p.pieces[i].from = unknownPeer
		}
	}
	p.step()
	p.counted(old.have())
	for i := range old.noted { // what was not confirmed is not there
		p.counted(p.pieces[i].have - old.noted[i].have)
	}
	if u, ok := p.hash.(encoding.BinaryUnmarshaler); ok && old.front > 0 && old.front <= p.contiguous() {
		if u.UnmarshalBinary(old.state) == nil {
			p.front, p.hashed = old.front, old.front
		} else {
			p.hash = newHash()
		}
	}
	return nil
}

// checksum is the CRC-32C of a piece's first bytes.
func (p *part) checksum(piece int, have int64, buf []byte) (crc uint32, err error) {
	at := int64(piece) * p.pieceSize
	for have > 0 {
		n, err := p.file.ReadAt(buf[:min(int64(len(buf)), have)], at)
		if n == 0 {
			return 0, err
		}
		crc = crc32.Update(crc, castagnoli, buf[:n])
		at, have = at+int64(n), have-int64(n)
	}
	return crc, nil
}

// beginJournal writes the journal anew, with what is there, and opens it for more.
func (p *part) beginJournal() error {
	b := p.journalHeader.bytes()
	for i, x := range p.pieces {
		if x.have > 0 {
			b = pieceRecord(b, i, noted{x.have, x.crc, x.from != 0})
		}
	}
	b = p.frontState(b)
	err := atomicfile.Options{Mode: 0o666}.Write(p.journalPath(), func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
	if err != nil {
		return err
	}
	p.journal, err = atomicfile.NewAppender(p.journalPath())
	return err
}

// frontState appends a record of the front, where it has moved. The caller has hashing,
// or is alone.
func (p *part) frontState(b []byte) []byte {
	m, ok := p.hash.(encoding.BinaryMarshaler)
	if !ok || p.front == 0 || p.front == p.saved {
		return b
	}
	state, err := m.MarshalBinary()
	if err != nil || len(state) > stateSize {
		return b
	}
	p.saved = p.front
	return frontRecord(b, p.front, state)
}

// write adds bytes to a piece, after those that it has; from is who gave them. One goroutine writes a piece.
func (p *part) write(i int, data []byte, from uint64) error {
	p.mu.Lock()
	x := p.pieces[i]
	p.mu.Unlock()
	if x.have+int64(len(data)) > p.length(i) {
		return fmt.Errorf("piece %d of %s: %d bytes too many", i, p.path, x.have+int64(len(data))-p.length(i))
	}
	p.writing.Lock()
	err := atomicfile.WriteAt(p.file, data, int64(i)*p.pieceSize+x.have)
	p.writing.Unlock()
	if err != nil {
		return err
	}
	crc := crc32.Update(x.crc, castagnoli, data)
	p.mu.Lock()
	at := &p.pieces[i]
	at.have, at.crc, at.from = x.have+int64(len(data)), crc, x.from|from
	if !at.lags {
		at.lags = true
		p.changed = append(p.changed, i)
	}
	full := at.have == p.length(i)
	if i == p.whole {
		p.stepLocked()
		p.more.Signal()
	}
	p.mu.Unlock()
	p.counted(int64(len(data)))
	if full {
		return p.record(false)
	}
	return nil
}

// maxUnhashed is how far the hash may be behind what it could take. Where processors are
// what lacks it would fall behind all of the connections, and be alone at the end.
const maxUnhashed = 32 << 20

// letHash waits for the hash where it is far behind.
func (p *part) letHash(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.contiguousLocked()-p.hashed > maxUnhashed && p.follows && ctx.Err() == nil {
		p.less.Wait()
	}
}

// reserveStep is how many bytes are reserved at a time: on tmpfs, where each page is made,
// 4 MiB take a millisecond, in which nobody else writes to the file.
const reserveStep = 4 << 20

// reserve takes the blocks of what lacks, so that the disk cannot run out half-way. It
// goes on beside the fetching, and ahead of it.
func (p *part) reserve(ctx context.Context) error {
	for at := int64(0); at < p.size && ctx.Err() == nil; at += reserveStep {
		p.mu.Lock()
		there, closed := at+reserveStep <= p.contiguousLocked(), p.closed
		p.mu.Unlock()
		if closed {
			break
		}
		if there {
			continue
		}
		began := time.Now()
		p.writing.Lock()
		err := reserve(p.file, at, min(reserveStep, p.size-at))
		p.writing.Unlock()
		if took := time.Since(began); took > 200*time.Microsecond {
			pause(ctx, took) // those who write go first
		}
		if err != nil {
			p.mu.Lock()
			p.full = true
			p.mu.Unlock()
			return err
		}
	}
	return nil
}

// giveBack frees the blocks after the last byte that came, of a part that the disk has no
// room for.
func (p *part) giveBack() {
	end := int64(0)
	for i, x := range p.pieces {
		if x.have > 0 {
			end = int64(i)*p.pieceSize + x.have
		}
	}
	if end < p.size && atomicfile.Resize(p.file, end) == nil {
		atomicfile.Resize(p.file, p.size)
	}
}

// replace writes a whole piece anew.
func (p *part) replace(i int, data []byte) error {
	if err := atomicfile.WriteAt(p.file, data, int64(i)*p.pieceSize); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pieces[i].crc, p.pieces[i].from = crc32.Checksum(data, castagnoli), 0
	if !p.pieces[i].lags {
		p.pieces[i].lags = true
		p.changed = append(p.changed, i)
	}
	return nil
}

// vouched notes that a piece is as the source gives it, too.
func (p *part) vouched(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pieces[i].from = 0
}

// clear forgets all that is there.
func (p *part) clear(newHash func() hash.Hash) error {
	p.hashing.Lock()
	p.hash, p.front, p.saved = newHash(), 0, 0
	p.mu.Lock()
	p.hashed = 0
	var gone int64
	for i := range p.pieces {
		gone += p.pieces[i].have
		p.pieces[i] = piece{}
	}
	p.whole, p.changed = 0, nil
	p.mu.Unlock()
	p.hashing.Unlock()
	p.counted(-gone)
	p.journal.Close()
	return p.beginJournal()
}

// rehash begins the hash anew.
func (p *part) rehash(newHash func() hash.Hash) {
	p.hashing.Lock()
	defer p.hashing.Unlock()
	p.hash, p.front, p.saved = newHash(), 0, 0
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hashed = 0
	if p.journal != nil {
		p.journal.Write(frontRecord(nil, 0, nil)) // what it says of the old hash is void
	}
}

// step moves whole on.
func (p *part) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stepLocked()
}

func (p *part) stepLocked() {
	for p.whole < len(p.pieces) && p.pieces[p.whole].have == p.length(p.whole) {
		p.whole++
	}
}

// contiguous is how many bytes are there from the beginning on without a gap.
func (p *part) contiguous() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.contiguousLocked()
}

func (p *part) contiguousLocked() int64 {
	if p.whole == len(p.pieces) {
		return p.size
	}
	return int64(p.whole)*p.pieceSize + p.pieces[p.whole].have
}

// of is what a piece has.
func (p *part) of(i int) piece {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pieces[i]
}

// record appends to the journal what has changed; with the hash's front too, where front
// is set. What it says of is written before it.
func (p *part) record(front bool) error {
	if front {
		p.hashing.Lock()
		defer p.hashing.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var b []byte
	for _, i := range p.changed {
		p.pieces[i].lags = false
		b = pieceRecord(b, i, noted{p.pieces[i].have, p.pieces[i].crc, p.pieces[i].from != 0})
	}
	p.changed = p.changed[:0]
	if front {
		b = p.frontState(b)
	}
	if len(b) == 0 || p.journal == nil {
		return nil
	}
	_, err := p.journal.Write(b)
	return err
}

// follow hashes what is there, as it comes, until the file's end, and returns the hash.
func (p *part) follow(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.more.Broadcast()
		p.less.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	p.follows = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.follows = false
		p.less.Broadcast()
	}()
	buf := make([]byte, 256<<10) // it fits the second cache of a core, with its source
	for {
		p.hashing.Lock()
		front := p.front
		p.hashing.Unlock()
		if front == p.size {
			p.hashing.Lock()
			defer p.hashing.Unlock()
			return p.hash.Sum(nil), nil
		}
		p.mu.Lock()
		for p.contiguousLocked() <= front && ctx.Err() == nil && !p.closed {
			p.more.Wait()
		}
		n := min(int64(len(buf)), p.contiguousLocked()-front)
		closed := p.closed
		p.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case closed:
			return nil, os.ErrClosed
		case n <= 0:
			continue
		}
		if _, err := p.file.ReadAt(buf[:n], front); err != nil {
			return nil, err
		}
		p.hashing.Lock()
		if p.front == front { // else it was cleared meanwhile
			p.hash.Write(buf[:n])
			p.front += n
			p.mu.Lock()
			p.hashed = p.front
			p.less.Broadcast()
			p.mu.Unlock()
		}
		p.hashing.Unlock()
	}
}

// close records what is there, and lets go of the files. The part stays.
func (p *part) close() {
	if p.journal != nil {
		p.record(true)
		p.journal.Close()
	}
	p.mu.Lock()
	p.closed = true
	full := p.full
	p.mu.Unlock()
	p.more.Broadcast()
	if full {
		p.giveBack()
	}
	p.file.Close()
}
