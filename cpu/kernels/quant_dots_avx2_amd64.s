#include "textflag.h"
#define LANEBYTES 32
#include "quant_dots_ymm_amd64.h"
#include "quant_dots_avx2_amd64.h"

#define PARTS \
	MOVQ KIND(R15), R9; \
	VMOVDQU pairOnes<>(SB), Y13; \
	CMPQ AX, $4; \
	JGE  four; \
	CMPQ AX, $2; \
	JGE  two; \
	CMPQ R9, $1; \
	JB   oneFour; \
	JE   oneSix; \
	JMP  oneEight; \
two: \
	CMPQ R9, $1; \
	JB   twoFour; \
	JE   twoSix; \
	JMP  twoEight; \
four: \
	CMPQ R9, $1; \
	JB   fourFour; \
	JE   fourSix; \
	JMP  fourEight

// func dotsAVX2(t *dotsCall)
//
// A block of 8 outputs. Sums of numbers of 4 and 6 bits are in Y4..Y7 with the
// results in Y8..Y11; those of bytes in Y8..Y11 with the results in memory.
TEXT ·dotsAVX2(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
#include "quant_dots_amd64.h"

fourFour:
	RESULTS4(Y8, Y9, Y10, Y11)

fourFour1:
	ZERO4(Y4, Y5, Y6, Y7)
	MOVQ GROUP(R15), AX

fourFour32:
	FOUR32(SET4, ADD4, WIDEN4)
	NEXT32(fourFour32)
	JOIN4(Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, fourFourZeroPoint, fourFourOn, fourFour1)
	KEEP4(Y8, Y9, Y10, Y11)
	JMP partDone

fourFive:
	RESULTS4(Y8, Y9, Y10, Y11)

fourFive1:
	ZERO4(Y4, Y5, Y6, Y7)
	MOVQ GROUP(R15), AX

fourFive32:
	FIVE32(SET4, ADD4, WIDEN4)
	NEXT32(fourFive32)
	JOIN4(Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, fourFiveZeroPoint, fourFiveOn, fourFive1)
	KEEP4(Y8, Y9, Y10, Y11)
	JMP partDone

twoFour:
	RESULTS2(Y8, Y9)

twoFour1:
	ZERO2(Y4, Y5)
	MOVQ GROUP(R15), AX

twoFour32:
	FOUR32(SET2, ADD2, WIDEN2)
	NEXT32(twoFour32)
	JOIN2(Y4, Y5, Y8, Y9, twoFourZeroPoint, twoFourOn, twoFour1)
	KEEP2(Y8, Y9)
	JMP partDone

twoFive:
	RESULTS2(Y8, Y9)

twoFive1:
	ZERO2(Y4, Y5)
	MOVQ GROUP(R15), AX

twoFive32:
	FIVE32(SET2, ADD2, WIDEN2)
	NEXT32(twoFive32)
	JOIN2(Y4, Y5, Y8, Y9, twoFiveZeroPoint, twoFiveOn, twoFive1)
	KEEP2(Y8, Y9)
	JMP partDone

oneFour:
	RESULTS1(Y8)

oneFour1:
	ZERO1(Y4)
	MOVQ GROUP(R15), AX

oneFour32:
	FOUR32(SET1, ADD1, WIDEN1)
	NEXT32(oneFour32)
	JOIN1(Y4, Y8, oneFourZeroPoint, oneFourOn, oneFour1)
	KEEP1(Y8)
	JMP partDone

oneFive:
	RESULTS1(Y8)

oneFive1:
	ZERO1(Y4)
	MOVQ GROUP(R15), AX

oneFive32:
	FIVE32(SET1, ADD1, WIDEN1)
	NEXT32(oneFive32)
	JOIN1(Y4, Y8, oneFiveZeroPoint, oneFiveOn, oneFive1)
	KEEP1(Y8)
	JMP partDone

fourSix:
	RESULTS4(Y8, Y9, Y10, Y11)

fourSix1:
	ZERO4(Y4, Y5, Y6, Y7)
	SIX16(SET4, ADD4, WIDEN4)
	NEXT16
	JOIN4(Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, fourSixZeroPoint, fourSixOn, fourSix1)
	KEEP4(Y8, Y9, Y10, Y11)
	JMP partDone

twoSix:
	RESULTS2(Y8, Y9)

twoSix1:
	ZERO2(Y4, Y5)
	SIX16(SET2, ADD2, WIDEN2)
	NEXT16
	JOIN2(Y4, Y5, Y8, Y9, twoSixZeroPoint, twoSixOn, twoSix1)
	KEEP2(Y8, Y9)
	JMP partDone

oneSix:
	RESULTS1(Y8)

oneSix1:
	ZERO1(Y4)
	SIX16(SET1, ADD1, WIDEN1)
	NEXT16
	JOIN1(Y4, Y8, oneSixZeroPoint, oneSixOn, oneSix1)
	KEEP1(Y8)
	JMP partDone

fourEight:
	ZERO4(Y8, Y9, Y10, Y11)
	MOVQ GROUP(R15), AX

fourEight32:
	ZERO4(Y0, Y1, Y2, Y3)
	ZERO4(Y4, Y5, Y6, Y7)
	EIGHT32(HALVES4, HALVESWIDEN4)
	NEXT32(fourEight32)
	RESULTS4(Y4, Y5, Y6, Y7)
	JOIN4(Y8, Y9, Y10, Y11, Y4, Y5, Y6, Y7, fourEightZeroPoint, fourEightOn, fourEightNext)
	KEEP4(Y4, Y5, Y6, Y7)
	JMP partDone

fourEightNext:
	KEEP4(Y4, Y5, Y6, Y7)
	JMP fourEight

twoEight:
	ZERO2(Y8, Y9)
	MOVQ GROUP(R15), AX

twoEight32:
	ZERO2(Y0, Y1)
	ZERO2(Y4, Y5)
	EIGHT32(HALVES2, HALVESWIDEN2)
	NEXT32(twoEight32)
	RESULTS2(Y4, Y5)
	JOIN2(Y8, Y9, Y4, Y5, twoEightZeroPoint, twoEightOn, twoEightNext)
	KEEP2(Y4, Y5)
	JMP partDone

twoEightNext:
	KEEP2(Y4, Y5)
	JMP twoEight

oneEight:
	ZERO1(Y8)
	MOVQ GROUP(R15), AX

oneEight32:
	ZERO1(Y0)
	ZERO1(Y4)
	EIGHT32(HALVES1, HALVESWIDEN1)
	NEXT32(oneEight32)
	RESULTS1(Y4)
	JOIN1(Y8, Y4, oneEightZeroPoint, oneEightOn, oneEightNext)
	KEEP1(Y4)
	JMP partDone

oneEightNext:
	KEEP1(Y4)
	JMP oneEight
