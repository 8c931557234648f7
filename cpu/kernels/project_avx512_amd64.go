package kernels

import "math"

// avx512Projector is exact in 16 lanes.
var avx512Projector = &tileProjector{
	label:    "avx512-f32",
	lanes:    16,
	outs:     [maxTileRows + 1]int{0, 4, 4, 4, 4, 4, 4},
	nearIn:   1 << 30,
	nearRows: math.MaxInt,
	block:    1024, // 24 KiB of 48
	split:    avx512Split,
	vector:   avx512Vector,
}

//go:noescape
func avx512Tile(a *tileArgs)

//go:noescape
func avx512Split(dst *float32, src *byte, steps int)
