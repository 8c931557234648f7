#include "textflag.h"
#include "macros_neon_arm64.h"

// Counts are multiples of 8 and at least 8 throughout this file.

// CONSTANTS loads neonExpTable: V16, V17 the lowest and highest argument, V18
// log2 e, V19 and V20 ln 2 in two parts, V21-V26 the polynomial from its
// highest power, V27 = 1; and V28 = 127, the exponent's bias.
#define CONSTANTS \
	MOVD    $·neonExpTable(SB), R9 \
	VLD1R.P 4(R9), [V16.S4] \
	VLD1R.P 4(R9), [V17.S4] \
	VLD1R.P 4(R9), [V18.S4] \
	VLD1R.P 4(R9), [V19.S4] \
	VLD1R.P 4(R9), [V20.S4] \
	VLD1R.P 4(R9), [V21.S4] \
	VLD1R.P 4(R9), [V22.S4] \
	VLD1R.P 4(R9), [V23.S4] \
	VLD1R.P 4(R9), [V24.S4] \
	VLD1R.P 4(R9), [V25.S4] \
	VLD1R.P 4(R9), [V26.S4] \
	VLD1R.P 4(R9), [V27.S4] \
	MOVW    $127, R9 \
	VDUP    R9, V28.S4

// LIMIT clamps register number x to the arguments that EXP takes. NaN stays.
#define LIMIT(x) \
	FMAX4S(16, x, x) \
	FMIN4S(17, x, x)

// EXP sets vector a, number x, to e^a for limited a: n = round(a·log2 e),
// r = a - n·ln 2, e^a = 2^n·(1 + r + r²·p(r)). 2^n is applied in two factors,
// each a normal number, so that results overflow to Inf and underflow through
// the subnormals to 0 as they should. b, c, d are clobbered.
#define EXP(a, x, b, y, c, z, d, w) \
	FMUL4S(18, x, y) \
	FRINTN4S(y, y) \
	VFMLS V19.S4, b.S4, a.S4 \
	VFMLS V20.S4, b.S4, a.S4 \
	FCVTNS4S(y, y) \
	VORR  V22.B16, V22.B16, c.B16 \
	VFMLA V21.S4, a.S4, c.S4 \
	VORR  V23.B16, V23.B16, d.B16 \
	VFMLA c.S4, a.S4, d.S4 \
	VORR  V24.B16, V24.B16, c.B16 \
	VFMLA d.S4, a.S4, c.S4 \
	VORR  V25.B16, V25.B16, d.B16 \
	VFMLA c.S4, a.S4, d.S4 \
	VORR  V26.B16, V26.B16, c.B16 \
	VFMLA d.S4, a.S4, c.S4 \
	FMUL4S(x, x, w) \
	VFMLA c.S4, d.S4, a.S4 \
	FADD4S(27, x, x) \
	HALVE4S(y, z) \
	VSUB  c.S4, b.S4, b.S4 \
	VADD  V28.S4, c.S4, c.S4 \
	VADD  V28.S4, b.S4, b.S4 \
	VSHL  $23, c.S4, c.S4 \
	VSHL  $23, b.S4, b.S4 \
	FMUL4S(z, x, x) \
	FMUL4S(y, x, x)

// func neonSiluMulAsm(dst, gate, up *float32, n int)
TEXT ·neonSiluMulAsm(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD gate+8(FP), R1
	MOVD up+16(FP), R2
	MOVD n+24(FP), R3
	CONSTANTS

loop:
	VLD1.P 32(R1), [V0.S4, V1.S4]
	VLD1.P 32(R2), [V2.S4, V3.S4]
	FNEG4S(0, 4)
	FNEG4S(1, 5)
	LIMIT(4)
	LIMIT(5)
	EXP(V4, 4, V6, 6, V7, 7, V8, 8)
	EXP(V5, 5, V9, 9, V10, 10, V11, 11)
	FADD4S(27, 4, 4)
	FADD4S(27, 5, 5)
	FDIV4S(4, 0, 0)
	FDIV4S(5, 1, 1)
	FMUL4S(2, 0, 0)
	FMUL4S(3, 1, 1)
	VST1.P [V0.S4, V1.S4], 32(R0)
	SUBS   $8, R3, R3
	BNE    loop
	RET

// func neonExpSumAsm(x *float32, n int, shift float32) float32
TEXT ·neonExpSumAsm(SB), NOSPLIT, $0-28
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	MOVWU shift+16(FP), R2
	VDUP R2, V31.S4
	CONSTANTS
	ZERO(V12)
	ZERO(V13)

loop:
	VLD1   (R0), [V4.S4, V5.S4]
	FSUB4S(31, 4, 4)
	FSUB4S(31, 5, 5)
	LIMIT(4)
	LIMIT(5)
	EXP(V4, 4, V6, 6, V7, 7, V8, 8)
	EXP(V5, 5, V9, 9, V10, 10, V11, 11)
	FADD4S(4, 12, 12)
	FADD4S(5, 13, 13)
	VST1.P [V4.S4, V5.S4], 32(R0)
	SUBS   $8, R1, R1
	BNE    loop
	FADD4S(13, 12, 12)
	FADDP4S(12, 12, 12)
	FADDP4S(12, 12, 12)
	FMOVS  F12, ret+24(FP)
	RET

// func neonExpSumsAsm(x *float32, n int, shift float32) (s0, s1 float32)
TEXT ·neonExpSumsAsm(SB), NOSPLIT, $0-32
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	MOVWU shift+16(FP), R2
	VDUP R2, V31.S4
	CONSTANTS
	ZERO(V12)
	ZERO(V13)
	ZERO(V14)
	ZERO(V15)

loop:
	VLD1.P 32(R0), [V4.S4, V5.S4]
	FSUB4S(31, 4, 4)
	FSUB4S(31, 5, 5)
	LIMIT(4)
	LIMIT(5)
	// The limited argument is finite: times e^x = 0 it is 0, not NaN.
	VORR   V4.B16, V4.B16, V2.B16
	VORR   V5.B16, V5.B16, V3.B16
	EXP(V4, 4, V6, 6, V7, 7, V8, 8)
	EXP(V5, 5, V9, 9, V10, 10, V11, 11)
	FADD4S(4, 12, 12)
	FADD4S(5, 13, 13)
	VFMLA  V4.S4, V2.S4, V14.S4
	VFMLA  V5.S4, V3.S4, V15.S4
	SUBS   $8, R1, R1
	BNE    loop
	FADD4S(13, 12, 12)
	FADD4S(15, 14, 14)
	FADDP4S(14, 12, 12)
	FADDP4S(12, 12, 12)
	FMOVS  F12, s0+24(FP)
	VDUP   V12.S[1], V12.S4
	FMOVS  F12, s1+28(FP)
	RET
