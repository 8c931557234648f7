#include "textflag.h"
#include "macros_neon_arm64.h"

// A score has one accumulator of four lanes, lane l taking elements 4i+l in
// ascending order (the last d%4 go to lane 0), then the tree of SUM4: the same
// in the 4×4 tile, the 1×8 tile and for one key.

#define SCORES4(q, a, b, c, d) \
	VFMLA V20.S4, q.S4, a.S4 \
	VFMLA V21.S4, q.S4, b.S4 \
	VFMLA V22.S4, q.S4, c.S4 \
	VFMLA V23.S4, q.S4, d.S4

#define SCORES4X4 \
	SCORES4(V16, V0, V1, V2, V3) \
	SCORES4(V17, V4, V5, V6, V7) \
	SCORES4(V18, V8, V9, V10, V11) \
	SCORES4(V19, V12, V13, V14, V15)

// func neonScores4x4Asm(s *float32, lds int, q, k *float32, tiles, d int)
// s[i·lds+j] = q[i]·k[j], i < 4, j < 4·tiles.
TEXT ·neonScores4x4Asm(SB), NOSPLIT, $0-48
	MOVD s+0(FP), R0
	MOVD lds+8(FP), R1
	MOVD q+16(FP), R2
	MOVD k+24(FP), R3
	MOVD tiles+32(FP), R4
	MOVD d+40(FP), R5
	LSL  $2, R1, R1
	LSL  $2, R5, R6
	MOVD R3, R12

tile:
	MOVD R2, R8
	ADD  R6, R8, R9
	ADD  R6, R9, R10
	ADD  R6, R10, R11
	ADD  R6, R12, R13
	ADD  R6, R13, R14
	ADD  R6, R14, R15
	ZERO(V0)
	ZERO(V1)
	ZERO(V2)
	ZERO(V3)
	ZERO(V4)
	ZERO(V5)
	ZERO(V6)
	ZERO(V7)
	ZERO(V8)
	ZERO(V9)
	ZERO(V10)
	ZERO(V11)
	ZERO(V12)
	ZERO(V13)
	ZERO(V14)
	ZERO(V15)
	SUBS $4, R5, R7
	BLT  rest

loop:
	VLD1.P 16(R12), [V20.S4]
	VLD1.P 16(R13), [V21.S4]
	VLD1.P 16(R14), [V22.S4]
	VLD1.P 16(R15), [V23.S4]
	VLD1.P 16(R8), [V16.S4]
	VLD1.P 16(R9), [V17.S4]
	VLD1.P 16(R10), [V18.S4]
	VLD1.P 16(R11), [V19.S4]
	SCORES4X4
	SUBS   $4, R7, R7
	BGE    loop

rest:
	ADDS $4, R7, R7
	BEQ  sum

one:
	FMOVS.P 4(R12), F20
	FMOVS.P 4(R13), F21
	FMOVS.P 4(R14), F22
	FMOVS.P 4(R15), F23
	FMOVS.P 4(R8), F16
	FMOVS.P 4(R9), F17
	FMOVS.P 4(R10), F18
	FMOVS.P 4(R11), F19
	SCORES4X4
	SUBS    $1, R7, R7
	BNE     one

sum:
	SUM4(0, 1, 2, 3)
	SUM4(4, 5, 6, 7)
	SUM4(8, 9, 10, 11)
	SUM4(12, 13, 14, 15)
	ADD  R1, R0, R8
	ADD  R1, R8, R9
	ADD  R1, R9, R10
	VST1 [V7.S4], (R8)
	VST1 [V11.S4], (R9)
	VST1 [V15.S4], (R10)
	VST1.P [V3.S4], 16(R0)
	MOVD R15, R12             // the next key follows the last
	SUBS $1, R4, R4
	BNE  tile
	RET

// func neonScores1x8Asm(s, q, k *float32, tiles, d int)
// s[j] = q·k[j], j < 8·tiles.
TEXT ·neonScores1x8Asm(SB), NOSPLIT, $0-40
	MOVD s+0(FP), R0
	MOVD q+8(FP), R2
	MOVD k+16(FP), R3
	MOVD tiles+24(FP), R4
	MOVD d+32(FP), R5
	LSL  $2, R5, R6
	MOVD R3, R15

tile:
	MOVD R2, R1
	MOVD R15, R8
	ADD  R6, R8, R9
	ADD  R6, R9, R10
	ADD  R6, R10, R11
	ADD  R6, R11, R12
	ADD  R6, R12, R13
	ADD  R6, R13, R14
	ADD  R6, R14, R15
	ZERO(V0)
	ZERO(V1)
	ZERO(V2)
	ZERO(V3)
	ZERO(V4)
	ZERO(V5)
	ZERO(V6)
	ZERO(V7)
	SUBS $4, R5, R7
	BLT  rest

loop:
	VLD1.P 16(R1), [V16.S4]
	VLD1.P 16(R8), [V20.S4]
	VLD1.P 16(R9), [V21.S4]
	VLD1.P 16(R10), [V22.S4]
	VLD1.P 16(R11), [V23.S4]
	SCORES4(V16, V0, V1, V2, V3)
	VLD1.P 16(R12), [V20.S4]
	VLD1.P 16(R13), [V21.S4]
	VLD1.P 16(R14), [V22.S4]
	VLD1.P 16(R15), [V23.S4]
	SCORES4(V16, V4, V5, V6, V7)
	SUBS   $4, R7, R7
	BGE    loop

rest:
	ADDS $4, R7, R7
	BEQ  sum

one:
	FMOVS.P 4(R1), F16
	FMOVS.P 4(R8), F20
	FMOVS.P 4(R9), F21
	FMOVS.P 4(R10), F22
	FMOVS.P 4(R11), F23
	SCORES4(V16, V0, V1, V2, V3)
	FMOVS.P 4(R12), F20
	FMOVS.P 4(R13), F21
	FMOVS.P 4(R14), F22
	FMOVS.P 4(R15), F23
	SCORES4(V16, V4, V5, V6, V7)
	SUBS    $1, R7, R7
	BNE     one

sum:
	SUM4(0, 1, 2, 3)
	SUM4(4, 5, 6, 7)
	VST1.P [V3.S4], 16(R0)
	VST1.P [V7.S4], 16(R0)
	SUBS   $1, R4, R4
	BNE    tile
	RET

// func neonScoreAsm(q, k *float32, d int) float32
TEXT ·neonScoreAsm(SB), NOSPLIT, $0-28
	MOVD q+0(FP), R1
	MOVD k+8(FP), R2
	MOVD d+16(FP), R5
	ZERO(V0)
	SUBS $4, R5, R7
	BLT  rest

loop:
	VLD1.P 16(R1), [V16.S4]
	VLD1.P 16(R2), [V20.S4]
	VFMLA  V20.S4, V16.S4, V0.S4
	SUBS   $4, R7, R7
	BGE    loop

rest:
	ADDS $4, R7, R7
	BEQ  sum

one:
	FMOVS.P 4(R1), F16
	FMOVS.P 4(R2), F20
	VFMLA   V20.S4, V16.S4, V0.S4
	SUBS    $1, R7, R7
	BNE     one

sum:
	FADDP4S(0, 0, 0)
	FADDP4S(0, 0, 0)
	FMOVS F0, ret+24(FP)
	RET

// VALUES adds lane j of the four rows' weights times V20-V23, 16 columns.
#define VALUES(FMLA) \
	FMLA(16, 20, 0) \
	FMLA(16, 21, 1) \
	FMLA(16, 22, 2) \
	FMLA(16, 23, 3) \
	FMLA(17, 20, 4) \
	FMLA(17, 21, 5) \
	FMLA(17, 22, 6) \
	FMLA(17, 23, 7) \
	FMLA(18, 20, 8) \
	FMLA(18, 21, 9) \
	FMLA(18, 22, 10) \
	FMLA(18, 23, 11) \
	FMLA(19, 20, 12) \
	FMLA(19, 21, 13) \
	FMLA(19, 22, 14) \
	FMLA(19, 23, 15)

#define VALUE16(R) \
	VLD1 (R), [V20.S4, V21.S4, V22.S4, V23.S4] \
	ADD  R6, R

// func neonValues4x16Asm(acc, p *float32, ldp int, v *float32, nk, d int)
// 16 columns of 4 rows, all values.
TEXT ·neonValues4x16Asm(SB), NOSPLIT, $0-48
	MOVD acc+0(FP), R0
	MOVD p+8(FP), R12
	MOVD ldp+16(FP), R1
	MOVD v+24(FP), R3
	MOVD nk+32(FP), R4
	MOVD d+40(FP), R6
	LSL  $2, R1, R1
	LSL  $2, R6, R6
	ADD  R6, R0, R8
	ADD  R6, R8, R9
	ADD  R6, R9, R10
	ADD  R1, R12, R13
	ADD  R1, R13, R14
	ADD  R1, R14, R15
	VLD1 (R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1 (R8), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1 (R9), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1 (R10), [V12.S4, V13.S4, V14.S4, V15.S4]
	SUBS $4, R4, R4
	BLT  rest

loop:
	VLD1.P 16(R12), [V16.S4]
	VLD1.P 16(R13), [V17.S4]
	VLD1.P 16(R14), [V18.S4]
	VLD1.P 16(R15), [V19.S4]
	VALUE16(R3)
	VALUES(FMLA0)
	VALUE16(R3)
	VALUES(FMLA1)
	VALUE16(R3)
	VALUES(FMLA2)
	VALUE16(R3)
	VALUES(FMLA3)
	SUBS   $4, R4, R4
	BGE    loop

rest:
	ADDS $4, R4, R4
	BEQ  done

one:
	FMOVS.P 4(R12), F16
	FMOVS.P 4(R13), F17
	FMOVS.P 4(R14), F18
	FMOVS.P 4(R15), F19
	VALUE16(R3)
	VALUES(FMLA0)
	SUBS    $1, R4, R4
	BNE     one

done:
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R0)
	VST1 [V4.S4, V5.S4, V6.S4, V7.S4], (R8)
	VST1 [V8.S4, V9.S4, V10.S4, V11.S4], (R9)
	VST1 [V12.S4, V13.S4, V14.S4, V15.S4], (R10)
	RET

#define VALUES16(R, a, b, c, d) \
	VLD1.P 64(R), [V20.S4, V21.S4, V22.S4, V23.S4] \
	FMLA0(16, 20, a) \
	FMLA0(16, 21, b) \
	FMLA0(16, 22, c) \
	FMLA0(16, 23, d)

// func neonValues1x64Asm(acc, p, v *float32, nk, d int)
// 64 columns of one row, all values.
TEXT ·neonValues1x64Asm(SB), NOSPLIT, $0-40
	MOVD   acc+0(FP), R0
	MOVD   p+8(FP), R1
	MOVD   v+16(FP), R3
	MOVD   nk+24(FP), R4
	MOVD   d+32(FP), R6
	LSL    $2, R6, R6
	SUB    $256, R6, R6
	MOVD   R0, R8
	VLD1.P 64(R8), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R8), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1.P 64(R8), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1   (R8), [V12.S4, V13.S4, V14.S4, V15.S4]

loop:
	FMOVS.P 4(R1), F16
	VALUES16(R3, 0, 1, 2, 3)
	VALUES16(R3, 4, 5, 6, 7)
	VALUES16(R3, 8, 9, 10, 11)
	VALUES16(R3, 12, 13, 14, 15)
	ADD     R6, R3
	SUBS    $1, R4, R4
	BNE     loop
	VST1.P  [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	VST1.P  [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	VST1.P  [V8.S4, V9.S4, V10.S4, V11.S4], 64(R0)
	VST1    [V12.S4, V13.S4, V14.S4, V15.S4], (R0)
	RET

// func neonValues1x4Asm(acc, p, v *float32, nk, d int)
// 4 columns of one row, all values.
TEXT ·neonValues1x4Asm(SB), NOSPLIT, $0-40
	MOVD acc+0(FP), R0
	MOVD p+8(FP), R1
	MOVD v+16(FP), R3
	MOVD nk+24(FP), R4
	MOVD d+32(FP), R6
	LSL  $2, R6, R6
	VLD1 (R0), [V0.S4]

loop:
	FMOVS.P 4(R1), F16
	VLD1    (R3), [V20.S4]
	ADD     R6, R3
	FMLA0(16, 20, 0)
	SUBS    $1, R4, R4
	BNE     loop
	VST1    [V0.S4], (R0)
	RET

// func neonValues1x1Asm(acc, p, v *float32, nk, d int)
// One column of one row, all values.
TEXT ·neonValues1x1Asm(SB), NOSPLIT, $0-40
	MOVD  acc+0(FP), R0
	MOVD  p+8(FP), R1
	MOVD  v+16(FP), R3
	MOVD  nk+24(FP), R4
	MOVD  d+32(FP), R6
	LSL   $2, R6, R6
	FMOVS (R0), F0

loop:
	FMOVS.P 4(R1), F16
	FMOVS   (R3), F20
	ADD     R6, R3
	FMADDS  F20, F0, F16, F0
	SUBS    $1, R4, R4
	BNE     loop
	FMOVS   F0, (R0)
	RET
