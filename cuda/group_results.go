package cuda

import (
	"slices"

	"windrow/backend"
	"windrow/cuda/launch"
)

// headParts are the GPUs' parts of a head, the ids that they begin at, and how many
// of them count: where every GPU has to make all of it, the first.
func (m *groupMatrix) headParts() (parts []*matrix, first []int, count int) {
	if parts, first = m.asHead(); len(parts) > 0 {
		return parts, first, len(parts)
	}
	return m.parts, make([]int, len(m.parts)), 1
}

// results are those of the wanted rows, once the launches are over: each GPU has made
// statistics and logits of some of the vocabulary, which are joined here, in its order.
func (f *groupForward) results() ([]backend.Result, error) {
	p := f.parts[0]
	results, first := p.bare(), p.firstRows()
	if err := f.collect(results, first); err != nil {
		return nil, err
	}
	p.tell(results) // all GPUs have the same
	for rows := range slices.Chunk(p.asked[len(first):], headRows) {
		err := f.onAll(func(p *forward) error {
			if err := p.again(rows); err != nil {
				return err
			}
			return p.wait()
		})
		if err == nil {
			err = f.collect(results, rows)
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// collect fills the results that a launch has brought.
func (f *groupForward) collect(results []backend.Result, rows []int) error {
	if len(rows) == 0 {
		return nil
	}
	bars, list := f.program.HeadOp().Bars, make([]launch.Statistics, f.heads)
	for i, at := range rows {
		w := &f.parts[0].want[at]
		for j, p := range f.parts[:f.heads] {
			s, err := launch.ReadStats(p.b.results.Host.Bytes(), i, p.values.Top)
			if err != nil {
				return err
			}
			for k := range s.Top {
				s.Top[k].ID += int32(f.first[j])
			}
			list[j] = s
		}
		r := launch.JoinStats(list, launch.MostTop).Result()
		logits, err := f.rowLogits(w, &r, i)
		if err != nil {
			return err
		}
		if err := w.Finish(&r, logits, bars, launch.MostTop); err != nil {
			return err
		}
		results[at] = r
	}
	return nil
}

// rowLogits is row i's logits of all GPUs, where they are needed.
func (f *groupForward) rowLogits(w *backend.Wanted, r *backend.Result, i int) ([]float32, error) {
	if !w.NeedsLogits(r, launch.MostTop) {
		return nil, nil
	}
	logits := f.parts[0].b.logitsRoom(w, f.program.HeadOp().Weights[0].Weight.Out())
	for j, p := range f.parts[:f.heads] {
		m := p.head.w[0].Weight
		p.b.device.Context.Enter()
		err := p.downloadLogits(logits[f.first[j]:f.first[j]+m.Out], i)
		p.b.device.Context.Leave()
		if err != nil {
			return nil, onGPU(j, err)
		}
	}
	return logits, nil
}
