package cuda

import (
	"fmt"
	"io"

	"windrow/backend"
)

// wideVariants are what is chosen, and all forms.
func wideVariants() []tuning {
	list := []tuning{{}}
	for wide := 1; wide <= mostWide; wide++ {
		for parts := 1; parts <= mostWideParts; parts *= 2 {
			list = append(list, tuning{wide: wideForm{wide, parts}})
		}
	}
	return list
}

// benchWide times the 8B model's projections by packed weights in every form of
// kernels/wide.cuh, a line for each.
func (d *device) benchWide(w io.Writer, dt backend.DType, rowCounts ...int) {
	b := &projectTimes{d: d, w: w, shapes: benchShapes[:4], noise: 6 << 30, launches: 20, replays: 3, prefill: true}
	defer b.close()
	b.open()
	if !d.takesTiled() || b.err != nil {
		return
	}
	b.err = d.prepareWide()
	group := 0
	if dt.Affine() {
		group = 64
	}
	f, _ := formatOf(dt, group)
	for _, rows := range rowCounts {
		for i, s := range b.shapes {
			for _, t := range wideVariants() {
				d.tuning = t
				shape, ok := d.wideShape(f, s.strips(), rows, s.in)
				if !ok {
					continue
				}
				us := b.measure(func() {
					for range b.launches {
						b.launch(dt, group, i, rows)
					}
				}) / float64(b.launches)
				if b.err == nil {
					fmt.Fprintf(w, "%v %3d rows %-7s %-12s %6.1f us (%v, %d blocks, thought %.1f)\n", dt, rows, s.name, t.name(), us, shape.wideForm, shape.blocks(), shape.time(d.info.SMs, s.in))
				}
			}
		}
	}
	for _, rows := range []int{64, 128, 256, 512, 768, 1024} {
		b.routes(dt, group, rows)
	}
}

// routes times all projections of 36 layers as prefill makes them by packed
// weights: by kernels/wide.cuh, and decoded to bf16 first.
func (b *projectTimes) routes(dt backend.DType, group, rows int) {
	line := fmt.Sprintf("%v prefill of %4d rows:", dt, rows)
	for _, route := range []gemmRoute{routeWide, routeHopper} {
		b.d.tuning, b.d.prefill.route = tuning{}, route
		room := []linear{{w: &matrix{out: 12288, in: 4096, packed: &packedMatrix{}}}}
		if _, err := b.d.prepareGEMM(append(room, room...), rows); err != nil {
			b.err = err
			return
		}
		us := b.measure(func() {
			for i := range b.shapes {
				b.launch(dt, group, i, rows)
			}
		})
		line += fmt.Sprintf("  route %d %.2f ms", route, 36e-3*us)
	}
	b.d.prefill.route = routeChosen
	fmt.Fprintln(b.w, line)
}
