package cuda

import "time"

// copyBytes is large against every L2.
const copyBytes = 1 << 30

// CopyBandwidth measures for about d how fast the device copies its own
// memory: GB/s, bytes read and bytes written both counted. It is 0 where that
// cannot be measured, for want of memory say.
func (b *Backend) CopyBandwidth(d time.Duration) float64 {
	v := b.device
	v.ctx.Enter()
	defer v.ctx.Leave()
	n := copyBytes
	if free, _, err := v.ctx.MemInfo(); err != nil || uint64(2*n) > free/2 {
		n = int(free/8) &^ 0xff
	}
	if n == 0 {
		return 0
	}
	src, err := v.ctx.Alloc(n)
	if err != nil {
		return 0
	}
	defer v.ctx.Free(src)
	dst, err := v.ctx.Alloc(n)
	if err != nil {
		return 0
	}
	defer v.ctx.Free(dst)
	moved, start := 0, time.Time{}
	for i := 0; i == 0 || time.Since(start) < d; i++ {
		for range 8 {
			if err := v.stream.Copy(dst, src, n); err != nil {
				return 0
			}
		}
		if err := v.stream.Synchronize(); err != nil {
			return 0
		}
		if i == 0 { // the first round starts clocks and pages
			start = time.Now()
			continue
		}
		moved += 16 * n
	}
	return float64(moved) / time.Since(start).Seconds() / 1e9
}
