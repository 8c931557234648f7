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

// lastHead is the head that a plan ends with, if its geometry has one.
func (y *plan) lastHead() *action {
	if y.head == 0 {
		return nil
	}
	a := y.actions[len(y.actions)-1]
	return &a
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
	case w.Weight.Fast() && y.shape.Bucket == 1 && d.TakesNorm(a.w[:1]): // the only row is the wanted one
		d.ProjectNormed([]launch.Target{{F32: a.logits()}}, launch.Inputs{X: src.f32, Norm: a.norm[0], Eps: a.eps}, a.w[:1], false)
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

// setWant takes the wanted rows, the first of which go through the head at once. The
// device finds as many candidates for each of them as any row wants.
func (f *forward) setWant(want []backend.Wanted) {
	v := &f.values
	f.want, v.Want, v.Top = want, v.Want[:0], 1
	if len(want) == 0 {
		return
	}
	head := f.program.HeadOp()
	vocabulary := head.Weights[0].Weight.Out()
	for i := range want {
		v.Top = max(v.Top, want[i].Candidates(min(launch.MostTop, vocabulary)))
	}
	v.Limit, v.Except = int32(head.Bars.Ids(vocabulary)), head.Bars.Except
	f.wantRows(f.firstRows())
}

// firstRows are the wanted ones whose head is in the first launch.
func (f *forward) firstRows() []backend.Wanted { return f.want[:min(len(f.want), headRows)] }

func (f *forward) wantRows(rows []backend.Wanted) {
	f.values.Want = f.values.Want[:0]
	for i := range rows {
		f.values.Want = append(f.values.Want, rows[i].Row)
	}
}

// results are those of the wanted rows, once the launch is over: the head is run again
// where they are many.
func (f *forward) results() ([]backend.Result, error) {
	results := make([]backend.Result, 0, len(f.want))
	first := f.firstRows()
	if err := f.collect(&results, first); err != nil {
		return nil, err
	}
	for rows := range slices.Chunk(f.want[len(first):], headRows) {
		if err := f.again(rows); err != nil {
			return nil, err
		}
		if err := f.wait(); err != nil {
			return nil, err
		}
		if err := f.collect(&results, rows); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// again launches the head for more rows of a forward that is over; the step block has
// all else still.
func (f *forward) again(rows []backend.Wanted) error {
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

// collect appends the results that a launch has brought.
func (f *forward) collect(results *[]backend.Result, rows []backend.Wanted) error {
	if len(rows) == 0 {
		return nil
	}
	bars := f.program.HeadOp().Bars
	for i := range rows {
		w := &rows[i]
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
		*results = append(*results, r)
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
	b, n := f.b, 4*len(out)
	b.room = slices.Grow(b.room[:0], n)[:n]
	return b.device.DownloadBy(b.room, out, f.head.logits()+driver.Ptr(i*n))
}
