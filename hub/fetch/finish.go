package fetch

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"time"

	"windrow/hub"
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
		t.say("retry", f.Path, f.Path+": the hash is wrong: its pieces are fetched again and compared", f.Path+"hash")
		t.mu.Unlock()
		if sum, err = t.again(ctx, f); err != nil {
			return err
		}
	}
	if f.Hash == "" {
		f.Hash = hub.Digest(hex.EncodeToString(sum))
	}
	if err := f.part.file.Sync(); err != nil {
		return err
	}
	if err := t.done(f); err != nil {
		return err
	}
	f.part.close()
	os.Remove(f.part.journalPath())
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
// that come otherwise now, and hashes the file once more.
func (t *transfer) again(ctx context.Context, f *file) ([]byte, error) {
	p := f.part
	buf := make([]byte, p.pieceSize)
	var other []string
	for i := range p.pieces {
		data, err := t.fetchPiece(ctx, f, i, buf)
		if errors.Is(err, errWhole) {
			return t.allAgain(ctx, f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: the hash is wrong, and piece %d could not be fetched again: %w", f.Path, i, err)
		}
		if crc32.Checksum(data, castagnoli) == p.of(i).crc {
			continue
		}
		if err := p.replace(i, data); err != nil {
			return nil, err
		}
		other = append(other, fmt.Sprint(i))
	}
	if err := p.record(false); err != nil {
		return nil, err
	}
	p.rehash(f.newHash)
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
