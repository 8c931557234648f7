package grammar

import (
	"fmt"
	"strings"
	"testing"
)

// TestSchemaRefused: what is not obeyed is an error that names it.
func TestSchemaRefused(t *testing.T) {
	t.Parallel()
	object := func(x string) string { return `{"type": "object", "properties": {"x": ` + x + `}}` }
	for _, c := range []struct {
		schema string
		kind   error
		want   string
	}{
		{object(`{"not": {}}`), ErrUnsupported, "#/properties/x/not is not supported"},
		{object(`{"if": {}}`), ErrUnsupported, "#/properties/x/if is not supported"},
		{object(`{"uniqueItems": true}`), ErrUnsupported, "#/properties/x/uniqueItems is not supported"},
		{object(`{"multipleOf": 2}`), ErrUnsupported, "#/properties/x/multipleOf is not supported"},
		{object(`{"type": "object", "minProperties": 2}`), ErrUnsupported, "minProperties"},
		{object(`{"nullable": true}`), ErrUnsupported, "nullable"},
		{`{"properties": {"a/b~\n": {"not": {}}}}`, ErrUnsupported, "#/properties/a~1b~0?/not is not supported"},
		{object(`{"format": "regex", "type": "string"}`), ErrUnsupported, `#/properties/x/format is "regex"`},
		{object(`{"$ref": "http://x.org/y"}`), ErrUnsupported, "#/properties/x/$ref refers to"},
		{object(`{"$ref": "#/$defs/no"}`), ErrSyntax, "which is not in the schema"},
		{object(`{"$ref": 1}`), ErrSyntax, "is not a string"},
		{object(`{"$dynamicRef": "#x"}`), ErrUnsupported, "$dynamicRef is not supported"},
		{object(`{"$id": "x"}`), ErrUnsupported, "$id is not supported"},
		{`{"$ref": "#"}`, ErrUnsupported, "# refers to itself"},
		{`{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}`, ErrUnsupported, "refers to itself"},
		{object(`{"type": "text"}`), ErrSyntax, "#/properties/x/type is not null, boolean"},
		{object(`{"type": []}`), ErrSyntax, "#/properties/x/type"},
		{object(`{"enum": []}`), ErrSyntax, "#/properties/x/enum is not a list"},
		{object(`{"enum": ["a"], "minLength": 1}`), ErrUnsupported, "#/properties/x/minLength is not supported beside #/properties/x/enum"},
		{object(`{"minLength": -1}`), ErrSyntax, "#/properties/x/minLength"},
		{object(`{"minLength": 1.5}`), ErrSyntax, "#/properties/x/minLength"},
		{object(`{"maximum": "1"}`), ErrSyntax, "#/properties/x/maximum is not a number"},
		{object(`{"maximum": 1e999999999}`), ErrUnsupported, "60 digits"},
		{object(`{"exclusiveMinimum": true}`), ErrSyntax, "exclusiveMinimum is not a number"},
		{object(`{"pattern": "(?=a)"}`), ErrSyntax, "#/properties/x/pattern is not a regular expression"},
		{object(`{"pattern": "\\bx"}`), ErrUnsupported, "word boundary"},
		{object(`{"items": [{}]}`), ErrUnsupported, "prefixItems is"},
		{object(`{"anyOf": []}`), ErrSyntax, "#/properties/x/anyOf"},
		{object(`{"anyOf": {}}`), ErrSyntax, "#/properties/x/anyOf"},
		{object(`7`), ErrSyntax, "#/properties/x is not a schema"},
		{object(`{"properties": []}`), ErrSyntax, "#/properties/x/properties"},
		{object(`{"required": "x"}`), ErrSyntax, "#/properties/x/required"},
		{object(`{"required": [1]}`), ErrSyntax, "#/properties/x/required"},
		{`{"patternProperties": {"a": {}, "b": {}}}`, ErrUnsupported, `#/patternProperties/b matches names that "a"`},
		{`{"patternProperties": {"(": {}}}`, ErrSyntax, "#/patternProperties/("},
		{`{"oneOf": [{"type": "integer"}, {"type": "number"}]}`, ErrUnsupported, "#/oneOf has alternatives 0 and 1"},
		{`{"oneOf": [{"type": "object", "properties": {"a": {"const": 1}}}, {"type": "object", "properties": {"a": {"const": 2}}, "required": ["a"]}]}`, ErrUnsupported, "#/oneOf"},
		{`{"oneOf": [{"enum": [1, 2]}, {"enum": [3, 2.0]}]}`, ErrUnsupported, "#/oneOf"},
		{object(`{"maxLength": 20000}`), ErrLimit, "#/properties/x/maxLength is 20000: up to 9090 are counted"},
		{object(`{"minItems": 1e9}`), ErrLimit, "#/properties/x/minItems is 1000000000: up to 9090 are counted"},
		{`false`, ErrEmpty, "allows no text"},
		{`{"type": "object", "required": ["a"], "properties": {"a": false}}`, ErrEmpty, "allows no text"},
		{`{"type": "object", "required": ["a"], "additionalProperties": false}`, ErrEmpty, "allows no text"},
		{`{"type": "string", "minLength": 3, "maxLength": 2}`, ErrEmpty, "allows no text"},
		{`{"type": "string", "pattern": "^a$", "minLength": 2}`, ErrEmpty, "allows no text"},
		{`{"type": "integer", "minimum": 1.2, "maximum": 1.8}`, ErrEmpty, "allows no text"},
		{`{"type": "array", "items": false, "minItems": 1}`, ErrEmpty, "allows no text"},
		{`{"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}`, ErrEmpty, "allows no text"},
		{`{"type": ["string"], "const": 1}`, ErrEmpty, "allows no text"},
		{`{"allOf": [{"const": 1}, {"const": 2}]}`, ErrEmpty, "allows no text"},
		{``, ErrSyntax, "is not JSON"}, {`{`, ErrSyntax, "is not JSON"}, {`{} {}`, ErrSyntax, "goes on after"}, {`[]`, ErrSyntax, "# is not a schema"},
		{`{"type": "null", "type": "null"}`, ErrSyntax, "twice"}, {"\"\xff\"", ErrSyntax, "UTF-8"}, {`null`, ErrSyntax, "is not a schema"},
	} {
		_, err := CompileSchema([]byte(c.schema), unhurried)
		wantError(t, c.schema, err, c.kind, c.want)
	}
}

// TestOneOf: alternatives that are seen to exclude each other.
func TestOneOf(t *testing.T) {
	t.Parallel()
	for _, list := range []string{
		`{"type": "string"}, {"type": "integer"}, {"type": ["null", "boolean"]}`,
		`{"const": "a"}, {"enum": ["b", 1]}`,
		`{"type": "object", "required": ["a"]}, {"type": "object", "properties": {"a": false}}`,
		`{"type": "object", "required": ["a"]}, {"type": "object", "properties": {"b": {}}, "additionalProperties": false}`,
		`{"$ref": "#/$defs/x"}, {"type": "array"}`,
		`{"anyOf": [{"type": "null"}, {"type": "array"}]}, {"type": "string"}`,
		`{"type": "object", "required": ["t"], "properties": {"t": {"anyOf": [{"const": 1}, {"const": 2}]}}}, {"type": "object", "required": ["t"], "properties": {"t": {"const": 3}}}`,
	} {
		if _, err := CompileSchema([]byte(`{"oneOf": [`+list+`], "$defs": {"x": {"type": "number"}}}`), unhurried); err != nil {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// TestBombs: texts that would take memory or time without end are refused in
// time by a limit, or are none.
func TestBombs(t *testing.T) {
	t.Parallel()
	nested := func(open, inner, end string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	defs := func(n int, body func(next int) string) string {
		var b strings.Builder
		b.WriteString(`{"$ref": "#/$defs/d0", "$defs": {`)
		for i := range n {
			fmt.Fprintf(&b, `"d%d": %s,`, i, body(i+1))
		}
		fmt.Fprintf(&b, `"d%d": {"type": "null"}}}`, n)
		return b.String()
	}
	many := func(n int, item func(i int) string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = item(i)
		}
		return strings.Join(list, ",")
	}
	for name, c := range map[string]struct {
		schema string
		kind   error // nil: it compiles
	}{
		"deep":      {nested(`{"properties":{"a":`, `{}`, `}}`, 200), ErrLimit},
		"deep any":  {nested(`{"anyOf":[`, `{}`, `]}`, 1000), ErrLimit},
		"deep JSON": {nested(`[`, ``, `]`, 30_000), ErrLimit},
		"long":      {`{"description":"` + strings.Repeat("a", 70_000) + `"}`, ErrLimit},
		"length":    {`{"type":"string","maxLength":1000000}`, ErrLimit},
		"length 2":  {`{"type":"string","minLength":99999999999999999999}`, ErrSyntax},
		"items":     {`{"type":"array","minItems":1000000}`, ErrLimit},
		"items 2":   {`{"type":"array","maxItems":1073741825}`, ErrLimit},
		"repeats":   {`{"type":"string","pattern":"^((a{1,30}){1,30}){1,30}$"}`, ErrLimit},
		"classes":   {`{"type":"string","pattern":"^(\\pL{100}\\pN{100}){5}$"}`, ErrLimit},
		"subsets":   {`{"type":"string","pattern":"^(a|b)*a(a|b){18}$","maxLength":60}`, ErrLimit},
		"subsets 2": {`{"type":"object","patternProperties":{"(a|b)*a(a|b){18}c":{}},"additionalProperties":false}`, ErrLimit},
		"products":  {`{"type":"string","allOf":[{"pattern":"^(a{7})*$"},{"pattern":"^(a{11})*$"},{"pattern":"^(a{13})*$"},{"pattern":"^(a{17})*$"},{"pattern":"^(a{19})*$"}]}`, ErrLimit},
		"doubled": {defs(30, func(n int) string {
			return fmt.Sprintf(`{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, n, n)
		}), nil},
		"doubled 2": {defs(30, func(n int) string {
			return fmt.Sprintf(`{"anyOf":[{"$ref":"#/$defs/d%d"},{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"}}}]}`, n, n)
		}), nil},
		"anyOf of anyOf": {`{"allOf":[` + many(20, func(i int) string {
			return fmt.Sprintf(`{"anyOf":[{"required":["a%d"]},{"required":["b%d"]}]}`, i, i)
		}) + `],"type":"object"}`, ErrLimit},
		"oneOf":    {`{"oneOf":[` + many(100, func(i int) string { return fmt.Sprintf(`{"const":%d}`, i) }) + `]}`, nil},
		"enum":     {`{"enum":[` + many(5000, func(i int) string { return fmt.Sprintf(`"v%d"`, i) }) + `]}`, nil},
		"members":  {`{"type":"object","properties":{` + many(1000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"null"}`, i) }) + `}}`, nil},
		"patterns": {`{"type":"object","patternProperties":{` + many(60, func(i int) string { return fmt.Sprintf(`"^p%d_":{}`, i) }) + `}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := CompileSchema([]byte(c.schema), Options{Limits: Limits{Time: 20e9}})
			if c.kind != nil {
				wantError(t, name, err, c.kind, "")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			m := NewConstraint(g, smallVocabulary(t)).Start()
			if err := m.Mask(make([]uint64, 8)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTime: a compilation ends when its time is up.
func TestTime(t *testing.T) {
	t.Parallel()
	_, err := CompileSchema([]byte(benchSchema), Options{Limits: Limits{Time: 1}})
	wantError(t, "a nanosecond", err, ErrLimit, "takes longer than 1ns")
}
