package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"windrow/decoder"
	"windrow/model"
)

// kept is a prefix of the model that the tree is compared with.
type kept struct {
	salt, owner string
	tokens      []int32
	x           *prefix
}

// TestPrefixesAgainstList drives the tree at random beside a list of what is kept: what
// is found is as long as any in the list, what goes is the least recently used, what is
// charged is what there is, and each cache is freed once.
func TestPrefixesAgainstList(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 5))
		alphabet := 1 + r.IntN(3)
		out := map[*model.Cache]bool{}
		free := func(c *model.Cache) {
			if !out[c] {
				t.Fatalf("seed %d: a cache is freed twice", seed)
			}
			delete(out, c)
		}
		most := 1 + r.IntN(20)
		p := newPrefixes(most, 0, func() int { return 0 }, free, time.Now)
		var list []kept // the least recently used first
		use := func(x *prefix) {
			i := slices.IndexFunc(list, func(k kept) bool { return k.x == x })
			if i < 0 {
				t.Fatalf("seed %d: %v is found, which is not kept", seed, x.tokens)
			}
			k := list[i]
			list = append(slices.Delete(list, i, i+1), k)
		}
		text := func() []int32 {
			s := make([]int32, 1+r.IntN(12))
			if len(list) > 0 && r.IntN(2) == 0 {
				s = slices.Concat(list[r.IntN(len(list))].tokens, make([]int32, r.IntN(4)))
			}
			for i := range s {
				if s[i] == 0 || r.IntN(20) == 0 {
					s[i] = int32(1 + r.IntN(alphabet))
				}
			}
			return s
		}
		for range 200 {
			salt, owner := fmt.Sprint(r.IntN(2)), fmt.Sprint(r.IntN(3))
			switch k := r.IntN(8); {
			case k == 0:
				if len(list) > 0 != p.evict() {
					t.Fatalf("seed %d: evict with %d kept", seed, len(list))
				}
				if len(list) > 0 {
					list = list[1:]
				}
			case k < 4:
				s, step := text(), 1+r.IntN(4)
				want := 0
				for _, k := range list {
					if k.salt == salt {
						want = max(want, decoder.CommonPrefix(k.tokens, s)/step*step)
					}
				}
				x, n := p.find(salt, s, step)
				if n != want || n > 0 && (decoder.CommonPrefix(x.tokens, s) < n || x.salt != salt) {
					t.Fatalf("seed %d: %v: %d tokens of %v, want %d", seed, s, n, x, want)
				}
				if n > 0 {
					use(x)
				}
			default:
				x := &prefix{salt: salt, owner: owner, tokens: text(), cache: model.NewCountingCache(1)}
				out[x.cache] = true
				covered := slices.ContainsFunc(list, func(k kept) bool {
					return k.salt == salt && decoder.CommonPrefix(k.tokens, x.tokens) == len(x.tokens)
				})
				p.put(x)
				if covered {
					list = slices.DeleteFunc(list, func(k kept) bool {
						if k.x != p.order.Back().Value {
							return false
						}
						if decoder.CommonPrefix(k.tokens, x.tokens) != len(x.tokens) {
							t.Fatalf("seed %d: %v is taken for %v", seed, k.tokens, x.tokens)
						}
						return true
					})
					y := p.order.Back().Value.(*prefix)
					list = append(list, kept{y.salt, y.owner, y.tokens, y})
					break
				}
				list = slices.DeleteFunc(list, func(k kept) bool {
					return k.salt == salt && decoder.CommonPrefix(k.tokens, x.tokens) == len(k.tokens)
				})
				list = append(list, kept{salt, owner, x.tokens, x})
				if len(list) > most {
					list = list[1:]
				}
			}
			checkTree(t, &p, list, out)
		}
		p.clear()
		if len(out) != 0 || len(p.roots) != 0 || len(p.held) != 0 || len(p.count) != 0 {
			t.Fatalf("seed %d: %d caches, %d roots, %v, %v are left", seed, len(out), len(p.roots), p.held, p.count)
		}
	}
}

// checkTree compares the tree with the list.
func checkTree(t *testing.T, p *prefixes, list []kept, out map[*model.Cache]bool) {
	t.Helper()
	if p.len() != len(list) || len(out) != len(list) {
		t.Fatalf("%d prefixes and %d caches, want %d", p.len(), len(out), len(list))
	}
	places, i := map[string]bool{}, 0
	for e := p.order.Front(); e != nil; e = e.Next() {
		x := e.Value.(*prefix)
		if x != list[i].x || x.leaf.kept != x || len(x.leaf.children) != 0 {
			t.Fatalf("place %d by use is %v, want %v", i, x.tokens, list[i].tokens)
		}
		i++
		for n := range x.tokens {
			places[x.salt+fmt.Sprint(x.tokens[:n+1])] = true
		}
	}
	held, leaves := 0, 0
	for _, root := range p.roots {
		var down func(n *node, before []int32)
		down = func(n *node, before []int32) {
			text := slices.Concat(before, n.edge)
			if !slices.Equal(n.latest.tokens[:len(text)], text) || n.latest.gone {
				t.Fatalf("%v leads to %v", text, n.latest.tokens)
			}
			held += len(n.edge)
			if n.parent != nil && (len(n.edge) == 0 || len(n.children) == 1 || (len(n.children) == 0) != (n.kept != nil)) {
				t.Fatalf("%v: %d children, kept %v", text, len(n.children), n.kept)
			}
			if n.kept != nil {
				leaves++
			}
			for first, child := range n.children {
				if child.parent != n || child.edge[0] != first || child.latest.turn > n.latest.turn {
					t.Fatalf("%v: child %d", text, first)
				}
				down(child, text)
			}
		}
		down(root, nil)
	}
	charged := 0
	for _, n := range p.held {
		charged += n
	}
	if held != len(places) || charged != held || leaves != len(list) {
		t.Fatalf("edges of %d tokens, %d charged, %d leaves; %d places, %d kept", held, charged, leaves, len(places), len(list))
	}
}

// TestShare: an owner over the share loses what is his before others lose theirs,
// whoever needs room; one alone may have all.
func TestShare(t *testing.T) {
	for _, byMemory := range []bool{false, true} {
		full, most, tokens := 0, 10, 1
		if byMemory {
			full, most, tokens = 100, 1000, 10
		}
		p := newPrefixes(most, 0.5, func() int { return full }, func(*model.Cache) {}, time.Now)
		next := int32(0)
		put := func(owner string) {
			for byMemory && len(p.count) > 0 && p.held["ann"]+p.held["bob"] >= 100 {
				p.evict()
			}
			next++
			p.put(&prefix{owner: owner, salt: owner, tokens: slices.Repeat([]int32{next}, tokens)})
		}
		put("bob")
		put("bob")
		for range 30 {
			put("ann") // bob's are older, but he is not over his share
		}
		if p.count["bob"] != 2 || p.count["ann"] != 8 {
			t.Errorf("by memory %t: %v", byMemory, p.count)
		}
		for range 30 {
			put("bob")
		}
		if p.count["ann"] < 4 || p.count["bob"] < 4 {
			t.Errorf("by memory %t: %v", byMemory, p.count)
		}
		alone := newPrefixes(10, 0.5, func() int { return 0 }, func(*model.Cache) {}, time.Now)
		for i := range int32(30) {
			alone.put(&prefix{tokens: []int32{i + 1}})
		}
		if alone.len() != 10 {
			t.Errorf("one owner alone has %d of 10", alone.len())
		}
	}
}

// TestPinned: what is being read is freed when nobody reads it any more, and goes last.
func TestPinned(t *testing.T) {
	freed := 0
	p := newPrefixes(10, 0, func() int { return 0 }, func(*model.Cache) { freed++ }, time.Now)
	for i := range int32(2) {
		p.put(&prefix{tokens: []int32{i + 1}})
	}
	x := p.order.Front().Value.(*prefix)
	x.pins++
	p.evict()
	if x.gone || freed != 1 {
		t.Errorf("the pinned one went first")
	}
	p.evict()
	if !x.gone || freed != 1 {
		t.Errorf("gone %t, %d freed", x.gone, freed)
	}
	p.unpin(x)
	if freed != 2 {
		t.Errorf("%d freed", freed)
	}
}

// BenchmarkFind: a lookup of a long prompt among few and among many conversations that
// begin with the same 2,000 tokens.
func BenchmarkFind(b *testing.B) {
	for _, many := range []int{4, 256, 16384} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			p := newPrefixes(many, 0.5, func() int { return 0 }, func(*model.Cache) {}, time.Now)
			r := rand.New(rand.NewPCG(1, 2))
			prompt := make([]int32, 20000)
			for range many {
				for i := 2000; i < len(prompt); i++ {
					prompt[i] = r.Int32N(150000)
				}
				p.put(&prefix{tokens: slices.Clone(prompt[:2000+r.IntN(2000)])})
			}
			for b.Loop() {
				p.find("", prompt, 1)
			}
		})
	}
}
