package schedule

import (
	"slices"
	"time"
)

// chosen is a sequence of a pass, and the most rows of its prompt (0: as it likes).
type chosen struct {
	job  *job
	rows int
}

// choose says who is in the next pass.
func (s *Scheduler) choose() []chosen {
	var steps, prompts []*job
	for _, j := range s.running {
		switch {
		case j.sequence.Prefilling():
			prompts = append(prompts, j)
		case j.stream.behind() <= mostUnread:
			steps = append(steps, j)
		}
	}
	// The shortest first; a prompt that waits gains a row a millisecond.
	now := s.now()
	rank := func(j *job) float64 { return float64(j.left()) - now.Sub(j.admitted).Seconds()*1e3 }
	slices.SortStableFunc(prompts, func(a, b *job) int {
		if x, y := rank(a), rank(b); x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return int(a.number - b.number)
	})
	if s.mixes() {
		return s.together(steps, prompts)
	}
	return s.inTurn(steps, prompts)
}

// together puts as many rows of prompts beside the steps as StepTime allows.
func (s *Scheduler) together(steps, prompts []*job) (list []chosen) {
	for _, j := range steps {
		list = append(list, chosen{job: j})
	}
	room := s.o.Chunk
	if len(steps) > 0 && s.rates.row > 0 {
		room = max(16, min(room, int(s.o.StepTime.Seconds()/s.rates.row)))
	}
	for _, j := range prompts {
		if room <= 0 || len(list) >= s.o.Sequences {
			break
		}
		n := min(room, j.left(), s.o.Chunk)
		list = append(list, chosen{j, n})
		room -= n
	}
	return list
}

// inTurn gives a pass to prompts, or to the steps of all: prompts that wait have
// PrefillShare of the time.
func (s *Scheduler) inTurn(steps, prompts []*job) (list []chosen) {
	r := &s.rates
	due := r.prefill*(1-s.o.PrefillShare) <= r.decode*s.o.PrefillShare
	if len(prompts) > 0 && (len(steps) == 0 || due) {
		return s.prompts(prompts)
	}
	for _, j := range steps {
		list = append(list, chosen{job: j})
	}
	return list
}

// prompts are those of a pass of prompts alone: a chunk of the first, and beside it the
// others of which all that is left has room, in turn, where that leaves everybody's bits.
func (s *Scheduler) prompts(list []*job) []chosen {
	first := list[0]
	in := []chosen{{job: first}}
	room := s.o.Chunk - first.unread()
	// Tokens that are run again are no prompt's, and rows that are told of are as steps have them.
	if !s.alike() || first.unread() <= 0 || first.tellsPrompt() {
		return in
	}
	for _, j := range list[1:] {
		if n := j.unread(); n > 0 && n == j.left() && n <= room && len(in) < s.o.Sequences && !j.tellsPrompt() {
			in = append(in, chosen{job: j})
			room -= n
		}
	}
	return in
}

// booked notes what a forward of so many rows took, of which some were of prompts.
func (s *Scheduler) booked(prompts, rows int, took time.Duration) {
	r, seconds := &s.rates, took.Seconds()
	if prompts > 0 && prompts*2 >= rows {
		if row := seconds / float64(rows); r.row == 0 {
			r.row = row
		} else {
			r.row += (row - r.row) * (1 - fading)
		}
		r.prefill, r.decode = r.prefill*fading+seconds, r.decode*fading
	} else {
		r.prefill, r.decode = r.prefill*fading, r.decode*fading+seconds
	}
	r.tokens, r.seconds = r.tokens*fading+float64(rows), r.seconds*fading+seconds
	s.mutex.Lock()
	defer s.mutex.Unlock()
	st := &s.state
	st.Forwards++
	st.Rows += int64(rows)
	st.PrefillRows += int64(prompts)
	st.LastForward = s.now()
	if r.seconds > 0 {
		st.TokensPerSecond = r.tokens / r.seconds
	}
}
