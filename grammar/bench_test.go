package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const benchSchema = `{"type": "object", "properties": {
	"name": {"type": "string", "description": "full name"}, "email": {"type": "string", "format": "email"},
	"age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 10},
	"status": {"enum": ["active", "suspended", "deleted"]}, "score": {"type": "number"},
	"id": {"type": "string", "pattern": "^[a-z]{2}-[0-9]{4,8}$"}, "notes": {"type": ["string", "null"], "maxLength": 2000},
	"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
		"required": ["street", "city"], "additionalProperties": false},
	"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
	"required": ["name", "age", "status"], "additionalProperties": false,
	"$defs": {"item": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}, "parts": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
		"required": ["sku", "n"], "additionalProperties": false}}}`

// benchText satisfies benchSchema.
func benchText(r *rand.Rand) string {
	phrase := func(n int) string {
		list := strings.Fields(`The quick brown fox jumps over lazy dogs, while naïve engineers — from Zürich to 東京 — measure "everything" twice (or so) and write it down: 42 times; good\ bad`)
		var out []string
		for range n {
			out = append(out, list[r.IntN(len(list))])
		}
		return strings.Join(out, " ")
	}
	item := func(parts any) map[string]any {
		return map[string]any{"sku": phrase(1), "n": r.IntN(1000), "parts": parts}
	}
	parts := []any{item([]any{}), item([]any{item([]any{})})}
	text := `{"name": ` + quoteJSON(phrase(3)) + `, "email": "jane.doe@example.org", "age": ` + fmt.Sprint(r.IntN(151)) + `, "tags": ["alpha beta", "gamma", "Ünïcode"], "status": "suspended", ` +
		`"score": 12.5e3, "id": "ab-123456", "notes": ` + quoteJSON(phrase(60)) + `, "address": {"street": ` + quoteJSON(phrase(4)) + `, "city": "東京", "zip": "12345"}, "items": [`
	for i, p := range []map[string]any{item(parts), item([]any{})} {
		if i > 0 {
			text += ", "
		}
		text += ordered(p)
	}
	return text + "]}"
}

func quoteJSON(s string) string { b, _ := json.Marshal(s); return string(b) }

func ordered(item map[string]any) string {
	var parts []string
	for _, p := range item["parts"].([]any) {
		parts = append(parts, ordered(p.(map[string]any)))
	}
	return fmt.Sprintf(`{"sku": %s, "n": %d, "parts": [%s]}`, quoteJSON(item["sku"].(string)), item["n"], strings.Join(parts, ", "))
}

// cut cuts a text into tokens, the longest first.
func cut(v *Vocabulary, text string) (ids []int32) {
	known := make(map[string]int32)
	for id, t := range v.tokens {
		if t != "" {
			known[t] = int32(id)
		}
	}
	for len(text) > 0 {
		n := min(len(text), 24)
		for ; n > 1; n-- {
			if _, ok := known[text[:n]]; ok {
				break
			}
		}
		ids = append(ids, known[text[:n]])
		text = text[n:]
	}
	return ids
}

// compileCalls is thinking, then text and calls of benchSchema.
func compileCalls() (*Grammar, error) {
	call := Sequence{Literal("\n{\"name\": \"f\", \"arguments\": "), Schema{JSON: []byte(benchSchema)}, Literal("}\n</tool_call>")}
	content := Free{Ends: true, Triggers: []Trigger{{Text: "<tool_call>", Then: call, Again: true}}}
	return Compose(Free{Ends: true, Triggers: []Trigger{{Text: "</think>", Then: content}}}, unhurried.Limits)
}

// benchAnswer is such an answer, with tags that are none.
func benchAnswer(r *rand.Rand) string {
	prose := strings.Repeat("I could use <b>f</b> here: if x < 3, then y <= 4. ", 6)
	return prose + "</think>\n\n" + prose + "\n<tool_call>\n{\"name\": \"f\", \"arguments\": " + benchText(r) + "}\n</tool_call>"
}

// BenchmarkMasks follows texts through a schema, a mask for each token, and
// gives the quantiles over all: cold with a constraint of its own for each
// text, warm with one for all.
func BenchmarkMasks(b *testing.B) {
	v := largeVocabulary(b)
	r := rand.New(rand.NewPCG(1, 1))
	grammars := map[string]func() (*Grammar, error){
		"schema": func() (*Grammar, error) { return CompileSchema([]byte(benchSchema), unhurried) },
		"object": func() (*Grammar, error) { return CompileObject(unhurried) },
		"gbnf":   func() (*Grammar, error) { return CompileGBNF(jsonGBNF, unhurried) },
	}
	var texts [][]int32
	for range 20 {
		texts = append(texts, cut(v, benchText(r)))
	}
	grammars["calls"] = compileCalls
	var answers [][]int32
	for range 20 {
		answers = append(answers, cut(v, benchAnswer(r)))
	}
	plain := texts
	for _, name := range []string{"schema", "object", "gbnf", "calls"} {
		g, err := grammars[name]()
		if err != nil {
			b.Fatal(err)
		}
		if texts = plain; name == "calls" {
			texts = answers
		}
		for _, warm := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/warm=%v", name, warm), func(b *testing.B) {
				mask := make([]uint64, v.Words())
				c := NewConstraint(g, v)
				var took []time.Duration
				run := func(keep bool) {
					for _, ids := range texts {
						if !warm {
							c = NewConstraint(g, v)
						}
						m := c.Start()
						for i, id := range ids {
							start := time.Now()
							err := m.Mask(mask)
							if keep {
								took = append(took, time.Since(start))
							}
							if err != nil || !m.Advance(id) {
								b.Fatalf("token %d of %d, %q, is refused: %v", i, len(ids), v.tokens[id], err)
							}
						}
					}
				}
				if warm {
					run(false)
				}
				for b.Loop() {
					run(true)
				}
				slices.Sort(took)
				at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1e3 }
				b.ReportMetric(at(0.5), "p50-µs")
				b.ReportMetric(at(0.9), "p90-µs")
				b.ReportMetric(at(0.99), "p99-µs")
				b.ReportMetric(at(1), "max-µs")
				b.ReportMetric(float64(c.e.size+c.cache.size)/1e6, "MB")
			})
		}
	}
}

// BenchmarkAllowed tests drafts one by one, as a window is checked.
func BenchmarkAllowed(b *testing.B) {
	v := largeVocabulary(b)
	g, err := CompileSchema([]byte(benchSchema), unhurried)
	if err != nil {
		b.Fatal(err)
	}
	ids := cut(v, benchText(rand.New(rand.NewPCG(2, 2))))
	c := NewConstraint(g, v)
	m := c.Start()
	i := 0
	for b.Loop() {
		if i == len(ids) {
			m, i = c.Start(), 0
		}
		if !m.Advance(ids[i]) {
			b.Fatal("refused")
		}
		i++
	}
}

func BenchmarkCompile(b *testing.B) {
	for name, compile := range map[string]func() error{
		"schema": func() error { _, err := CompileSchema([]byte(benchSchema), unhurried); return err },
		"short": func() error {
			_, err := CompileSchema([]byte(strings.Replace(benchSchema, "2000", "200", 1)), Options{})
			return err
		},
		"gbnf":  func() error { _, err := CompileGBNF(jsonGBNF, unhurried); return err },
		"regex": func() error { _, err := CompileRegex(`[a-zA-Z_][a-zA-Z0-9_]{0,63}`, unhurried); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := compile(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVocabulary(b *testing.B) {
	v := largeVocabulary(b)
	tokens := make([][]byte, v.Size())
	for i, t := range v.tokens {
		tokens[i] = []byte(t)
	}
	b.ReportMetric(float64(v.Bytes())/1e6, "MB")
	for b.Loop() {
		if _, err := NewVocabulary(tokens, VocabularyOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(v.Bytes())/1e6, "MB")
}
