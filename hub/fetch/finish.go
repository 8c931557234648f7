package fetch

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"slices"
	"strings"
	"time"

	"windrow/hub"
	"windrow/internal/atomicfile"
)

// finish hashes a file as it comes and, when it is whole and right, hands it to done. Of
// a wrong one the pieces are asked for again, once.
func (t *transfer) finish(ctx context.Context, f *file) error {
	sum, err := f.part.follow(ctx)
	if err != nil {
		return err
	}
	if want, _ := hex.DecodeString(string(f.Hash)); f.Hash != "" && !bytes.Equal(sum, want) {
		t.mu.Lock()
		t.say("retry", f.Path, f.Path+": the hash is wrong: pieces are fetched again and compared", f.Path+"hash")
		t.mu.Unlock()
		if sum, err = t.again(ctx, f); err != nil {
			return err
		}
	}
	if f.Hash == "" {
		f.Hash = hub.Digest(hex.EncodeToString(sum))
	}
	<-f.reserved
	if err := atomicfile.Sync(f.part.file); err != nil {
		return err
	}
	if err := t.done(f); err != nil {
		return err
	}
	f.part.close()
	atomicfile.Remove(f.part.journalPath())
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.unlock != nil {
		f.unlock()
		f.unlock = nil
	}
	f.state = fileDone
	t.o.Event(Event{Event: "verified", File: f.Path, Done: f.Size})
	t.wake.Broadcast()
	return nil
}

// again fetches the pieces of a file with a wrong hash one after another, replaces those
// that come otherwise now, and hashes the file once more. Those that peers gave come
// first: mostly no others are wrong.
func (t *transfer) again(ctx context.Context, f *file) ([]byte, error) {
	p := f.part
	if sum, err := t.withoutPeers(ctx, f); err != nil || hex.EncodeToString(sum) == string(f.Hash) {
		return sum, err
	}
	p.rehash(f.newHash)
	var other []string
	for i := range p.pieces {
		lied, _, err := t.pieceAgain(ctx, f, i)
		if errors.Is(err, errWhole) {
			return t.allAgain(ctx, f)
		}
		if err != nil {
			return nil, err
		}
		if lied {
			other = append(other, fmt.Sprint(i))
		}
	}
	if err := p.record(false); err != nil {
		return nil, err
	}
	sum, err := p.follow(ctx)
	if err != nil {
		return nil, err
	}
	if hex.EncodeToString(sum) != string(f.Hash) {
		pieces := "no piece came otherwise the second time"
		if len(other) > 20 {
			other = append(other[:20], "…")
		}
		if len(other) > 0 {
			pieces = "pieces " + strings.Join(other, ", ") + " came otherwise the second time"
		}
		return nil, fmt.Errorf("%s: %s gives bytes with the hash %x: want %s; %s; what came is kept in %s", f.Path, t.source.name(), sum, f.Hash, pieces, p.path)
	}
	return sum, nil
}

// pieceAgain fetches a piece from the source once more. lied says that it came otherwise
// before; replaced, that the disk had other bytes, for which there are other reasons, too.
func (t *transfer) pieceAgain(ctx context.Context, f *file, i int) (lied, replaced bool, err error) {
	p := f.part
	data, err := t.fetchPiece(ctx, f, i, make([]byte, p.pieceSize))
	if err != nil && !errors.Is(err, errWhole) {
		err = fmt.Errorf("%s: the hash is wrong, and piece %d could not be fetched again: %w", f.Path, i, err)
	}
	if err != nil {
		return false, false, err
	}
	crc := crc32.Checksum(data, castagnoli)
	lied = crc != p.of(i).crc
	if onDisk, err := p.checksum(i, p.length(i), make([]byte, 256<<10)); err == nil && onDisk == crc && !lied {
		p.vouched(i)
		return false, false, nil
	}
	return lied, true, p.replace(i, data)
}

// withoutPeers fetches from the source what peers gave of a file with a wrong hash: of
// those first of whom the first piece comes otherwise. It ends when the hash is right,
// which it returns. Peers who gave other bytes are left out.
func (t *transfer) withoutPeers(ctx context.Context, f *file) (sum []byte, err error) {
	p := f.part
	var from []uint64
	for i := range p.pieces {
		for b := range seqBits(p.of(i).from) {
			if !slices.Contains(from, b) {
				from = append(from, b)
			}
		}
	}
	if len(from) == 0 {
		return nil, nil
	}
	p.rehash(f.newHash)
	otherwise, changed := map[uint64]bool{}, false
	piece := func(i int) error {
		by := p.of(i).from
		lied, replaced, err := t.pieceAgain(ctx, f, i)
		for b := range seqBits(by) {
			otherwise[b] = otherwise[b] || lied
		}
		changed = changed || replaced
		return err
	}
	for _, b := range from { // one of each
		for i := range p.pieces {
			if p.of(i).from&b != 0 {
				err = piece(i)
				break
			}
		}
		if err != nil {
			break
		}
	}
	honest := func(b uint64) bool { return !otherwise[b] }
	from = slices.Concat(slices.DeleteFunc(slices.Clone(from), honest), slices.DeleteFunc(slices.Clone(from), func(b uint64) bool { return !honest(b) }))
	for _, b := range from {
		for i := 0; i < len(p.pieces) && err == nil; i++ {
			if p.of(i).from&b != 0 {
				err = piece(i)
			}
		}
		if otherwise[b] {
			t.liar(b)
		}
		if err == nil && changed {
			changed = false
			if err = p.record(false); err == nil {
				p.rehash(f.newHash)
				sum, err = p.follow(ctx)
			}
			if err == nil && hex.EncodeToString(sum) == string(f.Hash) {
				return sum, nil
			}
		}
	}
	if errors.Is(err, errWhole) {
		return t.allAgain(ctx, f)
	}
	return nil, err
}

// seqBits are the bits of a set.
func seqBits(set uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for ; set != 0; set &= set - 1 {
			if !yield(set & -set) {
				return
			}
		}
	}
}

// liar leaves a peer out who gave other bytes than the source.
func (t *transfer) liar(bit uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.peers {
		if s.bit == bit {
			t.leaveOut(s, errors.New("it gave other bytes than the hash says"))
		}
	}
}

// allAgain fetches a whole file once more from a server that knows no ranges.
func (t *transfer) allAgain(ctx context.Context, f *file) ([]byte, error) {
	if err := f.part.clear(f.newHash); err != nil {
		return nil, err
	}
	t.wakeAll()
	sum, err := f.part.follow(ctx)
	if err == nil && hex.EncodeToString(sum) != string(f.Hash) {
		err = fmt.Errorf("%s: %s gives bytes with the hash %x, twice: want %s; what came is kept in %s", f.Path, t.source.name(), sum, f.Hash, f.part.path)
	}
	return sum, err
}

// try does what a server is asked for, again and again where that can help.
func (t *transfer) try(ctx context.Context, what string, do func() error) error {
	var err error
	for n := range maxTries {
		t.requests.Add(1)
		if err = do(); err == nil || isPermanent(err) || ctx.Err() != nil {
			return err
		}
		var status *statusError
		wait := min(t.o.times.backoff<<n, t.o.times.maxBackoff)
		if errors.As(err, &status) {
			if status.status < 500 && !status.busy() && status.status != 408 {
				return err
			}
			wait = max(wait, status.wait)
		}
		if unreachable(err) && n == 2 {
			break // nobody is there
		}
		text := fmt.Sprintf("%v: asking again", err)
		if status != nil && status.wait > 0 {
			text = fmt.Sprintf("%s wants a pause of %s", status.where, status.wait.Round(time.Second))
		}
		t.o.Event(Event{Event: "retry", Text: text})
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
	return err
}
