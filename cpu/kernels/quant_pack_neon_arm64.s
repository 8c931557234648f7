#include "textflag.h"
#include "macros_neon_arm64.h"
#include "quant_macros_arm64.h"

// ROUND16 turns 16 elements at R6 to int8 in V(d), with their sums added to V5.
// V7: the factor.
#define ROUND16(d) \
	VLD1.P 64(R6), [V1.S4, V2.S4, V3.S4, V4.S4] \
	FMULE0(7, 1, 1) \
	FMULE0(7, 2, 2) \
	FMULE0(7, 3, 3) \
	FMULE0(7, 4, 4) \
	FCVTNS4S(1, 1) \
	FCVTNS4S(2, 2) \
	FCVTNS4S(3, 3) \
	FCVTNS4S(4, 4) \
	VADD V1.S4, V5.S4, V5.S4 \
	VADD V2.S4, V5.S4, V5.S4 \
	VADD V3.S4, V5.S4, V5.S4 \
	VADD V4.S4, V5.S4, V5.S4 \
	SQXTN4H(1, 1) \
	SQXTN28H(2, 1) \
	SQXTN4H(3, 3) \
	SQXTN28H(4, 3) \
	SQXTN8B(1, d) \
	SQXTN216B(3, d)

// STORE16 stores the halves of v, R1 apart. V19 is changed.
#define STORE16(v, f) \
	FMOVD f, (R0) \
	VEXT $8, v.B16, v.B16, V19.B16 \
	ADD  R1, R0, R0 \
	FMOVD F19, (R0) \
	ADD  R1, R0, R0

// func neonQuantizeRow(q *int8, step int, scale, sum *float32, zeroSums *int32, stride int, x *float32, groups, group, evens int)
//
// Rounds groups of x to int8 by 127 / (largest magnitude), each 8 elements step
// bytes behind the last. scale and sum of group g, stride bytes apart, are the
// size of a unit and the units' sum times it; zeroSums, where it is not nil, -128
// times the units' sum. Groups whose largest is below 2^-100 are zero, as in the
// other quantizeRow. With evens, of each 32 elements those of even place come
// first.
TEXT ·neonQuantizeRow(SB), NOSPLIT, $0-80
	MOVD q+0(FP), R0
	MOVD step+8(FP), R1
	MOVD scale+16(FP), R2
	MOVD sum+24(FP), R3
	MOVD zeroSums+32(FP), R4
	MOVD stride+40(FP), R5
	MOVD x+48(FP), R6
	MOVD groups+56(FP), R7
	MOVD group+64(FP), R8
	MOVD evens+72(FP), R9
	MOVW $0x7FFFFFFF, R10
	VDUP R10, V30.S4
	MOVW $0x42FE0000, R10 // 127
	FMOVS R10, F20
	MOVW $0x0D800000, R11 // 2^-100

group:
	ZERO(V0)
	MOVD R8, R12
	MOVD R6, R13

largest:
	VLD1.P 64(R13), [V1.S4, V2.S4, V3.S4, V4.S4]
	VAND V30.B16, V1.B16, V1.B16
	VAND V30.B16, V2.B16, V2.B16
	VAND V30.B16, V3.B16, V3.B16
	VAND V30.B16, V4.B16, V4.B16
	UMAX4S(1, 2, 1)
	UMAX4S(3, 4, 3)
	UMAX4S(1, 0, 0)
	UMAX4S(3, 0, 0)
	SUBS $16, R12, R12
	BNE  largest
	UMAXV4S(0, 0)
	FMOVS F0, R10
	FMOVS ZR, F6
	FMOVS ZR, F7
	CMPW R11, R10
	BLO  round
	FDIVS F20, F0, F6
	FDIVS F0, F20, F7

round:
	FMOVS F6, (R2)
	ZERO(V5)
	MOVD R8, R12
	CBNZ R9, evens32

plain16:
	ROUND16(16)
	STORE16(V16, F16)
	SUBS $16, R12, R12
	BNE  plain16
	JMP  summed

evens32:
	ROUND16(16)
	ROUND16(17)
	VUZP1 V17.B16, V16.B16, V18.B16
	VUZP2 V17.B16, V16.B16, V17.B16
	STORE16(V18, F18)
	STORE16(V17, F17)
	SUBS $32, R12, R12
	BNE  evens32

summed:
	VADDV V5.S4, V5
	CBZ  R4, unless
	FMOVS F5, R10
	NEGW R10, R10
	LSLW $7, R10, R10
	MOVW R10, (R4)
	ADD  R5, R4, R4

unless:
	SCVTF4S(5, 5)
	FMULS F5, F6, F5
	FMOVS F5, (R3)
	ADD  R5, R2, R2
	ADD  R5, R3, R3
	SUBS $1, R7, R7
	BNE  group
	RET

// WIDENPAIR stores the 8 bf16 of v as f32. V31: 0.
#define WIDENPAIR(v) \
	VZIP1 v.H8, V31.H8, V24.H8 \
	VZIP2 v.H8, V31.H8, V25.H8 \
	VST1.P [V24.H8, V25.H8], 32(R0)

// func neonWidenScales(dst *float32, src *byte, stride, eights int)
//
// Widens bf16 [8, groups], rows stride bytes apart, to f32 [groups, 8], for
// groups of 8 times eights. The next 8 rows are prefetched.
TEXT ·neonWidenScales(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD stride+16(FP), R2
	MOVD eights+24(FP), R3
	ZERO(V31)

eight:
	MOVD R1, R4
	ADD  R2<<3, R1, R5
#define SCALEROW(v) \
	VLD1 (R4), [v.H8] \
	PRFM (R5), PLDL1KEEP \
	ADD  R2, R4, R4 \
	ADD  R2, R5, R5
	SCALEROW(V0)
	SCALEROW(V1)
	SCALEROW(V2)
	SCALEROW(V3)
	SCALEROW(V4)
	SCALEROW(V5)
	SCALEROW(V6)
	SCALEROW(V7)
	VTRN1 V1.H8, V0.H8, V16.H8
	VTRN2 V1.H8, V0.H8, V17.H8
	VTRN1 V3.H8, V2.H8, V18.H8
	VTRN2 V3.H8, V2.H8, V19.H8
	VTRN1 V5.H8, V4.H8, V20.H8
	VTRN2 V5.H8, V4.H8, V21.H8
	VTRN1 V7.H8, V6.H8, V22.H8
	VTRN2 V7.H8, V6.H8, V23.H8
	VTRN1 V18.S4, V16.S4, V0.S4
	VTRN2 V18.S4, V16.S4, V2.S4
	VTRN1 V19.S4, V17.S4, V1.S4
	VTRN2 V19.S4, V17.S4, V3.S4
	VTRN1 V22.S4, V20.S4, V4.S4
	VTRN2 V22.S4, V20.S4, V6.S4
	VTRN1 V23.S4, V21.S4, V5.S4
	VTRN2 V23.S4, V21.S4, V7.S4
	VTRN1 V4.D2, V0.D2, V16.D2
	VTRN2 V4.D2, V0.D2, V20.D2
	VTRN1 V5.D2, V1.D2, V17.D2
	VTRN2 V5.D2, V1.D2, V21.D2
	VTRN1 V6.D2, V2.D2, V18.D2
	VTRN2 V6.D2, V2.D2, V22.D2
	VTRN1 V7.D2, V3.D2, V19.D2
	VTRN2 V7.D2, V3.D2, V23.D2
	WIDENPAIR(V16)
	WIDENPAIR(V17)
	WIDENPAIR(V18)
	WIDENPAIR(V19)
	WIDENPAIR(V20)
	WIDENPAIR(V21)
	WIDENPAIR(V22)
	WIDENPAIR(V23)
	ADD  $16, R1, R1
	SUBS $1, R3, R3
	BNE  eight
	RET
