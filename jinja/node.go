package jinja

// base is what every node has: the line where it begins, and how many
// expressions lie within each other below it.
type base struct {
	line, deep int
}

func (b base) at() base { return b }

// expr is an expression.
type expr interface{ at() base }

// stmt is a statement, or text to write.
type stmt interface{ at() base }

type (
	constExpr struct {
		base
		v value
	}
	nameExpr struct {
		base
		name string
		slot slot
	}
	seqExpr struct { // a tuple or a list
		base
		items []expr
		tuple bool
	}
	dictExpr struct {
		base
		keys, values []expr
	}
	attrExpr struct {
		base
		of   expr
		name string
	}
	itemExpr struct {
		base
		of, arg expr
	}
	sliceExpr struct { // only as the arg of an itemExpr; parts may be nil
		base
		start, stop, step expr
	}
	callExpr struct {
		base
		fn   expr
		args arguments
	}
	filterExpr struct {
		base
		of   expr // nil: the text of a filter or set block
		name string
		fn   filterFunc // nil: no such filter
		args arguments
	}
	testExpr struct {
		base
		of   expr
		name string
		fn   testFunc // nil: no such test
		args arguments
	}
	unaryExpr struct {
		base
		op kind // + - not
		of expr
	}
	binaryExpr struct {
		base
		op          kind // + - * / // % ** and or
		left, right expr
	}
	compareExpr struct {
		base
		first expr
		ops   []kind // == != < <= > >= in "not in"
		rest  []expr
	}
	concatExpr struct {
		base
		parts []expr
	}
	condExpr struct {
		base
		test, then, otherwise expr // otherwise may be nil
	}
	nsTarget struct { // ns.attr on the left of a set
		base
		ns   *nameExpr
		attr string
	}
)

// arguments are those of a call.
type arguments struct {
	pos       []expr
	names     []string
	named     []expr
	rest      expr // *rest, or nil
	restNamed expr // **rest, or nil
}

type (
	textStmt struct {
		base
		text string
	}
	outputStmt struct {
		base
		of expr
	}
	ifStmt struct {
		base
		tests     []expr
		bodies    [][]stmt
		otherwise []stmt
	}
	forStmt struct {
		base
		target, iter, test   expr // test may be nil
		body, otherwise      []stmt
		hasElse, recursive   bool
		usesLoop             bool
		loop                 slot
		bodyScope, elseScope *layout
		testScope            *layout
		testTarget           expr
	}
	setStmt struct {
		base
		target, of expr
	}
	setBlockStmt struct {
		base
		target expr
		filter expr // nil, or a filterExpr with nothing at its bottom
		body   []stmt
		scope  *layout
	}
	withStmt struct {
		base
		targets, values []expr
		body            []stmt
		scope           *layout
	}
	macroStmt struct { // also the body of a call block
		base
		name                           string
		target                         *nameExpr // nil for a call block
		params                         []*nameExpr
		defaults                       []expr // of the last params
		body                           []stmt
		explicitCaller                 bool
		usesCaller, usesKW, usesVar    bool
		callerSlot, kwSlot, varargSlot slot
		scope                          *layout
	}
	callBlockStmt struct {
		base
		call  *callExpr
		macro *macroStmt
	}
	generationStmt struct {
		base
		macro *macroStmt
	}
	filterStmt struct {
		base
		filter expr
		body   []stmt
		scope  *layout
	}
	breakStmt    struct{ base }
	continueStmt struct{ base }
)
