#include "textflag.h"
#include "tiles_amx_amd64.h"

// Offsets in dotCall.
#define W       0
#define STRIDE  8
#define AHEAD   16
#define W1      24
#define W2      32
#define W3      40
#define X       48
#define ACC     96
#define Y       104
#define LDY     112
#define BETWEEN 120
#define ALONG   128
#define STEPS   136
#define BLOCKS  144
#define RESUME  152
#define FINISH  160

// Accumulators: row r has Z(4r)..Z(4r+3), one for each of four outputs. Z24..Z27
// are the weights, Z28 the activations.

#define STEPROW(x, a0, a1, a2, a3) \
	VMOVUPS (x)(AX*1), Z28; \
	VDPBF16PS(28, 24, a0); \
	VDPBF16PS(28, 25, a1); \
	VDPBF16PS(28, 26, a2); \
	VDPBF16PS(28, 27, a3)

// A step: 32 elements of four rows of weights.
#define STEPROWS4 \
	VMOVUPS (BX)(AX*1), Z24; \
	VMOVUPS (CX)(AX*1), Z25; \
	VMOVUPS (SI)(AX*1), Z26; \
	VMOVUPS (DI)(AX*1), Z27

// STEPWEIGHTS asks for a line of each DX bytes from them, too.
#define STEPWEIGHTS \
	STEPROWS4; \
	PREFETCHT0 (BX)(DX*1); \
	PREFETCHT0 (CX)(DX*1); \
	PREFETCHT0 (SI)(DX*1); \
	PREFETCHT0 (DI)(DX*1); \
	ADDQ $64, DX

#define ZERO4(a, b, c, d) \
	VPXORQ a, a, a; \
	VPXORQ b, b, b; \
	VPXORQ c, c, c; \
	VPXORQ d, d, d

#define LOAD4(r, a, b, c, d) \
	VMOVUPS (256*r+0)(R14), a; \
	VMOVUPS (256*r+64)(R14), b; \
	VMOVUPS (256*r+128)(R14), c; \
	VMOVUPS (256*r+192)(R14), d

#define SAVE4(r, a, b, c, d) \
	VMOVUPS a, (256*r+0)(R14); \
	VMOVUPS b, (256*r+64)(R14); \
	VMOVUPS c, (256*r+128)(R14); \
	VMOVUPS d, (256*r+192)(R14)

// QUAD begins the trees of the sums of four accumulators' lanes, as far as they go within
// 128 bits: each four lanes of to then have one sum of each of the four.
#define QUAD(a, b, c, d, to) \
	VUNPCKLPS b, a, Z24; \
	VUNPCKHPS b, a, Z25; \
	VADDPS Z25, Z24, Z24; \
	VUNPCKLPS d, c, Z26; \
	VUNPCKHPS d, c, Z27; \
	VADDPS Z27, Z26, Z26; \
	VUNPCKLPD Z26, Z24, Z25; \
	VUNPCKHPD Z26, Z24, Z27; \
	VADDPS Z27, Z25, to

// SUM4 adds the 16 lanes of four accumulators, in one fixed tree for each, and
// stores the four sums from BX on, SI bytes apart, DI being three times that. Rows are CX
// bytes apart.
#define SUM4(a, b, c, d) \
	QUAD(a, b, c, d, Z24); \
	VEXTRACTF64X4 $1, Z24, Y25; \
	VADDPS Y25, Y24, Y24; \
	VEXTRACTF32X4 $1, Y24, X25; \
	VADDPS X25, X24, X24; \
	VMOVSS X24, (BX); \
	VEXTRACTPS $1, X24, (BX)(SI*1); \
	VEXTRACTPS $2, X24, (BX)(SI*2); \
	VEXTRACTPS $3, X24, (BX)(DI*1); \
	ADDQ CX, BX

// SUMS is what SUM4 takes of a block.
#define SUMS \
	MOVQ y-24(SP), BX; \
	MOVQ LDY(R15), CX; \
	MOVQ BETWEEN(R15), SI; \
	LEAQ (SI)(SI*2), DI

// BEGIN takes what the blocks move along into the frame: the caller's pointers
// stay as they are, for the garbage collector.
#define BEGIN \
	MOVQ  d+0(FP), R15; \
	MOVQ  W(R15), AX; \
	MOVQ  AX, w-8(SP); \
	MOVQ  ACC(R15), AX; \
	MOVQ  AX, acc-16(SP); \
	MOVQ  Y(R15), AX; \
	MOVQ  AX, y-24(SP); \
	MOVQ  BLOCKS(R15), AX; \
	MOVQ  AX, blocks-32(SP)

// BLOCK opens a block of four outputs: its rows of weights in BX, CX, SI, DI,
// the distance of what to prefetch in DX, and its accumulators in R14.
#define BLOCK \
	MOVQ w-8(SP), BX; \
	MOVQ W1(R15), CX; \
	ADDQ BX, CX; \
	MOVQ W2(R15), SI; \
	ADDQ BX, SI; \
	MOVQ W3(R15), DI; \
	ADDQ BX, DI; \
	MOVQ AHEAD(R15), DX; \
	MOVQ acc-16(SP), R14; \
	XORQ AX, AX

// NEXT goes on to the next four outputs.
#define NEXT(rows, again) \
	ADDQ $(256*rows), acc-16(SP); \
	MOVQ STRIDE(R15), BX; \
	ADDQ BX, w-8(SP); \
	MOVQ ALONG(R15), BX; \
	ADDQ BX, y-24(SP); \
	DECQ blocks-32(SP); \
	JNZ  again

// func packBF16(dst *uint16, x *float32, steps int)
TEXT ·packBF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ steps+16(FP), CX

packAgain:
	VMOVUPS 0(SI), Z0
	VMOVUPS 64(SI), Z1
	VCVTNE2PS2BF16(0, 1, 2)
	VMOVUPS Z2, (DI)
	ADDQ $128, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  packAgain
	VZEROUPPER
	RET

// func dots1(d *dotCall)
TEXT ·dots1(SB), NOSPLIT, $32-8
	BEGIN
	MOVQ  (X+0)(R15), R8

block1:
	BLOCK
	ZERO4(Z0, Z1, Z2, Z3)
	MOVQ STEPS(R15), R14

step1:
	STEPWEIGHTS
	STEPROW(R8, 0, 1, 2, 3)
	ADDQ $64, AX
	DECQ R14
	JNZ  step1
	SUMS
	SUM4(Z0, Z1, Z2, Z3)
	NEXT(1, block1)
	VZEROUPPER
	RET

// func dots2(d *dotCall)
TEXT ·dots2(SB), NOSPLIT, $32-8
	BEGIN
	MOVQ  (X+0)(R15), R8
	MOVQ  (X+8)(R15), R9

block2:
	BLOCK
	CMPQ RESUME(R15), $0
	JNE  resume2
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	JMP  begin2

resume2:
	LOAD4(0, Z0, Z1, Z2, Z3)
	LOAD4(1, Z4, Z5, Z6, Z7)

begin2:
	MOVQ STEPS(R15), R14

step2:
	STEPWEIGHTS
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	ADDQ $64, AX
	DECQ R14
	JNZ  step2
	CMPQ FINISH(R15), $0
	JNE  finish2
	MOVQ acc-16(SP), R14
	SAVE4(0, Z0, Z1, Z2, Z3)
	SAVE4(1, Z4, Z5, Z6, Z7)
	JMP  next2

finish2:
	SUMS
	SUM4(Z0, Z1, Z2, Z3)
	SUM4(Z4, Z5, Z6, Z7)

next2:
	NEXT(2, block2)
	VZEROUPPER
	RET

// func dots3(d *dotCall)
TEXT ·dots3(SB), NOSPLIT, $32-8
	BEGIN
	MOVQ  (X+0)(R15), R8
	MOVQ  (X+8)(R15), R9
	MOVQ  (X+16)(R15), R10

block3:
	BLOCK
	CMPQ RESUME(R15), $0
	JNE  resume3
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	JMP  begin3

resume3:
	LOAD4(0, Z0, Z1, Z2, Z3)
	LOAD4(1, Z4, Z5, Z6, Z7)
	LOAD4(2, Z8, Z9, Z10, Z11)

begin3:
	MOVQ STEPS(R15), R14

step3:
	STEPWEIGHTS
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	STEPROW(R10, 8, 9, 10, 11)
	ADDQ $64, AX
	DECQ R14
	JNZ  step3
	CMPQ FINISH(R15), $0
	JNE  finish3
	MOVQ acc-16(SP), R14
	SAVE4(0, Z0, Z1, Z2, Z3)
	SAVE4(1, Z4, Z5, Z6, Z7)
	SAVE4(2, Z8, Z9, Z10, Z11)
	JMP  next3

finish3:
	SUMS
	SUM4(Z0, Z1, Z2, Z3)
	SUM4(Z4, Z5, Z6, Z7)
	SUM4(Z8, Z9, Z10, Z11)

next3:
	NEXT(3, block3)
	VZEROUPPER
	RET

// func dots4(d *dotCall)
TEXT ·dots4(SB), NOSPLIT, $32-8
	BEGIN
	MOVQ  (X+0)(R15), R8
	MOVQ  (X+8)(R15), R9
	MOVQ  (X+16)(R15), R10
	MOVQ  (X+24)(R15), R11

block4:
	BLOCK
	CMPQ RESUME(R15), $0
	JNE  resume4
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	JMP  begin4

resume4:
	LOAD4(0, Z0, Z1, Z2, Z3)
	LOAD4(1, Z4, Z5, Z6, Z7)
	LOAD4(2, Z8, Z9, Z10, Z11)
	LOAD4(3, Z12, Z13, Z14, Z15)

begin4:
	MOVQ STEPS(R15), R14

step4:
	STEPWEIGHTS
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	STEPROW(R10, 8, 9, 10, 11)
	STEPROW(R11, 12, 13, 14, 15)
	ADDQ $64, AX
	DECQ R14
	JNZ  step4
	CMPQ FINISH(R15), $0
	JNE  finish4
	MOVQ acc-16(SP), R14
	SAVE4(0, Z0, Z1, Z2, Z3)
	SAVE4(1, Z4, Z5, Z6, Z7)
	SAVE4(2, Z8, Z9, Z10, Z11)
	SAVE4(3, Z12, Z13, Z14, Z15)
	JMP  next4

finish4:
	SUMS
	SUM4(Z0, Z1, Z2, Z3)
	SUM4(Z4, Z5, Z6, Z7)
	SUM4(Z8, Z9, Z10, Z11)
	SUM4(Z12, Z13, Z14, Z15)

next4:
	NEXT(4, block4)
	VZEROUPPER
	RET

// func dots5(d *dotCall)
TEXT ·dots5(SB), NOSPLIT, $32-8
	BEGIN
	MOVQ  (X+0)(R15), R8
	MOVQ  (X+8)(R15), R9
	MOVQ  (X+16)(R15), R10
	MOVQ  (X+24)(R15), R11
	MOVQ  (X+32)(R15), R12

block5:
	BLOCK
	CMPQ RESUME(R15), $0
	JNE  resume5
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	ZERO4(Z16, Z17, Z18, Z19)
	JMP  begin5

resume5:
	LOAD4(0, Z0, Z1, Z2, Z3)
	LOAD4(1, Z4, Z5, Z6, Z7)
	LOAD4(2, Z8, Z9, Z10, Z11)
	LOAD4(3, Z12, Z13, Z14, Z15)
	LOAD4(4, Z16, Z17, Z18, Z19)

begin5:
	MOVQ STEPS(R15), R14

step5:
	STEPWEIGHTS
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	STEPROW(R10, 8, 9, 10, 11)
	STEPROW(R11, 12, 13, 14, 15)
	STEPROW(R12, 16, 17, 18, 19)
	ADDQ $64, AX
	DECQ R14
	JNZ  step5
	CMPQ FINISH(R15), $0
	JNE  finish5
	MOVQ acc-16(SP), R14
	SAVE4(0, Z0, Z1, Z2, Z3)
	SAVE4(1, Z4, Z5, Z6, Z7)
	SAVE4(2, Z8, Z9, Z10, Z11)
	SAVE4(3, Z12, Z13, Z14, Z15)
	SAVE4(4, Z16, Z17, Z18, Z19)
	JMP  next5

finish5:
	SUMS
	SUM4(Z0, Z1, Z2, Z3)
	SUM4(Z4, Z5, Z6, Z7)
	SUM4(Z8, Z9, Z10, Z11)
	SUM4(Z12, Z13, Z14, Z15)
	SUM4(Z16, Z17, Z18, Z19)

next5:
	NEXT(5, block5)
	VZEROUPPER
	RET

// func dots6(d *dotCall)
TEXT ·dots6(SB), NOSPLIT, $32-8
	BEGIN
	MOVQ  (X+0)(R15), R8
	MOVQ  (X+8)(R15), R9
	MOVQ  (X+16)(R15), R10
	MOVQ  (X+24)(R15), R11
	MOVQ  (X+32)(R15), R12
	MOVQ  (X+40)(R15), R13

block6:
	BLOCK
	CMPQ RESUME(R15), $0
	JNE  resume6
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	ZERO4(Z16, Z17, Z18, Z19)
	ZERO4(Z20, Z21, Z22, Z23)
	JMP  begin6

resume6:
	LOAD4(0, Z0, Z1, Z2, Z3)
	LOAD4(1, Z4, Z5, Z6, Z7)
	LOAD4(2, Z8, Z9, Z10, Z11)
	LOAD4(3, Z12, Z13, Z14, Z15)
	LOAD4(4, Z16, Z17, Z18, Z19)
	LOAD4(5, Z20, Z21, Z22, Z23)

begin6:
	MOVQ STEPS(R15), R14

step6:
	STEPWEIGHTS
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	STEPROW(R10, 8, 9, 10, 11)
	STEPROW(R11, 12, 13, 14, 15)
	STEPROW(R12, 16, 17, 18, 19)
	STEPROW(R13, 20, 21, 22, 23)
	ADDQ $64, AX
	DECQ R14
	JNZ  step6
	CMPQ FINISH(R15), $0
	JNE  finish6
	MOVQ acc-16(SP), R14
	SAVE4(0, Z0, Z1, Z2, Z3)
	SAVE4(1, Z4, Z5, Z6, Z7)
	SAVE4(2, Z8, Z9, Z10, Z11)
	SAVE4(3, Z12, Z13, Z14, Z15)
	SAVE4(4, Z16, Z17, Z18, Z19)
	SAVE4(5, Z20, Z21, Z22, Z23)
	JMP  next6

finish6:
	SUMS
	SUM4(Z0, Z1, Z2, Z3)
	SUM4(Z4, Z5, Z6, Z7)
	SUM4(Z8, Z9, Z10, Z11)
	SUM4(Z12, Z13, Z14, Z15)
	SUM4(Z16, Z17, Z18, Z19)
	SUM4(Z20, Z21, Z22, Z23)

next6:
	NEXT(6, block6)
	VZEROUPPER
	RET

// The accumulators of a part wait for the next one: instructions that wait for sums of products
// are in the way of those behind them, so that nothing would be multiplied until they are done.
// One row after the other is added up, and begins with the first step of the part that has
// come, which has as many rows, or one more or less.

#define NEARBEGIN MOVQ $0, waiting-48(SP)

// NEAREND adds up the last part.
#define NEAREND \
	MOVQ to-56(SP), AX; \
	MOVQ NEARLDY(R15), DX; \
	SUMROW0; \
	SUMROW1; \
	CMPQ waiting-48(SP), $3; \
	JLT  nearDone; \
	SUMROW2; \
	CMPQ waiting-48(SP), $4; \
	JLT  nearDone; \
	SUMROW3; \
	CMPQ waiting-48(SP), $5; \
	JLT  nearDone; \
	SUMROW4; \
	CMPQ waiting-48(SP), $6; \
	JLT  nearDone; \
	SUMROW5

// SUMROW adds up the accumulators of a row that waits by SUM4's trees, stores the four sums at
// AX, and moves AX on to the next row, DX bytes.
#define SUMROW(a, y, x, b, c, d) \
	VUNPCKHPS b, a, Z29; \
	VUNPCKLPS b, a, a; \
	VUNPCKHPS d, c, Z30; \
	VUNPCKLPS d, c, c; \
	VADDPS Z29, a, a; \
	VADDPS Z30, c, c; \
	VUNPCKHPD c, a, Z31; \
	VUNPCKLPD c, a, a; \
	VADDPS Z31, a, a; \
	VEXTRACTF64X4 $1, a, Y29; \
	VADDPS Y29, y, y; \
	VEXTRACTF32X4 $1, y, X29; \
	VADDPS X29, x, x; \
	VMOVUPS x, (AX); \
	ADDQ DX, AX

#define SUMROW0 SUMROW(Z0, Y0, X0, Z1, Z2, Z3)
#define SUMROW1 SUMROW(Z4, Y4, X4, Z5, Z6, Z7)
#define SUMROW2 SUMROW(Z8, Y8, X8, Z9, Z10, Z11)
#define SUMROW3 SUMROW(Z12, Y12, X12, Z13, Z14, Z15)
#define SUMROW4 SUMROW(Z16, Y16, X16, Z17, Z18, Z19)
#define SUMROW5 SUMROW(Z20, Y20, X20, Z21, Z22, Z23)

// FIRSTROW is a row's first step.
#define FIRSTROW(row, a, b, c, d, n0, n1, n2, n3) \
	ZERO4(a, b, c, d); \
	VMOVUPS (row), Z28; \
	VDPBF16PS(28, 24, n0); \
	VDPBF16PS(28, 25, n1); \
	VDPBF16PS(28, 26, n2); \
	VDPBF16PS(28, 27, n3)

#define FIRSTROW0 FIRSTROW(R8, Z0, Z1, Z2, Z3, 0, 1, 2, 3)
#define FIRSTROW1 FIRSTROW(R9, Z4, Z5, Z6, Z7, 4, 5, 6, 7)
#define FIRSTROW2 FIRSTROW(R10, Z8, Z9, Z10, Z11, 8, 9, 10, 11)
#define FIRSTROW3 FIRSTROW(R11, Z12, Z13, Z14, Z15, 12, 13, 14, 15)
#define FIRSTROW4 FIRSTROW(R12, Z16, Z17, Z18, Z19, 16, 17, 18, 19)
#define FIRSTROW5 FIRSTROW(R13, Z20, Z21, Z22, Z23, 20, 21, 22, 23)

// NEARFIRST takes the weights of a part's first step, and where the sums go that wait. AX is
// where these are until the second step.
#define NEARFIRST \
	XORQ AX, AX; \
	STEPROWS4; \
	MOVQ to-56(SP), AX; \
	MOVQ NEARLDY(R15), DX

// NEARWAIT has a part of so many rows wait, and moves R14 on.
#define NEARWAIT(n) \
	MOVQ R14, to-56(SP); \
	MOVQ $n, DX; \
	MOVQ DX, waiting-48(SP); \
	IMULQ NEARLDY(R15), DX; \
	ADDQ DX, R14; \
	JMP  nearPart

#define NEAR ·dotsNear
#include "project_near_amd64.h"

near6:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	MOVQ 16(DX), R10
	MOVQ 24(DX), R11
	MOVQ 32(DX), R12
	MOVQ 40(DX), R13
	CMPQ waiting-48(SP), $0
	JEQ  fresh6
	NEARFIRST
	SUMROW0
	FIRSTROW0
	SUMROW1
	FIRSTROW1
	SUMROW2
	FIRSTROW2
	SUMROW3
	FIRSTROW3
	SUMROW4
	FIRSTROW4
	CMPQ waiting-48(SP), $6
	JLT  last6
	SUMROW5

last6:
	FIRSTROW5
	MOVQ $64, AX
	MOVQ NEARSTEPS(R15), DX
	DECQ DX
	JNZ  nearStep6
	NEARWAIT(6)

fresh6:
	MOVQ NEARSTEPS(R15), DX
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	ZERO4(Z16, Z17, Z18, Z19)
	ZERO4(Z20, Z21, Z22, Z23)
	XORQ AX, AX

nearStep6:
	STEPROWS4
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	STEPROW(R10, 8, 9, 10, 11)
	STEPROW(R11, 12, 13, 14, 15)
	STEPROW(R12, 16, 17, 18, 19)
	STEPROW(R13, 20, 21, 22, 23)
	ADDQ $64, AX
	DECQ DX
	JNZ  nearStep6
	NEARWAIT(6)

near5:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	MOVQ 16(DX), R10
	MOVQ 24(DX), R11
	MOVQ 32(DX), R12
	CMPQ waiting-48(SP), $0
	JEQ  fresh5
	NEARFIRST
	SUMROW0
	FIRSTROW0
	SUMROW1
	FIRSTROW1
	SUMROW2
	FIRSTROW2
	SUMROW3
	FIRSTROW3
	CMPQ waiting-48(SP), $5
	JLT  last5
	SUMROW4
	CMPQ waiting-48(SP), $5
	JEQ  last5
	SUMROW5

last5:
	FIRSTROW4
	MOVQ $64, AX
	MOVQ NEARSTEPS(R15), DX
	DECQ DX
	JNZ  nearStep5
	NEARWAIT(5)

fresh5:
	MOVQ NEARSTEPS(R15), DX
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	ZERO4(Z16, Z17, Z18, Z19)
	XORQ AX, AX

nearStep5:
	STEPROWS4
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	STEPROW(R10, 8, 9, 10, 11)
	STEPROW(R11, 12, 13, 14, 15)
	STEPROW(R12, 16, 17, 18, 19)
	ADDQ $64, AX
	DECQ DX
	JNZ  nearStep5
	NEARWAIT(5)

near4:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	MOVQ 16(DX), R10
	MOVQ 24(DX), R11
	CMPQ waiting-48(SP), $0
	JEQ  fresh4
	NEARFIRST
	SUMROW0
	FIRSTROW0
	SUMROW1
	FIRSTROW1
	SUMROW2
	FIRSTROW2
	CMPQ waiting-48(SP), $4
	JLT  last4
	SUMROW3
	CMPQ waiting-48(SP), $4
	JEQ  last4
	SUMROW4

last4:
	FIRSTROW3
	MOVQ $64, AX
	MOVQ NEARSTEPS(R15), DX
	DECQ DX
	JNZ  nearStep4
	NEARWAIT(4)

fresh4:
	MOVQ NEARSTEPS(R15), DX
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	XORQ AX, AX

nearStep4:
	STEPROWS4
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	STEPROW(R10, 8, 9, 10, 11)
	STEPROW(R11, 12, 13, 14, 15)
	ADDQ $64, AX
	DECQ DX
	JNZ  nearStep4
	NEARWAIT(4)

near3:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	MOVQ 16(DX), R10
	CMPQ waiting-48(SP), $0
	JEQ  fresh3
	NEARFIRST
	SUMROW0
	FIRSTROW0
	SUMROW1
	FIRSTROW1
	CMPQ waiting-48(SP), $3
	JLT  last3
	SUMROW2
	CMPQ waiting-48(SP), $3
	JEQ  last3
	SUMROW3

last3:
	FIRSTROW2
	MOVQ $64, AX
	MOVQ NEARSTEPS(R15), DX
	DECQ DX
	JNZ  nearStep3
	NEARWAIT(3)

fresh3:
	MOVQ NEARSTEPS(R15), DX
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	XORQ AX, AX

nearStep3:
	STEPROWS4
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	STEPROW(R10, 8, 9, 10, 11)
	ADDQ $64, AX
	DECQ DX
	JNZ  nearStep3
	NEARWAIT(3)

near2:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	CMPQ waiting-48(SP), $0
	JEQ  fresh2
	NEARFIRST
	SUMROW0
	FIRSTROW0
	SUMROW1
	CMPQ waiting-48(SP), $2
	JEQ  last2
	SUMROW2

last2:
	FIRSTROW1
	MOVQ $64, AX
	MOVQ NEARSTEPS(R15), DX
	DECQ DX
	JNZ  nearStep2
	NEARWAIT(2)

fresh2:
	MOVQ NEARSTEPS(R15), DX
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	XORQ AX, AX

nearStep2:
	STEPROWS4
	STEPROW(R8, 0, 1, 2, 3)
	STEPROW(R9, 4, 5, 6, 7)
	ADDQ $64, AX
	DECQ DX
	JNZ  nearStep2
	NEARWAIT(2)
