package launch

import (
	"fmt"
	"testing"
)

// wideTunings are what is chosen, and all forms.
func wideTunings() []Tuning {
	list := []Tuning{{}}
	for wide := 1; wide <= mostWide; wide++ {
		for parts := 1; parts <= mostWideParts; parts *= 2 {
			list = append(list, Tuning{wide: wideForm{wide: wide, parts: parts}})
		}
	}
	return list
}

// BenchmarkWideForms compares the forms of kernels/wide.cuh for the 8B model's
// projections by packed weights. The metric "thought-ns" is what [wideShape.time]
// expects, by which forms are chosen.
func BenchmarkWideForms(b *testing.B) {
	wideTimes(benchDevice(b), projectShapes[:4], benchTypes[1:], []int{48, 64, 96, 128})
}

func wideTimes(m meter, shapes []projectShape, types []weightType, rowCounts []int) {
	needsHopper(m)
	b := newSlab(m, slabFor(m), shapes)
	m.Check(m.D.prepareWide())
	const launches = 20
	for _, t := range types {
		f, _ := formatOf(t.dt, t.group)
		m.Run("type", t.dt.String(), func(m meter) {
			for _, rows := range rowCounts {
				m.Run("rows", fmt.Sprint(rows), func(m meter) {
					for _, s := range shapes {
						m.Run("shape", s.name, func(m meter) {
							for _, form := range wideTunings() {
								m.D.Tuning = form
								cut, ok := m.D.wideShape(f, s.strips(), Rows{Count: rows}, s.in)
								if !ok {
									continue
								}
								m.Run("form", form.form(), func(m meter) {
									bytes := 0
									seconds := graph(m, launches, func(int) { bytes = b.launch(t, s, rows, true) })
									m.Moved(bytes, seconds)
									m.Report(1e3*cut.time(m.D.Info.SMs, s.in), "thought-ns")
								})
							}
						})
					}
				})
			}
		})
	}
}

// slabFor is the bytes of a slab: few in a test.
func slabFor(m meter) int {
	if _, ok := m.TB.(*testing.B); ok {
		return 6 << 30
	}
	return 1 << 20
}

// BenchmarkPackedPrefill measures the projections of a layer of the 8B model as
// prefill makes them by packed weights: by kernels/wide.cuh, and decoded to bf16
// first. The metric "ms/model" is that of 36 layers.
func BenchmarkPackedPrefill(b *testing.B) {
	packedPrefill(benchDevice(b), projectShapes[:4], benchTypes[1:], []int{64, 128, 256, 512, 768, 1024})
}

func packedPrefill(m meter, shapes []projectShape, types []weightType, rowCounts []int) {
	needsHopper(m)
	b := newSlab(m, slabFor(m), shapes)
	var room []Linear // for the largest of them, decoded
	for _, s := range shapes {
		for _, out := range s.out {
			room = append(room, Linear{Weight: &Weight{Out: out, In: s.in, Packed: &packedMatrix{}}})
		}
	}
	for _, t := range types {
		m.Run("type", t.dt.String(), func(m meter) {
			for _, rows := range rowCounts {
				m.Run("rows", fmt.Sprint(rows), func(m meter) {
					for name, route := range map[string]Route{"wide": routeWide, "decoded": routeHopper} {
						m.Run("by", name, func(m meter) {
							m.D.Tuning, m.D.prefill.route = Tuning{}, route
							_, err := m.D.PrepareGEMM(room, Rows{Count: rows})
							m.Check(err)
							seconds := graph(m, 1, func(int) {
								for _, s := range shapes {
									b.launch(t, s, rows, true)
								}
							})
							m.Report(layers8B*seconds*1e3, "ms/model")
						})
					}
				})
			}
		})
	}
}
