package schedule

import (
	"context"
	"time"
)

// NewAt is New with another clock.
func NewAt(e Engine, o Options, now func() time.Time) *Scheduler {
	s := idle(e, o, now)
	ctx, quit := context.WithCancel(context.Background())
	s.quit, s.disk.ctx = quit, ctx
	go s.loop(ctx)
	return s
}

// Seals is how many prompts are being sealed, or wait for that, when the loop looks next.
func (s *Scheduler) Seals() int {
	seals := make(chan int, 1)
	s.post(func() {
		n := len(s.seals)
		if s.sealing() != nil {
			n++
		}
		seals <- n
	})
	n, _ := await(context.Background(), s, seals)
	return n
}
