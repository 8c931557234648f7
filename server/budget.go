package server

import (
	"bytes"
	"errors"
	"slices"

	"windrow/answer"
	"windrow/decoder"
	"windrow/tokenizer"
)

// budget is a constraint that makes reasoning end after so many tokens: then the only
// tokens allowed are those of the end tag. What comes before and after is free, or as
// another constraint has it.
type budget struct {
	end    []int32 // the ids of the end tag
	bytes  func(id int32) []byte
	inner  decoder.Constraint // nil: none
	state  budgetState
	left   int // tokens of reasoning
	seen   []byte
	forced int // ids of end that are out
}

type budgetState uint8

const (
	budgetOpening budgetState = iota // before <think>, or what is none
	budgetCounting
	budgetEnding
	budgetOver
)

// newBudget is the constraint of so many tokens in what a model writes that thinks in
// that way.
func newBudget(t *tokenizer.Tokenizer, thinking answer.Thinking, tokens int, inner decoder.Constraint) (decoder.Constraint, error) {
	end, err := t.Encode("\n" + answer.ThinkClose) // the model goes on with newlines itself
	if err != nil {
		return nil, err
	}
	if len(end) == 0 {
		return nil, errors.New("the tokenizer has no end tag of thinking")
	}
	b := &budget{end: end, bytes: t.Bytes, inner: inner, left: tokens}
	if thinking == answer.ThinkingOpened {
		b.state = budgetCounting
	}
	return b, nil
}

// Mask implements decoder.Constraint.
func (b *budget) Mask(dst []uint64) error {
	if b.state == budgetEnding {
		clear(dst)
		id := b.end[b.forced]
		dst[id/64] = 1 << (id % 64)
		return nil
	}
	if b.inner != nil {
		return b.inner.Mask(dst)
	}
	for i := range dst {
		dst[i] = ^uint64(0)
	}
	return nil
}

// Open implements decoder.Opener: thinking is free until its budget is spent.
func (b *budget) Open() bool {
	if b.state == budgetEnding {
		return false
	}
	x, ok := b.inner.(decoder.Opener)
	return b.inner == nil || ok && x.Open()
}

// Allowed implements decoder.Constraint.
func (b *budget) Allowed(token int32) bool {
	if b.state == budgetEnding {
		return token == b.end[b.forced]
	}
	return b.inner == nil || b.inner.Allowed(token)
}

// Advance implements decoder.Constraint.
func (b *budget) Advance(token int32) bool {
	if !b.Allowed(token) {
		return false
	}
	if b.inner != nil && !b.inner.Advance(token) {
		return false
	}
	switch b.state {
	case budgetEnding:
		if b.forced++; b.forced == len(b.end) {
			b.state = budgetOver
		}
	case budgetOpening:
		b.seen = append(b.seen, b.bytes(token)...)
		text := bytes.TrimLeft(b.seen, " \t\r\n")
		switch {
		case bytes.HasPrefix(text, []byte(answer.ThinkOpen)):
			b.seen = slices.Clone(text[len(answer.ThinkOpen):])
			b.state = budgetCounting
			b.closed()
		case !bytes.HasPrefix([]byte(answer.ThinkOpen), text):
			b.state = budgetOver
		}
	case budgetCounting:
		b.seen = append(b.seen, b.bytes(token)...)
		b.left--
		b.closed()
	}
	if b.state == budgetCounting && b.left <= 0 {
		b.state = budgetEnding
	}
	return true
}

// closed looks whether the model has ended its reasoning; of what it wrote only that is
// kept which may begin the tag.
func (b *budget) closed() {
	if bytes.Contains(b.seen, []byte(answer.ThinkClose)) {
		b.state, b.seen = budgetOver, nil
		return
	}
	if n := len(b.seen) - len(answer.ThinkClose) + 1; n > 0 {
		b.seen = slices.Clone(b.seen[n:])
	}
}

// Forced implements decoder.Forcer.
func (b *budget) Forced() []int32 {
	if b.state == budgetEnding {
		return b.end[b.forced:]
	}
	if f, ok := b.inner.(decoder.Forcer); ok && b.state == budgetOver {
		return f.Forced()
	}
	return nil
}

// Clone implements decoder.Constraint.
func (b *budget) Clone() decoder.Constraint {
	c := *b
	c.seen = slices.Clone(b.seen)
	if b.inner != nil {
		c.inner = b.inner.Clone()
	}
	return &c
}
