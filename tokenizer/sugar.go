package tokenizer

import (
	"errors"

	sugarme "github.com/sugarme/tokenizer"
	"github.com/sugarme/tokenizer/normalizer"
	"github.com/sugarme/tokenizer/pretokenizer"
)

// Sugar returns the tokenizer as one of github.com/sugarme/tokenizer, for code
// written against that package. Its EncodeSingle gives the ids of Encode; on
// text that is not valid UTF-8 that package panics before it calls this one.
// Offsets in its encodings mean nothing.
//
// That package's own parts are by-passed, being wrong for Qwen's files in
// several ways (version 0.3.0: lookahead panics, special tokens are lost,
// added tokens get invented ids, NFC decomposes, equal ranks merge in random
// order, long words take quadratic time). It is given a pre-tokenizer that
// does all of the cutting and a model that does the merging; its AddTokens,
// normalizers and loaders must not be used.
func (t *Tokenizer) Sugar() *sugarme.Tokenizer {
	t.sugarOnce.Do(func() {
		t.sugar = sugarme.NewTokenizer(sugarModel{t})
		t.sugar.WithPreTokenizer(sugarPreTokenizer{t})
		t.sugar.WithDecoder(pretokenizer.NewByteLevel())
	})
	return t.sugar
}

// sugarPreTokenizer implements sugarme's PreTokenizer.
type sugarPreTokenizer struct{ t *Tokenizer }

// PreTokenize cuts text into words written in the byte-level alphabet, and
// added tokens with their ids attached, in one Split.
func (p sugarPreTokenizer) PreTokenize(text *sugarme.PreTokenizedString) (*sugarme.PreTokenizedString, error) {
	var failed error
	text = text.Split(func(_ int, s *normalizer.NormalizedString) []sugarme.SplitIdx {
		var splits []sugarme.SplitIdx
		err := p.t.walk(s.GetNormalized(), true, false,
			func(word string) error {
				mapped := string(appendAlphabet(nil, word))
				splits = append(splits, sugarme.SplitIdx{Normalized: normalizer.NewNormalizedFrom(mapped)})
				return nil
			},
			func(id int32) error {
				token := p.t.tokens[id]
				splits = append(splits, sugarme.SplitIdx{
					Normalized: normalizer.NewNormalizedFrom(token),
					Tokens:     []sugarme.Token{{Id: int(id), Value: token, Offsets: []int{0, len(token)}}},
				})
				return nil
			})
		failed = errors.Join(failed, err)
		return splits
	})
	return text, failed
}

// sugarModel implements sugarme's Model.
type sugarModel struct{ t *Tokenizer }

// Tokenize merges one word given in the byte-level alphabet.
func (m sugarModel) Tokenize(word string) ([]sugarme.Token, error) {
	ids := m.t.bpe.append(nil, string(appendRaw(nil, word)))
	tokens := make([]sugarme.Token, len(ids))
	at := 0
	for i, id := range ids {
		value, _ := m.t.Token(id)
		tokens[i] = sugarme.Token{Id: int(id), Value: value, Offsets: []int{at, at + len(value)}}
		at += len(value)
	}
	return tokens, nil
}

// TokenToId returns the id of a token.
func (m sugarModel) TokenToId(token string) (int, bool) {
	id, ok := m.t.ID(token)
	return int(id), ok
}

// IdToToken returns the token with an id.
func (m sugarModel) IdToToken(id int) (string, bool) {
	if id < 0 || id >= m.t.Size() {
		return "", false
	}
	return m.t.Token(int32(id))
}

// GetVocab returns all tokens with their ids.
func (m sugarModel) GetVocab() map[string]int {
	vocab := make(map[string]int, len(m.t.ids))
	for token, id := range m.t.ids {
		vocab[token] = int(id)
	}
	return vocab
}

// GetVocabSize returns the number of tokens.
func (m sugarModel) GetVocabSize() int { return len(m.t.ids) }

// Save is refused: the model's own tokenizer.json is the file to keep.
func (m sugarModel) Save(string, ...string) error {
	return errors.New("a tokenizer is not saved: keep the tokenizer.json that it was read from")
}
