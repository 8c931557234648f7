package grammar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// treeSchema refers to itself.
const treeSchema = `{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["v"], "additionalProperties": false}}}`

var schemas = []string{
	`{"type": "object"}`,
	`true`,
	`{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name"], "additionalProperties": false}`,
	`{"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "number"}, "na": {"type": ["null", "boolean"]}}, "required": ["n"]}`,
	`{"type": "object", "properties": {"a\"b\n": {"const": "\"\\é\u0001/"}, "é": {"enum": [1, "x", null, [1, {"k": []}], {}, 2.50]}}, "additionalProperties": {"type": "integer"}}`,
	`{"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4}`,
	`{"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "null"}, "maxItems": 5}`,
	`{"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": false}`,
	`{"type": "array", "prefixItems": [{"const": 1}], "minItems": 1}`,
	`{"type": "array", "maxItems": 0}`,
	`{"type": "string", "minLength": 2, "maxLength": 5}`,
	`{"type": "string", "minLength": 3}`,
	`{"type": "string", "pattern": "^[a-z]{2,4}$"}`,
	`{"type": "string", "pattern": "b+[\"\\\\]?"}`,
	`{"type": "string", "pattern": "^[A-Z]", "minLength": 3, "maxLength": 6}`,
	`{"type": "string", "pattern": "a|^$|é$"}`,
	`{"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "z$"}]}`,
	`{"type": "integer"}`, `{"type": "number"}`,
	`{"type": "integer", "minimum": -12, "exclusiveMaximum": 345}`,
	`{"type": "integer", "exclusiveMinimum": 0}`,
	`{"type": "integer", "maximum": -7}`,
	`{"type": "integer", "minimum": 1.5, "maximum": 1e2}`,
	`{"type": "number", "minimum": -1.25, "maximum": 3.125}`,
	`{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}`,
	`{"type": "number", "minimum": 99.5}`, `{"type": "number", "exclusiveMaximum": -0.05}`,
	`{"type": "number", "minimum": 0, "maximum": 0}`,
	`{"anyOf": [{"type": "string", "maxLength": 3}, {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": false}, {"const": 7}]}`,
	`{"type": "object", "properties": {"x": {"type": "integer"}}, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}`,
	`{"oneOf": [{"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]},
		{"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"], "additionalProperties": false}, {"type": "null"}]}`,
	`{"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "integer", "minimum": 3}}, "required": ["b"]}], "$defs": {"base": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"maximum": 5}}, "required": ["a"]}}}`,
	`{"allOf": [{"properties": {"a": {"type": "null"}}, "additionalProperties": false}, {"properties": {"a": true, "b": {"type": "null"}}}], "type": "object"}`,
	treeSchema,
	`{"$defs": {"list": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}, "required": ["next"], "additionalProperties": false}]}}, "$ref": "#/$defs/list"}`,
	`{"type": "object", "allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"anyOf": [{"required": ["c"]}, {"required": ["d"]}]}], "properties": {"a": true, "b": true, "c": {"type": "null"}, "d": {"type": "null"}}}`,
	`{"type": "object", "properties": {"title": {"type": "integer"}, "description": {"type": "null"}, "p": {"properties": {"title": {"type": "string"}}, "type": "object", "required": ["title"]}}, "additionalProperties": false}`,
	`{"type": "object", "patternProperties": {"^n_": {"type": "integer"}, "^s_": {"type": "string"}}, "additionalProperties": false}`,
	`{"type": "object", "properties": {"n_a": {"minimum": 5}, "q": {"type": "null"}}, "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}}`,
	`{"type": "object", "required": ["p", "q"], "additionalProperties": {"type": "integer"}}`,
	`{"type": "object", "properties": {"a": false, "b": true}}`,
	`{"properties": {"a": {"type": "integer"}}}`,
	`{"type": ["integer", "string"], "enum": [1, "a", null, 2.5]}`,
	`{"enum": ["true", true, "tru"]}`,
	`{"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1}`,
	`{"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}}}}, "required": ["a"], "additionalProperties": false}`,
}

// TestSchema: what is generated satisfies the oracle, as does what is accepted
// of changed texts; what the oracle's writer makes is accepted.
func TestSchema(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	for i, schema := range schemas {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for _, compact := range []bool{false, true} {
				testSchema(t, v, schema, Options{Compact: compact, Limits: unhurried.Limits}, uint64(i))
			}
		})
	}
}

func testSchema(t *testing.T, v *Vocabulary, schema string, o Options, seed uint64) {
	g, err := CompileSchema([]byte(schema), o)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	c := NewConstraint(g, v)
	oracle := newOracle(schema)
	r := rand.New(rand.NewPCG(seed, 11))
	texts := 0
	sound := func(s string) {
		t.Helper()
		if accepts(c, s) && !oracle.valid(s) {
			t.Fatalf("%s: %q is accepted and does not satisfy it", schema, s)
		}
	}
	var kept []string
	for range 150 {
		s, ok := generate(c, r, 200)
		if ok {
			if !accepts(c, s) {
				t.Fatalf("%s: %q was generated and is refused", schema, s)
			}
			texts++
			kept = append(kept, s)
			sound(s)
		}
	}
	if texts < 5 {
		t.Errorf("%s: only %d texts were generated", schema, texts)
	}
	if !o.Compact {
		b := &builder{budget: budget{Limits: Limits{}.withDefaults()}}
		w := &writer{oracle: oracle, r: r, root: b.readJSON([]byte(schema)), text: schema}
		written := 0
		for range 600 {
			s, ok := w.value(w.root, 0)
			if !ok || !oracle.valid(s) || repeatsKey(s) {
				continue
			}
			written++
			kept = append(kept, s)
			if !accepts(c, s) {
				t.Fatalf("%s: %q satisfies it and is refused", schema, s)
			}
		}
		if written < 5 && !strings.Contains(schema, "pattern") && !strings.Contains(schema, "allOf") {
			t.Errorf("%s: only %d texts were written", schema, written)
		}
	}
	for _, s := range kept {
		for range 8 {
			sound(mutate(s, r, `ab{}[]":, 10-.e\nu`+"\n\té"))
		}
	}
	walkMasks(t, g, v, r, 3, 12)
}

// TestSchemaTable: texts whose form, not whose meaning, decides.
func TestSchemaTable(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	const person = `{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"], "title": "T", "description": "d", "default": {}, "examples": [1]}`
	for _, c := range []struct {
		schema   string
		o        Options
		yes, not []string
	}{
		{person, unhurried,
			[]string{`{"a":1}`, `{ "a": 1, "b": "x" }`, "{\n    \"a\": 1,\n\t\"b\": \"x\"\n}", `{"a":1,"c":[{}]}`, `{"a":-0}`, `{"a":1,"b":"\u00e9\ud83d\ude00\/"}`},
			[]string{`{"b":"x","a":1}`, ` {"a":1}`, `{"a":1} `, `{  "a":1}`, `{"a" :1}`, `{"a":1 ,"b":""}`, "{\r\n\"a\":1}", `{"a":1.0}`, `{"a":1e0}`, `{"\u0061":1}`, `{"a":1,"\u0062":2}`,
				`{"a":1,"a":1}`, `{"a":1,"b":"\ud83d"}`, `{"a":1,"b":"\ude00"}`, `{"a":1,"b":"` + "\t" + `"}`, `{"a":01}`, `{"a":1,}`, `{}`, "{\"a\":1,\"b\":\"\xff\"}", "{\"a\":1,\"b\":\"\xed\xa0\x80\"}"}},
		{person, Options{Closed: true, Compact: true, Limits: unhurried.Limits}, []string{`{"a":1}`, `{"a":1,"b":""}`}, []string{`{"a":1,"c":2}`, `{"a": 1}`}},
		{`{"type": "object"}`, Options{Closed: true, Limits: unhurried.Limits}, []string{`{}`, `{"a":{"b":1}}`}, nil},
		{`{"type": "object", "properties": {"date": {"format": "date", "type": "string"}}}`, unhurried, []string{`{"date":"2024-02-29"}`, `{"date2":1}`}, []string{`{"date":"2023-02-29"}`, `{"date":"2023-2-1"}`}},
		{`{"$ref": "#/definitions/a~1b%25", "definitions": {"a/b%": {"const": 1}}}`, unhurried, []string{`1`}, []string{`2`}},
		{`{"type":"integer","minimum":5,"allOf":[{"minimum":3},{"maximum":9}]}`, unhurried, []string{`5`, `9`}, []string{`4`, `10`}},
	} {
		g, err := CompileSchema([]byte(c.schema), c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.schema, err)
		}
		x := NewConstraint(g, v)
		for _, s := range c.yes {
			if !accepts(x, s) {
				t.Errorf("%s: %s is refused", c.schema, s)
			}
		}
		for _, s := range c.not {
			if accepts(x, s) {
				t.Errorf("%s: %s is accepted", c.schema, s)
			}
		}
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	samples := map[string][]string{
		"date": {"2024-02-29", "2000-02-29", "1999-12-31"}, "time": {"23:59:59Z", "00:00:00.123+05:30"}, "date-time": {"2024-01-02T03:04:05Z"},
		"duration": {"P1Y2M3DT4H5M6S", "P2W", "PT5M", "P1M"}, "email": {"a.b+c@example.com"}, "hostname": {"localhost", "a-b.example.org"},
		"ipv4": {"0.0.0.0", "192.168.1.255"}, "ipv6": {"::", "::1", "fe80::1:2", "1:2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7::"},
		"uuid": {"123e4567-e89b-12d3-a456-426614174000"}, "uri": {"https://example.com/a%20b?c=d#e", "mailto:a@b.c", "urn:isbn:123"},
	}
	for name := range formats {
		schema := fmt.Sprintf(`{"type": "string", "format": %q}`, name)
		g, err := CompileSchema([]byte(schema), unhurried)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c := NewConstraint(g, v)
		r := rand.New(rand.NewPCG(13, 14))
		made := 0
		kept := samples[name]
		for range 400 {
			if s, ok := generate(c, r, 120); ok {
				made++
				kept = append(kept, s[1:len(s)-1])
			}
		}
		if made < 50 || len(samples[name]) == 0 {
			t.Errorf("%s: %d texts made, %d samples", name, made, len(samples[name]))
		}
		for i, s := range kept {
			if !accepts(c, `"`+s+`"`) || !checkFormat(name, s) {
				t.Fatalf("%s: %q: accepted %v, right %v", name, s, accepts(c, `"`+s+`"`), checkFormat(name, s))
			}
			if s := mutate(s, r, "0123459abz.:-/TZ@P"); i < 300 && accepts(c, `"`+s+`"`) && !checkFormat(name, s) {
				t.Fatalf("%s: %q is accepted and wrong", name, s)
			}
		}
	}
}
