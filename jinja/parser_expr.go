package jinja

import "strings"

// node makes the base of an expression over others.
func (p *parser) node(line int, of ...expr) base {
	deep := 0
	for _, e := range of {
		if e != nil {
			deep = max(deep, e.at().deep)
		}
	}
	if deep >= maxNest {
		p.fail("expressions are nested more than %d deep", maxNest)
	}
	return base{line, deep + 1}
}

// down counts the parser's own recursion.
func (p *parser) down() func() {
	p.nested++
	if p.nested > maxNest {
		p.fail("expressions are nested more than %d deep", maxNest)
	}
	return func() { p.nested-- }
}

func (p *parser) expression() expr {
	defer p.down()()
	line := p.current().line
	e := p.or()
	for p.isName("if") {
		p.next()
		test := p.or()
		var otherwise expr
		if p.skipName("else") {
			otherwise = p.expression()
		}
		e = &condExpr{p.node(line, e, test, otherwise), test, e, otherwise}
		line = p.current().line
	}
	return e
}

func (p *parser) or() expr {
	line := p.current().line
	e := p.and()
	for p.skipName("or") {
		right := p.and()
		e = &binaryExpr{p.node(line, e, right), "or", e, right}
	}
	return e
}

func (p *parser) and() expr {
	line := p.current().line
	e := p.not()
	for p.skipName("and") {
		right := p.not()
		e = &binaryExpr{p.node(line, e, right), "and", e, right}
	}
	return e
}

func (p *parser) not() expr {
	if line := p.current().line; p.skipName("not") {
		defer p.down()()
		e := p.not()
		return &unaryExpr{p.node(line, e), "not", e}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	line := p.current().line
	first := p.sum()
	var ops []kind
	var rest []expr
	for {
		op := p.current().kind
		switch {
		case op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=":
			p.next()
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.look().kind == tokenName && p.look().text == "in":
			p.next()
			p.next()
			op = "not in"
		default:
			if ops == nil {
				return first
			}
			return &compareExpr{p.node(line, append(rest[:len(rest):len(rest)], first)...), first, ops, rest}
		}
		ops = append(ops, op)
		rest = append(rest, p.sum())
	}
}

func (p *parser) sum() expr {
	line := p.current().line
	e := p.concat()
	for p.is("+") || p.is("-") {
		op := p.next().kind
		right := p.concat()
		e = &binaryExpr{p.node(line, e, right), op, e, right}
	}
	return e
}

func (p *parser) concat() expr {
	line := p.current().line
	e := p.product()
	if !p.is("~") {
		return e
	}
	parts := []expr{e}
	for p.skip("~") {
		parts = append(parts, p.product())
	}
	return &concatExpr{p.node(line, parts...), parts}
}

func (p *parser) product() expr {
	line := p.current().line
	e := p.power()
	for p.is("*") || p.is("/") || p.is("//") || p.is("%") {
		op := p.next().kind
		right := p.power()
		e = &binaryExpr{p.node(line, e, right), op, e, right}
	}
	return e
}

func (p *parser) power() expr {
	line := p.current().line
	e := p.unary(true)
	for p.skip("**") {
		right := p.unary(true)
		e = &binaryExpr{p.node(line, e, right), "**", e, right}
	}
	return e
}

func (p *parser) unary(filters bool) expr {
	t := p.current()
	var e expr
	if t.kind == "-" || t.kind == "+" {
		defer p.down()()
		p.next()
		of := p.unary(false)
		e = &unaryExpr{p.node(t.line, of), t.kind, of}
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.filtered(e)
	}
	return e
}

func (p *parser) primary() expr {
	t := p.current()
	b := base{t.line, 1}
	switch t.kind {
	case tokenName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constExpr{b, true}
		case "false", "False":
			return &constExpr{b, false}
		case "none", "None":
			return &constExpr{b, none}
		}
		p.uses[t.text]++
		return &nameExpr{base: b, name: t.text}
	case tokenString:
		p.next()
		if !p.is(tokenString) {
			return &constExpr{b, t.text}
		}
		var joined strings.Builder
		joined.WriteString(t.text)
		for p.is(tokenString) {
			joined.WriteString(p.next().text)
		}
		return &constExpr{b, joined.String()}
	case tokenInteger, tokenFloat:
		p.next()
		return &constExpr{b, t.num}
	case "(":
		p.next()
		e := p.parenthesised()
		p.expect(")")
		return e
	case "[":
		return p.list()
	case "{":
		return p.dict()
	}
	p.fail("an expression is expected, not %s", t.show())
	return nil
}

// items reads expressions with commas between them, and whether there was a
// comma.
func (p *parser) items(item func() expr, end func() bool) ([]expr, bool) {
	var items []expr
	comma := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		if end() {
			return items, comma
		}
		items = append(items, item())
		if !p.is(",") {
			return items, comma
		}
		comma = true
	}
}

// tuple reads an expression, or several with commas as a tuple. Without
// conditions, x if y is left at the if.
func (p *parser) tuple(conditions bool) expr {
	defer p.down()()
	line := p.current().line
	item := p.or
	if conditions {
		item = p.expression
	}
	items, comma := p.items(item, p.tupleEnds)
	if !comma {
		if len(items) == 0 {
			p.fail("an expression is expected, not %s", p.current().show())
		}
		return items[0]
	}
	return &seqExpr{p.node(line, items...), items, true}
}

func (p *parser) tupleEnds() bool {
	return p.is(tokenVariableEnd) || p.is(tokenBlockEnd) || p.is(")")
}

func (p *parser) parenthesised() expr {
	defer p.down()()
	line := p.current().line
	items, comma := p.items(p.expression, p.tupleEnds)
	if !comma && len(items) == 1 {
		return items[0]
	}
	return &seqExpr{p.node(line, items...), items, true}
}

// targets reads the left side of an assignment.
func (p *parser) targets() expr {
	line := p.current().line
	items, comma := p.items(p.primary, p.tupleEnds)
	if !comma {
		if len(items) == 0 {
			p.fail("an expression is expected, not %s", p.current().show())
		}
		return items[0]
	}
	return &seqExpr{p.node(line, items...), items, true}
}

func (p *parser) list() expr {
	defer p.down()()
	line := p.expect("[").line
	items, _ := p.items(p.expression, func() bool { return p.is("]") })
	p.expect("]")
	return &seqExpr{p.node(line, items...), items, false}
}

func (p *parser) dict() expr {
	defer p.down()()
	line := p.expect("{").line
	var keys, values []expr
	for !p.is("}") {
		if len(keys) > 0 {
			p.expect(",")
		}
		if p.is("}") {
			break
		}
		keys = append(keys, p.expression())
		p.expect(":")
		values = append(values, p.expression())
	}
	p.expect("}")
	return &dictExpr{p.node(line, append(keys[:len(keys):len(keys)], values...)...), keys, values}
}

func (p *parser) postfix(e expr) expr {
	for {
		switch p.current().kind {
		case ".", "[":
			e = p.subscript(e)
		case "(":
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) filtered(e expr) expr {
	for {
		switch {
		case p.is("|"):
			e = p.filter(e, false)
		case p.isName("is"):
			e = p.test(e)
		case p.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) subscript(e expr) expr {
	t := p.next()
	if t.kind == "." {
		name := p.next()
		switch name.kind {
		case tokenName:
			return &attrExpr{p.node(t.line, e), e, name.text}
		case tokenInteger:
			return &itemExpr{p.node(t.line, e), e, &constExpr{base{t.line, 1}, name.num}}
		}
		p.fail("a name or a number is expected behind a dot")
	}
	defer p.down()()
	var items []expr
	for !p.is("]") {
		if len(items) > 0 {
			p.expect(",")
		}
		items = append(items, p.subscripted())
	}
	p.expect("]")
	var arg expr
	if len(items) == 1 {
		arg = items[0]
	} else {
		for _, item := range items {
			if _, ok := item.(*sliceExpr); ok {
				p.fail("several slices at once are not supported")
			}
		}
		arg = &seqExpr{p.node(t.line, items...), items, true}
	}
	return &itemExpr{p.node(t.line, e, arg), e, arg}
}

// subscripted reads what stands between brackets: an index or a slice.
func (p *parser) subscripted() expr {
	line := p.current().line
	var parts [3]expr
	if !p.is(":") {
		parts[0] = p.expression()
		if !p.is(":") {
			return parts[0]
		}
	}
	p.next()
	if !p.is(":") && !p.is("]") && !p.is(",") {
		parts[1] = p.expression()
	}
	if p.skip(":") && !p.is("]") && !p.is(",") {
		parts[2] = p.expression()
	}
	return &sliceExpr{p.node(line, parts[:]...), parts[0], parts[1], parts[2]}
}

func (p *parser) arguments() arguments {
	defer p.down()()
	var a arguments
	line := p.expect("(").line
	ensure := func(ok bool) {
		if !ok {
			panic(&failure{errorf("arguments in a wrong order: first those without a name, then those with one"), line})
		}
	}
	for first := true; !p.is(")"); first = false {
		if !first {
			p.expect(",")
			if p.is(")") {
				break
			}
		}
		switch {
		case p.is("*"):
			ensure(a.rest == nil && a.restNamed == nil)
			p.next()
			a.rest = p.expression()
		case p.is("**"):
			ensure(a.restNamed == nil)
			p.next()
			a.restNamed = p.expression()
		case p.is(tokenName) && p.look().kind == "=":
			ensure(a.restNamed == nil)
			name := p.next().text
			p.next()
			for _, other := range a.names {
				if other == name {
					p.fail("argument %s is given twice", quote(name))
				}
			}
			a.names = append(a.names, name)
			a.named = append(a.named, p.expression())
		default:
			ensure(a.rest == nil && a.restNamed == nil && a.names == nil)
			a.pos = append(a.pos, p.expression())
		}
	}
	p.expect(")")
	return a
}

// all lists the expressions of the arguments.
func (a *arguments) all() []expr {
	all := append(append([]expr{}, a.pos...), a.named...)
	if a.rest != nil {
		all = append(all, a.rest)
	}
	if a.restNamed != nil {
		all = append(all, a.restNamed)
	}
	return all
}

func (p *parser) call(e expr) expr {
	line := p.current().line
	a := p.arguments()
	return &callExpr{p.node(line, append(a.all(), e)...), e, a}
}

func (p *parser) dottedName() string {
	name := p.expect(tokenName).text
	for p.skip(".") {
		name += "." + p.expect(tokenName).text
	}
	return name
}

func (p *parser) filter(e expr, inline bool) expr {
	for inline || p.is("|") {
		if !inline {
			p.next()
		}
		inline = false
		line := p.current().line
		name := p.dottedName()
		var a arguments
		if p.is("(") {
			a = p.arguments()
		}
		e = &filterExpr{p.node(line, append(a.all(), e)...), e, name, filters[name], a}
	}
	return e
}

func (p *parser) test(e expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	name := p.dottedName()
	var a arguments
	switch t := p.current(); {
	case t.kind == "(":
		a = p.arguments()
	case t.kind == tokenName && (t.text == "else" || t.text == "or" || t.text == "and"):
	case t.kind == tokenName && t.text == "is":
		p.fail("tests cannot follow each other: use and")
	case t.kind == tokenName, t.kind == tokenString, t.kind == tokenInteger, t.kind == tokenFloat, t.kind == "[", t.kind == "{":
		a.pos = []expr{p.postfix(p.primary())}
	}
	e = &testExpr{p.node(line, append(a.all(), e)...), e, name, tests[name], a}
	if negated {
		e = &unaryExpr{p.node(line, e), "not", e}
	}
	return e
}
