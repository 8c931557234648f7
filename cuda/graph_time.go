package cuda

import (
	"errors"
	"time"

	"windrow/cuda/driver"
)

// timeGraph captures launches into a graph and returns the least time of two
// replays, one behind the other, halved.
func (d *device) timeGraph(replays int, launches func()) (least time.Duration, err error) {
	d.dry = true // modules are loaded outside of the capture
	launches()
	d.dry, d.overlap = false, false
	if err := errors.Join(d.take(), d.stream.BeginCapture()); err != nil {
		return 0, err
	}
	launches()
	g, err := d.stream.EndCapture()
	if err = errors.Join(err, d.take()); err != nil {
		return 0, err
	}
	defer g.Close()
	var event [2]*driver.Event
	for i := range event {
		if event[i], err = d.ctx.NewEvent(); err != nil {
			return 0, err
		}
		defer event[i].Close()
	}
	for i := range replays {
		if err := errors.Join(event[0].Record(d.stream), g.Launch(d.stream), g.Launch(d.stream), event[1].Record(d.stream), d.stream.Synchronize()); err != nil {
			return 0, err
		}
		took, err := driver.Elapsed(event[0], event[1])
		if err != nil {
			return 0, err
		}
		if i == 0 || took < 2*least {
			least = took / 2
		}
	}
	return least, nil
}
