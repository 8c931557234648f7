#include "textflag.h"
#define LANEBYTES 32
#include "quant_dots_ymm_amd64.h"
#include "quant_decode_amd64.h"
#include "quant_call_amd64.h"
#include "quant_masks_amd64.h"
#include "quant_alone_avx2_amd64.h"

// func quantAloneAVX2(t *dotsCall)
//
// A block of 8 outputs for one row of activations, whose numbers meet them as they come
// from memory. AX, R14, BX, R9 are the rows and R8, R12 what is prefetched, as in
// decoding; SI the activations, R10 and R11 their scales and sums; DI and R13 scales and
// biases of the weights; Y15 the results.
TEXT ·quantAloneAVX2(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
	MOVQ $0, PART(R15)
	MOVQ ASTRIDE(R15), BX
	LEAQ (BX)(BX*2), R9
	MOVQ A(R15), AX
	POINTERS
	MOVQ AHEAD(R15), R8
	PREFETCHES
	MOVQ X(R15), SI
	MOVQ W(R15), DI
	MOVQ BIAS(R15), R13
	MOVQ SX(R15), R10
	MOVQ R10, R11
	ADDQ SXROW(R15), R11
	VPXOR Y15, Y15, Y15

step:
	MOVQ ELEMENTS(R15), CX
	MOVQ FORMAT(R15), DX
	CMPQ DX, $4
	JE   q4k
	JA   q6k
	CMPQ DX, $1
	JB   bytes
	JE   nibbles
	CMPQ DX, $3
	JB   q80
	JMP  q40

	// Bytes less 128 are signed, and 128 times the activations joins them again: Y8.
#define BYTES16(at, AHEADROWS, on) \
	LOAD(at); \
	AHEADROWS(0); \
	TWICE(at, Y12); \
	VMOVDQU signBits<>(SB), Y13; \
	VPMADDUBSW Y12, Y13, Y4; \
	VPMADDWD pairOnes<>(SB), Y4, Y4; \
	VPADDD Y4, Y6, Y6; \
	VPXOR Y13, Y0, Y0; \
	VPXOR Y13, Y1, Y1; \
	VPXOR Y13, Y2, Y2; \
	VPXOR Y13, Y3, Y3; \
	SIGNEDADD(Y0, Y12, Y8); \
	SIGNEDADD(Y1, Y12, Y9); \
	SIGNEDADD(Y2, Y12, Y10); \
	SIGNEDADD(Y3, Y12, Y11); \
	SUBQ $16, DX; \
	JNZ  on; \
	VPADDD Y6, Y8, Y8; \
	VPADDD Y6, Y9, Y9; \
	VPADDD Y6, Y10, Y10; \
	VPADDD Y6, Y11, Y11; \
	TREE(Y8, Y9, Y10, Y11, Y8); \
	JOINBIAS(0, Y8, (DI), (R13)); \
	GROUPSON(1); \
	ADDQ $LANEBYTES, DI; \
	ADDQ $LANEBYTES, R13; \
	ZEROSUMS; \
	MOVQ GROUP(R15), DX; \
on:

#define ZEROSUMS \
	VPXOR Y6, Y6, Y6; \
	VPXOR Y8, Y8, Y8; \
	VPXOR Y9, Y9, Y9; \
	VPXOR Y10, Y10, Y10; \
	VPXOR Y11, Y11, Y11

bytes:
	MOVQ GROUP(R15), DX
	ZEROSUMS

bytes64:
	BYTES16(0, AHEAD0, bytesOn0)
	BYTES16(16, AHEAD1, bytesOn1)
	BYTES16(32, AHEAD2, bytesOn2)
	BYTES16(48, AHEAD3, bytesOn3)
	ADDQ $64, SI
	ADVANCE(64)
	SUBQ $64, CX
	JNZ  bytes64
	JMP  stepDone

	// 32 numbers in 16 bytes: the even ones are low halves.
#define WIDENTO(v, acc) \
	VPMADDWD pairOnes<>(SB), v, v; \
	VPADDD v, acc, acc
#define NIBBLES32(at, x, AHEADROWS, on) \
	LOAD(at); \
	AHEADROWS(0); \
	VMOVDQU evenDwords<>(SB), Y12; \
	VMOVDQU oddDwords<>(SB), Y13; \
	VPERMD x(SI), Y12, Y12; \
	VPERMD x(SI), Y13, Y13; \
	NIBBLESJOIN(Y0); \
	WIDENTO(Y0, Y8); \
	NIBBLESJOIN(Y1); \
	WIDENTO(Y1, Y9); \
	NIBBLESJOIN(Y2); \
	WIDENTO(Y2, Y10); \
	NIBBLESJOIN(Y3); \
	WIDENTO(Y3, Y11); \
	SUBQ $32, DX; \
	JNZ  on; \
	TREE(Y8, Y9, Y10, Y11, Y8); \
	JOINBIAS(0, Y8, (DI), (R13)); \
	GROUPSON(1); \
	ADDQ $LANEBYTES, DI; \
	ADDQ $LANEBYTES, R13; \
	ZEROSUMS; \
	MOVQ GROUP(R15), DX; \
on:

nibbles:
	MOVQ GROUP(R15), DX
	VMOVDQU halfMask<>(SB), Y7
	ZEROSUMS

nibbles128:
	NIBBLES32(0, 0, AHEAD0, nibblesOn0)
	NIBBLES32(16, 32, AHEAD1, nibblesOn1)
	NIBBLES32(32, 64, AHEAD2, nibblesOn2)
	NIBBLES32(48, 96, AHEAD3, nibblesOn3)
	ADDQ $128, SI
	ADVANCE(64)
	SUBQ $128, CX
	JNZ  nibbles128
	JMP  stepDone

	// Two blocks are 68 bytes: where two lines end in them both are prefetched.
#define BLOCK80(i, AHEADLOW, AHEADHIGH) \
	TWICE((32*i), Y12); \
	TWICE((32*i+16), Y13); \
	LOAD((34*i+2)); \
	AHEADLOW(0); \
	AHEADLOW(4); \
	SIGNED(Y0, Y12, Y9); \
	SIGNED(Y1, Y12, Y10); \
	SIGNED(Y2, Y12, Y11); \
	SIGNED(Y3, Y12, Y14); \
	LOAD((34*i+18)); \
	AHEADHIGH(0); \
	AHEADHIGH(4); \
	SIGNEDADD(Y0, Y13, Y9); \
	SIGNEDADD(Y1, Y13, Y10); \
	SIGNEDADD(Y2, Y13, Y11); \
	SIGNEDADD(Y3, Y13, Y14); \
	HALFSCALES((34*i), Y8); \
	TREE(Y9, Y10, Y11, Y14, Y9); \
	JOIN(i, Y9, Y8)

q80:
	BLOCK80(0, AHEAD0, AHEAD1)
	BLOCK80(1, AHEAD2, AHEAD3)
	GROUPSON(2)
	ADDQ $64, SI
	ADVANCE(68)
	SUBQ $64, CX
	JNZ  q80
	JMP  stepDone

	// Four blocks are 72 bytes.
#define BLOCK40(i, AHEADROWS) \
	TWICE((32*i), Y12); \
	TWICE((32*i+16), Y13); \
	LOAD((18*i+2)); \
	AHEADROWS(0); \
	AHEADROWS(8); \
	NIBBLESJOIN(Y0); \
	NIBBLESJOIN(Y1); \
	NIBBLESJOIN(Y2); \
	NIBBLESJOIN(Y3); \
	HALFSCALES((18*i), Y8); \
	SMALLTREE(Y0, Y1, Y2, Y3, Y0); \
	JOINZEROPOINT(i, Y0, Y8)

q40:
	VMOVDQU halfMask<>(SB), Y7
	BLOCK40(0, AHEAD0)
	BLOCK40(1, AHEAD1)
	BLOCK40(2, AHEAD2)
	BLOCK40(3, AHEAD3)
	GROUPSON(4)
	ADDQ $128, SI
	ADVANCE(72)
	SUBQ $128, CX
	JNZ  q40
	JMP  stepDone

	// 32 bytes are two sub-blocks: of low halves and of high ones.
#define SUBBLOCKS(i, at, AHEADLOW, AHEADHIGH, ahead) \
	TWICE((32*i), Y12); \
	TWICE((32*i+32), Y13); \
	LOAD(at); \
	AHEADLOW(ahead); \
	NIBBLESSET(Y0, Y8, Y4); \
	NIBBLESSET(Y1, Y9, Y5); \
	NIBBLESSET(Y2, Y10, Y6); \
	NIBBLESSET(Y3, Y11, Y7); \
	TWICE((32*i+16), Y12); \
	TWICE((32*i+48), Y13); \
	LOAD((at+16)); \
	AHEADHIGH(ahead); \
	NIBBLESADD(Y0, Y8, Y4); \
	NIBBLESADD(Y1, Y9, Y5); \
	NIBBLESADD(Y2, Y10, Y6); \
	NIBBLESADD(Y3, Y11, Y7); \
	SMALLTREE(Y8, Y9, Y10, Y11, Y8); \
	SMALLTREE(Y4, Y5, Y6, Y7, Y4); \
	JOINBIAS(i, Y8, (LANEBYTES*i)(DI), (LANEBYTES*i)(R13)); \
	JOINBIAS((i+1), Y4, (LANEBYTES*i+LANEBYTES)(DI), (LANEBYTES*i+LANEBYTES)(R13))

q4k:
	SCALES4K
	SUBBLOCKS(0, 16, AHEAD0, AHEAD1, 0)
	AHEAD2(0)
	SUBBLOCKS(2, 48, AHEAD3, AHEAD0, 64)
	AHEAD3(0)
	SUBBLOCKS(4, 80, AHEAD1, AHEAD2, 64)
	AHEAD0(128)
	AHEAD1(128)
	SUBBLOCKS(6, 112, AHEAD2, AHEAD3, 128)
	GROUPSON(8)
	ADDQ $256, SI
	ADVANCE(144)
	JMP  stepDone

	// QUARTER is 16 bytes of high bits with the two times 16 bytes of low ones that they
	// go with: four groups, whose sums wait in memory for their turn.
#define QUARTER(high, low, g, ahead) \
	LOAD(high) \
	AHEAD0(ahead) \
	VMOVDQU Y0, Y8; \
	VMOVDQU Y1, Y9; \
	VMOVDQU Y2, Y10; \
	VMOVDQU Y3, Y11; \
	LOAD(low) \
	AHEAD1(ahead) \
	TWICE((16*g), Y14); \
	FOURSIX(LOWSIX, 4); \
	TREESIX(Y4, Y5, Y6, Y7, Y4); \
	VMOVDQU Y4, (LANEBYTES*g)(DX); \
	TWICE((16*g+64), Y14); \
	FOURSIX(HIGHSIX, 0); \
	TREESIX(Y4, Y5, Y6, Y7, Y4); \
	VMOVDQU Y4, (LANEBYTES*g+4*LANEBYTES)(DX); \
	LOAD((low+32)) \
	AHEAD2(ahead) \
	AHEAD3(ahead) \
	TWICE((16*g+32), Y14); \
	FOURSIX(LOWSIX, 2); \
	TREESIX(Y4, Y5, Y6, Y7, Y4); \
	VMOVDQU Y4, (LANEBYTES*g+2*LANEBYTES)(DX); \
	TWICE((16*g+96), Y14); \
	FOURSIX(HIGHSIX, 2); \
	TREESIX(Y4, Y5, Y6, Y7, Y4); \
	VMOVDQU Y4, (LANEBYTES*g+6*LANEBYTES)(DX)
#define JOINSIX(i) \
	VMOVDQU (LANEBYTES*i)(DX), Y0; \
	JOINZEROPOINT(i, Y0, (LANEBYTES*i)(DI))

q6k:
	HALFSCALES(208, Y8)
	LOAD(192)
	TRANSPOSE
	SCALES6K(Y0, 0)
	SCALES6K(Y1, 4)
	SCALES6K(Y2, 8)
	SCALES6K(Y3, 12)
	MOVQ BUF(R15), DX
	QUARTER(128, 0, 0, 0)
	QUARTER(144, 16, 1, 64)
	QUARTER(160, 64, 8, 128)
	QUARTER(176, 80, 9, 192)
	JOINSIX(0)
	JOINSIX(1)
	JOINSIX(2)
	JOINSIX(3)
	JOINSIX(4)
	JOINSIX(5)
	JOINSIX(6)
	JOINSIX(7)
	JOINSIX(8)
	JOINSIX(9)
	JOINSIX(10)
	JOINSIX(11)
	JOINSIX(12)
	JOINSIX(13)
	JOINSIX(14)
	JOINSIX(15)
	GROUPSON(16)
	ADDQ $256, SI
	ADVANCE(210)

stepDone:
	DECQ LEFT(R15)
	JNZ  more
	MOVQ NEXT(R15), R8
	PREFETCHES

more:
	DECQ STEPS(R15)
	JNZ  step
	MOVQ C(R15), AX
	VMOVUPS Y15, (AX)
	VZEROUPPER
	RET
