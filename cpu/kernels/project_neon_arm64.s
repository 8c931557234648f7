#include "textflag.h"
#include "macros_neon_arm64.h"

// Every dot product of this file, whatever the tile and the weight's type, has
// two accumulators of four lanes: of each 8 elements the first four go to one,
// the last four to the other; what is left after the last 8 goes to lane 0 of
// the first, one by one. The end is (even + odd), then the tree of SUM4.

#define ZERO8 \
	ZERO(V0) \
	ZERO(V1) \
	ZERO(V2) \
	ZERO(V3) \
	ZERO(V4) \
	ZERO(V5) \
	ZERO(V6) \
	ZERO(V7)

// BF16X8, F16X8 widen a.8H to lo.4S, hi.4S. V31 is 0.
#define BF16X8(a, na, lo, nlo, hi, nhi) \
	VZIP1 a.H8, V31.H8, lo.H8 \
	VZIP2 a.H8, V31.H8, hi.H8
#define F16X8(a, na, lo, nlo, hi, nhi) \
	FCVTL4S(na, nlo) \
	FCVTL24S(na, nhi)

// DOT32 adds 32 products of 16-bit weights at R and the activations V8-V15.
#define DOT32(WIDEN, R, even, odd) \
	PRFM   1024(R), PLDL1STRM \
	VLD1.P 64(R), [V16.B16, V17.B16, V18.B16, V19.B16] \
	WIDEN(V16, 16, V20, 20, V21, 21) \
	WIDEN(V17, 17, V22, 22, V23, 23) \
	WIDEN(V18, 18, V24, 24, V25, 25) \
	WIDEN(V19, 19, V26, 26, V27, 27) \
	VFMLA  V20.S4, V8.S4, even.S4 \
	VFMLA  V21.S4, V9.S4, odd.S4 \
	VFMLA  V22.S4, V10.S4, even.S4 \
	VFMLA  V23.S4, V11.S4, odd.S4 \
	VFMLA  V24.S4, V12.S4, even.S4 \
	VFMLA  V25.S4, V13.S4, odd.S4 \
	VFMLA  V26.S4, V14.S4, even.S4 \
	VFMLA  V27.S4, V15.S4, odd.S4

// DOT8 adds 8 products of 16-bit weights at R and the activations V8, V9.
#define DOT8(WIDEN, R, even, odd) \
	VLD1.P 16(R), [V16.B16] \
	WIDEN(V16, 16, V20, 20, V21, 21) \
	VFMLA  V20.S4, V8.S4, even.S4 \
	VFMLA  V21.S4, V9.S4, odd.S4

// BF16ONE, F16ONE widen one weight at R to lane 0 of V16.
#define BF16ONE(R) \
	MOVHU.P 2(R), R7 \
	LSL     $16, R7, R7 \
	FMOVS   R7, F16
#define F16ONE(R) \
	MOVHU.P 2(R), R7 \
	FMOVS   R7, F16 \
	FCVTHS  F16, F16

#define DOT1(ONE, R, even) \
	ONE(R) \
	VFMLA V16.S4, V8.S4, even.S4

// GEMV16: four outputs of one row, 16-bit weights: R1-R4 the weight rows, R5
// the activations, R6 their number; the result goes to R0. 16 bytes of weights
// take 4.75 instructions: 2 to widen, 2 multiply-adds, a quarter of an LD1 and
// of a PRFM, an eighth of the LD1 of activations and of the loop.
#define GEMV16(WIDEN, ONE) \
	MOVD   y+0(FP), R0 \
	MOVD   w0+8(FP), R1 \
	MOVD   w1+16(FP), R2 \
	MOVD   w2+24(FP), R3 \
	MOVD   w3+32(FP), R4 \
	MOVD   x+40(FP), R5 \
	MOVD   in+48(FP), R6 \
	ZERO8 \
	ZERO(V31) \
	SUBS   $32, R6, R6 \
	BLT    rest32 \
loop32: \
	VLD1.P 64(R5), [V8.S4, V9.S4, V10.S4, V11.S4] \
	VLD1.P 64(R5), [V12.S4, V13.S4, V14.S4, V15.S4] \
	DOT32(WIDEN, R1, V0, V4) \
	DOT32(WIDEN, R2, V1, V5) \
	DOT32(WIDEN, R3, V2, V6) \
	DOT32(WIDEN, R4, V3, V7) \
	SUBS   $32, R6, R6 \
	BGE    loop32 \
rest32: \
	ADDS   $24, R6, R6 \
	BLT    rest8 \
loop8: \
	VLD1.P 32(R5), [V8.S4, V9.S4] \
	DOT8(WIDEN, R1, V0, V4) \
	DOT8(WIDEN, R2, V1, V5) \
	DOT8(WIDEN, R3, V2, V6) \
	DOT8(WIDEN, R4, V3, V7) \
	SUBS   $8, R6, R6 \
	BGE    loop8 \
rest8: \
	ADDS   $8, R6, R6 \
	BEQ    sum \
one: \
	FMOVS.P 4(R5), F8 \
	DOT1(ONE, R1, V0) \
	DOT1(ONE, R2, V1) \
	DOT1(ONE, R3, V2) \
	DOT1(ONE, R4, V3) \
	SUBS   $1, R6, R6 \
	BNE    one \
sum: \
	FADD4S(4, 0, 0) \
	FADD4S(5, 1, 1) \
	FADD4S(6, 2, 2) \
	FADD4S(7, 3, 3) \
	SUM4(0, 1, 2, 3) \
	VST1   [V3.S4], (R0) \
	RET

// func neonGemvBF16Asm(y *float32, w0, w1, w2, w3 *byte, x *float32, in int)
TEXT ·neonGemvBF16Asm(SB), NOSPLIT, $0-56
	GEMV16(BF16X8, BF16ONE)

// func neonGemvF16Asm(y *float32, w0, w1, w2, w3 *byte, x *float32, in int)
TEXT ·neonGemvF16Asm(SB), NOSPLIT, $0-56
	GEMV16(F16X8, F16ONE)

#define DOT16F32(R, even, odd) \
	PRFM   1024(R), PLDL1STRM \
	VLD1.P 64(R), [V16.S4, V17.S4, V18.S4, V19.S4] \
	VFMLA  V16.S4, V8.S4, even.S4 \
	VFMLA  V17.S4, V9.S4, odd.S4 \
	VFMLA  V18.S4, V10.S4, even.S4 \
	VFMLA  V19.S4, V11.S4, odd.S4

#define DOT8F32(R, even, odd) \
	VLD1.P 32(R), [V16.S4, V17.S4] \
	VFMLA  V16.S4, V8.S4, even.S4 \
	VFMLA  V17.S4, V9.S4, odd.S4

#define F32ONE(R) \
	FMOVS.P 4(R), F16

// func neonGemvF32Asm(y *float32, w0, w1, w2, w3 *byte, x *float32, in int)
TEXT ·neonGemvF32Asm(SB), NOSPLIT, $0-56
	MOVD y+0(FP), R0
	MOVD w0+8(FP), R1
	MOVD w1+16(FP), R2
	MOVD w2+24(FP), R3
	MOVD w3+32(FP), R4
	MOVD x+40(FP), R5
	MOVD in+48(FP), R6
	ZERO8
	SUBS $16, R6, R6
	BLT  rest16

loop16:
	VLD1.P 64(R5), [V8.S4, V9.S4, V10.S4, V11.S4]
	DOT16F32(R1, V0, V4)
	DOT16F32(R2, V1, V5)
	DOT16F32(R3, V2, V6)
	DOT16F32(R4, V3, V7)
	SUBS   $16, R6, R6
	BGE    loop16

rest16:
	ADDS   $8, R6, R6
	BLT    rest8
	VLD1.P 32(R5), [V8.S4, V9.S4]
	DOT8F32(R1, V0, V4)
	DOT8F32(R2, V1, V5)
	DOT8F32(R3, V2, V6)
	DOT8F32(R4, V3, V7)
	SUB    $8, R6, R6

rest8:
	ADDS $8, R6, R6
	BEQ  sum

one:
	FMOVS.P 4(R5), F8
	DOT1(F32ONE, R1, V0)
	DOT1(F32ONE, R2, V1)
	DOT1(F32ONE, R3, V2)
	DOT1(F32ONE, R4, V3)
	SUBS    $1, R6, R6
	BNE     one

sum:
	FADD4S(4, 0, 0)
	FADD4S(5, 1, 1)
	FADD4S(6, 2, 2)
	FADD4S(7, 3, 3)
	SUM4(0, 1, 2, 3)
	VST1 [V3.S4], (R0)
	RET

// TILE3 adds the products of the weights V24, V25 and three rows V26-V31.
#define TILE3(a, b, c, d, e, f) \
	VFMLA V24.S4, V26.S4, a.S4 \
	VFMLA V25.S4, V27.S4, b.S4 \
	VFMLA V24.S4, V28.S4, c.S4 \
	VFMLA V25.S4, V29.S4, d.S4 \
	VFMLA V24.S4, V30.S4, e.S4 \
	VFMLA V25.S4, V31.S4, f.S4

#define TILE3ONE(R, a, c, e) \
	FMOVS.P 4(R), F24 \
	VFMLA   V24.S4, V26.S4, a.S4 \
	VFMLA   V24.S4, V28.S4, c.S4 \
	VFMLA   V24.S4, V30.S4, e.S4

// func neonTile4x3Asm(y *float32, ldy int, w0, w1, w2, w3 *byte, x *float32, in int, ahead *byte, step int)
// y[r·ldy+o] = x[r]·w[o] for 4 outputs and 3 rows of f32: 24 accumulators, 24
// multiply-adds to 7 loads. With every 8 elements it prefetches a line of what
// comes next.
TEXT ·neonTile4x3Asm(SB), NOSPLIT, $0-80
	MOVD y+0(FP), R0
	MOVD ldy+8(FP), R10
	MOVD w0+16(FP), R1
	MOVD w1+24(FP), R2
	MOVD w2+32(FP), R3
	MOVD w3+40(FP), R4
	MOVD x+48(FP), R5
	MOVD in+56(FP), R6
	MOVD ahead+64(FP), R11
	MOVD step+72(FP), R12
	LSL  $2, R10, R10
	ADD  R6<<2, R5, R8
	ADD  R6<<2, R8, R9
	ZERO8
	ZERO(V8)
	ZERO(V9)
	ZERO(V10)
	ZERO(V11)
	ZERO(V12)
	ZERO(V13)
	ZERO(V14)
	ZERO(V15)
	ZERO(V16)
	ZERO(V17)
	ZERO(V18)
	ZERO(V19)
	ZERO(V20)
	ZERO(V21)
	ZERO(V22)
	ZERO(V23)
	SUBS $8, R6, R6
	BLT  rest

loop:
	PRFM   (R11), PLDL2KEEP
	ADD    R12, R11
	VLD1.P 32(R5), [V26.S4, V27.S4]
	VLD1.P 32(R8), [V28.S4, V29.S4]
	VLD1.P 32(R9), [V30.S4, V31.S4]
	VLD1.P 32(R1), [V24.S4, V25.S4]
	TILE3(V0, V1, V2, V3, V4, V5)
	VLD1.P 32(R2), [V24.S4, V25.S4]
	TILE3(V6, V7, V8, V9, V10, V11)
	VLD1.P 32(R3), [V24.S4, V25.S4]
	TILE3(V12, V13, V14, V15, V16, V17)
	VLD1.P 32(R4), [V24.S4, V25.S4]
	TILE3(V18, V19, V20, V21, V22, V23)
	SUBS   $8, R6, R6
	BGE    loop

rest:
	ADDS $8, R6, R6
	BEQ  sum

one:
	FMOVS.P 4(R5), F26
	FMOVS.P 4(R8), F28
	FMOVS.P 4(R9), F30
	TILE3ONE(R1, V0, V2, V4)
	TILE3ONE(R2, V6, V8, V10)
	TILE3ONE(R3, V12, V14, V16)
	TILE3ONE(R4, V18, V20, V22)
	SUBS    $1, R6, R6
	BNE     one

sum:
	FADD4S(1, 0, 0)
	FADD4S(3, 2, 2)
	FADD4S(5, 4, 4)
	FADD4S(7, 6, 6)
	FADD4S(9, 8, 8)
	FADD4S(11, 10, 10)
	FADD4S(13, 12, 12)
	FADD4S(15, 14, 14)
	FADD4S(17, 16, 16)
	FADD4S(19, 18, 18)
	FADD4S(21, 20, 20)
	FADD4S(23, 22, 22)
	SUM4(0, 6, 12, 18)
	SUM4(2, 8, 14, 20)
	SUM4(4, 10, 16, 22)
	VST1 [V18.S4], (R0)
	ADD  R10, R0
	VST1 [V20.S4], (R0)
	ADD  R10, R0
	VST1 [V22.S4], (R0)
	RET

#define TILE2(a, b, c, d) \
	VFMLA V24.S4, V26.S4, a.S4 \
	VFMLA V25.S4, V27.S4, b.S4 \
	VFMLA V24.S4, V28.S4, c.S4 \
	VFMLA V25.S4, V29.S4, d.S4

#define TILE2ONE(R, a, c) \
	FMOVS.P 4(R), F24 \
	VFMLA   V24.S4, V26.S4, a.S4 \
	VFMLA   V24.S4, V28.S4, c.S4

// func neonTile4x2Asm(y *float32, ldy int, w0, w1, w2, w3 *byte, x *float32, in int, ahead *byte, step int)
// The same for two rows.
TEXT ·neonTile4x2Asm(SB), NOSPLIT, $0-80
	MOVD y+0(FP), R0
	MOVD ldy+8(FP), R10
	MOVD w0+16(FP), R1
	MOVD w1+24(FP), R2
	MOVD w2+32(FP), R3
	MOVD w3+40(FP), R4
	MOVD x+48(FP), R5
	MOVD in+56(FP), R6
	MOVD ahead+64(FP), R11
	MOVD step+72(FP), R12
	LSL  $2, R10, R10
	ADD  R6<<2, R5, R8
	ZERO8
	ZERO(V8)
	ZERO(V9)
	ZERO(V10)
	ZERO(V11)
	ZERO(V12)
	ZERO(V13)
	ZERO(V14)
	ZERO(V15)
	SUBS $8, R6, R6
	BLT  rest

loop:
	PRFM   (R11), PLDL2KEEP
	ADD    R12, R11
	VLD1.P 32(R5), [V26.S4, V27.S4]
	VLD1.P 32(R8), [V28.S4, V29.S4]
	VLD1.P 32(R1), [V24.S4, V25.S4]
	TILE2(V0, V1, V2, V3)
	VLD1.P 32(R2), [V24.S4, V25.S4]
	TILE2(V4, V5, V6, V7)
	VLD1.P 32(R3), [V24.S4, V25.S4]
	TILE2(V8, V9, V10, V11)
	VLD1.P 32(R4), [V24.S4, V25.S4]
	TILE2(V12, V13, V14, V15)
	SUBS   $8, R6, R6
	BGE    loop

rest:
	ADDS $8, R6, R6
	BEQ  sum

one:
	FMOVS.P 4(R5), F26
	FMOVS.P 4(R8), F28
	TILE2ONE(R1, V0, V2)
	TILE2ONE(R2, V4, V6)
	TILE2ONE(R3, V8, V10)
	TILE2ONE(R4, V12, V14)
	SUBS    $1, R6, R6
	BNE     one

sum:
	FADD4S(1, 0, 0)
	FADD4S(3, 2, 2)
	FADD4S(5, 4, 4)
	FADD4S(7, 6, 6)
	FADD4S(9, 8, 8)
	FADD4S(11, 10, 10)
	FADD4S(13, 12, 12)
	FADD4S(15, 14, 14)
	SUM4(0, 4, 8, 12)
	SUM4(2, 6, 10, 14)
	VST1 [V12.S4], (R0)
	ADD  R10, R0
	VST1 [V14.S4], (R0)
	RET
