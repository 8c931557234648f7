package tokenizer

import (
	"slices"
	"strings"
	"sync"
)

// merge is what a pair of adjacent tokens becomes, and how early: the lowest
// rank in a word is merged first.
type merge struct {
	rank, id int32
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// bpe merges the bytes of a word into tokens of the vocabulary.
type bpe struct {
	// byteID is the token of each single byte; -1 where the vocabulary has
	// none (allowed only for bytes that UTF-8 never uses).
	byteID [256]int32
	merges map[uint64]merge
	// whole, where the file sets ignore_merges, is the vocabulary: a word
	// found in it is one token whatever the merges say. Otherwise nil.
	whole map[string]int32
	cache wordCache
}

// append appends the ids of one word, given as raw bytes.
func (b *bpe) append(ids []int32, word string) []int32 {
	if len(word) == 1 && b.whole == nil {
		return append(ids, b.byteID[word[0]])
	}
	if len(word) > longestCached {
		return b.merge(ids, word)
	}
	if found, ok := b.cache.get(word); ok {
		return append(ids, found...)
	}
	start := len(ids)
	ids = b.merge(ids, word)
	b.cache.put(word, ids[start:])
	return ids
}

// symbol is a token of a word being merged, linked to its living neighbours.
type symbol struct {
	id         int32 // -1: swallowed by the symbol before it
	prev, next int32 // -1: none
}

// candidate is a pair that may be merged. It is stale when either symbol has
// changed since.
type candidate struct {
	order       uint64 // rank, then position: equal ranks merge from the left
	left, right int32  // the ids of the pair
}

// scratch is the working memory of one merge.
type scratch struct {
	symbols []symbol
	queue   []candidate
	text    []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// merge runs BPE with a heap, O(n log n): a word of 16,000 letters takes
// milliseconds where rescanning for the best pair would take seconds.
func (b *bpe) merge(ids []int32, word string) []int32 {
	s := scratches.Get().(*scratch)
	defer func() {
		// Do not let one huge word keep its memory for good.
		if cap(s.symbols) <= 1<<16 {
			scratches.Put(s)
		}
	}()
	if b.whole != nil {
		s.text = appendAlphabet(s.text[:0], word)
		if id, ok := b.whole[string(s.text)]; ok {
			return append(ids, id)
		}
	}
	// At once what a long word needs: to grow by parts costs several times the memory.
	s.symbols, s.queue = slices.Grow(s.symbols[:0], len(word)), slices.Grow(s.queue[:0], len(word))
	last := int32(len(word) - 1)
	for i := range int32(len(word)) {
		next := i + 1
		if i == last {
			next = -1
		}
		s.symbols = append(s.symbols, symbol{b.byteID[word[i]], i - 1, next})
	}
	for i := range last {
		b.offer(s, i, i+1)
	}
	for len(s.queue) > 0 {
		top := s.pop()
		at := int32(uint32(top.order))
		left := &s.symbols[at]
		if left.id != top.left || left.next < 0 {
			continue
		}
		right := &s.symbols[left.next]
		if right.id != top.right {
			continue
		}
		left.id = b.merges[pairKey(top.left, top.right)].id
		right.id = -1
		left.next = right.next
		if left.next >= 0 {
			s.symbols[left.next].prev = at
			b.offer(s, at, left.next)
		}
		if left.prev >= 0 {
			b.offer(s, left.prev, at)
		}
	}
	for i := int32(0); i >= 0; i = s.symbols[i].next {
		ids = append(ids, s.symbols[i].id)
	}
	return ids
}

// offer queues the pair of symbols at positions i and j if it can merge.
func (b *bpe) offer(s *scratch, i, j int32) {
	left, right := s.symbols[i].id, s.symbols[j].id
	if m, ok := b.merges[pairKey(left, right)]; ok {
		s.push(candidate{uint64(m.rank)<<32 | uint64(i), left, right})
	}
}

func (s *scratch) push(c candidate) {
	s.queue = append(s.queue, c)
	q, i := s.queue, len(s.queue)-1
	for i > 0 {
		parent := (i - 1) / 2
		if q[parent].order <= c.order {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = c
}

func (s *scratch) pop() candidate {
	q := s.queue
	top, moved := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	s.queue = q
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].order < q[child].order {
			child++
		}
		if moved.order <= q[child].order {
			break
		}
		q[i] = q[child]
		i = child
	}
	if len(q) > 0 {
		q[i] = moved
	}
	return top
}

const (
	// longestCached is the longest word remembered, in bytes. Natural words
	// are shorter; longer ones are rarely seen twice.
	longestCached = 48
	// cachedWords bounds the cache, at some 0.6 MB: what a server holds is full
	// minutes after its start. A flood of odd words cannot freeze it, see wordCache.
	cachedWords = 1 << 12
)

// wordCache remembers the ids of words. It is safe for concurrent use. When half of its
// words are new ones the others go, but for those that were asked for meanwhile.
type wordCache struct {
	mu         sync.RWMutex
	words, old map[string][]int32
}

func (c *wordCache) get(word string) ([]int32, bool) {
	c.mu.RLock()
	ids, ok := c.words[word]
	older := false
	if !ok {
		ids, older = c.old[word]
	}
	c.mu.RUnlock()
	if older {
		c.put(word, ids)
	}
	return ids, ok || older
}

func (c *wordCache) put(word string, ids []int32) {
	// Clones: neither the caller's text nor its id slice may be held.
	word, ids = strings.Clone(word), append([]int32(nil), ids...)
	c.mu.Lock()
	if c.words == nil || len(c.words) >= cachedWords/2 {
		c.old, c.words = c.words, make(map[string][]int32)
	}
	c.words[word] = ids
	c.mu.Unlock()
}
