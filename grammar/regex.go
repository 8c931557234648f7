package grammar

import (
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// CompileRegex compiles a regular expression of package regexp (RE2's syntax).
// The whole text has to match. Word boundaries and the flag m are not supported.
func CompileRegex(expr string, o Options) (*Grammar, error) {
	return composed("the regular expression", Regex(expr), o.Limits)
}

// regex makes an automaton of an expression. In a JSON schema it may match
// anywhere in a text.
func (b *builder) regex(expr string, anywhere bool, where string) *runeNFA {
	// A bomb of repeats is refused by syntax, which allows 1,000 in all inside each
	// other; the sum is bounded by its own limit on size.
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		code := err.Error()
		if e, ok := err.(*syntax.Error); ok {
			code = string(e.Code) + ": " + quote(e.Expr)
			switch e.Code {
			case syntax.ErrInvalidRepeatSize, syntax.ErrLarge, syntax.ErrNestingDepth:
				stop(ErrLimit, where, "is too large a regular expression ("+code+")")
			}
		}
		stop(ErrSyntax, where, "is not a regular expression in RE2's syntax ("+code+")")
	}
	b.tick()
	if anywhere {
		all := func() *syntax.Regexp {
			return &syntax.Regexp{Op: syntax.OpStar, Sub: []*syntax.Regexp{{Op: syntax.OpAnyChar}}}
		}
		re = &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{all(), re, all()}}
	}
	p, err := syntax.Compile(re.Simplify())
	if err != nil {
		stop(ErrSyntax, where, "is not a regular expression: "+err.Error())
	}
	return b.fromProg(p, where)
}

// fromProg follows a program from its beginning. Where it stands is an
// instruction, whether the text has begun, and whether it must be at its end.
func (b *builder) fromProg(p *syntax.Prog, where string) *runeNFA {
	type place struct {
		pc         uint32
		began, end bool
	}
	out := new(runeNFA)
	known := make(map[place]int32)
	var places []place
	state := func(p place) int32 {
		id, ok := known[p]
		if !ok {
			b.tick()
			if len(out.nodes) > b.Nodes {
				stop(ErrLimit, where, "is too large a regular expression")
			}
			id = out.add(false)
			known[p] = id
			places = append(places, p)
		}
		return id
	}
	state(place{pc: uint32(p.Start)})
	for i := 0; i < len(places); i++ {
		at := places[i]
		inst := &p.Inst[at.pc]
		empty := func(pc uint32) {
			next := at
			next.pc = pc
			to := state(next)
			out.nodes[i].eps = append(out.nodes[i].eps, to)
		}
		switch inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			empty(inst.Out)
			empty(inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			empty(inst.Out)
		case syntax.InstEmptyWidth:
			op := syntax.EmptyOp(inst.Arg)
			if op&^(syntax.EmptyBeginText|syntax.EmptyEndText) != 0 {
				stop(ErrUnsupported, where, "has a word boundary or the flag m, which are not supported")
			}
			if op&syntax.EmptyBeginText != 0 && at.began {
				continue
			}
			at.end = at.end || op&syntax.EmptyEndText != 0
			empty(inst.Out)
		case syntax.InstMatch:
			out.nodes[i].accept = true
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if at.end {
				continue
			}
			to := state(place{pc: inst.Out, began: true})
			for _, r := range instRanges(inst) {
				out.nodes[i].edges = append(out.nodes[i].edges, runeEdge{r, to})
			}
		}
	}
	return out.trimmed()
}

// instRanges lists the characters of an instruction.
func instRanges(inst *syntax.Inst) []runeRange {
	switch inst.Op {
	case syntax.InstRuneAny:
		return anyRune
	case syntax.InstRuneAnyNotNL:
		return []runeRange{{0, '\n' - 1}, {'\n' + 1, utf8.MaxRune}}
	}
	if len(inst.Rune) == 1 {
		r := inst.Rune[0]
		out := []runeRange{{r, r}}
		if syntax.Flags(inst.Arg)&syntax.FoldCase != 0 {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				out = append(out, runeRange{f, f})
			}
		}
		return out
	}
	var out []runeRange
	for i := 0; i+1 < len(inst.Rune); i += 2 {
		out = append(out, runeRange{inst.Rune[i], inst.Rune[i+1]})
	}
	return out
}
