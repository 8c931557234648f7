package grammar

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

func constraint(t testing.TB, v *Vocabulary, g *Grammar, err error) *Constraint {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return NewConstraint(g, v)
}

// TestEnd: an end is allowed where the text may end and nowhere else; special
// ids, ids without bytes and ids that are none never are.
func TestEnd(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	g, err := CompileRegex(`ab?`, unhurried)
	c := constraint(t, v, g, err)
	end, special, empty := v.end[0], v.end[0]+1, int32(256)
	mask := make([]uint64, v.Words())
	m := c.Start()
	for _, id := range []int32{end, special, empty, -1, int32(v.Size())} {
		if m.Allowed(id) || m.Advance(id) {
			t.Errorf("id %d is allowed at the beginning", id)
		}
	}
	if m.CanEnd() || m.Done() || !m.Advance('a') || !m.CanEnd() || m.Done() {
		t.Error("a: the text can end, and go on")
	}
	if err := m.Mask(mask); err != nil || !slices.Equal(appendIDs(nil, mask), []int32{'b', end}) {
		t.Errorf("after a: %v %v", appendIDs(nil, mask), err)
	}
	b := m.Clone()
	if !b.Advance('b') || !b.CanEnd() || !b.Done() {
		t.Error("ab: nothing but the end follows")
	}
	if err := b.Mask(mask); err != nil || !slices.Equal(appendIDs(nil, mask), []int32{end}) {
		t.Errorf("after ab: %v %v", appendIDs(nil, mask), err)
	}
	if !m.Advance(end) || !m.Done() || m.Advance(end) || m.Advance('b') || m.AdvanceBytes([]byte("b")) || m.Forced() != nil {
		t.Error("behind the end something is allowed")
	}
	if err := m.Mask(mask); !errors.Is(err, ErrEnded) || popCount(mask) != 0 {
		t.Errorf("behind the end: %v", err)
	}
	if err := b.Mask(make([]uint64, 1)); err == nil || !strings.Contains(err.Error(), "words") {
		t.Errorf("a short mask: %v", err)
	}
}

func TestVocabularyRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []VocabularyOptions{{End: []int32{2}}, {Special: []int32{-1}}} {
		if _, err := NewVocabulary([][]byte{[]byte("a"), nil}, o); err == nil || !strings.Contains(err.Error(), "not of a vocabulary of 2 tokens") {
			t.Errorf("%v: %v", o, err)
		}
	}
	if _, err := NewVocabulary([][]byte{make([]byte, 70_000)}, VocabularyOptions{}); err == nil {
		t.Error("a token of 70,000 bytes is taken")
	}
}

// TestStuck: a vocabulary without the bytes that must follow.
func TestStuck(t *testing.T) {
	t.Parallel()
	v, err := NewVocabulary([][]byte{[]byte("a"), []byte("c")}, VocabularyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := CompileRegex(`a+b`, unhurried)
	m := constraint(t, v, g, err).Start()
	mask := make([]uint64, 1)
	if err := m.Mask(mask); err != nil || mask[0] != 1 {
		t.Errorf("%v %b", err, mask)
	}
	g, err = CompileRegex(`ab`, unhurried)
	m = constraint(t, v, g, err).Start()
	if !m.Advance(0) {
		t.Fatal("a is refused")
	}
	if err := m.Mask(mask); !errors.Is(err, ErrStuck) {
		t.Errorf("%v %b", err, mask)
	}
}

func TestForced(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	const schema = `{"type":"object","properties":{"name":{"enum":["Zoé","Zoë"]},"next":{"const":[1,2]}},"required":["name","next"],"additionalProperties":false}`
	g, err := CompileSchema([]byte(schema), Options{Compact: true, Limits: unhurried.Limits})
	m := constraint(t, v, g, err).Start()
	for _, step := range []struct{ forced, text string }{
		{"{\"name\":\"Zo\xc3", "{\"name\":\"Zo\xc3"}, {"", "\xa9"}, {`","next":[1,2]}`, `","next":[1`}, {`,2]}`, `,2]}`}, {"", ""},
	} {
		if got := string(m.Forced()); got != step.forced {
			t.Errorf("forced %q, want %q", got, step.forced)
		}
		if !m.AdvanceBytes([]byte(step.text)) {
			t.Fatalf("%q is refused", step.text)
		}
	}
	if !m.Done() {
		t.Error("the text is not done")
	}
	// Where the text may end, nothing is forced, though one byte alone could follow.
	g, err = CompileRegex(`ab?`, unhurried)
	m = constraint(t, v, g, err).Start()
	if got := string(m.Forced()); got != "a" {
		t.Errorf("forced %q", got)
	}
}

// TestForcedIsWhatFollows: at each place of random texts, what is forced is a
// beginning of the rest, and one byte more would not be.
func TestForcedIsWhatFollows(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	for i, schema := range schemas {
		g, err := CompileSchema([]byte(schema), unhurried)
		c := constraint(t, v, g, err)
		r := rand.New(rand.NewPCG(uint64(i), 3))
		for range 5 {
			s, ok := generate(c, r, 100)
			if !ok {
				continue
			}
			m := c.Start()
			for k := range len(s) {
				forced := string(m.Forced())
				if !strings.HasPrefix(s[k:], forced) {
					t.Fatalf("%s: after %q %q is forced, and %q follows", schema, s[:k], forced, s[k:])
				}
				end := m.Clone()
				end.AdvanceBytes([]byte(forced))
				if !end.CanEnd() && len(nextBytes(end)) == 1 {
					t.Fatalf("%s: after %q %q is forced, and more would be", schema, s[:k], forced)
				}
				m.AdvanceBytes([]byte(s[k : k+1]))
			}
		}
	}
}

// TestRollback: windows of drafts are tried and taken back at random; where the
// sequence stands is what its tokens say, and a clone never moves another.
func TestRollback(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	g, err := CompileSchema([]byte(treeSchema), unhurried)
	c := constraint(t, v, g, err)
	r := rand.New(rand.NewPCG(8, 8))
	mask := make([]uint64, v.Words())
	for range 20 {
		rows := []Matcher{c.Start()}
		var taken []int32
		for range 60 {
			m := rows[len(rows)-1].Clone()
			if err := m.Mask(mask); err != nil {
				break
			}
			ids := appendIDs(nil, mask)
			id := ids[r.IntN(len(ids))]
			if r.IntN(3) == 0 {
				id = int32(r.IntN(v.Size())) // a draft that may be wrong
			}
			before := rows[len(rows)-1]
			allowed := before.Allowed(id)
			if ok := m.Advance(id); ok != allowed || ok != (mask[id/64]>>(id%64)&1 == 1) {
				t.Fatalf("token %d: advanced %v, allowed %v", id, ok, allowed)
			} else if ok {
				rows, taken = append(rows, m), append(taken, id)
			}
			if r.IntN(4) == 0 { // the last few are taken back
				n := r.IntN(len(rows))
				rows, taken = rows[:n+1], taken[:n]
			}
			again := c.Start()
			for _, id := range taken {
				if !again.Advance(id) {
					t.Fatalf("token %d is refused the second time", id)
				}
			}
			last := rows[len(rows)-1]
			if again.s != last.s || again.CanEnd() != last.CanEnd() || again.Done() != last.Done() {
				t.Fatalf("after %v: another place than that of its tokens", taken)
			}
		}
	}
}

// TestFlush: when the states that are kept are forgotten, nothing changes.
func TestFlush(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	for _, compile := range []func() (*Grammar, error){
		func() (*Grammar, error) { return CompileGBNF(jsonGBNF, unhurried) },
		func() (*Grammar, error) { return CompileSchema([]byte(treeSchema), unhurried) },
		func() (*Grammar, error) { return CompileRegex(`(a|b)*a(a|b){8}`, unhurried) },
	} {
		g, err := compile()
		c, d := constraint(t, v, g, err), constraint(t, v, g, err)
		r := rand.New(rand.NewPCG(4, 4))
		x, y := make([]uint64, v.Words()), make([]uint64, v.Words())
		for range 10 {
			m, n := c.Start(), d.Start()
			old := m.Clone()
			for range 40 {
				if r.IntN(3) == 0 {
					d.e.size = memory + 1 // the next use forgets
				}
				if r.IntN(6) == 0 {
					d.e.size = memory + 1
					old = n.Clone()
				}
				if errX, errY := m.Mask(x), n.Mask(y); errX != errY || !slices.Equal(x, y) {
					t.Fatalf("masks differ after a flush: %v %v", errX, errY)
				} else if errX != nil {
					break
				}
				ids := appendIDs(nil, x)
				id := ids[r.IntN(len(ids))]
				if !m.Advance(id) || !n.Advance(id) || m.CanEnd() != n.CanEnd() {
					t.Fatalf("token %d", id)
				}
				_ = old.Allowed(id) // one that has stood still since before
			}
		}
	}
}

// TestFull: with no room for states at all, masks are what they are.
func TestFull(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	g, err := CompileGBNF(jsonGBNF, unhurried)
	c, d := constraint(t, v, g, err), constraint(t, v, g, err)
	r := rand.New(rand.NewPCG(4, 4))
	x, y := make([]uint64, v.Words()), make([]uint64, v.Words())
	m, n := c.Start(), d.Start()
	for range 30 {
		d.e.size = 1 << 40
		n.s = d.e.adopt(n.s)
		if errX, errY := m.Mask(x), d.mask(n.s, y); errX != nil || errY != nil || !slices.Equal(x, y) {
			t.Fatalf("masks differ: %v %v", errX, errY)
		}
		ids := appendIDs(nil, x)
		id := ids[r.IntN(len(ids))]
		m.Advance(id)
		for _, b := range []byte(v.tokens[id]) {
			n.s = d.e.stepState(n.s, d.e.g.class[b])
		}
		if m.Done() {
			break
		}
	}
}

// TestConcurrent: sequences of one constraint on several goroutines.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	g, err := CompileSchema([]byte(treeSchema), unhurried)
	c := constraint(t, v, g, err)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 4))
			mask := make([]uint64, v.Words())
			for range 10 {
				m := c.Start()
				for range 20 {
					if m.Mask(mask) != nil {
						break
					}
					ids := appendIDs(nil, mask)
					if id := ids[r.IntN(len(ids))]; !m.Advance(id) {
						t.Errorf("token %d is in the mask, and is refused", id)
					}
					m.Forced()
				}
			}
		})
	}
	wg.Wait()
}

// TestDeep: brackets inside each other up to the deepest stack; deeper ones are
// refused, and the text can still be closed.
func TestDeep(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	g, err := CompileSchema([]byte(`true`), unhurried)
	m := constraint(t, v, g, err).Start()
	n := 0
	for m.AdvanceBytes([]byte("[")) {
		if n++; n > 10_000 {
			t.Fatal("the stack has no bound")
		}
	}
	if n < 500 {
		t.Errorf("only %d brackets inside each other", n)
	}
	if !m.AdvanceBytes([]byte(strings.Repeat("]", n))) || !m.CanEnd() {
		t.Error("the brackets cannot be closed")
	}
}
