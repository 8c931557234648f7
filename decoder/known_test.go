package decoder

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestKnown: a record counts every draft that was looked at, and what it has seen is what
// another Experience begins with.
func TestKnown(t *testing.T) {
	e := NewRecord()
	looked := 0.0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 84))
		m := newToy(t, seed)
		o := toyOptions(Verified, m)
		o.EntropyThreshold, o.Experience, o.Draft = threshold(100), e, []DraftChoice{DraftMask, DraftLookup}[seed%2]
		m.period = 5
		prompt := randomPrompt(r)
		ar := o
		ar.Mode, ar.Experience = AR, nil
		got, want := generate(t, m, prompt, o, Hooks{}), generate(t, m, prompt, ar, Hooks{})
		if !slices.Equal(got.Tokens, want.Tokens) {
			t.Fatalf("seed %d: %v, ar %v", seed, got.Tokens, want.Tokens)
		}
		looked += float64(got.Stats.Drafts)
	}
	k := e.Known()
	var masks, lookups, seen float64
	for i, c := range k.Classes {
		if c.Stood > c.Seen || c.Seen != math.Trunc(c.Seen) {
			t.Errorf("%s: %+v", ClassName(i), c)
		}
		seen += c.Seen
		if class(i).ofMask() {
			masks += c.Stood
		} else {
			lookups += c.Stood
		}
	}
	if masks < 50 || lookups < 50 || seen > looked {
		t.Errorf("%v masks' drafts stood and %v lookups', %v seen of %v", masks, lookups, seen, looked)
	}
	y := NewExperience()
	if err := y.Learn(k); err != nil {
		t.Fatal(err)
	}
	for i, c := range y.Known().Classes {
		if c.Seen > knownWeight || math.Abs(c.Rate()-k.Classes[i].Rate()) > 1e-9 {
			t.Errorf("%s: %+v of %+v", ClassName(i), c, k.Classes[i])
		}
	}
	for _, bad := range []Known{{}, {Classes: k.Classes[1:]}, {Classes: slices.Repeat([]Chance{{1, 2}}, allClasses)}, {Classes: slices.Repeat([]Chance{{math.NaN(), 0}}, allClasses)}, {Classes: k.Classes, Masks: make([]Chance, 99)}, {Classes: k.Classes, Saved: math.Inf(1)}} {
		if err := y.Learn(bad); err == nil {
			t.Errorf("%+v was learned", bad)
		}
	}
}

func TestClassNames(t *testing.T) {
	names := map[string]bool{}
	for i := range allClasses {
		names[ClassName(i)] = true
	}
	if len(names) != allClasses || ClassName(7) != "lookup, match of 2 tokens" || ClassName(13) != "lookup, match of 34 tokens and more" {
		t.Errorf("%v", names)
	}
}
