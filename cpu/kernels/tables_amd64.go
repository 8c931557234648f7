package kernels

import (
	"slices"

	"github.com/klauspost/cpuid/v2"

	"windrow/backend"
)

// architectureTables are those of amd64, best last.
//
// AMD runs VDPBF16PS at twice the rate of f32 multiply-adds (Zen 5: 500 against
// 257 GFLOP/s a thread). Intel does not (Sapphire Rapids: 72 against 135): from
// L2, 64 rows × 64 outputs × 2048 run at 78 GFLOP/s in avx512-bf16, at 111 in
// avx512-f32 and at 956 in AMX. So an Intel processor without AMX, or without
// leave to use it, runs f32, which needs no rounding either.
var architectureTables = func() []namedTable {
	better := []namedTable{
		{"avx512", featuresAVX512.lacking, avx512Table},
		{"avx512bf16", featuresAVX512BF16.lacking, avx512BF16Table},
	}
	if cpuid.CPU.VendorID == cpuid.Intel {
		slices.Reverse(better)
	}
	return slices.Concat([]namedTable{
		{"avx2", featuresAVX2.lacking, avx2Table},
		{"avxvnni", featuresAVXVNNI.lacking, avxvnniTable},
	}, better, []namedTable{
		{"amx", lackingAMX, amxTable},
	})
}()

func avx2Table() *Table { return avx2Rows.of(withDots(avx2Kernels(), dotsOfAVX2)) }

func avxvnniTable() *Table {
	k := withDots(avx2Table(), dotsOfAVXVNNI)
	k.Name = "avxvnni"
	return k
}

func avx512Table() *Table { return avx512Rows.of(withDots(avx512Kernels(), bestDots())) }

func avx512BF16Table() *Table {
	k := avx512Table()
	k.Name, k.Fast = "avx512bf16", bf16Projector{}
	return k
}

func amxTable() *Table {
	k := avx512Table()
	k.Name, k.Fast, k.AttendPages = "amx", amxProjector{}, amxAttendPages
	if featuresAMXInt8.here() {
		k.Quant, k.QuantName = quantTilesFor, tilesName
	}
	return k
}

// withDots gives a table integer arithmetic for quantised weights.
func withDots(k *Table, isa int) *Table {
	k.Quant, k.QuantName = func(t *backend.Tensor) Projector { return newQuantDots(t, isa) }, dotsNames[isa]
	return k
}

// bestDots is the integer arithmetic of a table of AVX-512.
func bestDots() int {
	switch {
	case featuresVNNI.here():
		return dotsOfAVX512
	case featuresAVXVNNI.here():
		return dotsOfAVXVNNI
	}
	return dotsOfAVX2
}
