package session

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// statesOf are states under test: they follow from the tokens up to From, and have the
// numbers of the place.
func statesOf(tokens []int32, from, end int) States {
	h := hashOf("").next(tokens[:from])
	data := binary.LittleEndian.AppendUint32(h[:], uint32(from))
	data = binary.LittleEndian.AppendUint32(data, uint32(end))
	return States{From: from, End: end, Bytes: len(data), Export: func(dst []byte) error {
		copy(dst, data)
		return nil
	}}
}

// isStates reports whether states are those that a hit speaks of.
func isStates(data []byte, tokens []int32, h *Hit) bool {
	want := make([]byte, h.StatesBytes())
	statesOf(tokens, h.From, h.End).Export(want)
	return h.From <= h.Tokens && h.Tokens <= h.End && bytes.Equal(data, want)
}

// rawPage is a page that has its tokens, as far as there are some.
func rawPage(tokens []int32, page int, dst []byte) {
	clear(dst)
	for i, id := range tokens[page*pageTokens : min(len(tokens), (page+1)*pageTokens)] {
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(id))
	}
}

// TestStates saves sessions with places at random, that begin alike and part anywhere,
// and looks prompts up beside a list of all places: what is found is the most that any
// of them gives, with the keys and states of the prompt's own tokens, before and after
// the store is opened again.
func TestStates(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv("CI") != "" && !testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		o := options()
		o.States = true
		o.Note = func(line string) { t.Error(line) }
		s := open(t, dir, o)
		base := ids(200, seed)
		text := func() []int32 {
			tokens := slices.Clone(base[:pageTokens+r.IntN(len(base)-pageTokens)])
			if at := 20 * r.IntN(len(base)/20); r.IntN(2) == 0 && at < len(tokens) { // one of few others
				for i := range tokens[at:] {
					tokens[at+i] += int32(1 + at%3)
				}
			}
			return tokens
		}
		type saved struct {
			tokens []int32
			list   []States
		}
		all := map[string]saved{}
		check := func() {
			t.Helper()
			for range 20 {
				prompt, want := text(), 0
				for _, x := range all {
					n := 0
					for n < min(len(prompt), len(x.tokens)) && prompt[n] == x.tokens[n] {
						n++
					}
					for _, y := range x.list {
						if p := min(n, y.End); p >= y.From {
							want = max(want, p)
						}
					}
				}
				h := s.Find("", prompt)
				if h == nil {
					if want > 0 {
						t.Fatalf("seed %d: nothing is found of %d tokens, want %d", seed, len(prompt), want)
					}
					continue
				}
				// States that end just behind a segment's end go back across it, which is not
				// looked for.
				if h.Tokens > want || h.Tokens < want && want%(segmentPages*pageTokens) != 0 && (want%(segmentPages*pageTokens) < segmentPages*pageTokens-5) {
					t.Fatalf("seed %d: %d tokens are found, want %d", seed, h.Tokens, want)
				}
				page, states := 0, 0
				to, _ := inSomeWay(s, func(data []byte) error {
					own := make([]byte, pageBytes)
					rawPage(prompt[:h.Tokens], page, own)
					if n := 4 * min(pageTokens, h.Tokens-page*pageTokens); !bytes.Equal(data[:n], own[:n]) {
						t.Errorf("seed %d: page %d of %d tokens is another's", seed, page, h.Tokens)
					}
					page++
					return nil
				}, func(data []byte) error {
					states++
					if !isStates(data, prompt, h) {
						t.Errorf("seed %d: states of %d tokens are another's", seed, h.Tokens)
					}
					return nil
				})
				err := s.Load(t.Context(), h, 0, to)
				if err != nil || states != 1 || page != (h.Tokens+pageTokens-1)/pageTokens {
					t.Fatalf("seed %d: %d pages and %d states of %d tokens, %v", seed, page, states, h.Tokens, err)
				}
			}
		}
		for i := range 30 {
			name := fmt.Sprint(r.IntN(6))
			x := saved{tokens: text()}
			for end := range len(x.tokens) + 1 {
				if end == len(x.tokens) || end > 0 && r.IntN(40) == 0 {
					from := end - r.IntN(min(4, end+1))
					x.list = append(x.list, statesOf(x.tokens, from, end))
				}
			}
			info, err := s.Save(t.Context(), Session{Name: name, Tokens: x.tokens, States: x.list}, func(page int, dst []byte) error {
				rawPage(x.tokens, page, dst)
				return nil
			})
			if err != nil || info.Tokens != len(x.tokens) {
				t.Fatal(info, err)
			}
			// The same text again, with places that are there, changes nothing.
			if old, ok := all[name]; !ok || !slices.Equal(old.tokens, x.tokens) || slices.ContainsFunc(x.list, func(y States) bool {
				return !slices.ContainsFunc(old.list, func(z States) bool { return z.From == y.From && z.End == y.End })
			}) {
				all[name] = x
			}
			if r.IntN(5) == 0 {
				if _, err := s.Delete("", name); err != nil {
					t.Fatal(err)
				}
				delete(all, name)
			}
			check()
			if i%7 == 6 {
				s.Close()
				s = open(t, dir, o)
				check()
			}
		}
		for name := range all {
			if _, err := s.Delete("", name); err != nil {
				t.Fatal(err)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*", "*.*")); len(left) != 0 || s.Bytes() != 0 {
			t.Errorf("%q are left, %d bytes", left, s.Bytes())
		}
		s.Close()
	}
}

// TestUnnamedStates: what begins a session without a name takes its place only where it
// goes back to all that is to be saved.
func TestUnnamedStates(t *testing.T) {
	o := options()
	o.States = true
	s := open(t, t.TempDir(), o)
	tokens := ids(100, 4)
	put := func(n int, list ...States) int {
		t.Helper()
		if _, _, err := save(t, s, Session{Tokens: tokens[:n], States: list}); err != nil {
			t.Fatal(err)
		}
		return len(s.List(""))
	}
	if n := put(100, statesOf(tokens, 49, 50), statesOf(tokens, 98, 100)); n != 1 {
		t.Error(n)
	}
	if n := put(50, statesOf(tokens, 49, 50)); n != 1 {
		t.Errorf("the beginning, at a place that is there: %d sessions", n)
	}
	if n := put(60, statesOf(tokens, 58, 60)); n != 2 {
		t.Errorf("the beginning, at another place: %d sessions", n)
	}
	if h := s.Find("", tokens[:70]); h == nil || h.Tokens != 60 {
		t.Errorf("%+v", h)
	}
	if n := put(100, statesOf(tokens, 60, 60), statesOf(tokens, 98, 100)); n != 1 {
		t.Errorf("a session again, with other places: %d sessions", n)
	}
	for name, x := range map[string]Session{
		"no states":        {Tokens: tokens, States: []States{}},
		"less than a page": {Tokens: tokens, States: []States{statesOf(tokens, 3, 3)}},
	} {
		if _, _, err := save(t, s, x); err != ErrShort {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, y := range map[string]States{
		"before the first": {From: -1, End: 8, Bytes: 1}, "none": {From: 8, End: 8}, "the wrong way": {From: 9, End: 8, Bytes: 1},
	} {
		if _, _, err := save(t, s, Session{Tokens: tokens, States: []States{y, statesOf(tokens, 98, 100)}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
