package grammar

import "slices"

// Free is any text, up to where a trigger has appeared in it: the first one that
// is complete. What follows that is the trigger's. The text is bytes, which need
// not be whole characters.
//
//	Free{Triggers: []Trigger{{Text: "</think>", Then: form}}}             // thinking, then a form
//	Free{Ends: true, Triggers: []Trigger{{Text: "<call>", Then: call, Again: true}}}
//
// Masks are quick where triggers begin with "<".
type Free struct {
	Triggers []Trigger
	// Ends: the text may end wherever no trigger has appeared. Else it ends behind
	// one.
	Ends bool
}

// Trigger is what a free text must not go on behind as it likes.
type Trigger struct {
	Text string // not empty
	// First: it counts at the beginning of the text only, white space before it apart.
	First bool
	Then  Piece // what follows Text; nil: nothing
	Again bool  // then the free text goes on, without the triggers that are First
}

// freePlace is where a free text stands: what it has read of the triggers, and of those
// that must come first; -1 is none of them any more.
type freePlace struct{ anywhere, first int }

func (p Free) build(b *builder, from int32) int32 {
	anywhere, first := newTriggerTrie(), newTriggerTrie()
	then := make([]int32, len(p.Triggers)) // the nodes behind the triggers' texts
	for i, t := range p.Triggers {
		then[i] = b.node()
		if t.First {
			first.add(t.Text, i)
		} else {
			anywhere.add(t.Text, i)
		}
	}
	anywhere.link()
	nodes := make(map[freePlace]int32)
	var places []freePlace
	node := func(p freePlace) int32 {
		n, ok := nodes[p]
		if !ok {
			n = b.node()
			nodes[p] = n
			places = append(places, p)
		}
		return n
	}
	begin := freePlace{}
	if !slices.ContainsFunc(p.Triggers, func(t Trigger) bool { return t.First }) {
		begin.first = -1
	}
	b.eps(from, node(begin))
	again := node(freePlace{0, -1})
	for i := 0; i < len(places); i++ {
		at := places[i]
		var target int32
		lo := 0
		for c := 0; c <= 256; c++ {
			to := int32(-1)
			if c < 256 {
				next := freePlace{anywhere.step(at.anywhere, byte(c)), first.stepFirst(at.first, byte(c))}
				if t := first.ends(next.first); t >= 0 {
					to = then[t]
				} else if t := anywhere.ends(next.anywhere); t >= 0 {
					to = then[t]
				} else {
					to = node(next)
				}
			}
			if c > 0 && to != target {
				b.edge(nodes[at], byte(lo), byte(c-1), target)
				lo = c
			}
			target = to
		}
	}
	out := b.node()
	if p.Ends {
		for _, at := range places {
			b.eps(nodes[at], out)
		}
	}
	for i, t := range p.Triggers {
		end := then[i]
		if t.Then != nil {
			end = t.Then.build(b, end)
		}
		if t.Again {
			b.eps(end, again)
		} else {
			b.eps(end, out)
		}
	}
	return out
}

// triggerTrie finds texts in a text (Aho and Corasick: Efficient String Matching,
// 1975).
type triggerTrie struct{ nodes []triggerNode }

type triggerNode struct {
	next [256]int32 // 0: none, before link
	back int32      // the longest proper end of what was read that begins a text
	ends int        // the text that is complete; -1: none
}

func newTriggerTrie() *triggerTrie { return &triggerTrie{[]triggerNode{{ends: -1}}} }

func (t *triggerTrie) add(text string, id int) {
	at := int32(0)
	for i := range len(text) {
		next := t.nodes[at].next[text[i]]
		if next == 0 {
			next = int32(len(t.nodes))
			t.nodes = append(t.nodes, triggerNode{ends: -1})
			t.nodes[at].next[text[i]] = next
		}
		at = next
	}
	t.nodes[at].ends = id
}

// link makes each step lead to the longest beginning of a text that ends there.
func (t *triggerTrie) link() {
	var work []int32
	for _, child := range t.nodes[0].next {
		if child != 0 {
			work = append(work, child)
		}
	}
	for i := 0; i < len(work); i++ {
		n := &t.nodes[work[i]]
		back := &t.nodes[n.back]
		if n.ends < 0 {
			n.ends = back.ends
		}
		for c, child := range n.next {
			if child == 0 {
				n.next[c] = back.next[c]
				continue
			}
			t.nodes[child].back = back.next[c]
			work = append(work, child)
		}
	}
}

func (t *triggerTrie) step(at int, c byte) int { return int(t.nodes[at].next[c]) }

// stepFirst is step for a text that must come first.
func (t *triggerTrie) stepFirst(at int, c byte) int {
	switch {
	case at < 0:
	case t.nodes[at].next[c] != 0:
		return int(t.nodes[at].next[c])
	case at == 0 && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
		return 0
	}
	return -1
}

// ends is the number of the text that is complete; -1: none.
func (t *triggerTrie) ends(at int) int {
	if at < 0 {
		return -1
	}
	return t.nodes[at].ends
}
