package metal

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/metal/driver"
)

// run is a forward under way: what its operations are encoded with, and how far
// they are.
type run struct {
	f       *forward
	plan    *plan
	rows    int
	decode  bool // every span has at most invariantRows rows, and not all are of prompts
	prompts bool // all rows are of prompts, and keep their bits in any number
	spans   []span
	places  []view // of the plan
	// Scratch of attention and of gated DeltaNet, one for all layers.
	scratch, deltaScratch view
	stated                []int // layers with states that were submitted last
	// What the host says: of each row, the wanted rows, and those whose states are.
	tokens, positions, wanted, told view

	dst, src []view // of the step that is being encoded
	next     int    // the step to encode next
	wait     func() error

	tap     func(index int, states []float32)
	want    []backend.Wanted
	head    headRun
	results []backend.Result
}

// span is a backend.Span of this backend's storage.
type span struct {
	storage           *storage
	base, first, rows int
	table             view // of the storage's pages
}

// begin takes all that a forward needs. Nothing runs on the device now.
func (r *run) begin(f *forward, v *backend.Values) error {
	*r = run{f: f, rows: len(v.Tokens), spans: r.spans[:0], places: r.places[:0], dst: r.dst[:0], src: r.src[:0], stated: r.stated[:0], tap: v.Tap, want: v.Want}
	r.prompts = v.Prompts && r.rows <= promptRows
	r.decode = r.rows <= invariantRows && !r.prompts
	now := variant{tapped: v.Tap != nil, head: len(v.Want) > 0}
	if len(f.program.Stores()) > 0 {
		if err := r.takeSpans(v.Spans); err != nil {
			return err
		}
		now.kvF32 = v.Spans[0].Storage.Layout().DType == backend.KVF32
	}
	r.plan = f.planFor(now)
	for t := range f.tables {
		if err := t.fill(v.Positions); err != nil {
			return err
		}
	}
	if err := r.takePlaces(); err != nil {
		return err
	}
	r.give(v.Input)
	return r.say(v)
}

// give writes rows that the host gives where operations read them.
func (r *run) give(rows []float32) {
	for _, s := range r.plan.steps {
		if s.op == nil || s.op.kind != backend.OpInput {
			continue
		}
		data := r.f.b.memory.bytes(r.places[s.dst[0]], 4*len(rows))
		for i := 0; 4*i < len(data); i++ { // none where only costs are counted
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(rows[i]))
		}
	}
}

// takeSpans makes room in the storage of spans.
func (r *run) takeSpans(spans []backend.Span) error {
	r.decode = !r.prompts
	for i, s := range spans {
		c, ok := s.Storage.(*storage)
		if !ok || !c.Open() || c.b != r.f.b {
			return fmt.Errorf("metal: span %d has no open storage of this backend", i)
		}
		r.decode = r.decode && s.Rows <= invariantRows
		r.spans = append(r.spans, span{storage: c, base: s.Base, first: s.First, rows: s.Rows})
	}
	for i, s := range r.spans {
		if err := s.storage.Begin(s.storage, s.base, s.rows, len(r.f.states) > 0); err != nil {
			return fmt.Errorf("metal: %w", backend.InSpan(i, err))
		}
	}
	return nil
}

// takePlaces takes memory for activations.
func (r *run) takePlaces() (err error) {
	b := r.f.b
	b.arena.reset()
	for _, p := range r.plan.places {
		n, e := p.bytes(r.rows)
		v, err := b.arena.take(b.memory, n, e)
		if err != nil {
			return err
		}
		r.places = append(r.places, v)
	}
	most := 0
	if r.decode && r.f.heads > 0 {
		for _, s := range r.spans {
			most = max(most, attendScratch(s.rows, r.f.heads, s.storage.keys.HeadDim, s.base+s.rows))
		}
	}
	if most > 0 {
		if r.scratch, err = b.arena.take(b.memory, most, elemF32); err != nil {
			return err
		}
	}
	if most = 0; len(r.f.states) > 0 {
		for _, s := range r.spans {
			for _, shape := range r.f.states {
				most = max(most, deltaScratch(shape, s.rows))
			}
		}
		if r.deltaScratch, err = b.arena.take(b.memory, most, elemF32); err != nil {
			return err
		}
	}
	if len(r.want) > 0 {
		return r.takeHead()
	}
	return nil
}

// say writes what the host says into memory of the device.
func (r *run) say(v *backend.Values) error {
	b := r.f.b
	b.staged = b.staged[:0]
	tokens, positions := b.stage(v.Tokens), b.stage(v.Positions)
	wanted, told := b.stage(rowsOf(v.Want, r.head.want)), b.stage(rowsOf(v.Want, r.head.told))
	tables := make([]int, len(r.spans))
	for i, s := range r.spans {
		tables[i] = b.stage(s.storage.table(s.base + s.rows))
	}
	if err := b.sayStaged(); err != nil {
		return err
	}
	at := func(offset int) view {
		v := b.step.at(offset)
		v.elem = elemU32
		return v
	}
	r.tokens, r.positions, r.wanted, r.told = at(tokens), at(positions), at(wanted), at(told)
	for i := range r.spans {
		r.spans[i].table = at(tables[i])
	}
	return nil
}

// rowsOf are the rows of what is wanted at some places.
func rowsOf(want []backend.Wanted, places []int) []int32 {
	rows := make([]int32, len(places))
	for i, p := range places {
		rows[i] = want[p].Row
	}
	return rows
}

// stage appends what the host says, and returns its offset.
func (b *Backend) stage(values []int32) int {
	at := len(b.staged)
	for _, v := range values {
		b.staged = binary.LittleEndian.AppendUint32(b.staged, uint32(v))
	}
	b.staged = append(b.staged, make([]byte, aligned(len(b.staged), 16)-len(b.staged))...)
	return at
}

// sayStaged copies what is staged to the device.
func (b *Backend) sayStaged() error {
	if n := len(b.staged); n > b.room {
		if b.room > 0 {
			b.memory.free(b.step)
			b.room = 0
		}
		n = aligned(max(2*n, 1<<16), driver.PageSize)
		v, err := b.memory.alloc(n, elemBytes)
		if err != nil {
			return err
		}
		b.step, b.room = v, n
	}
	copy(b.memory.bytes(b.step, len(b.staged)), b.staged)
	return nil
}

// submitFLOPs bounds the work of one command buffer: the system ends what keeps
// the GPU from drawing for seconds. An M1 does about 2 TFLOP/s at best; a step of
// decoding stays far below.
const submitFLOPs = 2e12

// meter adds up what goes through it.
type meter struct {
	encoder
	flops int64
}

func (m *meter) dispatch(d dispatch) {
	m.flops += d.cost.flops
	m.encoder.dispatch(d)
}

// submit hands the next steps to the GPU: up to what the host looks at, which is a
// Tap or a chunk of the wanted rows, or to the bound of a command buffer.
func (r *run) submit(ctx context.Context) (err error) {
	r.wait, err = r.f.b.memory.submit(ctx, func(e encoder) {
		m := meter{encoder: e}
		for r.next < len(r.plan.steps) && m.flops < submitFLOPs {
			s := &r.plan.steps[r.next]
			if s.op != nil && s.op.kind == backend.OpTap {
				return
			}
			if s.op != nil && s.op.head != nil {
				r.encodeHead(&m, s.op.head, r.places[s.src[0]])
				return
			}
			r.encode(&m, s)
			r.next++
		}
	})
	return err
}

// encode encodes one step.
func (r *run) encode(e encoder, s *step) {
	r.dst, r.src = r.dst[:0], r.src[:0]
	for _, p := range s.dst {
		r.dst = append(r.dst, r.places[p])
	}
	for _, p := range s.src {
		r.src = append(r.src, r.places[p])
	}
	if s.op == nil {
		convertRows(e, r.dst[0], r.src[0], r.rows*r.plan.places[s.src[0]].width)
		return
	}
	s.op.encode(e, r, r.dst, r.src)
}

// ended reports whether there is nothing left to submit.
func (r *run) ended() bool { return r.next == len(r.plan.steps) }

// collect takes what the GPU made for the host.
func (r *run) collect() error {
	if y := &r.head; y.encoded > 0 || y.telling {
		if y.encoded > 0 {
			if err := r.collectHead(); err != nil {
				return err
			}
		}
		if y.taken == len(y.want) && (len(y.told) > 0 || len(y.want) < len(r.want)) {
			r.tell()
		}
		y.telling = false
	}
	for ; !r.ended(); r.next++ {
		s := &r.plan.steps[r.next]
		if s.op == nil || s.op.kind != backend.OpTap {
			break
		}
		states := make([]float32, r.rows*r.plan.places[s.src[0]].width)
		floats(states, r.f.b.memory.bytes(r.places[s.src[0]], 4*len(states)))
		r.tap(s.op.index, states)
	}
	return nil
}

// floats decodes f32; none where there are no values.
func floats(dst []float32, data []byte) {
	for i := 0; 4*i < len(data); i++ {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
}
