package tokenizer

import (
	"fmt"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// A splitter cuts text into pieces and calls emit with each, in order.
type splitter interface {
	split(text string, emit func(piece string) error) error
}

// qwenSplitter cuts by qwenPattern; with marks by qwen35Pattern.
type qwenSplitter struct{ marks bool }

func (q qwenSplitter) split(text string, emit func(string) error) error {
	for len(text) > 0 {
		n := q.word(text)
		if err := emit(text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// splitTime bounds the work of an expression on one text: an expression from
// a model's file may backtrack without end.
const splitTime = 2 * time.Second

// regexpSplitter cuts by any expression, on a backtracking engine: right for
// expressions that qwenSplitter does not know, and slow.
type regexpSplitter struct {
	re *regexp2.Regexp
	// gaps reports whether text between matches is kept as pieces too
	// (behaviour Isolated) or dropped (Removed, inverted).
	gaps bool
}

// newRegexpSplitter compiles the expression.
func newRegexpSplitter(pattern string, gaps bool) (splitter, error) {
	re, err := regexp2.Compile(pattern)
	if err != nil {
		// The error holds the whole expression as it stands.
		reason, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "error parsing regexp: "), " in `")
		return nil, fmt.Errorf("expression %.60q: %.80q", pattern, reason)
	}
	re.MatchTimeout = splitTime
	return regexpSplitter{re, gaps}, nil
}

func (s regexpSplitter) split(text string, emit func(string) error) error {
	deadline := time.Now().Add(splitTime)
	end := 0
	m, err := s.re.FindStringMatch(text)
	for ; err == nil && m != nil; m, err = s.re.FindNextMatch(m) {
		if time.Now().After(deadline) {
			return fmt.Errorf("splitting %d bytes of text took more than %v: the model's expression backtracks too much", len(text), splitTime)
		}
		at, n := m.ByteRange()
		if n == 0 {
			continue
		}
		if s.gaps && at > end {
			if err := emit(text[end:at]); err != nil {
				return err
			}
		}
		if err := emit(text[at : at+n]); err != nil {
			return err
		}
		end = at + n
	}
	if err != nil {
		return fmt.Errorf("splitting %d bytes of text: %w", len(text), err)
	}
	if s.gaps && end < len(text) {
		return emit(text[end:])
	}
	return nil
}

// splitAll cuts text by each splitter in turn.
func splitAll(splitters []splitter, text string, emit func(string) error) error {
	if text == "" {
		return nil
	}
	if len(splitters) == 0 {
		return emit(text)
	}
	if len(splitters) == 1 {
		return splitters[0].split(text, emit)
	}
	return splitters[0].split(text, func(piece string) error {
		return splitAll(splitters[1:], piece, emit)
	})
}
