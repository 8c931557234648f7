package metal

import (
	"context"
	"strings"

	"windrow/backend"
	"windrow/metal/driver"
)

// Dry is a backend that runs nothing: it encodes a forward's dispatches and
// counts what they move and compute. Results and buffers are zero. It needs no
// GPU.
type Dry struct {
	*Backend
	memory *dryMemory
}

// NewDry makes a backend that counts.
func NewDry(exact bool) *Dry {
	m := &dryMemory{buffer: new(driver.Buffer)}
	return &Dry{overMemory(m, Options{Exact: exact}), m}
}

// Count is what the dispatches of some forwards come to.
type Count struct {
	Submits    int   `json:"submits"` // command buffers, each waited for
	Dispatches int   `json:"dispatches"`
	InLayers   int   `json:"dispatches_in_layers"` // those but for embedding and head
	Read       int64 `json:"read"`                 // bytes that had to be read
	Written    int64 `json:"written"`
	FLOPs      int64 `json:"flops"`
}

// Taken returns the count since the last call, and begins anew.
func (d *Dry) Taken() Count {
	m := d.memory
	c := m.count
	head := false // from the norm of the wanted rows on
	for _, x := range m.log {
		embeds := strings.HasPrefix(x.kernel, "embed_")
		head = !embeds && (head || strings.HasPrefix(x.kernel, "rms_norm_wanted"))
		if !embeds && !head {
			c.InLayers++
		}
	}
	m.count, m.log = Count{}, nil
	return c
}

// Features describes what is counted for.
func (d *Dry) Features() backend.Features {
	f := d.Backend.Features()
	f.Description = "no device: costs are counted"
	return f
}

// dryMemory is memory without bytes.
type dryMemory struct {
	buffer *driver.Buffer // of every view: something is there
	count  Count
	log    []dispatch // in order
}

func (m *dryMemory) alloc(_ int, e elem) (view, error) { return view{buffer: m.buffer, elem: e}, nil }
func (m *dryMemory) wrap([]byte) (view, error) {
	return view{buffer: m.buffer, elem: elemBytes}, nil
}
func (m *dryMemory) region() (region, error) { return dryRegion{m}, nil }
func (m *dryMemory) free(view)               {}
func (m *dryMemory) bytes(view, int) []byte  { return nil }
func (m *dryMemory) maxBuffer() int          { return 1 << 40 }

func (m *dryMemory) submit(_ context.Context, f func(e encoder)) (wait func() error, err error) {
	m.count.Submits++
	f(m)
	return func() error { return nil }, nil
}

func (m *dryMemory) dispatch(d dispatch) {
	c := &m.count
	c.Dispatches++
	c.Read += d.cost.read
	c.Written += d.cost.written
	c.FLOPs += d.cost.flops
	m.log = append(m.log, d)
}

type dryRegion struct{ memory *dryMemory }

func (r dryRegion) grow(n int) (view, error) { return r.memory.alloc(n, elemBytes) }
func (r dryRegion) free()                    {}
