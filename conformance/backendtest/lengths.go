package backendtest

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/model"
)

// testGoldenLengths runs a golden model in forwards of several lengths: the same bits in
// those whose rows the backend promises to be alike.
func testGoldenLengths(t *testing.T, golden, name string, open func(t *testing.T) backend.Backend) {
	b := open(t)
	defer b.Close()
	m, err := model.Load(b, Source(t, golden, name))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f := b.Features()
	rows := len(goldenInts(t, goldenFile(t, golden, name, "golden.safetensors"), "prompt.ids"))
	same := func(chunk int) bool {
		if chunk == 0 {
			chunk = rows
		}
		return chunk <= f.BatchInvariantRows
	}
	CheckGoldenLengths(t, m, golden, name, f.Exact, same, 0, 1, 7, 16)
}

// The bounds of a golden model where activations are rounded.
const (
	// roundedGolden is the relative norm of what is off, as of the dense golden models.
	roundedGolden = 2e-2
	// Of ten rows one may choose other experts than the reference, and two more: 9 of 200
	// were the most on the emulated GPUs, and which of a few rows are close is chance.
	otherChoices = 10
	// A row that chose others is right with its own, and what it leaves in states and keys
	// shows in the rows behind it, by up to 0.1 in the next ones, by less than the rounding
	// itself after so many.
	settles = 16
)

// CheckGoldenLengths compares a golden model with its tensors in forwards of those lengths,
// 0 being one of all rows: their values, and lengths that are the same in their bits with
// each other.
//
// In exact arithmetic all rows choose the reference's experts. Where activations are rounded
// some may choose others and be right: these are counted, and those that they may show in
// are left out of what is compared.
func CheckGoldenLengths(t *testing.T, m *model.Model, golden, name string, exact bool, same func(chunk int) bool, chunks ...int) {
	t.Helper()
	file := goldenFile(t, golden, name, "golden.safetensors")
	var want *choices
	shown := m
	var r router
	if m.Config().Experts != nil {
		want = goldenChoices(t, golden, name)
		r.Backend = m.Backend()
		var err error
		if shown, err = model.Load(&r, Source(t, golden, name)); err != nil {
			t.Fatal(err)
		}
		defer shown.Close()
	}
	var first [][]float32 // what each entry has in the lengths that are the same
	for _, chunk := range chunks {
		var values [][]float32
		// Choices are looked at once of each arithmetic. Other forwards run as they do
		// without, where operations may be joined: their bits are to be the same.
		m, o := m, model.ValidateOptions{KV: backend.KVF32, Chunk: chunk}
		o.Show = func(_ model.Deviation, ours, _ []float32) { values = append(values, slices.Clone(ours)) }
		if first == nil || !same(chunk) {
			m = shown
			o.Show = func(d model.Deviation, ours, golden []float32) {
				values = append(values, slices.Clone(ours))
				checkRows(t, d, ours, golden, want.differ(t, r.chosen), exact)
				if strings.Contains(d.Entry, "logits") { // the last of a pass
					r.chosen = nil
				}
			}
		}
		deviations, err := m.Validate(context.Background(), file, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(deviations) == 0 {
			t.Fatal("the golden file has no entries")
		}
		for i, d := range deviations {
			if first != nil && same(chunk) {
				equalBits(t, fmt.Sprintf("%s, chunk %d, %s, beside another length", name, chunk, d.Entry), values[i], first[i])
			}
			t.Logf("%s, chunk %d: %s: relative norm %.3g", name, chunk, d.Entry, d.RelativeNorm)
		}
		if first == nil && same(chunk) {
			first = values
		}
	}
}

// checkRows compares an entry's rows, the last ones of a pass, with the golden ones. differ
// says which rows of the pass chose other experts than the reference; nil: none did.
func checkRows(t *testing.T, d model.Deviation, ours, golden []float32, differ []bool, exact bool) {
	t.Helper()
	if exact {
		if !(d.RelativeNorm <= 5e-6) || d.ArgmaxEqual != 0 && d.ArgmaxEqual != d.Rows || slices.Contains(differ, true) {
			t.Errorf("%s: relative norm %.3g, argmax equal in %d of %d rows, other experts: %v", d.Entry, d.RelativeNorm, d.ArgmaxEqual, d.Rows, differ)
		}
		return
	}
	rows, width, others := max(len(differ), d.Rows), len(golden)/d.Rows, 0
	var difference, norm float64
	compared, last := 0, -settles-1
	for row := range rows {
		if differ != nil && differ[row] {
			others, last = others+1, row
		}
		r := row - (rows - d.Rows) // of the entry
		if r < 0 || row-last <= settles {
			continue
		}
		compared++
		for i := r * width; i < (r+1)*width; i++ {
			e, w := float64(ours[i])-float64(golden[i]), float64(golden[i])
			difference, norm = difference+e*e, norm+w*w
		}
	}
	relative := math.Sqrt(difference / norm)
	if d.Rows < rows && compared == 0 {
		return // a few rows right behind one that chose others
	}
	t.Logf("%s: relative norm %.3g of %d of %d rows, %d of %d chose other experts", d.Entry, relative, compared, d.Rows, others, rows)
	if !(relative <= roundedGolden) || others > rows/otherChoices+2 {
		t.Errorf("%s: relative norm %.3g of %d of %d rows, %d of %d chose other experts", d.Entry, relative, compared, d.Rows, others, rows)
	}
}

// choices are the experts that the reference chooses for a prompt's rows: k numbers,
// ascending, of each row of each layer that has experts.
type choices struct {
	rows, k int
	layers  [][]int32
}

func goldenChoices(t *testing.T, golden, name string) *choices {
	t.Helper()
	file := goldenFile(t, golden, name, "experts.safetensors")
	list := goldenInts(t, file, "prompt.experts")
	e, _ := file.Lookup("prompt.experts")
	c := &choices{rows: e.Shape[1], k: e.Shape[2]}
	for part := range slices.Chunk(list, c.rows*c.k) {
		c.layers = append(c.layers, part)
	}
	return c
}

// differ says of each row whether other experts were chosen for it in some layer; rows are
// those of the prompt's beginning.
func (c *choices) differ(t *testing.T, chosen [][]int32) []bool {
	t.Helper()
	if c == nil {
		return nil
	}
	if len(chosen) != len(c.layers) {
		t.Fatalf("%d layers choose experts, want %d", len(chosen), len(c.layers))
	}
	rows := len(chosen[0]) / c.k
	if rows == 0 || rows > c.rows {
		t.Fatalf("experts of %d rows, the reference has those of %d", rows, c.rows)
	}
	differ := make([]bool, rows)
	for i, layer := range c.layers {
		for row := range rows {
			at := row * c.k
			differ[row] = differ[row] || !slices.Equal(chosen[i][at:at+c.k], layer[at:at+c.k])
		}
	}
	return differ
}

// router is a backend that shows which experts its forwards choose.
type router struct {
	backend.Backend
	chosen [][]int32 // of each layer that has some, row by row, ascending
}

// HostExperts are those of the backend.
func (y *router) HostExperts() (backend.HostExperts, int) {
	if h, ok := y.Backend.(backend.ExpertsOnHost); ok {
		return h.HostExperts()
	}
	return nil, 0
}

// Compile puts a Tap behind each Route.
func (y *router) Compile(p *backend.Program) (backend.Forward, error) {
	f := &routerForward{router: y}
	var ops []backend.Op
	tap := func(o backend.Op, chosen int) {
		o.Index = len(f.taps)
		ops, f.taps = append(ops, o), append(f.taps, chosen)
	}
	for _, o := range p.Ops {
		if o.Kind == backend.OpTap {
			tap(o, 0)
			continue
		}
		ops = append(ops, o)
		if o.Kind == backend.OpRoute {
			tap(backend.Op{Kind: backend.OpTap, Src: o.Dst, Tapped: true}, o.Chosen)
		}
	}
	p.Ops = ops
	var err error
	f.forward, err = y.Backend.Compile(p)
	return f, err
}

// routerForward is a forward with more Taps than its model listed.
type routerForward struct {
	router  *router
	forward backend.Forward
	taps    []int // how many experts a row chooses; 0: one of the model's own
}

func (f *routerForward) Wait() ([]backend.Result, error) { return f.forward.Wait() }
func (f *routerForward) Close()                          { f.forward.Close() }

func (f *routerForward) Start(ctx context.Context, v backend.Values) error {
	show, own, layer := v.Tap, 0, 0
	v.Tap = func(i int, states []float32) {
		k := f.taps[i]
		if k == 0 {
			if show != nil {
				show(own, states)
			}
			own++
			return
		}
		if layer == len(f.router.chosen) {
			f.router.chosen = append(f.router.chosen, nil)
		}
		for row := range slices.Chunk(states, 2*k) {
			for _, e := range row[:k] {
				f.router.chosen[layer] = append(f.router.chosen[layer], int32(e))
			}
		}
		layer++
	}
	return f.forward.Start(ctx, v)
}

func goldenFile(t *testing.T, golden, name, file string) *checkpoint.Safetensors {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden, name, file))
	if err != nil {
		t.Fatal(err)
	}
	s, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func goldenInts(t *testing.T, file *checkpoint.Safetensors, name string) []int32 {
	t.Helper()
	entry, ok := file.Lookup(name)
	if !ok {
		t.Fatalf("no entry %s", name)
	}
	list, err := entry.Int32s()
	if err != nil {
		t.Fatal(err)
	}
	return list
}
