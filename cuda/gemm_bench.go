package cuda

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"windrow/cuda/driver"
)

// gemmShape is a product of the 8B model; gated has two weights of out rows.
type gemmShape struct {
	name  string
	outs  []int
	in    int
	gated bool
	add   bool
}

var gemmShapes = []gemmShape{
	{"q, k, v", []int{4096, 1024, 1024}, 4096, false, false},
	{"o", []int{4096}, 4096, false, true},
	{"gate, up", []int{12288, 12288}, 4096, true, false},
	{"down", []int{4096}, 12288, false, true},
}

// gemmVariant is one way to do a product; run enqueues it.
type gemmVariant struct {
	name string
	run  func(d *device, s gemmShape, dst []target, x driver.Ptr, parts []gemmPart, rows int)
}

// gemmVariants lists every tile of every route that the device takes.
func (d *device) gemmVariants() []gemmVariant {
	var list []gemmVariant
	for _, t := range []gemmTile{gemmWide, gemmNarrow, gemmDeep} {
		if d.info.SharedPerBlock < t.plain.shared {
			continue
		}
		list = append(list, gemmVariant{"own " + t.name, func(d *device, s gemmShape, dst []target, x driver.Ptr, parts []gemmPart, rows int) {
			if s.gated {
				d.gemmGated(t, dst[0], x, parts[0], parts[1], s.in, rows)
			} else {
				d.gemm(t, x, parts, s.in, rows)
			}
		}})
	}
	if d.prefill.hopper != nil {
		for _, t := range hopperTiles {
			list = append(list, gemmVariant{"hopper " + t.name, func(d *device, s gemmShape, dst []target, x driver.Ptr, parts []gemmPart, rows int) {
				switch {
				case !s.gated:
					d.hopperProject(t, x, parts, s.in, rows)
				case t.gated.name != "":
					d.hopperGated(t, dst[0], x, parts[0], parts[1], s.in, rows)
				}
			}})
		}
	}
	if d.blas != nil {
		list = append(list, gemmVariant{"cublaslt", func(d *device, s gemmShape, dst []target, x driver.Ptr, parts []gemmPart, rows int) {
			for _, p := range parts {
				d.blasProject(p, x, s.in, rows)
			}
			if s.gated {
				d.gatedAct(0, dst[0].bf16, parts[0].dst.bf16, parts[1].dst.bf16, true, rows*s.outs[0])
			}
		}})
	}
	return list
}

// benchGEMM times the 8B model's prefill projections by every variant whose
// name contains one of only (all where it is empty), on random numbers, with
// weights that take turns so that L2 does not hold them. It prints TFLOP/s of
// each, then the milliseconds of all of a model's layers by the best of each.
func (d *device) benchGEMM(w io.Writer, rows []int, only ...string) error {
	defer d.prefill.free(d.ctx)
	if _, err := d.prepareGEMM(nil, 0); err != nil {
		return err
	}
	if err := d.prefill.refused; err != nil {
		fmt.Fprintln(w, err)
	}
	most := slices.Max(rows)
	const layers, turns, width = 36, 3, 12288
	const weightBytes = 2 * 2 * width * 4096 // gate and up
	var owned []driver.Ptr
	defer func() {
		for _, p := range owned {
			d.ctx.Free(p)
		}
	}()
	seed := gemmNoise(1)
	_, block := seed.bf16Noise(16 << 20)
	random := func(n int) (driver.Ptr, error) {
		p, err := d.ctx.Alloc(n)
		if err != nil {
			return 0, err
		}
		owned = append(owned, p)
		for at := 0; at < n; at += len(block) {
			if err := d.ctx.Upload(p+driver.Ptr(at), block[:min(len(block), n-at)]); err != nil {
				return 0, err
			}
		}
		return p, nil
	}
	weights, err := random(turns * weightBytes)
	if err != nil {
		return err
	}
	x, err := random(2 * most * width)
	if err != nil {
		return err
	}
	y, err := random(4 * most * 2 * width)
	if err != nil {
		return err
	}
	start, err := d.ctx.NewEvent()
	if err != nil {
		return err
	}
	defer start.Close()
	end, err := d.ctx.NewEvent()
	if err != nil {
		return err
	}
	defer end.Close()
	variants := d.gemmVariants()
	for _, n := range rows {
		total := 0.0
		for _, s := range gemmShapes {
			best := 0.0
			for _, v := range variants {
				if len(only) > 0 && !slices.ContainsFunc(only, func(o string) bool { return strings.Contains(v.name, o) }) {
					continue
				}
				sum := 0
				for _, out := range s.outs {
					sum += out
				}
				turn := func(i int) {
					parts, at, to := []gemmPart{}, weights+driver.Ptr(i%turns*weightBytes), y
					for _, out := range s.outs {
						p := gemmPart{w: at, out: out}
						if s.gated {
							p.dst.bf16 = to
						} else {
							p.dst.f32, p.dst.add = to, s.add
						}
						parts = append(parts, p)
						at += driver.Ptr(2 * out * s.in)
						to += driver.Ptr(4 * out * n)
					}
					v.run(d, s, []target{parts[0].dst}, x, parts, n)
				}
				flop := 2 * float64(n) * float64(sum) * float64(s.in)
				times := int(min(200, max(6, 2e13/flop)))
				for i := range 3 {
					turn(i)
				}
				if err := start.Record(d.stream); err != nil {
					return err
				}
				for i := range times {
					turn(i)
				}
				if err := end.Record(d.stream); err != nil {
					return err
				}
				if err := d.take(); err != nil {
					fmt.Fprintf(w, "%5d rows  %-9s %-15s %v\n", n, s.name, v.name, err)
					continue
				}
				if err := d.stream.Synchronize(); err != nil {
					return fmt.Errorf("%s: %w", v.name, err)
				}
				took, err := driver.Elapsed(start, end)
				if err != nil {
					return err
				}
				rate := flop * float64(times) / took.Seconds() / 1e12
				if s.gated && strings.HasPrefix(v.name, "hopper narrow") {
					continue // it has no gated kernel
				}
				best = max(best, rate)
				fmt.Fprintf(w, "%5d rows  %-9s %-15s %7.1f us %7.0f TFLOP/s\n", n, s.name, v.name, took.Seconds()/float64(times)*1e6, rate)
			}
			if best > 0 {
				outs := 0
				for _, out := range s.outs {
					outs += out
				}
				total += 2 * float64(n) * float64(outs) * float64(s.in) / best / 1e12 * layers * 1e3
			}
		}
		fmt.Fprintf(w, "%5d rows  the projections of %d layers by the best of each: %.2f ms\n", n, layers, total)
	}
	return nil
}
