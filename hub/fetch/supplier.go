package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"windrow/hub"
)

// supplier is one who gives bytes of files: the source of a model, or a peer that has some
// of its contents, too. Each has connections of its own, that take the next pieces when
// they are done with their last: who is quicker gives more. Only the source is believed:
// its listing has the hashes, and what peers gave is fetched from it where a hash is wrong.
type supplier struct {
	client *client
	source source
	// bit names it in piece.from; 0: the source.
	bit     uint64
	fetched atomic.Int64

	// The transfer's lock guards what follows.
	runs    int
	usual   float64             // bytes a second of a connection's run, a running mean
	latency time.Duration       // from a request to its answer, a running mean
	lacks   map[hub.Digest]bool // contents that a peer does not have
	tries   int                 // of a peer, since it last gave a byte
	after   time.Time           // nobody asks it before
	out     bool                // a peer that is asked no more
}

const (
	// MaxPeers bounds Options.Peers.
	MaxPeers = 32
	// peerConnections is how many connections a peer gets: one disk, one cable.
	peerConnections = 2
	// peerTries is how often a peer is tried without a new byte.
	peerTries = 3
	// peerDialTime is how long a peer has to take a connection: it is near.
	peerDialTime = 3 * time.Second
	// unknownPeer is the bit of peers of an earlier run.
	unknownPeer = 1 << 63
)

func (s *supplier) peer() bool { return s.bit != 0 }

// newPeers makes suppliers of the addresses in the options.
func newPeers(o Options) (list []*supplier, err error) {
	if len(o.Peers) > MaxPeers {
		return nil, fmt.Errorf("%d peers: want at most %d", len(o.Peers), MaxPeers)
	}
	seen := map[string]bool{}
	for i, address := range o.Peers {
		base, err := ParsePeer(address)
		if err != nil {
			return nil, err
		}
		if seen[base.String()] {
			continue
		}
		seen[base.String()] = true
		c := newClient(base, o.PeerToken, o.Agent, peerConnections, o.roots)
		c.noFollow, c.plainToken, c.dialer.Timeout = true, true, peerDialTime
		list = append(list, &supplier{client: c, source: &peerSource{client: c}, bit: 1 << i, lacks: map[hub.Digest]bool{}})
	}
	return list, nil
}

// peerEnded says what becomes of a peer whose run did not end well: it costs nothing but
// what it gave. The caller has the lock.
func (t *transfer) peerEnded(r *run, got int64, err error) {
	s, now := r.s, time.Now()
	var status *statusError
	switch {
	case errors.Is(err, errWhole), s.out:
		return
	case errors.Is(err, errSlow):
		s.after = now.Add(t.o.times.slow)
		return
	case errors.As(err, &status) && status.status == http.StatusNotFound:
		s.lacks[r.f.Hash] = true
		return
	case errors.As(err, &status) && status.busy():
		s.after = now.Add(max(status.wait, t.o.times.backoff))
		return
	case errors.As(err, &status) && status.status < 500:
		err = s.source.refusal(t.repo, t.commit, status)
	case isPermanent(err):
	case got > 0:
		s.tries = 0
		s.after = now.Add(t.o.times.backoff)
		return
	default:
		if s.tries++; s.tries < peerTries {
			s.after = now.Add(t.o.times.backoff << s.tries)
			return
		}
	}
	t.leaveOut(s, err)
}

// leaveOut ends the asking of a peer. The caller has the lock.
func (t *transfer) leaveOut(s *supplier, why error) {
	if s.out {
		return
	}
	s.out = true
	for r := range t.runs {
		if r.s == s && r.cancel != nil {
			r.cancel(errSlow)
		}
	}
	t.o.Event(Event{Event: "note", Text: fmt.Sprintf("peer %s is left out: %v", s.source.name(), why)})
	t.wake.Broadcast()
}

// helped reports whether a peer may have a file. The caller has the lock.
func (t *transfer) helped(f *file) bool {
	for _, s := range t.peers {
		if !s.out && !s.lacks[f.Hash] && !f.whole {
			return true
		}
	}
	return false
}

// startPeers begins the peers' connections.
func (t *transfer) startPeers(ctx context.Context, work *sync.WaitGroup, fail func(error)) {
	for _, s := range t.peers {
		for range peerConnections {
			work.Go(func() { t.connect(ctx, s, work, fail) })
		}
	}
}
