package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unicode/utf8"
)

// fileJSON is tokenizer.json. Truncation, padding and the post-processor are
// not read: they act only where special tokens are added, which is the chat
// template's work here.
type fileJSON struct {
	AddedTokens  []addedJSON     `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Decoder      json.RawMessage `json:"decoder"`
	Model        *modelJSON      `json:"model"`
}

// addedJSON is an added token. Flags left out mean what the Python classes
// mean by it: not special, and normalized unless special.
type addedJSON struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized *bool  `json:"normalized"`
	Special    bool   `json:"special"`
}

type modelJSON struct {
	Type         string     `json:"type"`
	Vocab        vocabJSON  `json:"vocab"`
	Merges       mergesJSON `json:"merges"`
	Dropout      *float64   `json:"dropout"`
	Unknown      *string    `json:"unk_token"`
	Prefix       string     `json:"continuing_subword_prefix"`
	Suffix       string     `json:"end_of_word_suffix"`
	ByteFallback bool       `json:"byte_fallback"`
	IgnoreMerges bool       `json:"ignore_merges"`
}

// partJSON is a normalizer, pre-tokenizer or decoder: the fields of all kinds
// that are known.
type partJSON struct {
	Type           string      `json:"type"`
	Normalizers    []partJSON  `json:"normalizers"`
	PreTokenizers  []partJSON  `json:"pretokenizers"`
	Decoders       []partJSON  `json:"decoders"`
	Pattern        patternJSON `json:"pattern"`
	Behavior       string      `json:"behavior"`
	Invert         bool        `json:"invert"`
	AddPrefixSpace *bool       `json:"add_prefix_space"`
	UseRegex       *bool       `json:"use_regex"`
}

type patternJSON struct {
	Regex  *string
	String *string
}

// parse fills t from tokenizer.json.
func (t *Tokenizer) parse(data []byte) error {
	valid := make(chan bool, 1)
	go func() { valid <- utf8.Valid(data) }()
	f, err := decodeFile(data)
	if err != nil {
		return describeJSON(err, len(data))
	}
	if !<-valid {
		return errors.New("the file is not valid UTF-8")
	}
	if err := t.parseModel(f.Model); err != nil {
		return err
	}
	if t.nfc, err = parseNormalizer(f.Normalizer); err != nil {
		return err
	}
	if t.splitters, err = parsePreTokenizer(f.PreTokenizer); err != nil {
		return err
	}
	if err := checkDecoder(f.Decoder); err != nil {
		return err
	}
	for i, a := range f.AddedTokens {
		if err := t.addToken(a); err != nil {
			return fmt.Errorf("added_tokens[%d]: %w", i, err)
		}
	}
	return nil
}

// decodeFile decodes tokenizer.json, quickly where it can.
func decodeFile(data []byte) (f fileJSON, err error) {
	if x, ok := cutLarge(data); ok {
		if err := json.Unmarshal(x.rest, &f); err == nil && f.Model != nil {
			f.Model.Vocab, f.Model.Merges = x.vocab, x.merges
			return f, nil
		}
		f = fileJSON{}
	}
	err = json.Unmarshal(data, &f)
	return f, err
}

// describeJSON puts the place of the fault into a decoding error.
func describeJSON(err error, size int) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not valid JSON at byte %d of %d: %w", syntax.Offset, size, err)
	case errors.As(err, &kind):
		return fmt.Errorf("field %.60q holds a JSON %s where a %v is expected", kind.Field, kind.Value, kind.Type)
	}
	return err
}

// parseModel checks the model part and fills the vocabulary and the merges.
func (t *Tokenizer) parseModel(m *modelJSON) error {
	switch {
	case m == nil:
		return errors.New(`no "model"`)
	case m.Type != "" && m.Type != "BPE":
		return fmt.Errorf("model.type is %.60q; only byte-level BPE is supported", m.Type)
	case m.ByteFallback:
		return errors.New("model.byte_fallback is true; only byte-level BPE is supported")
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("model.dropout is %v; only 0 is supported", *m.Dropout)
	case m.Prefix != "":
		return fmt.Errorf("model.continuing_subword_prefix is %.60q; only an empty one is supported", m.Prefix)
	case m.Suffix != "":
		return fmt.Errorf("model.end_of_word_suffix is %.60q; only an empty one is supported", m.Suffix)
	case m.Vocab.err != nil:
		return fmt.Errorf("model.vocab: %w", m.Vocab.err)
	case len(m.Vocab.tokens) == 0:
		return errors.New("model.vocab is empty")
	case m.Merges.err != nil:
		return fmt.Errorf("model.merges: %w", m.Merges.err)
	}

	t.ids = make(map[string]int32, len(m.Vocab.tokens))
	t.tokens = make([]string, 0, len(m.Vocab.tokens))
	for i, token := range m.Vocab.tokens {
		if err := t.define(token, m.Vocab.ids[i], len(m.Vocab.tokens)); err != nil {
			return fmt.Errorf("model.vocab: %w", err)
		}
	}
	for b, r := range byteRune {
		id, ok := t.ids[string(r)]
		// 0xC0, 0xC1 and 0xF5.. never occur in UTF-8, and some files leave them out.
		if !ok && b != 0xC0 && b != 0xC1 && b < 0xF5 {
			return fmt.Errorf("model.vocab has no token %.60q for byte 0x%02X; only byte-level BPE is supported", r, b)
		}
		if !ok {
			id = -1
		}
		t.bpe.byteID[b] = id
	}
	if m.IgnoreMerges {
		t.bpe.whole = t.ids
	}

	return t.parseMerges(&m.Merges)
}

// parseMerges fills the merges. Who they join and make is looked up on several processors:
// that takes longer than reading the file.
func (t *Tokenizer) parseMerges(m *mergesJSON) error {
	count := m.count()
	found := make([][3]int32, count) // left, right, and what they make
	parts := min(runtime.GOMAXPROCS(0), 8, count/1024+1)
	errs := make([]error, parts)
	var wg sync.WaitGroup
	for p := range parts {
		from, to := count*p/parts, count*(p+1)/parts
		wg.Go(func() { errs[p] = t.findMerges(found, m, from, to) })
	}
	wg.Wait()
	for _, err := range errs { // the first one, in the file's order
		if err != nil {
			return err
		}
	}
	t.bpe.merges = make(map[uint64]merge, count)
	for rank, f := range found {
		t.bpe.merges[pairKey(f[0], f[1])] = merge{int32(rank), f[2]}
	}
	return nil
}

// findMerges looks up merges [from, to), until one is at fault.
func (t *Tokenizer) findMerges(found [][3]int32, m *mergesJSON, from, to int) error {
	var joined []byte
	after := int32(0)
	for rank := from; rank < to; rank++ {
		left, right := m.pair(rank)
		if left == "" || right == "" {
			return fmt.Errorf("model.merges[%d] has an empty part: %.60q %.60q", rank, left, right)
		}
		a, ok := t.ids[left]
		if !ok {
			return fmt.Errorf("model.merges[%d] names %.60q, which is not in model.vocab", rank, left)
		}
		b, ok := t.ids[right]
		if !ok {
			return fmt.Errorf("model.merges[%d] names %.60q, which is not in model.vocab", rank, right)
		}
		joined = append(append(joined[:0], left...), right...)
		id := after // most files number tokens as merges make them
		if int(id) >= len(t.tokens) || t.tokens[id] != string(joined) {
			if id, ok = t.ids[string(joined)]; !ok {
				return fmt.Errorf("model.merges[%d] makes %.60q, which is not in model.vocab", rank, joined)
			}
		}
		found[rank] = [3]int32{a, b, id}
		after = id + 1
	}
	return nil
}

// define records that token has that id. entries is the number of tokens that
// the file lists: ids may leave gaps, but not so large ones that a small file
// asks for a huge table.
func (t *Tokenizer) define(token string, id int64, entries int) error {
	if token == "" {
		return fmt.Errorf("id %d is of an empty token", id)
	}
	limit := 4*int64(entries) + 1<<18
	if id < 0 || id >= limit {
		return fmt.Errorf("id %d of token %.60q is outside 0..%d (the file lists %d tokens)", id, token, limit-1, entries)
	}
	if old, ok := t.ids[token]; ok {
		if int64(old) == id {
			return nil
		}
		return fmt.Errorf("token %.60q has two ids, %d and %d", token, old, id)
	}
	for int64(len(t.tokens)) <= id {
		t.tokens = append(t.tokens, "")
	}
	if old := t.tokens[id]; old != "" {
		return fmt.Errorf("id %d is of two tokens, %.60q and %.60q", id, old, token)
	}
	t.tokens[id] = token
	t.ids[token] = int32(id)
	return nil
}

// longestAdded bounds the length of an added token in bytes.
const longestAdded = 1024

// addToken records an added token. The file's own id counts, never one made up.
func (t *Tokenizer) addToken(a addedJSON) error {
	if a.Content == "" {
		return nil // the reference ignores it too
	}
	if len(a.Content) > longestAdded {
		return fmt.Errorf("content has %d bytes; at most %d are supported", len(a.Content), longestAdded)
	}
	if err := t.define(a.Content, a.ID, len(t.ids)+1); err != nil {
		return err
	}
	normalized := !a.Special
	if a.Normalized != nil {
		normalized = *a.Normalized
	}
	id := int32(a.ID)
	if a.Special {
		t.special[id] = true
	}
	token := addedToken{id: id, singleWord: a.SingleWord, lstrip: a.LStrip, rstrip: a.RStrip}
	if !normalized {
		t.rawAdded.add(a.Content, token)
		return nil
	}
	content := t.normalize(a.Content)
	t.tokens[id] = content // the reference decodes to the normalized form
	t.normAdded.add(content, token)
	return nil
}

func decodePart(raw json.RawMessage, name string) (*partJSON, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	p := new(partJSON)
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("%s: %w", name, describeJSON(err, len(raw)))
	}
	return p, nil
}

// parseNormalizer reports whether text is brought into NFC.
func parseNormalizer(raw json.RawMessage) (bool, error) {
	p, err := decodePart(raw, "normalizer")
	if p == nil || err != nil {
		return false, err
	}
	parts := []partJSON{*p}
	if p.Type == "Sequence" {
		parts = p.Normalizers
	}
	for _, part := range parts {
		if part.Type != "NFC" {
			return false, fmt.Errorf("normalizer.type is %.60q; only NFC and none are supported", part.Type)
		}
	}
	return len(parts) > 0, nil
}

// gpt2Pattern is the expression of ByteLevel's own use_regex.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// parsePreTokenizer returns the splitters of a pre-tokenizer that is a chain
// of Splits with one ByteLevel at its end.
func parsePreTokenizer(raw json.RawMessage) ([]splitter, error) {
	p, err := decodePart(raw, "pre_tokenizer")
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errors.New("no pre_tokenizer; only byte-level BPE is supported, which needs a ByteLevel one")
	}
	parts := []partJSON{*p}
	if p.Type == "Sequence" {
		parts = p.PreTokenizers
	}
	var splitters []splitter
	for i, part := range parts {
		name := fmt.Sprintf("pre_tokenizer %d of %d (%.60q)", i+1, len(parts), part.Type)
		last := i == len(parts)-1
		switch {
		case part.Type == "ByteLevel" && last:
			if part.AddPrefixSpace == nil || *part.AddPrefixSpace {
				return nil, fmt.Errorf("%s: add_prefix_space is not false; that is not supported", name)
			}
			if part.UseRegex == nil || *part.UseRegex {
				s, err := newRegexpSplitter(gpt2Pattern, true)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				splitters = append(splitters, s)
			}
			return splitters, nil
		case part.Type == "Split" && !last:
			s, err := parseSplit(part)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			splitters = append(splitters, s)
		default:
			return nil, fmt.Errorf("%s is not supported there; only Splits followed by one ByteLevel are", name)
		}
	}
	return nil, errors.New("pre_tokenizer is an empty sequence; only Splits followed by one ByteLevel are supported")
}

func parseSplit(part partJSON) (splitter, error) {
	var gaps bool
	switch {
	case part.Behavior == "Isolated":
		gaps = true
	case part.Behavior == "Removed" && part.Invert:
	default:
		return nil, fmt.Errorf("behavior %.60q with invert %v is not supported; only Isolated, and Removed inverted, are", part.Behavior, part.Invert)
	}
	if part.Pattern.Regex == nil {
		return nil, errors.New(`pattern has no "Regex"; patterns of plain text are not supported`)
	}
	switch *part.Pattern.Regex {
	case qwenPattern:
		return qwenSplitter{}, nil
	case qwen35Pattern:
		return qwenSplitter{marks: true}, nil
	}
	return newRegexpSplitter(*part.Pattern.Regex, gaps)
}

// checkDecoder accepts the byte-level decoder.
func checkDecoder(raw json.RawMessage) error {
	p, err := decodePart(raw, "decoder")
	if err != nil {
		return err
	}
	if p == nil {
		return errors.New("no decoder; only ByteLevel is supported")
	}
	parts := []partJSON{*p}
	if p.Type == "Sequence" {
		parts = p.Decoders
	}
	if len(parts) != 1 || parts[0].Type != "ByteLevel" {
		return fmt.Errorf("decoder.type is %.60q; only ByteLevel is supported", p.Type)
	}
	return nil
}

// normalize applies the file's normalizer.
func (t *Tokenizer) normalize(s string) string {
	if t.nfc {
		return nfc(s)
	}
	return s
}
