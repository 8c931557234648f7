#include "textflag.h"
#define LANEBYTES 64
#include "quant_dots_ymm_amd64.h"
#include "quant_masks_amd64.h"
#define FLOATS(a) VCVTDQ2PS a, a
#include "quant_join_amd64.h"
#include "quant_dots_avx2_amd64.h"

// The numbers of Q8_0 become words at once, and signed: they need no zero point.
#define SIGNEDWORDS(v, at) \
	VPSLLW $8, v, V4; \
	VPSRAW $8, v, v; \
	VPSRAW $8, V4, V4; \
	VMOVDQU v, ((2*at+1)*LANEBYTES)(DX); \
	VMOVDQU V4, (2*at*LANEBYTES)(DX)
#define Q80STORE4(at) \
	SIGNEDWORDS(V0, (at+0)); \
	SIGNEDWORDS(V1, (at+1)); \
	SIGNEDWORDS(V2, (at+2)); \
	SIGNEDWORDS(V3, (at+3))
#define Q80BYTES (32*LANEBYTES)
#define Q80BUFFER \
	MOVQ WORDBUF(R15), DX; \
	ADDQ PART(R15), DX

// DECODED makes words of a step's bytes: of the 4 elements of 16 outputs the even ones,
// then the odd ones.
#define WIDENBYTES(from, even, odd) \
	VMOVDQU from(SI), Y0; \
	VPAND Y15, Y0, Y1; \
	VPSRLW $8, Y0, Y0; \
	VMOVDQU Y1, even(DI); \
	VMOVDQU Y0, odd(DI)
#define DECODED \
	CMPQ KIND(R15), $2; \
	JNE  widened; \
	CMPQ FORMAT(R15), $2; \
	JE   widened; \
	MOVQ ELEMENTS(R15), CX; \
	MOVQ BUF(R15), SI; \
	MOVQ WORDBUF(R15), DI; \
	VPCMPEQW Y15, Y15, Y15; \
	VPSRLW $8, Y15, Y15; \
words: \
	WIDENBYTES(0, 0, 64); \
	WIDENBYTES(32, 32, 96); \
	ADDQ $64, SI; \
	ADDQ $128, DI; \
	SUBQ $4, CX; \
	JNZ  words; \
widened:

#define PARTS \
	MOVQ KIND(R15), R9; \
	CMPQ R9, $2; \
	JE   eight; \
	CMPQ AX, $2; \
	JGE  several; \
	CMPQ R9, $1; \
	JB   oneFour; \
	JE   oneSix; \
	JMP  oneFive; \
several: \
	CMPQ R9, $1; \
	JE   twoSix; \
	JA   twoFive; \
	CMPQ AX, $4; \
	JB   twoFour; \
	JMP  fourFour; \
eight: \
	CMPQ AX, $4; \
	JGE  fourEight; \
	CMPQ AX, $2; \
	JGE  twoEight; \
	JMP  oneEight

// func dotsAVX2(t *dotsCall)
//
// A block of 16 outputs, two vectors, that share a broadcast of activations. Results wait
// in memory.
TEXT ·dotsAVX2(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
#include "quant_dots_amd64.h"

	// The 16-bit sums of 32 elements are those of a group of 32; sums of larger
	// groups wait in memory, so that four rows share the numbers.
fourFour:
	MOVQ GROUP(R15), AX
	MOVQ WORDBUF(R15), R9

fourFour32:
	FOUR32(SET4, ADD4, WIDEN4)
	ADDQ $512, DX
	ADDQ $32, SI
	CMPQ AX, GROUP(R15)
	JE   fourFourFirst
	UNSPILL

fourFourFirst:
	SUBQ $32, AX
	JE   fourFourJoin
	SPILL
	JMP  fourFour32

fourFourJoin:
	JOIN4(fourFourZeroPoint, fourFourOn, fourFour)
	MOVQ $4, R9
	JMP  partDone

twoFour:
	ZERO2(Y0, Y1)
	ZERO2(Y2, Y3)
	MOVQ GROUP(R15), AX

twoFour32:
	FOUR32(SET2, ADD2, WIDEN2)
	NEXT32(twoFour32)
	JOIN2(twoFourZeroPoint, twoFourOn, twoFour)
	MOVQ $2, R9
	JMP  partDone

twoFive:
	ZERO2(Y0, Y1)
	ZERO2(Y2, Y3)
	MOVQ GROUP(R15), AX

twoFive32:
	FIVE32(SET2, ADD2, WIDEN2)
	NEXT32(twoFive32)
	JOIN2(twoFiveZeroPoint, twoFiveOn, twoFive)
	MOVQ $2, R9
	JMP  partDone

twoSix:
	ZERO2(Y0, Y1)
	ZERO2(Y2, Y3)
	SIX16(SET2, ADD2, WIDEN2)
	NEXT16
	JOIN2(twoSixZeroPoint, twoSixOn, twoSix)
	MOVQ $2, R9
	JMP  partDone

oneFour:
	ZERO2(Y0, Y1)
	MOVQ GROUP(R15), AX

oneFour32:
	FOUR32(SET1, ADD1, WIDEN1)
	NEXT32(oneFour32)
	JOIN1(oneFourZeroPoint, oneFourOn, oneFour)
	MOVQ $1, R9
	JMP  partDone

oneFive:
	ZERO2(Y0, Y1)
	MOVQ GROUP(R15), AX

oneFive32:
	FIVE32(SET1, ADD1, WIDEN1)
	NEXT32(oneFive32)
	JOIN1(oneFiveZeroPoint, oneFiveOn, oneFive)
	MOVQ $1, R9
	JMP  partDone

oneSix:
	ZERO2(Y0, Y1)
	SIX16(SET1, ADD1, WIDEN1)
	NEXT16
	JOIN1(oneSixZeroPoint, oneSixOn, oneSix)
	MOVQ $1, R9
	JMP  partDone

fourEight:
	MOVQ WORDBUF(R15), DX

fourEight1:
	MOVQ GROUP(R15), AX
	WORDSFIRST16

fourEight16:
	WORDS16(WORDS4, fourEight16)
	CMPQ FORMAT(R15), $2
	JE   fourEightQ80
	JOIN4(fourEightZeroPoint, fourEightOn, fourEight1)
	MOVQ $4, R9
	JMP  partDone

fourEightQ80:
	PLAIN4(fourEight1)
	MOVQ $4, R9
	JMP  partDone

twoEight:
	MOVQ WORDBUF(R15), DX

twoEight1:
	ZERO2(Y0, Y1)
	ZERO2(Y2, Y3)
	MOVQ GROUP(R15), AX

twoEight16:
	WORDS16(WORDS2, twoEight16)
	CMPQ FORMAT(R15), $2
	JE   twoEightQ80
	JOIN2(twoEightZeroPoint, twoEightOn, twoEight1)
	MOVQ $2, R9
	JMP  partDone

twoEightQ80:
	PLAIN2(twoEight1)
	MOVQ $2, R9
	JMP  partDone

oneEight:
	MOVQ WORDBUF(R15), DX

oneEight1:
	ZERO2(Y0, Y1)
	MOVQ GROUP(R15), AX

oneEight16:
	WORDS16(WORDS1, oneEight16)
	CMPQ FORMAT(R15), $2
	JE   oneEightQ80
	JOIN1(oneEightZeroPoint, oneEightOn, oneEight1)
	MOVQ $1, R9
	JMP  partDone

oneEightQ80:
	PLAIN1(oneEight1)
	MOVQ $1, R9
	JMP  partDone
