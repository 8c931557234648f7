#include "textflag.h"
#include "macros_neon_arm64.h"
#include "quant_macros_arm64.h"

// Decoders of a row of a quantised weight to f32, with the bits of package quant,
// whose products and sums Go fuses on this architecture.

// UNSIGNED decodes 16 unsigned bytes of x: times V14 plus V15, to R0, which
// moves. SIGNED decodes signed ones, times V14. Both change V0 to V7.
#define UNSIGNED(x) \
	VUXTL  x.B8, V0.H8 \
	VUXTL2 x.B16, V2.H8 \
	VUXTL2 V0.H8, V1.S4 \
	VUXTL  V0.H4, V0.S4 \
	VUXTL2 V2.H8, V3.S4 \
	VUXTL  V2.H4, V2.S4 \
	SCVTF4S(0, 0) \
	SCVTF4S(1, 1) \
	SCVTF4S(2, 2) \
	SCVTF4S(3, 3) \
	VORR  V15.B16, V15.B16, V4.B16 \
	VORR  V15.B16, V15.B16, V5.B16 \
	VORR  V15.B16, V15.B16, V6.B16 \
	VORR  V15.B16, V15.B16, V7.B16 \
	VFMLA V14.S4, V0.S4, V4.S4 \
	VFMLA V14.S4, V1.S4, V5.S4 \
	VFMLA V14.S4, V2.S4, V6.S4 \
	VFMLA V14.S4, V3.S4, V7.S4 \
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)

#define SIGNED(x) \
	SXTL8H(x, 0) \
	SXTL28H(x, 2) \
	SXTL24S(0, 1) \
	SXTL4S(0, 0) \
	SXTL24S(2, 3) \
	SXTL4S(2, 2) \
	SCVTF4S(0, 0) \
	SCVTF4S(1, 1) \
	SCVTF4S(2, 2) \
	SCVTF4S(3, 3) \
	FMUL4S(14, 0, 0) \
	FMUL4S(14, 1, 1) \
	FMUL4S(14, 2, 2) \
	FMUL4S(14, 3, 3) \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)

// BF16(R, v): the bf16 at R, which moves, to all lanes.
#define BF16(R, v) \
	MOVHU.P 2(R), R9 \
	LSL  $16, R9, R9 \
	VDUP R9, v.S4

// F16(off, R, f, v): the f16 at off from R, to all lanes.
#define F16(off, R, f, v) \
	MOVHU off(R), R9 \
	FMOVS R9, f \
	FCVTHS f, f \
	VDUP v.S[0], v.S4

// func neonRowAffine8(dst *float32, src, scales, biases *byte, groups, group int)
TEXT ·neonRowAffine8(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD scales+16(FP), R2
	MOVD biases+24(FP), R3
	MOVD groups+32(FP), R4
	MOVD group+40(FP), R5

group:
	BF16(R2, V14)
	BF16(R3, V15)
	MOVD R5, R6

bytes:
	VLD1.P 16(R1), [V16.B16]
	UNSIGNED(V16)
	SUBS $16, R6, R6
	BNE  bytes
	SUBS $1, R4, R4
	BNE  group
	RET

// func neonRowAffine4(dst *float32, src, scales, biases *byte, groups, group int)
TEXT ·neonRowAffine4(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD scales+16(FP), R2
	MOVD biases+24(FP), R3
	MOVD groups+32(FP), R4
	MOVD group+40(FP), R5
	VMOVI $0x0F, V30.B16

group:
	BF16(R2, V14)
	BF16(R3, V15)
	MOVD R5, R6

bytes:
	VLD1.P 16(R1), [V16.B16]
	VUSHR $4, V16.B16, V17.B16
	VAND  V30.B16, V16.B16, V16.B16
	VZIP1 V17.B16, V16.B16, V18.B16
	VZIP2 V17.B16, V16.B16, V19.B16
	UNSIGNED(V18)
	UNSIGNED(V19)
	SUBS $32, R6, R6
	BNE  bytes
	SUBS $1, R4, R4
	BNE  group
	RET

// func neonRowQ80(dst *float32, src *byte, blocks int)
TEXT ·neonRowQ80(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD blocks+16(FP), R4

block:
	F16(0, R1, F14, V14)
	ADD  $2, R1, R1
	VLD1.P 32(R1), [V16.B16, V17.B16]
	SIGNED(16)
	SIGNED(17)
	SUBS $1, R4, R4
	BNE  block
	RET

// func neonRowQ40(dst *float32, src *byte, blocks int)
TEXT ·neonRowQ40(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD blocks+16(FP), R4
	VMOVI $0x0F, V30.B16
	VMOVI $0x08, V31.B16

block:
	F16(0, R1, F14, V14)
	ADD  $2, R1, R1
	VLD1.P 16(R1), [V16.B16]
	VUSHR $4, V16.B16, V17.B16
	VAND  V30.B16, V16.B16, V16.B16
	VSUB  V31.B16, V16.B16, V16.B16
	VSUB  V31.B16, V17.B16, V17.B16
	SIGNED(16)
	SIGNED(17)
	SUBS $1, R4, R4
	BNE  block
	RET

// FACTORS turns 8 numbers of 6 bits, the bytes of R10 and of R11, times lane 0 of
// register number factor, to V(a) and V(b).
#define FACTORS(factor, a, b) \
	ORR  R11<<32, R10, R10 \
	FMOVD R10, F0 \
	VUXTL V0.B8, V0.H8 \
	VUXTL2 V0.H8, V1.S4 \
	VUXTL V0.H4, V0.S4 \
	SCVTF4S(0, 0) \
	SCVTF4S(1, 1) \
	FMULE0(factor, 0, a) \
	FMULE0(factor, 1, b)

// QUARTER4K decodes 32 bytes: two sub-blocks, whose scales and minima are lanes i
// and j of s and m.
#define QUARTER4K(s, m, i, j) \
	VLD1.P 32(R1), [V16.B16, V17.B16] \
	VDUP  s.S[i], V14.S4 \
	VDUP  m.S[i], V15.S4 \
	VAND  V30.B16, V16.B16, V18.B16 \
	VAND  V30.B16, V17.B16, V19.B16 \
	UNSIGNED(V18) \
	UNSIGNED(V19) \
	VDUP  s.S[j], V14.S4 \
	VDUP  m.S[j], V15.S4 \
	VUSHR $4, V16.B16, V18.B16 \
	VUSHR $4, V17.B16, V19.B16 \
	UNSIGNED(V18) \
	UNSIGNED(V19)

// func neonRowQ4K(dst *float32, src *byte, blocks int)
TEXT ·neonRowQ4K(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD blocks+16(FP), R4
	VMOVI $0x0F, V30.B16

block:
	F16(0, R1, F20, V20)
	F16(2, R1, F21, V21)
	FNEG4S(21, 21)
	MOVWU 4(R1), R5
	MOVWU 8(R1), R6
	MOVWU 12(R1), R7
	ADD  $16, R1, R1
	AND  $0x3F3F3F3F, R5, R10
	AND  $0x0F0F0F0F, R7, R11
	LSR  $2, R5, R5
	AND  $0x30303030, R5, R5
	ORR  R5, R11, R11
	FACTORS(20, 22, 23)
	AND  $0x3F3F3F3F, R6, R10
	LSR  $4, R7, R7
	AND  $0x0F0F0F0F, R7, R11
	LSR  $2, R6, R6
	AND  $0x30303030, R6, R6
	ORR  R6, R11, R11
	FACTORS(21, 24, 25)
	QUARTER4K(V22, V24, 0, 1)
	QUARTER4K(V22, V24, 2, 3)
	QUARTER4K(V23, V25, 0, 1)
	QUARTER4K(V23, V25, 2, 3)
	SUBS $1, R4, R4
	BNE  block
	RET

// SIX decodes 16 elements: low bits in v, high ones in high, at 0x30. V29: 0x30,
// V31: 32.
#define SIX(v, high, s, i) \
	VAND  V29.B16, high.B16, V18.B16 \
	VORR  v.B16, V18.B16, V18.B16 \
	VSUB  V31.B16, V18.B16, V18.B16 \
	VDUP  s.S[i], V14.S4 \
	SIGNED(18)

// LOW6K and HIGH6K take the low bits from the lower and upper halves of v, and
// shift the high ones to the left and to the right.
#define LOW6K(v, high, left, s, i) \
	VAND  V30.B16, v.B16, V16.B16 \
	VSHL  $left, high.B16, V17.B16 \
	SIX(V16, V17, s, i)
#define HIGH6K(v, high, right, s, i) \
	VUSHR $4, v.B16, V16.B16 \
	VUSHR $right, high.B16, V17.B16 \
	SIX(V16, V17, s, i)

// HALF6K decodes 128 elements; the scales of their groups are in s and z.
#define HALF6K(s, z) \
	VLD1.P 64(R1), [V8.B16, V9.B16, V10.B16, V11.B16] \
	VLD1.P 32(R5), [V12.B16, V13.B16] \
	LOW6K(V8, V12, 4, s, 0) \
	LOW6K(V9, V13, 4, s, 1) \
	LOW6K(V10, V12, 2, s, 2) \
	LOW6K(V11, V13, 2, s, 3) \
	VUSHR $4, V8.B16, V16.B16 \
	SIX(V16, V12, z, 0) \
	VUSHR $4, V9.B16, V16.B16 \
	SIX(V16, V13, z, 1) \
	HIGH6K(V10, V12, 2, z, 2) \
	HIGH6K(V11, V13, 2, z, 3)

// func neonRowQ6K(dst *float32, src *byte, blocks int)
TEXT ·neonRowQ6K(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD blocks+16(FP), R4
	VMOVI $0x0F, V30.B16
	VMOVI $0x20, V31.B16
	VMOVI $0x30, V29.B16

block:
	F16(208, R1, F20, V20)
	ADD  $128, R1, R5
	ADD  $192, R1, R6
	VLD1 (R6), [V16.B16]
	SXTL28H(16, 18)
	SXTL8H(16, 16)
	SXTL24S(16, 23)
	SXTL4S(16, 22)
	SXTL24S(18, 25)
	SXTL4S(18, 24)
	SCVTF4S(22, 22)
	SCVTF4S(23, 23)
	SCVTF4S(24, 24)
	SCVTF4S(25, 25)
	FMULE0(20, 22, 22)
	FMULE0(20, 23, 23)
	FMULE0(20, 24, 24)
	FMULE0(20, 25, 25)
	HALF6K(V22, V23)
	HALF6K(V24, V25)
	ADD  $82, R1, R1
	SUBS $1, R4, R4
	BNE  block
	RET
