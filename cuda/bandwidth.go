package cuda

import "time"

// CopyBandwidth measures for about d how fast the device copies its own
// memory: GB/s, bytes read and bytes written both counted. It is 0 where that
// cannot be measured, for want of memory say.
func (b *Backend) CopyBandwidth(d time.Duration) (rate float64) {
	v := b.device
	v.Context.Enter()
	defer v.Context.Leave()
	const copies = 8 // between waits
	err := copying(v, func(enqueue func() error, bytes int) error {
		moved, start := 0, time.Time{}
		for i := 0; i == 0 || time.Since(start) < d; i++ {
			for range copies {
				if err := enqueue(); err != nil {
					return err
				}
			}
			if err := v.Stream.Synchronize(); err != nil {
				return err
			}
			if i == 0 { // the first round starts clocks and pages
				start = time.Now()
				continue
			}
			moved += copies * bytes
		}
		rate = float64(moved) / time.Since(start).Seconds() / 1e9
		return nil
	})
	if err != nil {
		return 0
	}
	return rate
}
