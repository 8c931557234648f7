package engine

import (
	"slices"

	"windrow/decoder"
	"windrow/grammar"
	"windrow/tokenizer"
)

// Constraint holds answers to a grammar: decoder.Options take it. It may be used for
// many answers, also at once, which share what is found out about the grammar. The
// first one of a model makes the tries of its vocabulary, some 0.1 s for 150,000 tokens.
//
// Errors: those of grammar.NewVocabulary, and ErrNoTokenizer.
func (e *Engine) Constraint(g *grammar.Grammar) (decoder.Constraint, error) {
	v, err := e.grammarVocabulary()
	if err != nil {
		return nil, err
	}
	return &place{grammar.NewConstraint(g, v).Start(), v, e.tokens}, nil
}

// grammarVocabulary is the model's, made once.
func (e *Engine) grammarVocabulary() (*grammar.Vocabulary, error) {
	e.vocabularyOnce.Do(func() { e.grammars, e.vocabularyError = e.makeVocabulary() })
	return e.grammars, e.vocabularyError
}

// place is a grammar.Matcher as decoders want it.
type place struct {
	grammar.Matcher
	vocabulary *grammar.Vocabulary
	tokens     *tokenizer.Tokenizer
}

// Clone stands at the same place.
func (p *place) Clone() decoder.Constraint { return &place{p.Matcher.Clone(), p.vocabulary, p.tokens} }

// Forced cuts the text that must follow as the tokenizer does; where nothing but the
// end may follow it is the token that ends a turn.
func (p *place) Forced() []int32 {
	if p.Done() {
		if end, ok := p.vocabulary.End(); ok {
			return []int32{end}
		}
		return nil
	}
	text := string(p.Matcher.Forced())
	if text == "" {
		return nil
	}
	ids, err := p.tokens.Encode(text)
	if err == nil && slices.ContainsFunc(ids, p.tokens.Special) {
		ids, err = p.tokens.EncodePlain(text) // it spells a token that would end the answer
	}
	if err != nil {
		return nil
	}
	return ids
}

// makeVocabulary makes the tries of what the model may choose.
func (e *Engine) makeVocabulary() (*grammar.Vocabulary, error) {
	if e.tokens == nil {
		return nil, ErrNoTokenizer
	}
	tokens := make([][]byte, e.vocabulary(e.Config()).Size)
	for id := range tokens {
		tokens[id] = e.tokens.Bytes(int32(id))
	}
	return grammar.NewVocabulary(tokens, grammar.VocabularyOptions{End: e.stopIDs()})
}
