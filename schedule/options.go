package schedule

import (
	"time"

	"windrow/session"
)

// Options bound what a scheduler takes on. A zero field takes its default.
type Options struct {
	// Sequences is how many generations run at once (32); Queue how many wait (128),
	// and QueueTokens how many tokens their prompts have together (4 million). One
	// owner may have half of either.
	Sequences, Queue, QueueTokens int
	// QueueTime is how long a request may wait (2 minutes).
	QueueTime time.Duration
	// KVMemory bounds the bytes of keys and values; 0 leaves the backend's budget as
	// it is.
	KVMemory int64
	// Slack is how many pages are left free for each sequence that runs when another is
	// admitted (2; negative: none): with less, those that run lose their caches more
	// often.
	Slack int
	// Prefixes is how many beginnings are kept (256; negative: none).
	Prefixes int
	// CacheShare is the part of the memory for keys and values, and of Prefixes, that the
	// beginnings of one owner may have while others have some (0.5).
	CacheShare float64
	// Sessions is where conversations are saved: those that are named (Request.Session),
	// and where memory is short others. nil: nowhere. It is closed after the scheduler.
	Sessions *session.Store
	// Note, where not nil, gets a line where a session could not be saved.
	Note func(line string)
	// StepTime is how long a forward may take that carries rows of prompts beside
	// steps (150 ms); PrefillShare the share of the time that prompts get where they
	// cannot ride along (0.5).
	StepTime     time.Duration
	PrefillShare float64
	// Chunk is how many rows of a prompt go together (the backend's choice, 512 at
	// most).
	Chunk int
	// Now is the clock (time.Now), by which it is judged what pays.
	Now func() time.Time
}

func (o Options) withDefaults(prefillRows int) Options {
	def := func(x *int, n int) {
		if *x == 0 {
			*x = n
		}
	}
	def(&o.Sequences, 32)
	def(&o.Queue, 128)
	def(&o.QueueTokens, 4<<20)
	def(&o.Prefixes, 256)
	def(&o.Slack, 2)
	def(&o.Chunk, min(512, prefillRows))
	if o.CacheShare == 0 {
		o.CacheShare = 0.5
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.QueueTime == 0 {
		o.QueueTime = 2 * time.Minute
	}
	if o.StepTime == 0 {
		o.StepTime = 150 * time.Millisecond
	}
	if o.PrefillShare == 0 {
		o.PrefillShare = 0.5
	}
	return o
}
