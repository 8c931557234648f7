package schedule

import (
	"slices"
	"time"
)

// queue holds the requests that wait to be admitted.
type queue struct {
	jobs   []*job
	tokens int
	// service is what each owner has got, while anyone waits or runs.
	service map[string]float64
}

// check returns why a request is not taken; retry is when there may be room.
func (q *queue) check(r *Request, o *Options, retry time.Duration) error {
	n, tokens := len(q.jobs), q.tokens
	if n >= o.Queue || tokens+len(r.Prompt) > o.QueueTokens && n > 0 {
		return &FullError{"the queue", retry}
	}
	mine, theirs := 0, 0
	for _, j := range q.jobs {
		if j.request.Owner == r.Owner {
			mine, theirs = mine+1, theirs+len(j.request.Prompt)
		}
	}
	if mine >= max(1, o.Queue/2) || mine > 0 && theirs+len(r.Prompt) > o.QueueTokens/2 {
		return &FullError{"the share of one owner", retry}
	}
	return nil
}

func (q *queue) push(j *job) {
	q.jobs = append(q.jobs, j)
	q.tokens += len(j.request.Prompt)
}

func (q *queue) remove(j *job) {
	if i := slices.Index(q.jobs, j); i >= 0 {
		q.jobs = slices.Delete(q.jobs, i, i+1)
		q.tokens -= len(j.request.Prompt)
	}
}

// next is who goes first: those who ran already, then the highest priority, then the
// owner who got the least, then the one that came first. Those that wait for something
// else are left out.
func (q *queue) next() *job {
	var ready []*job
	for _, j := range q.jobs {
		if j.waits == nil || !j.waits() {
			j.waits, j.follows = nil, false
			ready = append(ready, j)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return slices.MinFunc(ready, func(a, b *job) int {
		ra, rb := a.sequence != nil, b.sequence != nil
		sa, sb := q.service[a.request.Owner], q.service[b.request.Owner]
		switch {
		case a.request.Priority != b.request.Priority:
			return b.request.Priority - a.request.Priority
		case ra != rb && ra, ra == rb && sa < sb:
			return -1
		case ra != rb, sa > sb:
			return 1
		}
		return int(a.number - b.number)
	})
}

// serve books what an owner got.
func (q *queue) serve(owner string, cost float64) {
	if q.service == nil {
		q.service = map[string]float64{}
	}
	q.service[owner] += cost
}

// level forgets what was got once nobody waits: a new owner begins with as much as
// those who are there, not with a credit of hours.
func (q *queue) level() {
	if len(q.jobs) == 0 {
		clear(q.service)
	}
}
