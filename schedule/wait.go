package schedule

import (
	"windrow/backend"
	"windrow/decoder"
	"windrow/model"
)

// beginning is a cache that begins like a prompt, of which n tokens may be shared; nil:
// there is none.
type beginning struct {
	cache  *model.Cache
	n      int
	prefix *prefix // whose it is; nil: a running request's
}

// wanted are the tokens that a request needs to have run before its next step.
func (j *job) wanted() []int32 {
	if j.sequence != nil {
		if held := j.sequence.Permanent(); len(held) >= len(j.request.Prompt) {
			return held
		}
	}
	return j.request.Prompt
}

// beginning finds the cache that shares the most with a request's tokens: of a prefix,
// or of a request that runs.
func (s *Scheduler) beginning(j *job, tokens []int32) (b beginning) {
	if s.o.Prefixes < 0 || j.tellsPrompt() { // nothing is shared
		return b
	}
	if x, n := s.prefixes.find(j.request.Salt, tokens, s.step()); x != nil {
		b = beginning{x.cache, n, x}
	}
	for _, r := range s.running {
		if n := min(s.common(r, j, tokens), s.computed(r)); n > b.n {
			b = beginning{r.cache, n, nil}
		}
	}
	return b
}

// common is how many tokens of a running request's prompt a request may share, once they
// are computed.
func (s *Scheduler) common(r, j *job, tokens []int32) int {
	if r == j || r.request.Salt != j.request.Salt || r.tellsPrompt() && !s.mixes() {
		return 0
	}
	return decoder.CommonPrefix(r.request.Prompt, tokens) / s.step() * s.step()
}

// computed is how many tokens of its prompt a running request has, with the bits that
// they have for everybody.
func (s *Scheduler) computed(r *job) int {
	if s.mixes() {
		return r.cache.Base()
	}
	return r.whole / s.step() * s.step()
}

// follow reports whether a request had better wait: where another is computing a page or
// more of what it begins with. It waits until that has them, or ends.
func (s *Scheduler) follow(j *job) bool {
	if s.o.Prefixes < 0 || j.tellsPrompt() { // nothing is shared
		return false
	}
	tokens := j.wanted()
	have := -1
	for _, r := range s.running {
		if !r.sequence.Prefilling() || r.request.Priority < j.request.Priority {
			continue
		}
		n := s.common(r, j, tokens)
		if n-s.computed(r) < backend.PageTokens {
			continue
		}
		// A state can be had at the end of a prompt alone.
		if r.cache.Recurrent() && n < len(r.request.Prompt)-1 {
			continue
		}
		if have < 0 {
			have = s.beginning(j, tokens).n
		}
		if n-have >= backend.PageTokens {
			j.follows = true
			j.waits = func() bool { return r.cache != nil && r.sequence.Prefilling() && s.computed(r) < n }
			return true
		}
	}
	return false
}
