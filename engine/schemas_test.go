package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	answers "windrow/answer"
	"windrow/decoder"
	"windrow/grammar"
	"windrow/model"
)

// babbler is a language model of hashes over the embedded model's vocabulary: a row's
// state depends on all tokens before it, and part of its logits on the place alone, so
// that drafts of masks agree at times. It likes what closes things.
type babbler struct {
	t     *testing.T
	seed  uint64
	likes []float32 // by id
	mask  int32
	keys  []uint64 // by slot
	rows  int
}

func scramble(words ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, w := range words {
		h = (h ^ w) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h
}

func (m *babbler) Forward(_ context.Context, b *model.Batch) (results []model.Result, err error) {
	cache := b.Spans[0].Cache
	m.keys = m.keys[:cache.Base()]
	b.RunDeferred()
	var sum uint64
	for _, k := range m.keys {
		sum += k
	}
	m.rows += len(b.Tokens)
	wanted := b.Want
	for i, token := range b.Tokens {
		k := scramble(m.seed, uint64(token), uint64(b.Positions[i]), sum)
		m.keys = append(m.keys, k)
		sum += k
		if len(wanted) == 0 || int(wanted[0].Row) != i {
			continue
		}
		at := uint64(b.Positions[i]) + 1
		if token == m.mask {
			at--
		}
		results = append(results, m.result(at, k, wanted[0]))
		wanted = wanted[1:]
	}
	cache.Stage(len(b.Tokens))
	return results, nil
}

func (m *babbler) result(at, state uint64, w model.Wanted) (r model.Result) {
	z := make([]float32, len(m.likes))
	agreed, own := scramble(m.seed, at), state
	for id := range z {
		agreed, own = agreed*6364136223846793005+1442695040888963407, own*6364136223846793005+1442695040888963407
		z[id] = m.likes[id] + 3*float32(agreed>>40)/(1<<24) + float32(own>>40)/(1<<24)
	}
	// Only a mask's entropy is looked at, and about right will do.
	if w.Allowed == nil {
		best, near := slices.Max(z), 0
		for _, v := range z {
			if v > best-1 {
				near++
			}
		}
		r.Entropy = float32(math.Log(float64(near)))
	}
	r.Argmax = -1
	for id, v := range z {
		if int32(id) == m.mask || w.Allowed != nil && !w.Allowed.Has(int32(id)) {
			continue
		}
		if r.Argmax < 0 || v > z[r.Argmax] {
			r.Argmax = int32(id)
		}
		if n := len(r.Top); n < w.TopK || n > 0 && v > r.Top[n-1].Logit {
			at := n
			for at > 0 && v > r.Top[at-1].Logit {
				at--
			}
			r.Top = slices.Insert(r.Top, at, model.Candidate{ID: int32(id), Logit: v})
			r.Top = r.Top[:min(w.TopK, n+1)]
		}
	}
	if w.Logits {
		r.Logits = z
	}
	return r
}

// randomSchema is one of the kinds that are supported.
func randomSchema(r *rand.Rand, deep int) map[string]any {
	kinds := []string{"string", "integer", "number", "boolean", "enum", "bounded", "pattern", "format", "null"}
	if deep < 3 {
		kinds = append(kinds, "object", "object", "array", "anyOf")
	}
	switch k := kinds[r.IntN(len(kinds))]; k {
	case "enum":
		return map[string]any{"enum": []any{"red", "a rather long value of an enumeration", 12, nil, "it's \"quoted\""}[r.IntN(3):]}
	case "string":
		return map[string]any{"type": "string", "maxLength": 1 + r.IntN(30)}
	case "integer":
		return map[string]any{"type": "integer", "minimum": -r.IntN(50), "maximum": r.IntN(5000)}
	case "number":
		return map[string]any{"type": "number", "exclusiveMinimum": -1.5, "maximum": 10.25}
	case "bounded":
		return map[string]any{"type": []any{"string", "null"}, "minLength": r.IntN(3), "maxLength": 3 + r.IntN(9)}
	case "pattern":
		return map[string]any{"type": "string", "pattern": []string{"^[a-f]{2,4}-[0-9]+$", "^(yes|no)$", "^.{0,5}x{1,4}$"}[r.IntN(3)], "maxLength": 20}
	case "format":
		return map[string]any{"type": "string", "format": []string{"date", "ipv4", "uuid", "time"}[r.IntN(4)]}
	case "array":
		return map[string]any{"type": "array", "items": randomSchema(r, deep+1), "minItems": r.IntN(2), "maxItems": 1 + r.IntN(3)}
	case "anyOf":
		return map[string]any{"anyOf": []any{randomSchema(r, deep+1), randomSchema(r, deep+1)}}
	case "object":
		return randomObject(r, deep)
	default:
		return map[string]any{"type": k}
	}
}

func randomObject(r *rand.Rand, deep int) map[string]any {
	names := []string{"a", "name", "the_number_of_all_chairs_in_the_hall", "é", "is it so?", "x-y", "tags", "an_identifier_that_is_quite_long"}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	properties, required := map[string]any{}, []any{}
	for _, n := range names[:1+r.IntN(4)] {
		properties[n] = randomSchema(r, deep+1)
		if r.IntN(3) > 0 {
			required = append(required, n)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// judge compiles a schema of another program.
func judge(t *testing.T, schema []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:///x.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///x.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func satisfies(s *jsonschema.Schema, text string) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// TestRandomSchemas: under 500 random schemas, alone, in calls of both forms, behind
// thinking and beside free text, verified gives ar's tokens, greedy and sampled, at any
// window, with masks and without; and another program finds that what ended satisfies
// its schema. Forced text makes forwards fewer.
func TestRandomSchemas(t *testing.T) {
	count := 500
	if os.Getenv("CI") != "" && !testing.Short() {
		count = 3000
	} else if testing.Short() {
		count = 80
	}
	e := openTiny(t, Options{})
	base := e.Defaults(decoder.Options{})
	m := &babbler{t: t, likes: make([]float32, base.Vocabulary.Size), mask: base.Vocabulary.MaskID}
	for id := range m.likes {
		text := string(e.tokens.Bytes(int32(id)))
		switch {
		case slices.Contains(base.StopIDs, int32(id)):
			m.likes[id] = 3
		case strings.ContainsAny(text, "\"}]>") || text == "0":
			m.likes[id] = 1.5
		case strings.ContainsAny(text, " \n\t"):
			m.likes[id] = -2
		}
	}
	var ended, calls, tokens, forwards, blind int
	for seed := range uint64(count) {
		r := rand.New(rand.NewPCG(seed, 5))
		schema, err := json.Marshal(randomObject(r, 0))
		if err != nil {
			t.Fatal(err)
		}
		var parsing answers.Options
		var held answers.Held
		kind := r.IntN(4)
		if kind > 0 {
			parsing.Form = []answers.Form{answers.FormJSON, answers.FormCoder}[r.IntN(2)]
			parsing.Thinking = answers.Thinking(r.IntN(2))
			parsing.Tools = fmt.Appendf(nil, `[{"type":"function","function":{"name":"f","parameters":%s}}]`, schema)
			held.Single = r.IntN(2) == 0
		}
		switch kind {
		case 0:
			held.Form = grammar.Schema{JSON: schema, Compact: r.IntN(2) == 0}
		case 1:
			held.Form, parsing.Either = grammar.Schema{JSON: schema}, true
		case 2:
			held.Required = true
		}
		p, err := parsing.Grammar(held)
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		g, err := grammar.Compose(p, grammar.Limits{Time: time.Minute})
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		c, err := e.Constraint(g)
		if err != nil {
			t.Fatal(err)
		}
		m.seed = seed
		o := decoder.Options{
			Mode: decoder.AR, MaxTokens: 150, Constraint: c, StopIDs: base.StopIDs, Vocabulary: base.Vocabulary,
			Window: 2 + r.IntN(8), EntropyThreshold: base.EntropyThreshold, PosPenalty: base.PosPenalty,
		}
		if seed%3 == 2 {
			o.Sampling = decoder.Sampling{Temperature: 0.8, TopP: 0.95, Seed: seed}
		}
		prompt := []int32{5, 6, 7}
		run := func() decoder.Summary {
			capacity, _ := decoder.CacheSize(len(prompt), o)
			m.keys = nil
			sum, err := decoder.Generate(t.Context(), m, model.NewCountingCache(capacity), prompt, o, e.tokens.NewStream(true), decoder.Hooks{})
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, schema, err)
			}
			return sum
		}
		want := run()
		o.Mode = decoder.Verified
		for _, masks := range []bool{true, false} {
			if o.Vocabulary.MaskID = m.mask; !masks {
				o.Vocabulary.MaskID = -1
			}
			got := run()
			if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
				t.Fatalf("seed %d, %s, masks %t: verified %q (%s), ar %q (%s)", seed, schema, masks, got.Text, got.FinishReason, want.Text, want.FinishReason)
			}
			if !masks {
				blind += got.Stats.Forwards
			}
		}
		tokens, forwards = tokens+want.Stats.Tokens, forwards+want.Stats.Forwards
		if want.FinishReason != decoder.FinishStop {
			continue
		}
		ended++
		parsed, err := answers.Parse(want.Text, answers.Ended, parsing)
		if err != nil {
			t.Fatal(err)
		}
		s := judge(t, schema)
		for _, call := range parsed.Calls {
			calls++
			if err := satisfies(s, call.Arguments); err != nil {
				t.Fatalf("seed %d, %s: arguments %q of %q: %v", seed, schema, call.Arguments, want.Text, err)
			}
		}
		switch {
		case held.Required && len(parsed.Calls) == 0:
			t.Fatalf("seed %d: no call in %q", seed, want.Text)
		case held.Form != nil && len(parsed.Calls) == 0:
			if err := satisfies(s, parsed.Content); err != nil {
				t.Fatalf("seed %d, %s: %q: %v", seed, schema, want.Text, err)
			}
		}
	}
	t.Logf("%d of %d texts ended, with %d calls; %d tokens in %d forwards of ar, %d of verified without masks", ended, count, calls, tokens, forwards, blind)
	if ended < count/2 || calls < count/5 || blind*10 > forwards*9 {
		t.Error("too little is shown")
	}
}
