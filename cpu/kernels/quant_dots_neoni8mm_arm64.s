#include "textflag.h"
#include "macros_neon_arm64.h"
#include "quant_macros_arm64.h"
#include "quant_dots_arm64.h"

// Rows of activations come in pairs, 8 elements of one and then of the other, as
// the outputs do: SMMLA gives four sums of 8 products, which stay whole to the
// group's end.

// MMLA4 multiplies 8 elements of 4 pairs of outputs, V(w).., with the pair of
// rows in x, to V(acc), V(acc+2)...
#define MMLA4(x, w, acc) \
	SMMLA(x, (w), (acc)) \
	SMMLA(x, (w+1), (acc+2)) \
	SMMLA(x, (w+2), (acc+4)) \
	SMMLA(x, (w+3), (acc+6))

// PAIRJOIN ends a group of the pair of rows whose sums are in a, b, c, d: two
// outputs of both in each. Results of row i are in the registers r0 and r1, of
// the next in r2 and r3.
#define APART(a, b, c, d) \
	VUZP1 b.S4, a.S4, V8.S4 \
	VUZP2 b.S4, a.S4, V9.S4 \
	VUZP1 d.S4, c.S4, V10.S4 \
	VUZP2 d.S4, c.S4, V11.S4

#define PAIRCORRECT(i, j) \
	CORRECT(i, V8) \
	CORRECT(j, V9) \
	CORRECT(i, V10) \
	CORRECT(j, V11)

// WEIGHTSCALES: V19 and V22 are the scales of 8 outputs, V20 and V23 the biases.
#define PAIRJOIN(FMULI, FMULJ, r0, r1, r2, r3) \
	SCVTF4S(8, 8) \
	SCVTF4S(9, 9) \
	SCVTF4S(10, 10) \
	SCVTF4S(11, 11) \
	FMULI(16, 8, 8) \
	FMULJ(16, 9, 9) \
	FMULI(16, 10, 10) \
	FMULJ(16, 11, 11) \
	VFMLA V19.S4, V8.S4, r0.S4 \
	VFMLA V22.S4, V10.S4, r1.S4 \
	VFMLA V19.S4, V9.S4, r2.S4 \
	VFMLA V22.S4, V11.S4, r3.S4

#define PAIRBIAS(FMLAI, FMLAJ, r0, r1, r2, r3) \
	FMLAI(17, 20, r0) \
	FMLAI(17, 23, r1) \
	FMLAJ(17, 20, r2) \
	FMLAJ(17, 23, r3)

#define WEIGHTSCALES \
	VLD1 (R6), [V19.S4] \
	ADD  $16, R6, R13 \
	VLD1 (R13), [V22.S4]

#define WEIGHTBIASES \
	VLD1 (R7), [V20.S4] \
	ADD  $16, R7, R13 \
	VLD1 (R13), [V23.S4]

// func dots4Mmla(t *dotsCall)
TEXT ·dots4Mmla(SB), NOSPLIT, $0-8
	ARGUMENTS
	ADD  R2, R1, R2
	VLD1.P 64(R14), [V24.S4, V25.S4, V26.S4, V27.S4]
	VLD1 (R14), [V28.S4, V29.S4, V30.S4, V31.S4]

group:
	MOVD UNITS(R0), R13
	ZERO(V0)
	ZERO(V1)
	ZERO(V2)
	ZERO(V3)
	ZERO(V4)
	ZERO(V5)
	ZERO(V6)
	ZERO(V7)

unit:
	VLD1.P 64(R5), [V8.B16, V9.B16, V10.B16, V11.B16]
	VLD1.P 64(R5), [V12.B16, V13.B16, V14.B16, V15.B16]
	VLD1.P 32(R1), [V16.B16, V17.B16]
	VLD1.P 32(R2), [V18.B16, V19.B16]
	MMLA4(16, 8, 0)
	MMLA4(18, 8, 1)
	MMLA4(17, 12, 0)
	MMLA4(19, 12, 1)
	SUBS $1, R13, R13
	BNE  unit
	WEIGHTSCALES
	APART(V0, V2, V4, V6)
	SCALES(uncorrected)
	PAIRCORRECT(0, 1)

uncorrected:
	PAIRJOIN(FMULE0, FMULE1, V24, V25, V26, V27)
	APART(V1, V3, V5, V7)
	TBZ $1, R15, uncorrected2
	PAIRCORRECT(2, 3)

uncorrected2:
	PAIRJOIN(FMULE2, FMULE3, V28, V29, V30, V31)
	TBZ $0, R15, unbiased
	WEIGHTBIASES
	PAIRBIAS(FMLA0, FMLA1, 24, 25, 26, 27)
	PAIRBIAS(FMLA2, FMLA3, 28, 29, 30, 31)

unbiased:
	GROUPON(group)
	VST1 [V28.S4, V29.S4, V30.S4, V31.S4], (R14)
	SUB  $64, R14, R14
	VST1 [V24.S4, V25.S4, V26.S4, V27.S4], (R14)
	RET

// func dots2Mmla(t *dotsCall)
TEXT ·dots2Mmla(SB), NOSPLIT, $0-8
	ARGUMENTS
	VLD1 (R14), [V24.S4, V25.S4, V26.S4, V27.S4]

group:
	MOVD UNITS(R0), R13
	ZERO(V0)
	ZERO(V2)
	ZERO(V4)
	ZERO(V6)

unit:
	VLD1.P 64(R5), [V8.B16, V9.B16, V10.B16, V11.B16]
	VLD1.P 64(R5), [V12.B16, V13.B16, V14.B16, V15.B16]
	VLD1.P 32(R1), [V16.B16, V17.B16]
	MMLA4(16, 8, 0)
	MMLA4(17, 12, 0)
	SUBS $1, R13, R13
	BNE  unit
	WEIGHTSCALES
	APART(V0, V2, V4, V6)
	SCALES(uncorrected)
	PAIRCORRECT(0, 1)

uncorrected:
	PAIRJOIN(FMULE0, FMULE1, V24, V25, V26, V27)
	TBZ $0, R15, unbiased
	WEIGHTBIASES
	PAIRBIAS(FMLA0, FMLA1, 24, 25, 26, 27)

unbiased:
	GROUPON(group)
	VST1 [V24.S4, V25.S4, V26.S4, V27.S4], (R14)
	RET
