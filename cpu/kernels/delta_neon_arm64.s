#include "textflag.h"
#include "macros_neon_arm64.h"

// A tile is some columns of a state. A column's sums are one multiply-add after the
// other. Not measured on hardware.

// DELTA makes four columns of δ = β·(v - α·sum); v is in V24, α and β are in V30 and V31.
#define DELTA(sum) \
	FMUL4S(30, sum, sum) \
	FSUB4S(sum, 24, sum) \
	FMUL4S(31, sum, sum)

// func neonDeltaStep16Asm(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)
TEXT ·neonDeltaStep16Asm(SB), NOSPLIT, $0-72
	MOVD  s+0(FP), R0
	MOVD  stride+8(FP), R1
	LSL   $2, R1, R1
	MOVD  q+16(FP), R2
	MOVD  k+24(FP), R3
	MOVD  v+32(FP), R4
	MOVD  d+40(FP), R5
	MOVD  o+48(FP), R6
	MOVD  n+56(FP), R7
	MOVWU alpha+64(FP), R8
	VDUP  R8, V30.S4
	MOVWU beta+68(FP), R8
	VDUP  R8, V31.S4
	MOVD  R0, R9
	MOVD  R3, R10
	MOVD  R7, R11
	ZERO(V0)
	ZERO(V1)
	ZERO(V2)
	ZERO(V3)

sum:
	VLD1R.P 4(R10), [V8.S4]
	VLD1    (R9), [V16.S4, V17.S4, V18.S4, V19.S4]
	VFMLA   V16.S4, V8.S4, V0.S4
	VFMLA   V17.S4, V8.S4, V1.S4
	VFMLA   V18.S4, V8.S4, V2.S4
	VFMLA   V19.S4, V8.S4, V3.S4
	ADD     R1, R9
	SUBS    $1, R11, R11
	BNE     sum

	VLD1.P 16(R4), [V24.S4]
	DELTA(0)
	VLD1.P 16(R4), [V24.S4]
	DELTA(1)
	VLD1.P 16(R4), [V24.S4]
	DELTA(2)
	VLD1.P 16(R4), [V24.S4]
	DELTA(3)
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R5)
	ZERO(V4)
	ZERO(V5)
	ZERO(V6)
	ZERO(V7)

update:
	VLD1R.P 4(R3), [V8.S4]
	VLD1R.P 4(R2), [V9.S4]
	VLD1    (R0), [V16.S4, V17.S4, V18.S4, V19.S4]
	FMUL4S(30, 16, 16)
	FMUL4S(30, 17, 17)
	FMUL4S(30, 18, 18)
	FMUL4S(30, 19, 19)
	VFMLA   V0.S4, V8.S4, V16.S4
	VFMLA   V1.S4, V8.S4, V17.S4
	VFMLA   V2.S4, V8.S4, V18.S4
	VFMLA   V3.S4, V8.S4, V19.S4
	VFMLA   V16.S4, V9.S4, V4.S4
	VFMLA   V17.S4, V9.S4, V5.S4
	VFMLA   V18.S4, V9.S4, V6.S4
	VFMLA   V19.S4, V9.S4, V7.S4
	VST1    [V16.S4, V17.S4, V18.S4, V19.S4], (R0)
	ADD     R1, R0
	SUBS    $1, R7, R7
	BNE     update
	VST1    [V4.S4, V5.S4, V6.S4, V7.S4], (R6)
	RET

// func neonDeltaFold16Asm(dst, src *float32, stride int, k, d *float32, n int, alpha float32)
TEXT ·neonDeltaFold16Asm(SB), NOSPLIT, $0-52
	MOVD  dst+0(FP), R0
	MOVD  src+8(FP), R9
	MOVD  stride+16(FP), R1
	LSL   $2, R1, R1
	MOVD  k+24(FP), R3
	MOVD  d+32(FP), R5
	MOVD  n+40(FP), R7
	MOVWU alpha+48(FP), R8
	VDUP  R8, V30.S4
	VLD1  (R5), [V0.S4, V1.S4, V2.S4, V3.S4]

fold:
	VLD1R.P 4(R3), [V8.S4]
	VLD1    (R9), [V16.S4, V17.S4, V18.S4, V19.S4]
	FMUL4S(30, 16, 16)
	FMUL4S(30, 17, 17)
	FMUL4S(30, 18, 18)
	FMUL4S(30, 19, 19)
	VFMLA   V0.S4, V8.S4, V16.S4
	VFMLA   V1.S4, V8.S4, V17.S4
	VFMLA   V2.S4, V8.S4, V18.S4
	VFMLA   V3.S4, V8.S4, V19.S4
	VST1    [V16.S4, V17.S4, V18.S4, V19.S4], (R0)
	ADD     R1, R9
	ADD     R1, R0
	SUBS    $1, R7, R7
	BNE     fold
	RET

// func neonDeltaStep4Asm(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)
TEXT ·neonDeltaStep4Asm(SB), NOSPLIT, $0-72
	MOVD  s+0(FP), R0
	MOVD  stride+8(FP), R1
	LSL   $2, R1, R1
	MOVD  q+16(FP), R2
	MOVD  k+24(FP), R3
	MOVD  v+32(FP), R4
	MOVD  d+40(FP), R5
	MOVD  o+48(FP), R6
	MOVD  n+56(FP), R7
	MOVWU alpha+64(FP), R8
	VDUP  R8, V30.S4
	MOVWU beta+68(FP), R8
	VDUP  R8, V31.S4
	MOVD  R0, R9
	MOVD  R3, R10
	MOVD  R7, R11
	ZERO(V0)

sum:
	VLD1R.P 4(R10), [V8.S4]
	VLD1    (R9), [V16.S4]
	VFMLA   V16.S4, V8.S4, V0.S4
	ADD     R1, R9
	SUBS    $1, R11, R11
	BNE     sum

	VLD1.P 16(R4), [V24.S4]
	DELTA(0)
	VST1 [V0.S4], (R5)
	ZERO(V4)

update:
	VLD1R.P 4(R3), [V8.S4]
	VLD1R.P 4(R2), [V9.S4]
	VLD1    (R0), [V16.S4]
	FMUL4S(30, 16, 16)
	VFMLA   V0.S4, V8.S4, V16.S4
	VFMLA   V16.S4, V9.S4, V4.S4
	VST1    [V16.S4], (R0)
	ADD     R1, R0
	SUBS    $1, R7, R7
	BNE     update
	VST1    [V4.S4], (R6)
	RET

// func neonDeltaFold4Asm(dst, src *float32, stride int, k, d *float32, n int, alpha float32)
TEXT ·neonDeltaFold4Asm(SB), NOSPLIT, $0-52
	MOVD  dst+0(FP), R0
	MOVD  src+8(FP), R9
	MOVD  stride+16(FP), R1
	LSL   $2, R1, R1
	MOVD  k+24(FP), R3
	MOVD  d+32(FP), R5
	MOVD  n+40(FP), R7
	MOVWU alpha+48(FP), R8
	VDUP  R8, V30.S4
	VLD1  (R5), [V0.S4]

fold:
	VLD1R.P 4(R3), [V8.S4]
	VLD1    (R9), [V16.S4]
	FMUL4S(30, 16, 16)
	VFMLA   V0.S4, V8.S4, V16.S4
	VST1    [V16.S4], (R0)
	ADD     R1, R9
	ADD     R1, R0
	SUBS    $1, R7, R7
	BNE     fold
	RET

// func neonTapsAsm(dst *float32, x *[]float32, taps int, w *float32, stride, n int)
// n is a multiple of 8.
TEXT ·neonTapsAsm(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD taps+16(FP), R2
	MOVD w+24(FP), R3
	MOVD stride+32(FP), R4
	LSL  $2, R4
	MOVD n+40(FP), R5
	MOVD $0, R6

loop:
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	MOVD R1, R7
	ADD  R3, R6, R8
	MOVD R2, R9

tap:
	MOVD (R7), R10
	ADD  R6, R10
	VLD1 (R10), [V2.S4, V3.S4]
	VLD1 (R8), [V4.S4, V5.S4]
	VFMLA V4.S4, V2.S4, V0.S4
	VFMLA V5.S4, V3.S4, V1.S4
	ADD  $24, R7
	ADD  R4, R8
	SUBS $1, R9, R9
	BNE  tap

	VST1.P [V0.S4, V1.S4], 32(R0)
	ADD    $32, R6
	SUBS   $8, R5, R5
	BNE    loop
	RET
