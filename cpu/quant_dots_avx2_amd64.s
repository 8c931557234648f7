#include "textflag.h"
#include "quant_dots_ymm_amd64.h"

// Products of unsigned and signed bytes are added in pairs to 16 bits, which
// saturate: 2 * 255 * 127 does not fit. So numbers of 4 bits are summed over 32
// elements (8 pairs of at most 3,810), of 6 bits over 8 (two pairs of at most
// 16,002), and bytes are multiplied as two halves of 4 bits.

// PAIRS(row, u, w, x): products of the activations of a row with w, to x.
#define PAIRS(row, u, w, x) \
	VPBROADCASTD (4*u)row, x; \
	VPMADDUBSW x, w, x

// ROWADD adds those of unit u, whose numbers are in Y12, to acc.
#define ROWADD(row, u, acc) \
	PAIRS(row, u, Y12, Y14); \
	VPADDW Y14, acc, acc

#define ADD1(u) \
	VMOVDQU (32*u)(DX), Y12; \
	ROWADD((SI), u, Y0)
#define ADD2(u) \
	ADD1(u); \
	ROWADD((SI)(R10*1), u, Y1)
#define ADD4(u) \
	ADD2(u); \
	ROWADD((SI)(R10*2), u, Y2); \
	ROWADD((SI)(R11*1), u, Y3)

// SET is ADD to nothing.
#define SET1(u) \
	VMOVDQU (32*u)(DX), Y12; \
	PAIRS((SI), u, Y12, Y0)
#define SET2(u) \
	SET1(u); \
	PAIRS((SI)(R10*1), u, Y12, Y1)
#define SET4(u) \
	SET2(u); \
	PAIRS((SI)(R10*2), u, Y12, Y2); \
	PAIRS((SI)(R11*1), u, Y12, Y3)

// WIDEN adds pairs of the 16-bit sums to sum. Y13: ones.
#define WIDEN(small, sum) \
	VPMADDWD Y13, small, small; \
	VPADDD small, sum, sum
#define WIDEN1 WIDEN(Y0, Y4)
#define WIDEN2 WIDEN1; WIDEN(Y1, Y5)
#define WIDEN4 WIDEN2; WIDEN(Y2, Y6); WIDEN(Y3, Y7)

// FOUR32 multiplies 32 numbers of 4 bits, SIX16 16 of 6 bits.
#define FOUR32(SET, ADDTO, WIDENED) \
	SET(0) \
	ADDTO(1) \
	ADDTO(2) \
	ADDTO(3) \
	ADDTO(4) \
	ADDTO(5) \
	ADDTO(6) \
	ADDTO(7) \
	WIDENED

#define SIX16(SET, ADDTO, WIDENED) \
	SET(0) \
	ADDTO(1) \
	WIDENED \
	SET(2) \
	ADDTO(3) \
	WIDENED

// HALFADD adds the products of a row with the low halves of the numbers, Y12, and
// the high ones, Y13.
#define HALFADD(row, u, low, high) \
	VPBROADCASTD (4*u)row, Y14; \
	VPMADDUBSW Y14, Y12, Y15; \
	VPMADDUBSW Y14, Y13, Y14; \
	VPADDW Y15, low, low; \
	VPADDW Y14, high, high

#define HALVES1(u) \
	VMOVDQU (32*u)(DX), Y12; \
	VPSRLW $4, Y12, Y13; \
	VPAND halfMask<>(SB), Y12, Y12; \
	VPAND halfMask<>(SB), Y13, Y13; \
	HALFADD((SI), u, Y0, Y4)
#define HALVES2(u) \
	HALVES1(u); \
	HALFADD((SI)(R10*1), u, Y1, Y5)
#define HALVES4(u) \
	HALVES2(u); \
	HALFADD((SI)(R10*2), u, Y2, Y6); \
	HALFADD((SI)(R11*1), u, Y3, Y7)

// HALVESWIDEN adds the 16-bit sums of both halves to sum.
#define HALVESWIDEN(low, high, sum) \
	VPMADDWD pairOnes<>(SB), high, high; \
	VPMADDWD pairOnes<>(SB), low, low; \
	VPSLLD $4, high, high; \
	VPADDD low, sum, sum; \
	VPADDD high, sum, sum
#define HALVESWIDEN1 HALVESWIDEN(Y0, Y4, Y8)
#define HALVESWIDEN2 HALVESWIDEN1; HALVESWIDEN(Y1, Y5, Y9)
#define HALVESWIDEN4 HALVESWIDEN2; HALVESWIDEN(Y2, Y6, Y10); HALVESWIDEN(Y3, Y7, Y11)

#define EIGHT32(HALVESOF, WIDENED) \
	HALVESOF(0) \
	HALVESOF(1) \
	HALVESOF(2) \
	HALVESOF(3) \
	HALVESOF(4) \
	HALVESOF(5) \
	HALVESOF(6) \
	HALVESOF(7) \
	WIDENED

// NEXT32 goes on with the next 32 elements of a group.
#define NEXT32(loop) \
	ADDQ $256, DX \
	ADDQ $32, SI \
	SUBQ $32, AX \
	JNZ  loop

#define NEXT16 \
	ADDQ $128, DX \
	ADDQ $16, SI

DATA halfMask<>+0(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+8(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+16(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+24(SB)/8, $0x0F0F0F0F0F0F0F0F
GLOBL halfMask<>(SB), RODATA|NOPTR, $32
DATA pairOnes<>+0(SB)/8, $0x0001000100010001
DATA pairOnes<>+8(SB)/8, $0x0001000100010001
DATA pairOnes<>+16(SB)/8, $0x0001000100010001
DATA pairOnes<>+24(SB)/8, $0x0001000100010001
GLOBL pairOnes<>(SB), RODATA|NOPTR, $32

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
	JOIN4(Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, fourFourLess, fourFourOn, fourFour1)
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
	JOIN2(Y4, Y5, Y8, Y9, twoFourLess, twoFourOn, twoFour1)
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
	JOIN1(Y4, Y8, oneFourLess, oneFourOn, oneFour1)
	KEEP1(Y8)
	JMP partDone

fourSix:
	RESULTS4(Y8, Y9, Y10, Y11)

fourSix1:
	ZERO4(Y4, Y5, Y6, Y7)
	SIX16(SET4, ADD4, WIDEN4)
	NEXT16
	JOIN4(Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, fourSixLess, fourSixOn, fourSix1)
	KEEP4(Y8, Y9, Y10, Y11)
	JMP partDone

twoSix:
	RESULTS2(Y8, Y9)

twoSix1:
	ZERO2(Y4, Y5)
	SIX16(SET2, ADD2, WIDEN2)
	NEXT16
	JOIN2(Y4, Y5, Y8, Y9, twoSixLess, twoSixOn, twoSix1)
	KEEP2(Y8, Y9)
	JMP partDone

oneSix:
	RESULTS1(Y8)

oneSix1:
	ZERO1(Y4)
	SIX16(SET1, ADD1, WIDEN1)
	NEXT16
	JOIN1(Y4, Y8, oneSixLess, oneSixOn, oneSix1)
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
	JOIN4(Y8, Y9, Y10, Y11, Y4, Y5, Y6, Y7, fourEightLess, fourEightOn, fourEightNext)
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
	JOIN2(Y8, Y9, Y4, Y5, twoEightLess, twoEightOn, twoEightNext)
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
	JOIN1(Y8, Y4, oneEightLess, oneEightOn, oneEightNext)
	KEEP1(Y4)
	JMP partDone

oneEightNext:
	KEEP1(Y4)
	JMP oneEight
