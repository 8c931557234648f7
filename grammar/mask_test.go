package grammar

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// wantError checks an error's kind, its words, and that it is one line.
func wantError(t *testing.T, name string, err, kind error, what string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%s: no error, want %v", name, kind)
	case !errors.Is(err, kind) || !strings.Contains(err.Error(), what):
		t.Errorf("%s: %v (%v), want %v with %q", name, err, errors.Unwrap(err), kind, what)
	case strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 300:
		t.Errorf("%s: the error is not one short line: %q", name, err)
	}
}

// walkMasks follows random tokens and compares each mask with all tokens one by one.
func walkMasks(t *testing.T, g *Grammar, v *Vocabulary, r *rand.Rand, walks, steps int) {
	t.Helper()
	c := NewConstraint(g, v)
	mask := make([]uint64, v.Words())
	for range walks {
		m := c.Start()
		var text strings.Builder
		for range steps {
			sameMask(t, m, v, text.String())
			if err := m.Mask(mask); err != nil {
				break
			}
			ids := appendIDs(nil, mask)
			id := ids[r.IntN(len(ids))]
			if !m.Advance(id) {
				t.Fatalf("after %q: token %d is in the mask, and is refused", text.String(), id)
			}
			text.WriteString(v.tokens[id])
		}
	}
}

func TestMaskRegex(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	for _, expr := range expressions {
		g, err := CompileRegex(expr, unhurried)
		if err != nil {
			t.Fatal(err)
		}
		walkMasks(t, g, v, rand.New(rand.NewPCG(3, 4)), 10, 12)
	}
}
