package testhelp

import (
	"strings"
	"sync"
)

// Screen is what a terminal shows. Its methods may be called by many goroutines.
type Screen struct {
	mutex sync.Mutex
	text  strings.Builder
}

// Write implements io.Writer. An endless loop of lines must not eat the memory.
func (s *Screen) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.text.Len() < 1<<20 {
		s.text.Write(p)
	}
	return len(p), nil
}

// Count is how often a text stands there.
func (s *Screen) Count(text string) int { return strings.Count(s.String(), text) }

// String is all of it.
func (s *Screen) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.String()
}
