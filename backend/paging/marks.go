package paging

import (
	"slices"
	"sync"
)

// DefaultMarks is how many marks a backend keeps unless it is told otherwise, and
// marksEach how many of one sequence.
const (
	DefaultMarks = 8
	marksEach    = 4
)

// mark is a version that is kept beside what becomes of it.
type mark[V any] struct {
	version   *version[V]
	sequences int  // that have it
	gone      bool // it had to go: they find out when they look
	release   func(*version[V])
}

// marked is a mark as one sequence has it.
type marked[V any] struct {
	held[V]
	mark *mark[V]
}

// Marks are those of all sequences of a backend, the least recently used first. Their lock
// is also that of the states.
type Marks[V any] struct {
	mutex sync.Mutex
	most  int
	list  []*mark[V]
}

// NewMarks makes room for that many marks; 0 or less: none are kept.
func NewMarks[V any](most int) *Marks[V] { return &Marks[V]{most: most} }

// lock locks, and returns how to unlock.
func (s *Marks[V]) lock() (unlock func()) {
	s.mutex.Lock()
	return s.mutex.Unlock
}

// Limit sets how many are kept from now on.
func (s *Marks[V]) Limit(most int) {
	defer s.lock()()
	s.most = most
	for len(s.list) > max(most, 0) {
		s.evict()
	}
}

// join counts a sequence that has a mark, which is the most recently used then.
func (s *Marks[V]) join(m *mark[V]) {
	if m.sequences++; m.sequences > 1 {
		s.touch(m)
		return
	}
	s.list = append(s.list, m)
	for len(s.list) > max(s.most, 0) {
		s.evict()
	}
}

// touch makes a mark, where there is one, the most recently used.
func (s *Marks[V]) touch(m *mark[V]) {
	if i := slices.Index(s.list, m); m != nil && i >= 0 {
		s.list = append(slices.Delete(s.list, i, i+1), m)
	}
}

// leave ends a sequence's use of a mark, whose last one drops it.
func (s *Marks[V]) leave(m *mark[V]) {
	if m.sequences--; m.sequences == 0 && !m.gone {
		s.drop(slices.Index(s.list, m))
	}
}

// evict drops the least recently used mark, and reports whether there was one.
func (s *Marks[V]) evict() bool {
	if len(s.list) == 0 {
		return false
	}
	s.drop(0)
	return true
}

// Evict is evict for who needs the memory for something else.
func (s *Marks[V]) Evict() bool {
	defer s.lock()()
	return s.evict()
}

func (s *Marks[V]) drop(i int) {
	m := s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	m.gone = true
	m.release(m.version)
}
