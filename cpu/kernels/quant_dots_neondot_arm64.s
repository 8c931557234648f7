#include "textflag.h"
#include "macros_neon_arm64.h"
#include "quant_macros_arm64.h"
#include "quant_dots_arm64.h"

// Sums of 4 elements each in lanes: row r's with output o in V(4r + o). At a
// group's end a tree of ADDP leaves those of 4 outputs side by side.

#define ZERO4(a, b, c, d) \
	ZERO(a) \
	ZERO(b) \
	ZERO(c) \
	ZERO(d)

// ROWDOTS multiplies 16 elements of a row (at p, which moves) with 4 outputs.
#define ROWDOTS(p, a, b, c, d) \
	VLD1.P 16(p), [V20.B16] \
	SDOT(20, 16, a) \
	SDOT(20, 17, b) \
	SDOT(20, 18, c) \
	SDOT(20, 19, d)

// TREE leaves the sums of 4 outputs in a.
#define TREE(a, b, c, d) \
	VADDP b.S4, a.S4, a.S4 \
	VADDP d.S4, c.S4, c.S4 \
	VADDP c.S4, a.S4, a.S4

// ROWSAT copies the rows' places: R19 to R22.
#define ROWSAT \
	MOVD UNITS(R0), R13 \
	MOVD R1, R19 \
	ADD  R2, R19, R20 \
	ADD  R2, R20, R21 \
	ADD  R2, R21, R22

#define DOTS1 \
	ROWDOTS(R19, 0, 1, 2, 3)
#define DOTS2 \
	DOTS1 \
	ROWDOTS(R20, 4, 5, 6, 7)
#define DOTS4 \
	DOTS2 \
	ROWDOTS(R21, 8, 9, 10, 11) \
	ROWDOTS(R22, 12, 13, 14, 15)

#define ZEROS1 ZERO4(V0, V1, V2, V3)
#define ZEROS2 ZEROS1; ZERO4(V4, V5, V6, V7)
#define ZEROS4 ZEROS2; ZERO4(V8, V9, V10, V11); ZERO4(V12, V13, V14, V15)
#define TREES1 TREE(V0, V1, V2, V3)
#define TREES2 TREES1; TREE(V4, V5, V6, V7)
#define TREES4 TREES2; TREE(V8, V9, V10, V11); TREE(V12, V13, V14, V15)
#define CORRECTS1 CORRECT(0, V0)
#define CORRECTS2 CORRECTS1; CORRECT(1, V4)
#define CORRECTS4 CORRECTS2; CORRECT(2, V8); CORRECT(3, V12)
#define JOINS1(a) JOIN(FMULE0, 0, a)
#define JOINS2(a, b) JOINS1(a); JOIN(FMULE1, 4, b)
#define JOINS4(a, b, c, d) JOINS2(a, b); JOIN(FMULE2, 8, c); JOIN(FMULE3, 12, d)
#define BIASES1(a) FMLA0(17, 20, a)
#define BIASES2(a, b) BIASES1(a); FMLA1(17, 20, b)
#define BIASES4(a, b, c, d) BIASES2(a, b); FMLA2(17, 20, c); FMLA3(17, 20, d)

// HALF multiplies the rows with 4 outputs, whose bytes are at off in the buffer
// and whose scales at off/4. JOINED and BIASED are JOINS and BIASES of their
// results.
#define HALF(off, ZEROS, DOTS, TREES, CORRECTS, JOINED, BIASED, loop, uncorrected, unbiased) \
	ROWSAT \
	ADD  $off, R5, R3 \
	ZEROS \
loop: \
	VLD1 (R3), [V16.B16, V17.B16, V18.B16, V19.B16] \
	ADD  $128, R3, R3 \
	DOTS \
	SUBS $1, R13, R13 \
	BNE  loop \
	TREES \
	SCALES(uncorrected) \
	CORRECTS \
uncorrected: \
	ADD  $(off/4), R6, R13 \
	VLD1 (R13), [V19.S4] \
	JOINED \
	TBZ  $0, R15, unbiased \
	ADD  $(off/4), R7, R13 \
	VLD1 (R13), [V20.S4] \
	BIASED \
unbiased:

// NEXTGROUP moves on in the buffer and the rows.
#define NEXTGROUP(loop) \
	SUB  $64, R3, R5 \
	MOVD R19, R1 \
	GROUPON(loop)

// func dots4Dot(t *dotsCall)
TEXT ·dots4Dot(SB), NOSPLIT, $0-8
	ARGUMENTS
	VLD1.P 64(R14), [V24.S4, V25.S4, V26.S4, V27.S4]
	VLD1 (R14), [V28.S4, V29.S4, V30.S4, V31.S4]

group:
	HALF(0, ZEROS4, DOTS4, TREES4, CORRECTS4, JOINS4(24, 26, 28, 30), BIASES4(24, 26, 28, 30), low, lowUncorrected, lowUnbiased)
	HALF(64, ZEROS4, DOTS4, TREES4, CORRECTS4, JOINS4(25, 27, 29, 31), BIASES4(25, 27, 29, 31), high, highUncorrected, highUnbiased)
	NEXTGROUP(group)
	VST1 [V28.S4, V29.S4, V30.S4, V31.S4], (R14)
	SUB  $64, R14, R14
	VST1 [V24.S4, V25.S4, V26.S4, V27.S4], (R14)
	RET

// func dots2Dot(t *dotsCall)
TEXT ·dots2Dot(SB), NOSPLIT, $0-8
	ARGUMENTS
	VLD1 (R14), [V24.S4, V25.S4, V26.S4, V27.S4]

group:
	HALF(0, ZEROS2, DOTS2, TREES2, CORRECTS2, JOINS2(24, 26), BIASES2(24, 26), low, lowUncorrected, lowUnbiased)
	HALF(64, ZEROS2, DOTS2, TREES2, CORRECTS2, JOINS2(25, 27), BIASES2(25, 27), high, highUncorrected, highUnbiased)
	NEXTGROUP(group)
	VST1 [V24.S4, V25.S4, V26.S4, V27.S4], (R14)
	RET

// func dots1Dot(t *dotsCall)
TEXT ·dots1Dot(SB), NOSPLIT, $0-8
	ARGUMENTS
	VLD1 (R14), [V24.S4, V25.S4]

group:
	HALF(0, ZEROS1, DOTS1, TREES1, CORRECTS1, JOINS1(24), BIASES1(24), low, lowUncorrected, lowUnbiased)
	HALF(64, ZEROS1, DOTS1, TREES1, CORRECTS1, JOINS1(25), BIASES1(25), high, highUncorrected, highUnbiased)
	NEXTGROUP(group)
	VST1 [V24.S4, V25.S4], (R14)
	RET
