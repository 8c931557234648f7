package jinja

import (
	"slices"
	"strings"
)

// parser makes a tree of a template's tokens.
type parser struct {
	tokens []token
	at     int
	blocks int // statements within each other
	nested int // expressions within each other
	loops  int // for statements around
	inLoop int // for bodies around within the same function
	uses   map[string]int
	ends   []string // what the statements around wait for
}

func (p *parser) current() *token { return &p.tokens[p.at] }

func (p *parser) next() *token {
	t := &p.tokens[p.at]
	if t.kind != tokenEOF {
		p.at++
	}
	return t
}

func (p *parser) look() *token { return &p.tokens[min(p.at+1, len(p.tokens)-1)] }

func (p *parser) fail(format string, args ...any) {
	panic(&failure{errorf(format, args...), p.current().line})
}

// show is how a token is named in errors.
func (t *token) show() string {
	switch t.kind {
	case tokenName, tokenInteger:
		return quote(t.text)
	case tokenData, tokenString, tokenFloat, tokenEOF:
		return string(t.kind)
	}
	return quote(string(t.kind))
}

func (p *parser) is(k kind) bool { return p.current().kind == k }

func (p *parser) isName(name string) bool {
	t := p.current()
	return t.kind == tokenName && t.text == name
}

func (p *parser) skip(k kind) bool {
	if p.is(k) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(k kind) *token {
	if !p.is(k) {
		p.fail("%s is expected, not %s", quote(string(k)), p.current().show())
	}
	return p.next()
}

func (p *parser) expectName(name string) {
	if !p.skipName(name) {
		p.fail("%q is expected, not %s", name, p.current().show())
	}
}

// parse returns the tree of a template.
func parse(source string) []stmt {
	p := &parser{tokens: lex(source), uses: make(map[string]int)}
	return p.until()
}

// until reads text and statements up to one of the tags, which is left for the
// caller, or up to the end where no tags are named.
func (p *parser) until(tags ...string) []stmt {
	var body []stmt
	for {
		t := p.next()
		switch t.kind {
		case tokenData:
			body = append(body, &textStmt{base{line: t.line}, t.text})
		case tokenVariableBegin:
			body = append(body, &outputStmt{base{line: t.line}, p.tuple(true)})
			p.expect(tokenVariableEnd)
		case tokenBlockBegin:
			if slices.Contains(tags, p.current().text) && p.is(tokenName) {
				return body
			}
			body = append(body, p.statement())
			p.expect(tokenBlockEnd)
		default:
			if len(tags) > 0 {
				p.fail("the template ends where {%% %s %%} is expected", tags[len(tags)-1])
			}
			return body
		}
	}
}

// body reads the statements behind a tag up to one of the tags.
func (p *parser) body(tags ...string) []stmt {
	p.skip(":")
	p.expect(tokenBlockEnd)
	p.blocks++
	if p.blocks > maxBlocks {
		p.fail("statements are nested more than %d deep", maxBlocks)
	}
	p.ends = append(p.ends, tags[len(tags)-1])
	body := p.until(tags...)
	p.ends = p.ends[:len(p.ends)-1]
	p.blocks--
	return body
}

// whole is body with the closing tag taken.
func (p *parser) whole(tag string) []stmt {
	body := p.body(tag)
	p.next()
	return body
}

func (p *parser) statement() stmt {
	t := p.expect(tokenName)
	b := base{line: t.line}
	switch t.text {
	case "if":
		return p.ifStatement(b)
	case "for":
		return p.forStatement(b)
	case "set":
		return p.setStatement(b)
	case "macro":
		m := &macroStmt{base: b}
		m.target = p.nameTarget()
		m.name = m.target.name
		p.signature(m)
		p.macroBody(m, "endmacro")
		return m
	case "call":
		return p.callStatement(b)
	case "filter":
		s := &filterStmt{base: b}
		s.filter = p.filter(nil, true)
		s.body = p.whole("endfilter")
		return s
	case "with":
		return p.withStatement(b)
	case "print":
		var parts []stmt
		for !p.is(tokenBlockEnd) {
			if len(parts) > 0 {
				p.expect(",")
			}
			parts = append(parts, &outputStmt{b, p.expression()})
		}
		return &ifStmt{base: b, tests: []expr{&constExpr{b, true}}, bodies: [][]stmt{parts}}
	case "generation":
		m := &macroStmt{base: b}
		p.macroBody(m, "endgeneration")
		return &generationStmt{b, m}
	case "break", "continue":
		if p.inLoop == 0 {
			p.fail("{%% %s %%} stands outside of a loop", t.text)
		}
		if t.text == "break" {
			return &breakStmt{b}
		}
		return &continueStmt{b}
	case "include", "import", "from", "extends", "block":
		p.fail("{%% %s %%} is not supported: a chat template stands alone", t.text)
	case "autoescape", "do", "trans", "debug":
		p.fail("{%% %s %%} is not supported in chat templates", t.text)
	}
	if len(p.ends) > 0 {
		p.fail("unknown tag %q; {%% %s %%} is expected", t.text, p.ends[len(p.ends)-1])
	}
	p.fail("unknown tag %q", t.text)
	return nil
}

func (p *parser) ifStatement(b base) stmt {
	s := &ifStmt{base: b}
	for {
		s.tests = append(s.tests, p.tuple(false))
		s.bodies = append(s.bodies, p.body("elif", "else", "endif"))
		switch p.next().text {
		case "elif":
			continue
		case "else":
			s.otherwise = p.whole("endif")
		}
		return s
	}
}

func (p *parser) forStatement(b base) stmt {
	s := &forStmt{base: b}
	p.loops++
	s.target = p.target(false)
	p.expectName("in")
	s.iter = p.tuple(false)
	if p.skipName("if") {
		s.test = p.expression()
	}
	s.recursive = p.skipName("recursive")
	p.inLoop++
	before := p.uses["loop"]
	s.body = p.body("else", "endfor")
	s.usesLoop = s.recursive || p.uses["loop"] != before
	p.inLoop--
	if p.next().text == "else" {
		s.hasElse = true
		s.otherwise = p.whole("endfor")
	}
	p.loops--
	return s
}

func (p *parser) setStatement(b base) stmt {
	target := p.target(true)
	if p.skip("=") {
		return &setStmt{b, target, p.tuple(true)}
	}
	s := &setBlockStmt{base: b, target: target}
	if p.is("|") {
		s.filter = p.filter(nil, false)
	}
	s.body = p.whole("endset")
	return s
}

func (p *parser) withStatement(b base) stmt {
	s := &withStmt{base: b}
	for !p.is(tokenBlockEnd) {
		if len(s.targets) > 0 {
			p.expect(",")
		}
		s.targets = append(s.targets, p.target(false))
		p.expect("=")
		s.values = append(s.values, p.expression())
	}
	s.body = p.whole("endwith")
	return s
}

func (p *parser) callStatement(b base) stmt {
	m := &macroStmt{base: b, name: "caller"}
	if p.is("(") {
		p.signature(m)
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		p.fail("{%% call %%} wants the call of a macro")
	}
	p.macroBody(m, "endcall")
	return &callBlockStmt{b, call, m}
}

func (p *parser) signature(m *macroStmt) {
	p.expect("(")
	for !p.is(")") {
		if len(m.params) > 0 {
			p.expect(",")
		}
		name := p.nameTarget()
		if p.skip("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			p.fail("a parameter without a default follows one with a default")
		}
		for _, other := range m.params {
			if other.name == name.name {
				p.fail("two parameters are named %q", name.name)
			}
		}
		m.params = append(m.params, name)
	}
	p.expect(")")
}

// macroBody reads the body of a macro, which is a function of its own.
func (p *parser) macroBody(m *macroStmt, end string) {
	inLoop := p.inLoop
	p.inLoop = 0
	special := []string{"caller", "kwargs", "varargs"}
	var before [3]int
	for i, name := range special {
		before[i] = p.uses[name]
	}
	m.body = p.whole(end)
	p.inLoop = inLoop
	uses := [3]*bool{&m.usesCaller, &m.usesKW, &m.usesVar}
	for i, name := range special {
		*uses[i] = p.uses[name] != before[i]
	}
	for i, param := range m.params {
		switch param.name {
		case "caller":
			m.explicitCaller = true
			if m.usesCaller && i < len(m.params)-len(m.defaults) {
				p.fail("the parameter caller of a macro must have a default")
			}
		case "kwargs":
			m.usesKW = false
		case "varargs":
			m.usesVar = false
		}
	}
}

// nameTarget reads the name of a variable to be set.
func (p *parser) nameTarget() *nameExpr {
	t := p.expect(tokenName)
	switch t.text {
	case "true", "false", "none", "True", "False", "None":
		p.fail("%s cannot be assigned to", t.text)
	}
	return &nameExpr{base: base{t.line, 1}, name: t.text}
}

// target reads what is assigned to: names, and with namespaces ns.attr.
func (p *parser) target(namespaces bool) expr {
	if namespaces && p.look().kind == "." {
		t := p.expect(tokenName)
		p.next()
		attr := p.expect(tokenName)
		b := base{t.line, 1}
		return &nsTarget{b, &nameExpr{base: b, name: t.text}, attr.text}
	}
	e := p.targets()
	p.store(e)
	return e
}

// store checks that an expression can be assigned to.
func (p *parser) store(e expr) {
	switch e := e.(type) {
	case *nameExpr:
		if e.name == "loop" && p.loops > 0 {
			p.fail("the variable loop of a for statement cannot be set")
		}
		p.uses[e.name]-- // it was read as an expression
		return
	case *seqExpr:
		if e.tuple {
			for _, item := range e.items {
				p.store(item)
			}
			return
		}
	}
	p.fail("this cannot be assigned to: only names can")
}

// quote shows a piece of a template in an error.
func quote(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return `"` + oneLine(s) + `"`
}
