package jinja

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"windrow/internal/testhelp"
)

// smallLimits keep a fuzzed rendering short.
var smallLimits = Limits{Time: time.Second, Steps: 300_000, Bytes: 4 << 20, Output: 1 << 20}

func addGolden(f *testing.F, add func(string)) {
	for i, c := range readGolden(f).Cases {
		if i%3 == 0 && c.Differs == "" {
			add(c.Template)
		}
	}
}

// FuzzRender: any template is rendered or refused in one short line, soon and
// in little memory, and a cancelled rendering is refused.
func FuzzRender(f *testing.F) {
	addGolden(f, func(s string) { f.Add(s) })
	for _, bomb := range bombs() {
		if len(bomb) < 1000 {
			f.Add(bomb)
		}
	}
	raw, err := os.ReadFile("testdata/variables.json")
	if err != nil {
		f.Fatal(err)
	}
	variables := variablesOf(f, raw)
	f.Fuzz(func(t *testing.T, source string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var err error
		took := testhelp.Took(func() { _, err = renderFixed(source, variables, smallLimits) })
		checkError(t, source, err)
		if took > 4*time.Second {
			t.Errorf("took %v", took)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("allocated %d bytes", used)
		}
		if template, err := Compile(source); err == nil {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := template.Render(ctx, nil, Limits{}); err == nil {
				t.Error("a cancelled rendering gave text")
			}
		}
	})
}

// FuzzSame: programs made of bytes by a grammar, and the bytes themselves as a
// template, render as in Jinja2. Our bounds and refusals are the exceptions.
func FuzzSame(f *testing.F) {
	addGolden(f, func(s string) { f.Add([]byte(s), true) })
	f.Add([]byte("{{(0,0)|reverse|e}}{{(0,0)|reverse|upper}}"), true)
	for i := range 40 {
		f.Add(bytes.Repeat([]byte{byte(i * 37), byte(i * 11), byte(i), byte(255 - i*5), byte(i * i)}, 12), false)
	}
	raw, err := os.ReadFile("testdata/variables.json")
	if err != nil {
		f.Fatal(err)
	}
	variables := variablesOf(f, raw)
	jinja2 := openReference(f)
	f.Fuzz(func(t *testing.T, data []byte, verbatim bool) {
		source := string(data)
		if !verbatim {
			source = (&grower{data: data}).template()
		}
		if !utf8.ValidString(source) || len(source) > 4000 || strings.Contains(source, "\x00") {
			return
		}
		got, err := renderFixed(source, variables, smallLimits)
		checkError(t, source, err)
		if err != nil && ours.MatchString(err.Error()) {
			return
		}
		want := jinja2.render(t, source, raw)
		if theirs.MatchString(want.Error) {
			return
		}
		got = address.ReplaceAllString(got, "${1}0$2")
		if (err != nil) != (want.Error != "") || got != want.Text {
			t.Errorf("%s\n got %q, %v\nwant %q, %s", source, got, err, want.Text, want.Error)
		}
	})
}

// ours are the errors of what is bounded or refused on purpose.
var ours = regexp.MustCompile(`more than|not supported|too big|half of a character|no character|hold themselves|cannot be sliced|bounds of a slice`)

// theirs are Jinja2's errors that come of Python's own limits, and of constants
// that it writes into Python source as inf and nan, which name nothing there.
var theirs = regexp.MustCompile(`^NameError: name '(inf|nan)' is not defined|^(TooLong|MemoryError|RecursionError|SyntaxError|AssertionError|OverflowError|IndentationError)|nested blocks|surrogates|int string conversion`)

// grower makes templates of bytes: each choice takes one.
type grower struct {
	data  []byte
	depth int
}

func (g *grower) choose(n int) int {
	if len(g.data) == 0 {
		return 0
	}
	b := g.data[0]
	g.data = g.data[1:]
	return int(b) % n
}

func (g *grower) one(of ...string) string { return of[g.choose(len(of))] }

func (g *grower) template() string {
	var b strings.Builder
	for len(g.data) > 0 && b.Len() < 1500 {
		b.WriteString(g.statement())
	}
	return b.String()
}

func (g *grower) body() string {
	s := ""
	for range 1 + g.choose(2) {
		s += g.statement()
	}
	return s
}

func (g *grower) tag(s string) string {
	return g.one("{%", "{%", "{%-", "{%+") + " " + s + " " + g.one("%}", "%}", "-%}", "+%}")
}

func (g *grower) statement() string {
	g.depth++
	defer func() { g.depth-- }()
	n := 15
	if g.depth > 4 || len(g.data) == 0 {
		n = 3
	}
	switch g.choose(n) {
	case 0, 3, 4, 5:
		return g.one("{{", "{{", "{{-") + " " + g.expr() + " " + g.one("}}", "}}", "-}}")
	case 1:
		return g.one(" ", "\n", "a", "  \n", "\n  ", "<x>", "\t", "é\n\n")
	case 2:
		return g.tag("set " + g.name() + " = " + g.expr())
	case 6:
		return g.tag("if "+g.expr()) + g.body() + g.tag("elif "+g.expr()) + g.body() + g.tag("else") + g.body() + g.tag("endif")
	case 7:
		return g.tag("if "+g.expr()) + g.body() + g.tag("endif")
	case 8:
		return g.tag("for "+g.one(g.name(), g.name()+", "+g.name())+" in "+g.expr()+g.one("", "", " if "+g.expr())) + g.body() + g.one("", g.tag("else")+g.body()) + g.tag("endfor")
	case 9:
		return g.tag("set ns.v = " + g.expr())
	case 10:
		return g.tag("macro m("+g.one("", "x", "x, y=1", "x='q', y=x")+")") + g.body() + g.tag("endmacro") + "{{ m(" + g.one("", g.expr(), g.expr()+", "+g.expr(), "y="+g.expr()) + ") }}"
	case 11:
		return g.tag("with "+g.name()+" = "+g.expr()) + g.body() + g.tag("endwith")
	case 12:
		return g.tag("set "+g.name()+g.one("", " | "+g.filter())) + g.body() + g.tag("endset")
	case 13:
		return g.tag("filter "+g.filter()) + g.body() + g.tag("endfilter")
	}
	return g.tag("for "+g.name()+" in l") + "{{ loop." + g.one("index", "last", "revindex", "length", "previtem", "nextitem", "changed(1)", "cycle(1, 2)", "first", "depth") + " }}" +
		g.tag("if "+g.expr()) + g.tag(g.one("break", "continue")) + g.tag("endif") + g.body() + g.tag("endfor")
}

func (g *grower) name() string { return g.one("x", "y", "z", "n", "s", "l", "q") }

func (g *grower) expr() string {
	g.depth++
	defer func() { g.depth-- }()
	if g.depth > 7 || len(g.data) == 0 {
		return g.atom()
	}
	switch g.choose(16) {
	case 0, 1:
		return g.atom()
	case 2:
		return g.expr() + " " + g.one("+", "-", "*", "/", "//", "%", "~", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in") + " " + g.expr()
	case 3, 4:
		return g.expr() + g.one("|", " | ") + g.filter()
	case 5, 6:
		return "(" + g.expr() + ")" + g.method()
	case 7:
		return "(" + g.expr() + ")[" + g.one(g.expr(), "1:", ":-1", "::-1", "::2", "-2:", g.expr()+":"+g.expr()) + "]"
	case 8:
		return "(" + g.expr() + ") is " + g.one("", "not ") + g.one("defined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "true", "false", "boolean", "odd", "divisibleby 2", "lower", "upper", "eq 1", "in [1]", "sameas none", "escaped", "callable")
	case 9:
		return "[" + g.expr() + ", " + g.expr() + "]"
	case 10:
		return "{" + g.one("'a'", "1", "none", "x", "n") + ": " + g.expr() + ", 'b': " + g.expr() + "}"
	case 11:
		return "(" + g.expr() + ", " + g.expr() + ")"
	case 12:
		return g.expr() + " if " + g.expr() + g.one("", " else "+g.expr())
	case 13:
		return g.one("not ", "-", "+") + g.expr()
	case 14:
		return "'" + g.one("%s", "%d", "%5.2f", "%r", "%-5s|", "%05d", "%x", "%e", "%g", "%c", "%%", "%+d", "%.2s", "%i %s") + "' % " + g.one("", "(") + g.expr() + g.one("", ",)", ", "+g.expr()+")")
	}
	return "'" + g.one("{}", "{:>6}", "{:<6}|", "{:^7}", "{:05d}", "{:.2f}", "{:,}", "{!r}", "{0[0]}", "{:e}", "{:g}", "{:%}", "{:x}", "{:+}", "{:.3}", "{:*^9}", "{:010.3f}", "{:_}", "{:#x}") + "'.format(" + g.expr() + ")"
}

func (g *grower) atom() string {
	return g.one("n", "x", "l", "s", "'a'", "1", "messages", "d", "names", "u", "0", "-3", "2.5", "f", "none", "true", "false", "ls", "ed", "empty", "e", "nul", "big", "missing", "y", "z",
		"'Hello World'", "' a b '", "'x\\ny\\n'", "'<b>'", "'é☃'", "1e20", "0.1", "10", "messages[0]", "messages[-1]['content']", "d.a", "ls[0].a", "tools", "range(4)", "namespace(a=1)", "dict(a=1)", "[3, 1, 2]", "('p', 'q')", "'12'", "'1.5'", "''", "'%s'", "9223372036854775807", "1e-7", "'A,b,C'", "('<'|safe)")
}

func (g *grower) filter() string {
	return g.one("upper", "lower", "trim", "length", "list", "first", "last", "join(',')", "join", "tojson", "tojson(indent=2)", "string", "int", "float", "abs", "sort", "sort(reverse=true)", "unique|list", "reverse|list", "reverse", "map('upper')|list",
		"map(attribute='a')|list", "select|list", "reject('none')|list", "selectattr('a')|list", "default('d')", "default('d', true)", "replace('a', 'b')", "title", "capitalize", "round", "round(1)", "sum", "min", "max", "e", "safe", "items|list", "dictsort", "batch(2)|list", "slice(2)|list",
		"indent", "indent(2, true)", "center(9)", "truncate(5)", "wordcount", "wordwrap(5)", "urlencode", "striptags", "groupby(0)", "attr('a')", "count", "trim('a')", "int(5)", "float(1)", "forceescape", "filesizeformat", "format(1)", "xmlattr", "sort(attribute='n')", "sum(start=1)", "map('length')|list", "select('string')|list", "map('int')|sum", "tojson(sort_keys=true)")
}

func (g *grower) method() string {
	return g.one(".upper()", ".split()", ".split('a')", ".strip()", ".items()", ".keys()|list", ".get('a')", ".get('a', 1)", ".startswith('a')", ".replace('a', 'bb')", ".a", ".b", "['a']", ".split(',', 1)", ".rsplit(' ', 1)", ".lstrip('a ')", ".rstrip()", ".splitlines()", ".title()", ".find('l')",
		".count('l')", ".join(['a', 'b'])", ".isdigit()", ".isupper()", ".zfill(5)", ".ljust(5)", ".rjust(5)", ".center(6)", ".partition('l')", ".capitalize()", ".values()|list", ".0", ".index(1)", ".index('l')", ".endswith(('a', 'd'))", ".rfind('o')", ".swapcase()", ".casefold()", ".removeprefix('H')", ".expandtabs()", ".copy()", ".count(1)", ".isalpha()", ".istitle()", ".islower()", ".__class__", ".encoding", ".append(1)", ".format(1)", ".rpartition(' ')", ".isspace()", ".isalnum()", ".splitlines(true)")
}
