package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

var _ backend.StateStorage = (*storage)(nil)

// ExportStates copies the states of a place from the device.
func (c *storage) ExportStates(p backend.Place, dst []byte) error {
	if err := c.layout.CheckStates(p, dst); err != nil {
		return fmt.Errorf("cuda: export: %w", err)
	}
	return c.States.Export(p, func(at *driver.Ptr) error { return c.carryStates(*at, p, dst, 1, false) })
}

// ImportStates copies states to the device.
func (c *storage) ImportStates(p backend.Place, src []byte) error {
	if err := c.layout.CheckStates(p, src); err != nil {
		return fmt.Errorf("cuda: import: %w", err)
	}
	return c.States.Import(p, func(at *driver.Ptr) error { return c.carryStates(*at, p, src, 1, true) })
}

// carryStates copies the states at an address of the device, where all layers' lie one
// behind the other, to their exported form or back. Where heads are cut over several GPUs
// it is those of this one that are copied, to and from their place among all.
func (c *storage) carryStates(at driver.Ptr, p backend.Place, exported []byte, gpus int, in bool) error {
	d := c.b.device
	if d == nil {
		return errClosed
	}
	d.Context.Enter()
	defer d.Context.Leave()
	var room []byte
	for _, y := range c.layout.States() {
		s := launch.DeltaShare{DeltaShape: launch.DeltaShape{StateShape: y}, Devices: gpus}
		if gpus > 1 {
			s.Rank = c.rank
		}
		fixed, byLog := s.Size()
		n := 4 * (fixed + c.layout.LogRows*byLog)
		if len(room) < n {
			room = make([]byte, n)
		}
		own := room[:n]
		if in {
			clear(own) // lines end in zeros
			s.Carry(own, exported, c.layout.LogRows, p, true)
			if err := d.Context.Upload(at, own); err != nil {
				return err
			}
		} else {
			if err := d.Context.Download(own, at); err != nil {
				return err
			}
			s.Carry(own, exported, c.layout.LogRows, p, false)
		}
		exported = exported[int64(gpus)*y.Exported(p):]
		at += driver.Ptr(n)
	}
	return nil
}
