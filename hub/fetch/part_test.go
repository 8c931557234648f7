package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"path/filepath"
	"testing"
	"time"
)

// TestLetHash: who receives waits where the hash is far behind, for as long as somebody
// hashes.
func TestLetHash(t *testing.T) {
	data := random(1, maxUnhashed+(8<<20))
	h := journalHeader{size: int64(len(data)), pieceSize: 16 << 20}
	p, err := openPart(t.Context(), filepath.Join(t.TempDir(), "part"), h, sha256.New, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for i := range p.pieces {
		at := int64(i) * h.pieceSize
		if err := p.write(i, data[at:at+h.length(i)], 0); err != nil {
			t.Fatal(err)
		}
	}
	p.letHash(t.Context()) // nobody hashes: it does not wait
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.hashing.Lock()
	sum, waited := make(chan []byte), make(chan bool)
	go func() {
		got, _ := p.follow(ctx)
		sum <- got
	}()
	for follows := false; !follows; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		follows = p.follows
		p.mu.Unlock()
	}
	go func() { p.letHash(ctx); waited <- true }()
	select {
	case <-waited:
		t.Error("it did not wait for the hash")
	case <-time.After(50 * time.Millisecond):
	}
	p.hashing.Unlock()
	<-waited
	if want := sha256.Sum256(data); !bytes.Equal(<-sum, want[:]) {
		t.Error("another hash")
	}
	// The end of a transfer ends the waiting, too.
	p.rehash(sha256.New)
	p.hashing.Lock()
	go func() {
		got, _ := p.follow(ctx)
		sum <- got
	}()
	for follows := false; !follows; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		follows = p.follows
		p.mu.Unlock()
	}
	go func() { p.letHash(ctx); waited <- true }()
	cancel()
	p.hashing.Unlock()
	<-waited
	<-sum
}
