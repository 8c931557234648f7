package cpu

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"windrow/quant"
)

func TestWidenScales(t *testing.T) {
	const outs, groups = 11, 37
	src := make([]byte, 2*outs*groups)
	for i := range src {
		src[i] = byte(rand.New(rand.NewPCG(1, uint64(i))).Uint32()) & 0x7b
	}
	dst := make([]float32, 16*64)
	widenScales(&dst[0], &src[0], 2*groups, outs, groups)
	for g := range groups {
		for o := range 16 {
			at := 2 * (min(o, outs-1)*groups + g)
			if want := quant.BF16ToF32(binary.LittleEndian.Uint16(src[at:])); dst[16*g+o] != want {
				t.Fatalf("group %d of %d: %v, want %v", g, o, dst[16*g+o], want)
			}
		}
	}
}
