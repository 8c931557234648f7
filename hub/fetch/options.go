package fetch

import (
	"crypto/x509"
	"time"

	"windrow/hub"
)

// DefaultEndpoint is the Hub's address.
const DefaultEndpoint = "https://huggingface.co"

// Options say how a model is fetched. The zero value takes a public one from the Hub.
type Options struct {
	// Endpoint is the address of the Hub or of a mirror; "": DefaultEndpoint. Token is
	// sent there, over https, and nowhere else.
	Endpoint string
	Token    Token
	// Peers are addresses, as ParsePeer reads them, of other Windrows that may have some of
	// the contents, too; PeerToken is a key of theirs. The hashes are the Hub's.
	Peers     []string
	PeerToken Token
	// Connections is how many at most ask at a time; 0: 8.
	Connections int
	// Limit is how many bytes a second are taken at most; 0: all that come.
	Limit int64
	// Wait is how long is waited for another process that fetches the same file; negative:
	// until it is done.
	Wait time.Duration
	// Offline opens no connection: what is in the cache is all there is.
	Offline bool
	// DryRun says what would be fetched, and fetches none of it.
	DryRun bool
	// Check is given a model's config.json before anything else is fetched; an error ends
	// the fetching. nil: anything is taken.
	Check func(config []byte) error
	// CheckGGUF is given the first bytes of a .gguf model likewise, at most GGUFHead.
	CheckGGUF func(head []byte) error
	// Event is told what happens, from one goroutine at a time; nil: nobody is.
	Event func(Event)
	// Agent names the program to servers.
	Agent string

	roots     *x509.CertPool
	times     times
	pieceSize int64
	noRoom    bool // the space is not compared with what lacks
	shared    bool // as if the cache were on a file system of several machines
}

// Event is something that happens while a model is fetched.
type Event struct {
	// Event is plan, progress, wait, retry, note, verified or done.
	Event string `json:"event"`
	// Name and Commit are the model's.
	Name   string `json:"name,omitempty"`
	Commit string `json:"commit,omitempty"`
	// Plan is what is to be done (plan).
	Plan *Plan `json:"plan,omitempty"`
	// Done of Total bytes are on disk, also in files that are not whole; Rate is bytes a
	// second of the last ten seconds; Verifying says that all are there (progress).
	Done        int64   `json:"done,omitempty"`
	Total       int64   `json:"total,omitempty"`
	Rate        float64 `json:"bytes_per_second,omitempty"`
	Connections int     `json:"connections,omitempty"`
	Verifying   bool    `json:"verifying,omitempty"`
	// File is of a path in the model (wait, retry, verified).
	File string `json:"file,omitempty"`
	// Text is a line for people (wait, retry, note).
	Text string `json:"text,omitempty"`
	// Result is how it ended (done).
	Result *Result `json:"result,omitempty"`
}

// Plan is what Pull is going to do.
type Plan struct {
	Files []PlannedFile `json:"files"`
	// Bytes are of all files; Here of those that are in the cache, Shared of those whose
	// content another repository has, Kept of parts that an earlier download left. Missing
	// is the rest.
	Bytes   int64 `json:"bytes"`
	Here    int64 `json:"here"`
	Shared  int64 `json:"shared"`
	Kept    int64 `json:"kept"`
	Missing int64 `json:"missing"`
	// Free is what the file system has; -1: not known.
	Free int64 `json:"free"`
}

// PlannedFile is a file of a Plan.
type PlannedFile struct {
	hub.File
	// State is here, shared, partial or missing.
	State string `json:"state"`
	Kept  int64  `json:"kept,omitempty"`
}

// Result is what Pull has done.
type Result struct {
	Name   string `json:"name"`
	Commit string `json:"commit"`
	// Path is what the model is opened by.
	Path  string `json:"path"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	// Fetched are the bytes that came over the network, Requests how often was asked.
	// FromPeers of the bytes peers gave.
	Fetched   int64 `json:"fetched"`
	FromPeers int64 `json:"from_peers,omitempty"`
	Requests  int64 `json:"requests"`
	// Before is the commit at which the branch was in the cache; Changed files of it, with
	// ChangedBytes, are others now.
	Before       string `json:"before,omitempty"`
	Changed      int    `json:"changed"`
	ChangedBytes int64  `json:"changed_bytes"`
}

// times are how long things take; tests have shorter ones.
type times struct {
	backoff, maxBackoff time.Duration // between tries: doubles from the one to the other
	stall               time.Duration // without a byte: another connection
	slow                time.Duration // after that long a slow connection is replaced
	record              time.Duration // between records in the journal
	tick                time.Duration // between looks at the rate
	lock                time.Duration // between looks at a lock
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.times.backoff, 500*time.Millisecond)
	set(&o.times.maxBackoff, 30*time.Second)
	set(&o.times.stall, 15*time.Second)
	set(&o.times.slow, 10*time.Second)
	set(&o.times.record, time.Second)
	set(&o.times.tick, 500*time.Millisecond)
	set(&o.times.lock, 100*time.Millisecond)
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	if o.Connections < 1 {
		o.Connections = 8
	}
	if o.pieceSize == 0 {
		o.pieceSize = 16 << 20
	}
	if o.Event == nil {
		o.Event = func(Event) {}
	}
	return o
}
