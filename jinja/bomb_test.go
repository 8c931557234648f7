package jinja

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"windrow/internal/testhelp"
)

// bombs are templates that would use up memory, time or the stack.
func bombs() []string {
	many := strings.Repeat
	return []string{
		`{% for a in range(1000000000) %}x{% endfor %}`, `{% for a in range(9223372036854775807) %}{% endfor %}`, `{% for a in range(0, -5, 0) %}{% endfor %}`,
		many(`{% for a in range(9999) %}`, 3) + many(`{% endfor %}`, 3),
		`{% for a in range(3000) %}{% for b in range(3000) %}yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy{% endfor %}{% endfor %}`,
		`{{ 'a' * 1000000000000 }}`, `{{ ('a' * 100000) * 100000 }}`, `{{ [1] * 1000000000000 }}`, `{{ [] * 1000000000000 }}{{ ([1] * 100000) * 100000 }}`, `{{ 9 ** (9 ** (9 ** 9)) }}`, `{{ 2 ** 100000 }}`,
		`{% set ns = namespace(s='a') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s='a') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s=9) %}{% for i in range(99) %}{% set ns.s = ns.s * ns.s %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s='a') %}{% for i in range(40) %}{% set ns.s = ns.s|replace('a','aaaaaaaaaaaaaaaaaaaa') %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s='a') %}{% for i in range(40) %}{% set ns.s = [ns.s,ns.s,ns.s]|join(ns.s) %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s='a"') %}{% for i in range(60) %}{% set ns.s = ns.s|tojson %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s={}) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}{{ ns.s|tojson }}`,
		`{% set ns = namespace(s={}) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s=[], t=[]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}`,
		`{% set ns = namespace(s=[], t=[]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s in [ns.t] }}`,
		`{% set ns = namespace(s=[], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ [ns.t, ns.s]|sort }}`,
		`{% set ns = namespace(s=(1,)) %}{% for i in range(60) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} }}`,
		`{% set ns = namespace(s=(1,)) %}{% for i in range(10000) %}{% set ns.s = (ns.s,) %}{% endfor %}{{ ns.s }}`,
		`{% set ns = namespace(s=(1,)) %}{% for i in range(10000) %}{% set ns.s = (ns.s,) %}{% endfor %}{{ ns.s == (ns.s,) }}`,
		`{% set ns = namespace() %}{% set ns.s = ns %}{{ ns|tojson }}`, `{% set ns = namespace(a=[1]) %}{% for i in range(9999) %}{% set ns.a = ns.a|map('string') %}{% endfor %}{{ ns.a|list }}`,
		`{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`, `{% macro m(n) %}{{ m(n+1) }}{{ m(n+1) }}{% endmacro %}{{ m(0) }}`, `{% macro m(n) %}{% if n < 90 %}{{ m(n+1) }}{{ m(n+1) }}{% endif %}{% endmacro %}{{ m(0) }}`,
		`{{ '%*d'|format(2000000000, 1) }}`, `{{ '%1000000000d'|format(1) }}`, `{{ '%.1000000000f'|format(1) }}`, `{{ '{:1000000000}'.format(1) }}`, `{{ '{:.1000000000f}'.format(1) }}`, `{{ '{:01000000000,}'.format(1) }}`,
		`{{ 'a'|center(2000000000) }}`, `{{ 'a'|indent(2000000000) }}`, `{{ ('a\n' * 100000)|indent(100000) }}`, `{{ 'a'.ljust(9999999999) }}`, `{{ 'a'.zfill(9999999999) }}`, `{{ ('\t' * 1000).expandtabs(1000000) }}`,
		`{{ ('a ' * 1000000)|wordwrap(1, true, 'b' * 1000) }}`, `{{ ('a' * 1000000)|list|batch(1)|list|length }}`, `{{ [1]|batch(1000000000, 0)|list }}`, `{{ [1]|slice(1000000000)|list }}`,
		`{{ 'a'.replace('', 'b' * 100000000) }}`, `{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}`, `{{ ('a' * 1000000).split('a')|length * 0 }}{{ ('a ' * 9000000).split()|length }}`,
		`{{ strftime_now('%c' * 10000000) }}`, `{{ messages|tojson(indent=1000000000) }}`, `{{ [[[1]]]|tojson(indent=10000000) }}`,
		`{% if ` + many("(", 100000) + "1" + many(")", 100000) + ` %}{% endif %}`, `{{ ` + many("[", 100000) + many("]", 100000) + ` }}`, `{{ ` + many("-", 100000) + `1 }}`, `{{ ` + many("not ", 60000) + `1 }}`,
		`{{ 1` + many("+1", 100000) + ` }}`, `{{ a` + many(".b", 100000) + ` }}`, `{{ a` + many("|upper", 40000) + ` }}`, many(`{% if 1 %}`, 20000), many(`{% for a in 'ab' %}`, 5000) + "x" + many(`{% endfor %}`, 5000),
		many(`{% for a in 'ab' %}`, 60) + "x" + many(`{% endfor %}`, 60), `{% set a = 1 %}` + many(`{% if a %}{% set b = 1 %}{% endif %}`, 5000) + `{{ 'a' * 10 ** 12 }}`, `{{ ` + many("1 if 1 else ", 20000) + `1 }}`,
		`{{ ` + many("{'a':", 40000) + `1 }}`, `{{ f` + many("(f", 60000) + ` }}`, `{{ 1 ` + many("is defined ", 20000) + ` }}`,
		`{% for i in range(100000) %}{% for j in range(100000) %}{% if false %}{% endif %}{% endfor %}{% endfor %}`, `{{ (range(100000)|list) in (range(100000)|list) }}{{ 'a' * 10 ** 12 }}`,
		`{% for i in range(100000) %}{{ 'a' * 1000000 in 'b' * 1000000 }}{% endfor %}`, `{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{% if s[i] %}{% endif %}{% endfor %}`,
		`{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`, `{% for i in range(99999) %}{{ [1, 2, 3]|sort|list|tojson|upper|e }}{% endfor %}` + many("{{ 'a' * 10 ** 9 }}", 1),
		`{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = ns.a + [i] %}{% endfor %}`, `{% set ns = namespace(d={}) %}{% for i in range(99999) %}{% set ns.d = dict(ns.d, **{i|string: i}) %}{% endfor %}`,
		`{{ range(100000)|map('string')|map('center', 1000000)|list }}`, `{{ ('x' * 1000000)|list|groupby(0)|list }}{{ 'a' * 10 ** 12 }}`, `{{ (('a' * 1000000)|list|unique|list) * 10 ** 12 }}`,
		`{{ '{}{}'.format('a' * 30000000, 'a' * 30000000) }}`, `{{ '%s%s' % ('a' * 30000000, 'a' * 30000000) }}`, `{{ ('&' * 10000000)|e }}`, `{{ ('&' * 10000000)|urlencode }}`, `{{ ('\x00' * 10000000)|tojson }}`, `{{ [('\x00' * 10000000)] }}`,
	}
}

// TestBombs: each bomb is refused in one line, in time, in memory, and the
// stack holds. A machine that does other work is asked up to three times: what
// takes too long takes it each time.
func TestBombs(t *testing.T) {
	const most = 190 << 20
	for _, source := range bombs() {
		var took time.Duration
		for range 3 {
			if took = explode(t, source, most); took <= 3*time.Second {
				break
			}
		}
		if took > 3*time.Second {
			t.Errorf("%.100q took %v", source, took)
		}
	}
}

// explode renders a bomb, checks how it is refused, and tells the time it took.
func explode(t *testing.T, source string, most uint64) time.Duration {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var err error
	took := testhelp.Took(func() {
		var template *Template
		if template, err = Compile(source); err == nil {
			_, err = template.Render(context.Background(), map[string]any{"messages": []any{}}, Limits{})
		}
	})
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Errorf("%.100q was rendered", source)
	}
	checkError(t, source, err)
	if used := after.TotalAlloc - before.TotalAlloc; used > most {
		t.Errorf("%.100q allocated %d MB", source, used>>20)
	}
	return took
}

// TestCancel: a rendering ends soon after its context.
func TestCancel(t *testing.T) {
	template, err := Compile(strings.Repeat(`{% for a in range(99999) %}`, 3) + strings.Repeat(`{% endfor %}`, 3))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	took := testhelp.Took(func() { _, err = template.Render(ctx, nil, Limits{Time: time.Hour, Steps: 1 << 60}) })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if took > time.Second {
		t.Errorf("took %v", took)
	}
}
