package grammar

import (
	"fmt"
	"time"

	"windrow/internal/threadtime"
)

// Limits bound a compilation. Zero means the default.
type Limits struct {
	Bytes int           // of the text: 64 KiB
	Depth int           // of subschemas or of brackets inside each other: 32
	Nodes int           // of the automaton: 100,000
	Time  time.Duration // of a processor's that the compilation takes: 250 ms
}

// Options are how a text is compiled.
type Options struct {
	Limits Limits
	// Compact leaves no choice of white space between the parts of JSON: none
	// is written. Else at most a space, or a newline with an indent.
	Compact bool
	// Closed reads an absent additionalProperties as false. JSON Schema reads
	// it as true.
	Closed bool
}

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 64 << 10
	}
	if l.Depth <= 0 {
		l.Depth = 32
	}
	if l.Nodes <= 0 {
		l.Nodes = 100_000
	}
	if l.Time <= 0 {
		l.Time = 250 * time.Millisecond
	}
	return l
}

// budget is what is left of the limits of one compilation.
type budget struct {
	Limits
	meter *threadtime.Meter // nil: as long as it takes
	ticks uint
	what  string // names the text in messages
}

// tick counts a piece of work of a microsecond or more, and looks now and then at the time
// that was taken: what the processor did for others in between does not count, so that a
// busy machine refuses nothing that an idle one takes.
func (b *budget) tick() {
	if b.ticks++; b.ticks%256 == 0 && b.meter != nil && b.meter.Passed() > b.Time {
		stop(ErrLimit, b.what, fmt.Sprintf("takes longer than %v to compile: a smaller one is needed", b.Time))
	}
}

// source checks the size of a text that is to be compiled.
func (b *builder) source(bytes int) {
	if bytes > b.Bytes {
		stop(ErrLimit, b.what, fmt.Sprintf("has %d bytes: at most %d are taken", bytes, b.Bytes))
	}
}

// compile runs what builds an automaton under the limits, and finishes it.
func compile(what string, l Limits, build func(*builder)) (g *Grammar, err error) {
	l = l.withDefaults()
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bail)
			if !ok {
				panic(r)
			}
			g, err = nil, b.err
		}
	}()
	meter := threadtime.Start()
	defer meter.Stop()
	b := &builder{
		budget:    budget{Limits: l, meter: meter, what: what},
		templates: make(map[string]*template),
		placed:    make(map[placed]int32),
		strings:   make(map[string]int32),
		shared:    make(map[*Shared]int32),
	}
	b.rule("root")
	build(b)
	return b.finish(), nil
}
