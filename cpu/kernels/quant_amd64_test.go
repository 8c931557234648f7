package kernels

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
	"windrow/quant"
)

// A processor with AVX-512 VNNI and without VBMI has no quantAlone; what L1 it has decides
// on more.
func init() {
	if featuresVNNI.here() {
		moreProjectors = func(t *backend.Tensor) map[string]Projector {
			f, ok := newQuantFormat(t, dotsNames[dotsOfAVX512])
			if !ok {
				return nil
			}
			list := map[string]Projector{
				"avx512-vnni without vbmi": quantDots{quantFormat: f, isa: dotsOfAVX512},
				"avx512-vnni, L1 of 32 KB": quantDots{quantFormat: f, isa: dotsOfAVX512, few: true, small: true},
				"avx512-vnni, few streams": quantDots{quantFormat: f, isa: dotsOfAVX512, few: true},
			}
			if featuresVBMI.here() {
				list["avx512-vnni, L1 of 48 KB"] = quantDots{quantFormat: f, isa: dotsOfAVX512, alone: !f.dotsOnly()}
			}
			return list
		}
	}
}

func TestDotsCallOffsets(t *testing.T) {
	var c dotsCall
	sameOffsets(t, "quant_call_amd64.h", map[string]uintptr{
		"A": unsafe.Offsetof(c.a), "NEXT": unsafe.Offsetof(c.next), "ASTRIDE": unsafe.Offsetof(c.astride), "ASTEP": unsafe.Offsetof(c.astep),
		"FORMAT": unsafe.Offsetof(c.format), "STEPS": unsafe.Offsetof(c.steps), "ELEMENTS": unsafe.Offsetof(c.elements),
		"AHEAD": unsafe.Offsetof(c.ahead), "LEFT": unsafe.Offsetof(c.left), "BUF": unsafe.Offsetof(c.buf), "W": unsafe.Offsetof(c.w),
		"BIAS": unsafe.Offsetof(c.bias), "WSTEP": unsafe.Offsetof(c.wstep), "X": unsafe.Offsetof(c.x), "XSTRIDE": unsafe.Offsetof(c.xstride),
		"GROUP": unsafe.Offsetof(c.group), "GROUPS": unsafe.Offsetof(c.groups), "SX": unsafe.Offsetof(c.sx), "SXTILE": unsafe.Offsetof(c.sxtile),
		"SXROW": unsafe.Offsetof(c.sxrow), "SXAT": unsafe.Offsetof(c.sxat), "ROWS": unsafe.Offsetof(c.rows), "C": unsafe.Offsetof(c.c),
		"ZEROPOINT": unsafe.Offsetof(c.zeroPoint), "KIND": unsafe.Offsetof(c.kind), "XSTEP": unsafe.Offsetof(c.xstep), "WORDBUF": unsafe.Offsetof(c.words),
		"FETCH": unsafe.Offsetof(c.fetch), "FETCHES": unsafe.Offsetof(c.fetches), "PART": unsafe.Sizeof(c) - 8,
		"FETCHSTEP": unsafe.Offsetof(c.fetchStep), "FETCHLEFT": unsafe.Offsetof(c.fetchLeft), "FETCHBACK": unsafe.Offsetof(c.fetchBack),
	})
}

func TestWidenScales(t *testing.T) {
	needs(t, featuresAVX512)
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

// Streams of one row that would lie whole pages apart are cut shorter, and what is left goes
// by a block: all outputs are there, once, where the call begins and ends elsewhere, too.
func TestStreamsWholePagesApart(t *testing.T) {
	needs(t, featuresAVX2)
	for _, c := range kernelstest.Formats {
		const out, in = 272, 2048
		rng := rand.New(rand.NewPCG(26, uint64(c.DType)))
		w := quantMatrix(rng, c, out, in, 0)
		x := kernelstest.Rows(rng, in)
		want := int8Want(w, x, 1)
		for name, pr := range int8Projectors(&w.tensor) {
			for _, s := range []struct{ o0, o1 int }{{0, 256}, {3, 259}, {0, 64}, {8, 75}, {5, 37}, {0, 272}} {
				y := runProjector(pr, w, x, 1, s.o0, s.o1, s.o1-s.o0)
				if !slices.Equal(y, want[s.o0:s.o1]) {
					t.Fatalf("%s %v, outputs %d to %d: another result", name, c, s.o0, s.o1)
				}
			}
		}
	}
}
