package backendtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"windrow/backend"
)

// copiedModel is two layers of gated DeltaNet of different shapes, with a layer between
// them that keeps nothing, over the same rows: the token of a row is its number.
type copiedModel struct {
	t      *testing.T
	b      backend.Backend
	f      backend.Forward
	layout backend.Layout
	layers []*deltaLayer
	kept   [][]deltaKept // by layer, and row
	one    [][]float32   // by layer: what rows come to in one forward
}

func newCopiedModel(t *testing.T, b backend.Backend, rows, log int, cases ...deltaCase) *copiedModel {
	r := seeded(48)
	m := &copiedModel{t: t, b: b}
	p := begin(t, b)
	for i, c := range cases {
		y := c.layer(r)
		wide, narrow := y.inputs(r, rows)
		_, kept := y.follow(wide, narrow)
		m.layers, m.kept = append(m.layers, y), append(m.kept, kept)
		p.Tap(y.list(t, p, p.load(wide), p.load(narrow), 2*i))
	}
	m.f = p.compile()
	t.Cleanup(m.f.Close)
	m.layout = backend.Layout{Layers: p.Stores(), DType: backend.KVF32, Slots: rows + 64, LogRows: log}
	s := m.storage()
	defer s.Close()
	m.one = m.told(s, 0, rows)
	return m
}

func (m *copiedModel) storage() backend.StateStorage {
	m.t.Helper()
	s, err := m.b.NewStorage(m.layout)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(s.Close)
	y, ok := s.(backend.StateStorage)
	if !ok {
		m.t.Skip("states are not copied here")
	}
	return y
}

// told is what rows from base on come to, by layer.
func (m *copiedModel) told(s backend.Storage, base, rows int) [][]float32 {
	m.t.Helper()
	v := rowsOf(rows)
	for i := range v.Tokens {
		v.Tokens[i] = int32(base + i)
	}
	v.Spans = []backend.Span{{Storage: s, Base: base, Rows: rows}}
	_, taps := tapped(m.t, m.f, v)
	return taps
}

// same runs rows that have the bits of one forward.
func (m *copiedModel) same(what string, s backend.Storage, base, rows int) {
	m.t.Helper()
	for i, got := range m.told(s, base, rows) {
		equalBits(m.t, fmt.Sprintf("%s, layer %d of those with states", what, i), got, part(m.one[i], m.layers[i].Values(), base, rows))
	}
}

// exported are the states of a place.
func (m *copiedModel) exported(s backend.StateStorage, p backend.Place) []byte {
	m.t.Helper()
	data := bytes.Repeat([]byte{0xff}, int(m.layout.ExportedStates(p)))
	if err := s.ExportStates(p, data); err != nil {
		m.t.Fatalf("states of %+v: %v", p, err)
	}
	return data
}

// imported has what begins a sequence: the pages of all indices, then the states.
func (m *copiedModel) imported(from backend.Storage, p backend.Place, states []byte) backend.StateStorage {
	m.t.Helper()
	s := m.withPages(from, p.End)
	if err := s.ImportStates(p, states); err != nil {
		m.t.Fatalf("states of %+v: %v", p, err)
	}
	if got := s.Places(p.End + 1); len(got) != 1 || got[0] != p {
		m.t.Fatalf("states of %+v are imported as %+v", p, got)
	}
	return s
}

// withPages has the pages of a sequence's first indices.
func (m *copiedModel) withPages(from backend.Storage, n int) backend.StateStorage {
	m.t.Helper()
	s, page := m.storage(), make([]byte, m.layout.Keys().ExportedPage())
	for i := range (n + backend.PageTokens - 1) / backend.PageTokens {
		if err := from.Export(i, page); err != nil {
			m.t.Fatal(err)
		}
		if err := s.Import(i, page); err != nil {
			m.t.Fatal(err)
		}
	}
	return s
}

// compare holds exported states against those in float64, part by part in the order that
// backend.Layout.ExportedStates gives.
func (m *copiedModel) compare(what string, p backend.Place, data []byte) {
	m.t.Helper()
	for i, y := range m.layers {
		// next compares the next elements.
		next := func(part string, want []float64, tolerance float64) {
			m.t.Helper()
			got := make([]float32, len(want))
			for k := range got {
				got[k] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:]))
			}
			data = data[4*len(got):]
			compare(m.t, fmt.Sprintf("%s, states of %+v, layer %d: %s", what, p, i, part), got, want, tolerance)
		}
		tolerance := 2e-6 * math.Sqrt(float64(y.Conv))
		states := make([]float64, y.Size())
		if p.From > 0 {
			states = m.kept[i][p.From-1].states
		}
		next("matrices", states, tolerance)
		for index := p.From; index < p.End; index++ {
			row := m.kept[i][index]
			next(fmt.Sprint("keys of ", index), row.keys, tolerance)
			next(fmt.Sprint("deltas of ", index), row.deltas, tolerance)
			next(fmt.Sprint("decays of ", index), row.decays, tolerance)
		}
		for index := y.RawFrom(p.From); index < p.End; index++ {
			next(fmt.Sprint("before the convolution, row ", index), m.kept[i][index].raw, 0)
		}
	}
	if len(data) > 0 {
		m.t.Errorf("%s, states of %+v: %d bytes more", what, p, len(data))
	}
}

// testStatesCopied: exported states are what the reference has, in the order that all
// backends share, so that one may take what another gave; who imports them goes on with
// the bits of who exported them; and what is refused changes nothing.
func testStatesCopied(t *testing.T, b backend.Backend) {
	const rows = 100
	for _, c := range []struct {
		layers [2]int
		log    int
		cuts   []int // of the forwards before
	}{
		{[2]int{3, 6}, deltaLog, []int{5}},
		{[2]int{3, 6}, deltaLog, []int{40}},
		{[2]int{6, 7}, deltaLog, []int{30, 1, 4}},
		{[2]int{7, 2}, 5, []int{70, 5, 3}},
		{[2]int{0, 7}, 4, []int{9, 4, 4, 4}},
	} {
		m := newCopiedModel(t, b, rows, c.log, deltaCases[c.layers[0]], deltaCases[c.layers[1]])
		s, base := m.storage(), 0
		for i, n := range c.cuts {
			m.same("the beginning", s, base, n)
			if base += n; i == 0 {
				s.Mark(base)
			}
		}
		what := fmt.Sprintf("layers %v, log of %d, forwards of %v", c.layers, c.log, c.cuts)
		places := s.Places(base)
		if n := len(places); n == 0 || places[n-1].End != base || n < min(2, len(c.cuts)) {
			t.Fatalf("%s: states of %+v", what, places)
		}
		for _, p := range places {
			data := m.exported(s, p)
			m.compare(what, p, data)
			for end := max(1, p.From); end <= p.End; end++ {
				y := m.imported(s, p, data)
				if !bytes.Equal(m.exported(y, p), data) {
					t.Errorf("%s: states of %+v are other bytes when they are exported again", what, p)
				}
				y.Truncate(end)
				m.same(fmt.Sprintf("%s, behind %d of %+v, imported", what, end, p), y, end, 2)
				m.same(fmt.Sprintf("%s, behind %d of %+v, imported, further", what, end, p), y, end+2, 11)
				y.Close()
			}
		}
		m.same(what+", who exported", s, base, 9)
		s.Close()
	}
	if used, _ := b.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
	m := newCopiedModel(t, b, rows, deltaLog, deltaCases[2], deltaCases[3])
	testCopiesRefused(t, m)
}

// testCopiesRefused: what is not states of a place, or has no room, is refused, and leaves
// no trace.
func testCopiesRefused(t *testing.T, m *copiedModel) {
	s := m.storage()
	m.same("the beginning", s, 0, 40)
	places := s.Places(40)
	if len(places) != 1 {
		t.Fatalf("states of %+v", places)
	}
	p := places[0]
	data := m.exported(s, p)
	room := func(p backend.Place) []byte { return make([]byte, max(0, m.layout.ExportedStates(p))) }
	for name, c := range map[string]struct {
		p    backend.Place
		data []byte
	}{
		"too few bytes":      {p, data[:len(data)-4]},
		"too many bytes":     {p, slices.Concat(data, make([]byte, 4))},
		"nothing":            {p, nil},
		"a negative place":   {backend.Place{From: -1, End: p.End}, data},
		"a place backwards":  {backend.Place{From: p.End + 1, End: p.End}, data},
		"no indices":         {backend.Place{}, data},
		"more than are kept": {backend.Place{From: p.From, End: p.From + deltaLog + 1}, room(backend.Place{From: p.From, End: p.From + deltaLog + 1})},
	} {
		had := slices.Clone(c.data)
		if err := s.ExportStates(c.p, c.data); err == nil || !bytes.Equal(had, c.data) {
			t.Errorf("export of %s: error %v, or something was written", name, err)
		}
		y := m.withPages(s, 40)
		if err := y.ImportStates(c.p, c.data); err == nil || len(y.Places(40)) > 0 {
			t.Errorf("import of %s: error %v, states of %+v", name, err, y.Places(40))
		}
		m.same("all anew after a refusal", y, 0, 20)
		y.Close()
	}
	for _, gone := range []backend.Place{{From: p.From - 1, End: p.End - 1}, {From: p.From + 1, End: p.End}, {From: p.From + 1, End: p.End + 1}, {From: p.End, End: p.End}} {
		into := room(gone)
		if err := s.ExportStates(gone, into); !errors.Is(err, backend.ErrNoPlace) || !bytes.Equal(into, room(gone)) {
			t.Errorf("states of %+v, where those of %+v are: error %v, or something was written", gone, p, err)
		}
	}
	// Into storage that has states.
	other := m.storage()
	m.same("another", other, 0, 12)
	if err := other.ImportStates(p, data); err == nil {
		t.Error("states beside others: want an error")
	}
	m.same("another, after the refusal", other, 12, 9)
	other.Close()
	// More than there is.
	y := m.withPages(s, 40)
	used, _ := m.b.Budget().Used()
	m.b.Budget().Limit(used + m.layout.StateBytes() - 1)
	lacks := (*backend.MemoryError)(nil)
	if err := y.ImportStates(p, data); !errors.As(err, &lacks) {
		t.Errorf("states for which there is no memory: %v", err)
	}
	if now, _ := m.b.Budget().Used(); now != used || len(y.Places(40)) > 0 {
		t.Errorf("a refused import takes %d bytes, before %d", now, used)
	}
	m.b.Budget().Limit(0)
	if err := y.ImportStates(p, data); err != nil {
		t.Fatal(err)
	}
	m.same("imported after a refusal", y, 40, 12)
	// Of no layer with a state, and of closed storage.
	plain, err := m.b.NewStorage(backend.KeysLayout(1, 1, 32, backend.KVF32, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if k, ok := plain.(backend.StateStorage); ok {
		if k.ExportStates(p, data) == nil || k.ImportStates(p, data) == nil || len(k.Places(10)) > 0 {
			t.Error("states of layers that have none: want errors")
		}
	}
	s.Close()
	y.Close()
	if err := s.ExportStates(p, data); !errors.Is(err, backend.ErrNoPlace) || len(s.Places(40)) > 0 {
		t.Errorf("states of closed storage: %v", err)
	}
	if err := y.ImportStates(p, data); err == nil {
		t.Error("states into closed storage: want an error")
	}
}
