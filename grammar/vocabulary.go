package grammar

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// Vocabulary is the tokens of a model, ready to be tested by the thousand. It
// does not change, and may be used by several goroutines at once.
type Vocabulary struct {
	tokens []string // by id; "" for what is no text
	end    []int32
	isEnd  map[int32]bool
	slices []slice
	// The tokens of no slice: with the sign that triggers begin with, and without.
	tagged, odd trie
	untagged    []uint64   // the ids of all tokens without that sign
	ascii       []uint64   // those of the slices of ASCII
	begins      [256]int32 // how many untagged ones begin with a byte
	bytes       int
	deep        int // the longest token, bytes
}

// VocabularyOptions says which ids are not text.
type VocabularyOptions struct {
	// Special ids are never allowed, whatever bytes they stand for.
	Special []int32
	// End ids end a text: they are allowed where the grammar may end, and only there.
	End []int32
}

// longestToken is what a trie's depth can hold.
const longestToken = 65535

// NewVocabulary makes the tries of a vocabulary: tokens[id] is the bytes that
// an id stands for, which need not be whole characters. Ids without bytes are
// never allowed. Several ids may stand for the same bytes. 151,643 tokens take
// about 0.1 s and 12 MB.
func NewVocabulary(tokens [][]byte, o VocabularyOptions) (*Vocabulary, error) {
	v := &Vocabulary{tokens: make([]string, len(tokens)), isEnd: make(map[int32]bool)}
	for id, t := range tokens {
		if len(t) > longestToken {
			return nil, fmt.Errorf("grammar: token %d has %d bytes: at most %d are taken", id, len(t), longestToken)
		}
		v.tokens[id] = string(t)
	}
	for _, list := range [][]int32{o.Special, o.End} {
		for _, id := range list {
			if id < 0 || int(id) >= len(tokens) {
				return nil, fmt.Errorf("grammar: id %d is not of a vocabulary of %d tokens", id, len(tokens))
			}
			v.tokens[id] = ""
		}
	}
	for _, id := range o.End {
		if !v.isEnd[id] {
			v.isEnd[id] = true
			v.end = append(v.end, id)
		}
	}
	v.split()
	return v, nil
}

// Size is one past the largest id.
func (v *Vocabulary) Size() int { return len(v.tokens) }

// End is the first of the ids that end a text; false where there is none.
func (v *Vocabulary) End() (id int32, ok bool) {
	if len(v.end) == 0 {
		return 0, false
	}
	return v.end[0], true
}

// Words is how many words of 64 bits a mask has.
func (v *Vocabulary) Words() int { return (len(v.tokens) + 63) / 64 }

// Bytes is about how much memory the vocabulary takes.
func (v *Vocabulary) Bytes() int { return v.bytes }

// split sorts the tokens into slices and the rest, and makes their tries.
func (v *Vocabulary) split() {
	ids := make([]int32, 0, len(v.tokens))
	for id, t := range v.tokens {
		if t != "" {
			ids = append(ids, int32(id))
			v.bytes += len(t) + 16
			v.deep = max(v.deep, len(t))
		}
	}
	sort.Slice(ids, func(a, b int) bool { return v.tokens[ids[a]] < v.tokens[ids[b]] })
	v.ascii, v.untagged = make([]uint64, v.Words()), make([]uint64, v.Words())
	parts := make([][]int32, len(alphabets)+2)
	for _, id := range ids {
		token := v.tokens[id]
		p := sliceOf(token)
		if p <= largestASCII {
			v.ascii[id>>6] |= 1 << (id & 63)
		} else if p == len(alphabets) && strings.IndexByte(token, tagSign) >= 0 {
			p++
		}
		if p <= len(alphabets) {
			v.untagged[id>>6] |= 1 << (id & 63)
			v.begins[token[0]]++
		}
		parts[p] = append(parts[p], id)
	}
	v.bytes += 16 * v.Words()
	for p, part := range parts {
		t := newTrie(len(part), func(i int) (string, int32) { return v.tokens[part[i]], part[i] })
		v.bytes += 12*len(t.nodes) + 4*len(t.ids)
		if p == len(alphabets) {
			v.odd = t
			continue
		}
		if p > len(alphabets) {
			v.tagged = t
			continue
		}
		s := slice{trie: t}
		for n := range s.upTo {
			s.upTo[n] = make([]uint64, v.Words())
		}
		for _, id := range part {
			s.longest = max(s.longest, uint8(utf8.RuneCountInString(v.tokens[id])))
			for n := utf8.RuneCountInString(v.tokens[id]); n < len(s.upTo); n++ {
				s.upTo[n][id>>6] |= 1 << (id & 63)
			}
		}
		v.bytes += len(s.upTo) * 8 * v.Words()
		v.slices = append(v.slices, s)
	}
}
