package schedule

import "context"

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
