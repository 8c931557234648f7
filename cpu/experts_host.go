package cpu

import (
	"errors"
	"fmt"

	"windrow/backend"
)

// hostRows are how many rows of a device go through a layer's experts at once: more would
// read weights hardly less often, and each takes 8 rows of activations or so.
const hostRows = 2048

var _ backend.HostExperts = (*Backend)(nil)

// hostMixture is a layer's experts for the rows of a device.
type hostMixture struct {
	f  *forward // of all layers: they run one after the other
	op backend.Op
}

// Mixture makes the experts of a layer ready for the backend of a device.
func (b *Backend) Mixture(e *backend.Experts, chosen int) (backend.HostMixture, error) {
	if b.hosted == nil {
		b.hosted = &forward{b: b}
	}
	alone := *e
	alone.Shared = nil
	m := &hostMixture{b.hosted, backend.Op{Kind: backend.OpExpertsAdd, Chosen: chosen, Experts: &alone}}
	return m, b.hosted.takesExperts(&alone)
}

// Run runs the experts over some rows after the others.
func (m *hostMixture) Run(dst, h, routing []float32) error {
	e, f := m.op.Experts, m.f
	width, line := e.Gate[0].In(), 2*m.op.Chosen
	rows := len(h) / width
	if len(h) != rows*width || len(dst) != len(h) || len(routing) != rows*line {
		return fmt.Errorf("cpu: experts of width %d: %d numbers of rows, %d of what is made, %d of the routing, want %d a row", width, len(h), len(dst), len(routing), line)
	}
	if f.b.pool.closed.Load() {
		return errors.New("cpu: the backend is closed")
	}
	for r := range rows {
		for _, x := range routing[r*line : r*line+m.op.Chosen] {
			if !(x >= 0 && x < float32(len(e.Gate))) {
				return fmt.Errorf("cpu: row %d chose expert %g of %d", r, x, len(e.Gate))
			}
		}
	}
	for from := 0; from < rows; from += hostRows {
		f.rows = min(hostRows, rows-from)
		part := func(x []float32, width int) *buffer {
			return &buffer{width, x[from*width : (from+f.rows)*width]}
		}
		d := part(dst, width)
		clear(d.data)
		f.expertsAdd(d, part(h, width), part(routing, line), &m.op)
	}
	return nil
}
