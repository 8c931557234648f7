#include "textflag.h"

#define LANES(value, x, y) \
	MOVL $value, AX; \
	VMOVD AX, x; \
	VPBROADCASTD x, y

// EIGHT widens 8 elements of (at)(SI) to (to)(DI): an exponent and a fraction
// that are shifted into their places, with 120 more for the bias; below 8, where
// the exponent is 0, the number of 2⁻⁹ that they are (no subnormal f32 or f16 is
// made of them, which some CPUs are slow with); then the sign, and all ones for
// NaN. Only the product with the scale rounds.
#define EIGHT(at, to, a, b, c, d) \
	VPMOVZXBD at(SI), a; \
	VPAND Y13, a, b; \
	VPSLLD $24, a, a; \
	VPAND Y12, a, a; \
	VPCMPEQD Y13, b, c; \
	VPOR c, a, a; \
	VCVTDQ2PS b, c; \
	VMULPS Y10, c, c; \
	VPCMPGTD b, Y9, d; \
	VPSLLD $20, b, b; \
	VPADDD Y11, b, b; \
	VBLENDVPS d, c, b, b; \
	VPOR a, b, b; \
	VMULPS Y15, b, b; \
	VMOVUPS b, to(DI)

// func float8AVX2(dst *float32, src *byte, n int, scale float32)
TEXT ·float8AVX2(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y15
	LANES(0x7f, X13, Y13)
	LANES(0x80000000, X12, Y12)
	LANES(0x3c000000, X11, Y11) // 120 in the place of exponents
	LANES(0x3b000000, X10, Y10) // 2⁻⁹
	LANES(8, X9, Y9)

sixteen:
	EIGHT(0, 0, Y0, Y1, Y2, Y3)
	EIGHT(8, 32, Y4, Y5, Y6, Y7)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  sixteen
	VZEROUPPER
	RET
