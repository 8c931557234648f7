package cuda

import (
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// headRows bounds the rows that go through the head at once: 128 rows of
// 152 k logits are 78 MB.
const headRows = 128

func scratchOfHead(y *plan, o *op) [3]int {
	w := o.w[0].Weight
	partials, _ := launch.StatsBytes(w.Out, y.head, y.top)
	size := 4
	if w.Fast() {
		size = 2
	}
	return [3]int{size * y.head * w.In, 4 * y.head * w.Out, partials}
}

// headAction is a plan's head, its last operation; nil: no row goes through one.
func (y *plan) headAction() *action {
	if n := len(y.actions); n > 0 && y.actions[n-1].kind == opHead {
		a := y.actions[n-1]
		return &a
	}
	return nil
}

// logits is where a head's are, [wanted rows, vocabulary].
func (a *action) logits() driver.Ptr { return a.scratch[1] }

func prepareHead(f *forward, y *plan, a *action) (moved bool, err error) {
	_, out := launch.StatsBytes(a.w[0].Weight.Out, y.head, y.top)
	if moved, err = f.b.results.Grow(f.b.device.Context, out); err == nil && y.wideHead() && a.w[0].Weight.Fast() {
		var also bool
		also, err = f.b.device.PrepareGEMM(a.w[:], launch.Rows{Count: y.head})
		moved = moved || also
	}
	return moved, err
}

// wideHead reports whether the head is made as a prefill's product.
func (g *geometry) wideHead() bool { return g.wide && g.head > invariantRows }

// emitHead enqueues the final norm of the wanted rows, the head, and the
// statistics of the logits.
func (b *Backend) emitHead(y *plan, a *action) {
	d, w, src := b.device, a.w[0], a.from[0]
	switch {
	case w.Weight.Fast() && y.shape.Bucket == 1 && d.TakesNorm(a.w[:1], false, 1): // the only row is the wanted one
		d.ProjectNormed([]launch.Target{{F32: a.logits()}}, launch.Inputs{X: src.f32, Norm: a.norm[0], Eps: a.eps}, a.w[:1], false, 1)
	case w.Weight.Fast():
		d.RMSNormWanted(0, a.scratch[0], src.f32, a.norm[0], src.width, y.head, a.eps, b.step.Device)
		logits := []launch.Target{{F32: a.logits()}}
		if y.wideHead() {
			d.PrefillProject(logits, a.scratch[0], a.w[:1], launch.Rows{Count: y.head})
		} else {
			d.Project(logits, a.scratch[0], a.w[:1], y.head)
		}
	default:
		d.RMSNormWanted(a.scratch[0], 0, src.f32, a.norm[0], src.width, y.head, a.eps, b.step.Device)
		d.SIMTProject(a.logits(), a.scratch[0], w.Weight, 0, false, y.head)
	}
	d.RowStats(b.results.Host.Address(), a.logits(), w.Weight.Out, y.head, y.top, b.step.Device, a.scratch[2])
}

// setWant takes the wanted rows. Those of which more is wanted than hidden states go
// through the head, the first of them at once. The device finds as many candidates for
// each of them as any row wants.
func (f *forward) setWant(want []backend.Wanted) {
	v := &f.values
	f.want, f.asked, f.hidden, v.Want, v.Top = want, f.asked[:0], false, v.Want[:0], 1
	if len(want) == 0 {
		return
	}
	head := f.program.HeadOp()
	vocabulary := head.Weights[0].Weight.Out()
	for i := range want {
		f.hidden = f.hidden || want[i].Hidden
		if !want[i].Bare {
			f.asked = append(f.asked, i)
			v.Top = max(v.Top, want[i].Candidates(min(launch.MostTop, vocabulary)))
		}
	}
	v.Limit, v.Except = int32(head.Bars.Ids(vocabulary)), head.Bars.Except
	f.wantRows(f.firstRows())
}

// firstRows are those of the wanted rows whose head is in the first launch, by their
// numbers among these.
func (f *forward) firstRows() []int { return f.asked[:min(len(f.asked), headRows)] }

func (f *forward) wantRows(rows []int) {
	f.values.Want = f.values.Want[:0]
	for _, i := range rows {
		f.values.Want = append(f.values.Want, f.want[i].Row)
	}
}

// bare are results of which nothing is known yet.
func (f *forward) bare() []backend.Result {
	results := make([]backend.Result, len(f.want))
	for i := range results {
		results[i].Argmax = -1
	}
	return results
}

// results are those of the wanted rows, once the launch is over: the head is run again
// where they are many.
func (f *forward) results() ([]backend.Result, error) {
	results, first := f.bare(), f.firstRows()
	if err := f.collect(results, first); err != nil {
		return nil, err
	}
	f.tell(results)
	for rows := range slices.Chunk(f.asked[len(first):], headRows) {
		if err := f.again(rows); err != nil {
			return nil, err
		}
		if err := f.wait(); err != nil {
			return nil, err
		}
		if err := f.collect(results, rows); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// leastStates is for how many rows there is room at once: to grow drops all graphs.
const leastStates = 512

func prepareHidden(f *forward, y *plan, a *action) (moved bool, err error) {
	return f.b.states.Grow(f.b.device.Context, 4*max(y.shape.Bucket, leastStates)*a.from[0].width)
}

// emitHidden has the final norm of all rows written to the host: to copy them from the
// device took 40 µs a step.
func (b *Backend) emitHidden(y *plan, a *action) {
	b.device.RMSNorm(b.states.Host.Address(), 0, a.from[0].f32, a.norm[0], a.from[0].width, y.shape.Bucket, a.eps)
}

// tell brings the hidden states that are wanted: rows that follow each other go together.
func (f *forward) tell(results []backend.Result) {
	if !f.hidden {
		return
	}
	width := f.program.HeadOp().Norm.Len()
	for first := 0; first < len(f.want); {
		n := 1
		for first+n < len(f.want) && f.want[first+n].Row == f.want[first].Row+int32(n) {
			n++
		}
		states := slices.Clone(f.b.states.Host.Floats(4*width*int(f.want[first].Row), n*width))
		for i := range n {
			if f.want[first+i].Hidden {
				results[first+i].Hidden = states[i*width : (i+1)*width : (i+1)*width]
			}
		}
		first += n
	}
}

// again launches the head for more rows of a forward that is over; the step block has
// all else still.
func (f *forward) again(rows []int) error {
	b, y := f.b, &f.now
	f.wantRows(rows)
	y.head = launch.RowBucket(len(rows))
	y.actions = append(y.actions[:0], *f.head)
	if err := f.prepare(y); err != nil {
		return err
	}
	f.values.WriteWanted(b.step.Host.Bytes(), y.shape)
	b.emit(y, y.actions)
	return b.device.Take()
}

// collect fills the results that a launch has brought.
func (f *forward) collect(results []backend.Result, rows []int) error {
	if len(rows) == 0 {
		return nil
	}
	bars := f.program.HeadOp().Bars
	for i, at := range rows {
		w := &f.want[at]
		stats, err := launch.ReadStats(f.b.results.Host.Bytes(), i, f.values.Top)
		if err != nil {
			return err
		}
		r := stats.Result()
		var logits []float32
		if w.NeedsLogits(&r, launch.MostTop) {
			logits = f.b.logitsRoom(w, f.head.w[0].Weight.Out)
			if err := f.downloadLogits(logits, i); err != nil {
				return err
			}
		}
		if err := w.Finish(&r, logits, bars, launch.MostTop); err != nil {
			return err
		}
		results[at] = r
	}
	return nil
}

// logitsRoom is room for a row of logits: the caller's own where they are wanted.
func (b *Backend) logitsRoom(w *backend.Wanted, vocabulary int) []float32 {
	if w.Logits {
		return make([]float32, vocabulary)
	}
	b.logits = slices.Grow(b.logits[:0], vocabulary)[:vocabulary]
	return b.logits
}

// downloadLogits copies row i of those that the head left.
func (f *forward) downloadLogits(out []float32, i int) error {
	return f.b.device.DownloadFloats(out, f.head.logits()+driver.Ptr(4*i*len(out)))
}
