#include "textflag.h"
#include "macros_neon_arm64.h"

// Counts are multiples of 8 and at least 8 throughout this file.

// func neonWidenBF16Asm(dst *float32, src *byte, n int)
TEXT ·neonWidenBF16Asm(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	ZERO(V31)
	SUBS $32, R2, R2
	BLT  rest

loop32:
	PRFM     512(R1), PLDL1KEEP
	VLD1.P   64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VZIP1    V0.H8, V31.H8, V16.H8
	VZIP2    V0.H8, V31.H8, V17.H8
	VZIP1    V1.H8, V31.H8, V18.H8
	VZIP2    V1.H8, V31.H8, V19.H8
	VZIP1    V2.H8, V31.H8, V20.H8
	VZIP2    V2.H8, V31.H8, V21.H8
	VZIP1    V3.H8, V31.H8, V22.H8
	VZIP2    V3.H8, V31.H8, V23.H8
	VST1.P   [V16.B16, V17.B16, V18.B16, V19.B16], 64(R0)
	VST1.P   [V20.B16, V21.B16, V22.B16, V23.B16], 64(R0)
	SUBS     $32, R2, R2
	BGE      loop32

rest:
	ADDS $32, R2, R2
	BEQ  done

loop8:
	VLD1.P 16(R1), [V0.B16]
	VZIP1  V0.H8, V31.H8, V16.H8
	VZIP2  V0.H8, V31.H8, V17.H8
	VST1.P [V16.B16, V17.B16], 32(R0)
	SUBS   $8, R2, R2
	BNE    loop8

done:
	RET

// func neonWidenF16Asm(dst *float32, src *byte, n int)
TEXT ·neonWidenF16Asm(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

loop:
	VLD1.P 16(R1), [V0.B16]
	FCVTL4S(0, 16)
	FCVTL24S(0, 17)
	VST1.P [V16.B16, V17.B16], 32(R0)
	SUBS   $8, R2, R2
	BNE    loop
	RET

// ROUND sets the high halves of x to the nearest bfloat16, ties to even; it
// needs V28 = 1, V29 = 0x7fff, V30 = 0x400000 in every lane.
#define ROUND(x, nx, t, nt, u) \
	VUSHR $16, x.S4, t.S4 \
	VAND  V28.B16, t.B16, t.B16 \
	VADD  x.S4, t.S4, t.S4 \
	VADD  V29.S4, t.S4, t.S4 \
	VORR  V30.B16, x.B16, u.B16 \
	FCMEQ4S(nx, nx, nx) \
	VBSL  u.B16, t.B16, x.B16

// func neonNarrowBF16Asm(dst *byte, src *float32, n int)
TEXT ·neonNarrowBF16Asm(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	MOVW $1, R3
	VDUP R3, V28.S4
	MOVW $0x7fff, R3
	VDUP R3, V29.S4
	MOVW $0x400000, R3
	VDUP R3, V30.S4

loop:
	VLD1.P 32(R1), [V0.B16, V1.B16]
	ROUND(V0, 0, V2, 2, V4)
	ROUND(V1, 1, V3, 3, V5)
	VUZP2  V1.H8, V0.H8, V6.H8
	VST1.P [V6.B16], 16(R0)
	SUBS   $8, R2, R2
	BNE    loop
	RET

// func neonWidenInt8Asm(dst *float32, src *byte, n int, scale float32)
TEXT ·neonWidenInt8Asm(SB), NOSPLIT, $0-28
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	MOVWU scale+24(FP), R3
	VDUP R3, V31.S4

loop:
	VLD1.P 8(R1), [V0.B8]
	SXTL8H(0, 1)
	SXTL4S(1, 2)
	SXTL24S(1, 3)
	SCVTF4S(2, 2)
	SCVTF4S(3, 3)
	FMUL4S(31, 2, 2)
	FMUL4S(31, 3, 3)
	VST1.P [V2.B16, V3.B16], 32(R0)
	SUBS   $8, R2, R2
	BNE    loop
	RET

// func neonSumSquaresAsm(x *float32, n int) float32
TEXT ·neonSumSquaresAsm(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	ZERO(V0)
	ZERO(V1)
	ZERO(V2)
	ZERO(V3)
	SUBS $16, R1, R1
	BLT  rest

loop16:
	VLD1.P 64(R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	VFMLA  V4.S4, V4.S4, V0.S4
	VFMLA  V5.S4, V5.S4, V1.S4
	VFMLA  V6.S4, V6.S4, V2.S4
	VFMLA  V7.S4, V7.S4, V3.S4
	SUBS   $16, R1, R1
	BGE    loop16

rest:
	ADDS   $16, R1, R1
	BEQ    done
	VLD1.P 32(R0), [V4.S4, V5.S4]
	VFMLA  V4.S4, V4.S4, V0.S4
	VFMLA  V5.S4, V5.S4, V1.S4

done:
	SUM4(0, 1, 2, 3)
	FADDP4S(3, 3, 3)
	FADDP4S(3, 3, 3)
	FMOVS F3, ret+16(FP)
	RET

// func neonScaleMulAsm(dst, x, w *float32, n int, s float32)
TEXT ·neonScaleMulAsm(SB), NOSPLIT, $0-36
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD w+16(FP), R2
	MOVD n+24(FP), R3
	MOVWU s+32(FP), R4
	VDUP R4, V31.S4

loop:
	VLD1.P 32(R1), [V0.S4, V1.S4]
	VLD1.P 32(R2), [V2.S4, V3.S4]
	FMUL4S(31, 0, 0)
	FMUL4S(31, 1, 1)
	FMUL4S(2, 0, 0)
	FMUL4S(3, 1, 1)
	VST1.P [V0.S4, V1.S4], 32(R0)
	SUBS   $8, R3, R3
	BNE    loop
	RET

// func neonAddAsm(dst, x *float32, n int)
TEXT ·neonAddAsm(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD n+16(FP), R2

loop:
	VLD1   (R0), [V0.S4, V1.S4]
	VLD1.P 32(R1), [V2.S4, V3.S4]
	FADD4S(2, 0, 0)
	FADD4S(3, 1, 1)
	VST1.P [V0.S4, V1.S4], 32(R0)
	SUBS   $8, R2, R2
	BNE    loop
	RET

// func neonScaleAsm(x *float32, n int, s float32)
TEXT ·neonScaleAsm(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	MOVWU s+16(FP), R2
	VDUP R2, V31.S4

loop:
	VLD1   (R0), [V0.S4, V1.S4]
	FMUL4S(31, 0, 0)
	FMUL4S(31, 1, 1)
	VST1.P [V0.S4, V1.S4], 32(R0)
	SUBS   $8, R1, R1
	BNE    loop
	RET

// func neonRotateAsm(a, b, cos, sin *float32, n int)
TEXT ·neonRotateAsm(SB), NOSPLIT, $0-40
	MOVD a+0(FP), R0
	MOVD b+8(FP), R1
	MOVD cos+16(FP), R2
	MOVD sin+24(FP), R3
	MOVD n+32(FP), R4

loop:
	VLD1   (R0), [V0.S4, V1.S4]
	VLD1   (R1), [V2.S4, V3.S4]
	VLD1.P 32(R2), [V4.S4, V5.S4]
	VLD1.P 32(R3), [V6.S4, V7.S4]
	FMUL4S(4, 0, 16)
	FMUL4S(5, 1, 17)
	FMUL4S(4, 2, 18)
	FMUL4S(5, 3, 19)
	VFMLS  V6.S4, V2.S4, V16.S4
	VFMLS  V7.S4, V3.S4, V17.S4
	VFMLA  V6.S4, V0.S4, V18.S4
	VFMLA  V7.S4, V1.S4, V19.S4
	VST1.P [V16.S4, V17.S4], 32(R0)
	VST1.P [V18.S4, V19.S4], 32(R1)
	SUBS   $8, R4, R4
	BNE    loop
	RET

// func neonMaximumAsm(x *float32, n int) float32
TEXT ·neonMaximumAsm(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	VLD1 (R0), [V0.S4, V1.S4]

loop:
	VLD1.P 32(R0), [V2.S4, V3.S4]
	FMAX4S(2, 0, 0)
	FMAX4S(3, 1, 1)
	SUBS   $8, R1, R1
	BNE    loop
	FMAX4S(1, 0, 0)
	FMAXV4S(0, 0)
	FMOVS  F0, ret+16(FP)
	RET
