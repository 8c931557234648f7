package launch

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
)

func init() {
	for _, t := range []backend.KVType{backend.KVBF16, backend.KVInt8} {
		registerSelfTest("prefill attention "+t.String(), func(d *Device) error {
			return checkAttendPrefill(d, t, flashCases, flashPlain)
		})
	}
	registerSelfTest("prefill attention by wgmma", func(d *Device) error {
		if err := checkFlashHopper(d, hopperCases, flashHopper(128)); err != nil {
			return err
		}
		return checkFlashHopper(d, append(groupedCases, hopperCases...), flashGrouped())
	})
	registerSelfTest("prefill attention of heads of 256 by wgmma", func(d *Device) error {
		return checkFlashHopper(d, longCases, flashHopper(256))
	})
}

// flashCases have spans around the 128 rows of a block, contexts that begin
// anywhere in a page, and short spans beside long ones.
var flashCases = []attendCase{
	{dim: 128, kvHeads: 1, group: 1, bases: []int{0, 70}, rows: []int{129, 1}},
	{dim: 64, kvHeads: 2, group: 2, bases: []int{65, 0}, rows: []int{33, 140}},
	{dim: 64, kvHeads: 1, group: 1, window: 200, keep: 4, slots: 340, bases: []int{0, 190, 1000}, rows: []int{40, 100, 70}},
	{dim: 256, kvHeads: 1, group: 2, gated: true, bases: []int{0, 70}, rows: []int{65, 1}},
	{dim: 64, kvHeads: 2, group: 1, gated: true, bases: []int{65}, rows: []int{33}},
}

// hopperCases have tiles of 128 keys that end anywhere, and enough of them
// for every stage to be used again.
var hopperCases = []attendCase{
	{dim: 128, kvHeads: 1, group: 1, bases: []int{0, 70}, rows: []int{129, 1}},
	{dim: 128, kvHeads: 2, group: 2, bases: []int{0, 65, 1}, rows: []int{300, 33, 64}},
	{dim: 128, kvHeads: 1, group: 4, bases: []int{1000, 127}, rows: []int{200, 130}},
	{dim: 128, kvHeads: 1, group: 1, window: 200, keep: 4, slots: 340, bases: []int{0, 190, 1000}, rows: []int{40, 100, 70}},
	{dim: 128, kvHeads: 1, group: 2, gated: true, bases: []int{65}, rows: []int{66}},
}

// longCases are of heads of 256, whose tiles have 64 keys.
var longCases = []attendCase{
	{dim: 256, kvHeads: 1, group: 2, gated: true, bases: []int{0, 70}, rows: []int{129, 1}},
	{dim: 256, kvHeads: 2, group: 1, gated: true, bases: []int{0, 65, 1}, rows: []int{300, 33, 64}},
	{dim: 256, kvHeads: 1, group: 2, bases: []int{500, 63}, rows: []int{200, 66}},
	{dim: 256, kvHeads: 1, group: 1, window: 200, keep: 4, slots: 340, bases: []int{0, 190, 1000}, rows: []int{40, 100, 70}},
}

// groupedCases have spans that fill a block's first half, or less, or both.
var groupedCases = []attendCase{
	{dim: 128, kvHeads: 2, group: 4, bases: []int{512, 0, 77}, rows: []int{16, 1, 32}},
	{dim: 128, kvHeads: 1, group: 7, bases: []int{130, 640}, rows: []int{9, 24}},
}

// checkFlashHopper does nothing on devices that flash_hopper.cuh is not for.
func checkFlashHopper(d *Device, cases []attendCase, by flashVariant) error {
	if !d.hopperAttends(Attention{KV: backend.KVBF16, Dim: cases[0].dim}) {
		return d.flash.of(cases[0].dim).refused
	}
	return checkAttendPrefill(d, backend.KVBF16, cases, func(Attention) flashVariant { return by })
}

// checkAttendPrefill: the probabilities are rounded to bf16, and with int8 the
// keys and values too.
func checkAttendPrefill(d *Device, t backend.KVType, cases []attendCase, which func(Attention) flashVariant) error {
	tolerance := 2.5e-3
	if t == backend.KVInt8 {
		tolerance = 1e-2
	}
	r := rand.New(rand.NewPCG(8, uint64(t)))
	for _, c := range cases {
		if c.dim == 256 && !d.AttendTakes(Attention{QHeads: 1, KVHeads: 1, Dim: 256, KV: t}) {
			continue // a block has too little shared memory
		}
		if err := checkFlashCase(d, r, c, t, tolerance, which); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

func checkFlashCase(d *Device, r *rand.Rand, c attendCase, t backend.KVType, tolerance float64, which func(Attention) flashVariant) error {
	b := &bed{d: d}
	defer b.free()
	p := b.newAttendPass(r, c, t)
	width, bucket, n := p.QHeads*p.Dim, p.shape.Bucket, len(p.want)
	out, out16 := b.empty(4*bucket*width), b.empty(2*bucket*width)
	wide := append(slices.Clone(p.q), nanRows(bucket-p.v.Rows, len(p.q)/p.v.Rows)...)
	d.attendFlash(which(p.Attention), out, out16, b.halves(wide), p.gates(b, wide), p.Attention, b.step(p.v, p.shape), p.layer, bucket, p.shape.Spans, (slices.Max(c.rows)+127)&^127)
	got := b.readFloats(out, bucket*width)
	for i := 0; i < n; i += p.Dim {
		if err := vectors.Near(got[i:i+p.Dim], p.want[i:i+p.Dim], tolerance); err != nil {
			return fmt.Errorf("row %d, head %d: %w", i/width, i%width/p.Dim, err)
		}
	}
	if err := vectors.Equal(got[n:], nanRows(bucket-p.v.Rows, width)); err != nil {
		return fmt.Errorf("rows past the last: %w", err)
	}
	if err := vectors.Equal(b.readHalves(out16, n), rounded(got[:n])); err != nil {
		return fmt.Errorf("as bf16: %w", err)
	}
	return nil
}
