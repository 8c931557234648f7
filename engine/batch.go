package engine

import "windrow/model"

// wanted says of which rows of a batch results are wanted.
type wanted uint8

const (
	wantNone wanted = iota
	wantLast        // of the last row
	wantAll
	wantLogits // of all rows, with their logits
)

// span is the next tokens of one sequence.
type span struct {
	cache  *model.Cache
	tokens []int32
}

// batch packs spans, each at the positions that follow its cache's tokens.
func batch(w wanted, spans ...span) *model.Batch {
	b := new(model.Batch)
	for _, s := range spans {
		b.Spans = append(b.Spans, model.Span{Cache: s.cache, First: len(b.Tokens), Rows: len(s.tokens)})
		b.Tokens = append(b.Tokens, s.tokens...)
		for i := range s.tokens {
			b.Positions = append(b.Positions, int32(s.cache.Base()+i))
		}
	}
	for r := range b.Tokens {
		if w == wantAll || w == wantLogits || w == wantLast && r == len(b.Tokens)-1 {
			b.Want = append(b.Want, model.Wanted{Row: int32(r), Logits: w == wantLogits})
		}
	}
	return b
}
