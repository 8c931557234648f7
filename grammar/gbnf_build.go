package grammar

// inlined is the most nodes of a rule that is written out where it is named:
// inside a rule that is entered for each character no token stays, and masks
// would depend on what is around it.
const inlined = 64

type gbnfBuilder struct{ *builder }

// buildGBNF returns the rule of the root.
func buildGBNF(b *builder, p *gbnfParser) int32 {
	g := gbnfBuilder{b}
	for _, r := range p.rules {
		g.measure(r, 0)
	}
	root := p.known["root"]
	for _, r := range p.rules {
		if r == root || r.size > inlined {
			r.id = b.rule(r.name)
		}
	}
	for _, r := range p.rules {
		if r == root || r.size > inlined {
			at := b.rules[r.id]
			b.eps(g.item(at.start, r.body), at.end)
		}
	}
	return root.id
}

// recursive is the size of a rule that may contain itself.
const recursive = 1 << 30

// measure finds how many nodes a rule takes, the rules in it written out.
func (g gbnfBuilder) measure(r *gbnfRule, deep int) int {
	if r.size == 0 {
		g.tick()
		r.size = recursive // while it is looked at: who finds it then is inside it
		if deep < inlined {
			r.size = min(g.size(r.body, deep+1), recursive)
		}
	}
	return r.size
}

func (g gbnfBuilder) size(i *gbnfItem, deep int) (n int) {
	g.tick()
	switch i.kind {
	case gbnfLiteral:
		return len(i.text) + 1
	case gbnfClass:
		return 7 + len(i.ranges)
	case gbnfRef:
		return g.measure(i.rule, deep)
	}
	for _, sub := range i.items {
		n = min(n+g.size(sub, deep)+1, recursive)
	}
	if i.kind == gbnfRepeat {
		n = min(n*max(i.min, i.max, 1), recursive)
	}
	return n + 1
}

// item leads from a node over one text of a piece.
func (g gbnfBuilder) item(from int32, i *gbnfItem) int32 {
	switch i.kind {
	case gbnfLiteral:
		return g.literal(from, i.text)
	case gbnfClass:
		to := g.node()
		g.class(from, to, i.ranges, utf8Text)
		return to
	case gbnfRef:
		if i.rule.size <= inlined && i.rule.name != "root" {
			return g.item(from, i.rule.body)
		}
		to := g.node()
		g.call(from, i.rule.id, to)
		return to
	case gbnfSequence:
		for _, sub := range i.items {
			from = g.item(from, sub)
		}
		return from
	case gbnfChoice:
		to := g.node()
		for _, sub := range i.items {
			g.eps(g.item(g.branch(from), sub), to)
		}
		return to
	}
	return g.repeat(from, i.min, i.max, func(from int32) int32 { return g.item(from, i.items[0]) })
}

// branch is a node of its own after another.
func (b *builder) branch(from int32) int32 {
	to := b.node()
	b.eps(from, to)
	return to
}
