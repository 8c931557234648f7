package backend

import (
	"context"
	"fmt"
	"slices"
)

// Forward is a compiled Program. It lives until Close, or until its backend is
// closed; of all forwards of a backend one runs at a time.
type Forward interface {
	// Start begins a forward with values v, and returns while the device works. Then
	// v's slices may be changed, but for Want's. ctx is looked at before the device
	// starts, and between operations where the host runs them. After an error nothing
	// has begun: Wait must not be called.
	Start(ctx context.Context, v Values) error
	// Wait waits for the forward that Start began, and returns one Result per wanted
	// row, in that order. Nothing else may be asked of the backend in between.
	Wait() ([]Result, error)
	// Close frees what was compiled.
	Close()
}

// Preparer is a Forward that has something made for each new size of a pass, a graph of
// kernels say, which takes longer than the pass.
type Preparer interface {
	// Prepared reports whether what was begun last had to wait for that.
	Prepared() bool
}

// Prepared is what a Forward says of itself, where it does.
func Prepared(f Forward) bool {
	p, ok := f.(Preparer)
	return ok && p.Prepared()
}

// Values are what forwards of one Program differ in.
type Values struct {
	// Tokens and Positions have one entry a row. Positions are logical and drive
	// rotation only.
	Tokens, Positions []int32
	// Spans cover the rows, in order. Their storage has the program's shape.
	Spans []Span
	// Prompts says that all rows are of prompts: which bits they have is then what
	// Features.PromptRows promises.
	Prompts bool
	// Input has the rows [rows × width] that the program's Input takes; nil where it
	// has none.
	Input []float32
	// Want says of which rows results are wanted; rows ascend. Where there is none
	// the head does not run.
	Want []Wanted
	// Deferred, where set, is called once by Start, before anything looks into the sets
	// of ids that Want allows: where a device does the work, once that has begun. It may
	// fill those sets, or take them away, and do nothing else to the values.
	Deferred func()
	// Tap, where set, is called with the states [rows × width] of each Tap of the
	// program, in order, before Wait returns. It costs a synchronisation each: for
	// validation only.
	Tap func(index int, states []float32)
}

// Wanted is a row whose result is wanted, and what of it.
type Wanted struct {
	// Row is its packed number.
	Row int32
	// TopK is how many (id, logit) pairs Result.Top holds, best first.
	TopK int
	// Logits asks for the raw logits over the whole vocabulary.
	Logits bool
	// Allowed, where not nil, are the only ids that Argmax and Top may have; of
	// them those that the program bars are not. A device looks among its best
	// candidates for them first (Candidates). Values.Deferred may fill it.
	Allowed IDSet
	// Hidden asks for the row's state behind the final norm, as the head takes it; only
	// where Features says that a backend has it. Bare rows want nothing else: the head
	// does not run on them, and their Argmax is -1.
	Hidden, Bare bool
}

// MaxRows bounds a forward, so that sizes in bytes stay far from overflow.
const MaxRows = 1 << 20

// CheckValues compares the values of a forward with the program: every backend's
// Start does, before anything else.
func (p *Program) CheckValues(v *Values) error {
	rows := len(v.Tokens)
	if rows == 0 || rows > MaxRows || len(v.Positions) != rows {
		return fmt.Errorf("a forward of %d tokens and %d positions, want as many, 1 to %d", rows, len(v.Positions), MaxRows)
	}
	for r, id := range v.Tokens {
		if id < 0 || int(id) >= p.ids {
			return fmt.Errorf("embed: token %d in row %d, want 0 to %d", id, r, p.ids-1)
		}
	}
	if len(v.Input) != rows*p.input {
		return fmt.Errorf("input: %d numbers for %d rows, want %d a row", len(v.Input), rows, p.input)
	}
	if err := p.checkStorage(v, rows); err != nil {
		return err
	}
	return p.checkWanted(v, rows)
}

// checkStorage compares positions and spans with the layers of a program that has
// some.
func (p *Program) checkStorage(v *Values, rows int) error {
	if len(p.stores) == 0 {
		return nil
	}
	if len(v.Spans) == 0 {
		return fmt.Errorf("spans cover 0 of %d rows", rows)
	}
	for r, at := range v.Positions {
		if at < 0 || p.heads.Rotation != nil && int(at) >= p.positions {
			return fmt.Errorf("rotate: position %d in row %d, want 0 to %d", at, r, p.positions-1)
		}
	}
	stores := p.Stores()
	for i, s := range v.Spans {
		if s.Storage == nil {
			return fmt.Errorf("span %d has no storage", i)
		}
		l := s.Storage.Layout()
		// The model's own slice, nearly always: a forward in 20 µs has no time for 36 layers.
		if len(l.Layers) != len(stores) || &l.Layers[0] != &stores[0] && !slices.Equal(l.Layers, stores) {
			return fmt.Errorf("span %d has storage of other layers than the program's %d", i, len(stores))
		}
		if first := v.Spans[0].Storage.Layout().DType; l.DType != first {
			return fmt.Errorf("span %d stores %v, the first %v", i, l.DType, first)
		}
	}
	return checkSpans(rows, v.Spans)
}

func (p *Program) checkWanted(v *Values, rows int) error {
	head, want := p.HeadOp(), v.Want
	if head == nil && len(want) > 0 {
		return fmt.Errorf("results: the program has no head")
	}
	for i, w := range want {
		if w.Row < 0 || int(w.Row) >= rows || i > 0 && w.Row <= want[i-1].Row {
			return fmt.Errorf("results: wanted row %d of %d; rows must ascend", w.Row, rows)
		}
		if w.TopK < 0 {
			return fmt.Errorf("results: %d candidates of row %d", w.TopK, w.Row)
		}
		if w.Bare && (!w.Hidden || w.Logits || w.TopK > 0 || w.Allowed != nil) {
			return fmt.Errorf("results: a bare row %d, of which more than its hidden state is wanted, or less", w.Row)
		}
		if w.Allowed != nil && v.Deferred == nil && !w.Allowed.any(head.Bars, head.Weights[0].Weight.Out()) {
			return fmt.Errorf("results: row %d allows no id that may be chosen", w.Row)
		}
	}
	return nil
}

// checkSpans compares the spans of a forward of that many rows with their storage:
// they cover the rows in order, and fit.
func checkSpans(rows int, spans []Span) error {
	next := 0
	for i, s := range spans {
		l := s.Storage.Layout()
		limit := l.Slots - s.Base
		if l.Window != 0 {
			limit = l.Slots - l.Window
		}
		if s.First != next || s.Rows <= 0 || s.Base < 0 || s.Rows > limit {
			return fmt.Errorf("span %d (base %d, rows %d from %d) does not fit storage of %d slots, window %d", i, s.Base, s.Rows, s.First, l.Slots, l.Window)
		}
		next += s.Rows
	}
	if next != rows || len(spans) == 0 {
		return fmt.Errorf("spans cover %d of %d rows", next, rows)
	}
	return nil
}
