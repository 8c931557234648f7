#include "textflag.h"

#define LANEBYTES 64
#include "quant_dots_ymm_amd64.h"

// VPDPBUSDY(x, w, acc): acc += w * x in the encoding of AVX-VNNI, unsigned bytes of
// w, signed ones of x. Go's assembler has only that of AVX-512. Registers are
// given by number.
#define VPDPBUSDY(x, w, acc) \
	BYTE $0xC4; BYTE $(0xE2 ^ (((acc) & 8) << 4) ^ (((x) & 8) << 2)); BYTE $(0x7D ^ ((w) << 3)); \
	BYTE $0x50; BYTE $(0xC0 | (((acc) & 7) << 3) | ((x) & 7))

// Products of unit u, 4 elements, of up to 4 rows with the 8 outputs in Y8 and the
// 8 in Y9; sums of row i are in Y(2i) and Y(2i+1).
#define ROW(u, row, low, high) \
	VPBROADCASTD (4*u)row, Y10; \
	VPDPBUSDY(10, 8, low); \
	VPDPBUSDY(10, 9, high)

#define UNITS1(u) \
	VMOVDQU (64*u)(DX), Y8; \
	VMOVDQU (64*u+32)(DX), Y9; \
	ROW(u, (SI), 0, 1)
#define UNITS2(u) \
	UNITS1(u); \
	ROW(u, (SI)(R10*1), 2, 3)
#define UNITS4(u) \
	UNITS2(u); \
	ROW(u, (SI)(R10*2), 4, 5); \
	ROW(u, (SI)(R11*1), 6, 7)

// SIXTEEN multiplies 16 elements of a group until AX of them are done.
#define SIXTEEN(UNITS, loop) \
	UNITS(0) \
	UNITS(1) \
	UNITS(2) \
	UNITS(3) \
	ADDQ $256, DX \
	ADDQ $16, SI \
	SUBQ $16, AX \
	JNZ  loop

#define ZERO2(a, b) \
	VPXOR a, a, a; \
	VPXOR b, b, b

// SCALES loads those of the weights to Y12 and Y13.
#define SCALES \
	VMOVUPS (DI), Y12; \
	VMOVUPS 32(DI), Y13

// ADD adds the sums a and b of row i to its results r and s, ADDBIAS the biases;
// TAKEZEROPOINT takes from the sums what the numbers were raised by. Y11 is lost.
#define ADD(i, a, b, r, s) \
	VBROADCASTSS (4*i)(R12), Y11; \
	VCVTDQ2PS a, a; \
	VCVTDQ2PS b, b; \
	VMULPS Y11, a, a; \
	VMULPS Y11, b, b; \
	VFMADD231PS Y12, a, r; \
	VFMADD231PS Y13, b, s
#define ADDBIAS(i, r, s) \
	VBROADCASTSS (4*i)(R13), Y11; \
	VFMADD231PS (R8), Y11, r; \
	VFMADD231PS 32(R8), Y11, s
#define TAKEZEROPOINT(i, a, b) \
	VPBROADCASTD (4*i)(R13), Y11; \
	VPSUBD Y11, a, a; \
	VPSUBD Y11, b, b

// Results of row i from memory and back.
#define RESULTS(i, r, s) \
	VMOVUPS (64*i)(R14), r; \
	VMOVUPS (64*i+32)(R14), s
#define KEEP(i, r, s) \
	VMOVUPS r, (64*i)(R14); \
	VMOVUPS s, (64*i+32)(R14)

// JOINED is ADD and ADDBIAS on results in memory, ZEROPOINTED TAKEZEROPOINT and ADD.
#define JOINED(i, a, b) \
	RESULTS(i, Y14, Y15); \
	ADD(i, a, b, Y14, Y15); \
	ADDBIAS(i, Y14, Y15); \
	KEEP(i, Y14, Y15)
#define ZEROPOINTED(i, a, b) \
	TAKEZEROPOINT(i, a, b); \
	RESULTS(i, Y14, Y15); \
	ADD(i, a, b, Y14, Y15); \
	KEEP(i, Y14, Y15)

#define GROUPON(loop) \
	ADDQ BX, R12; \
	ADDQ BX, R13; \
	ADDQ $64, DI; \
	ADDQ $64, R8; \
	DECQ CX; \
	JNZ  loop

#define PARTS \
	CMPQ AX, $4; \
	JGE  four; \
	CMPQ AX, $2; \
	JGE  two; \
	JMP  one

// func dotsAVXVNNI(t *dotsCall)
//
// A block of 16 outputs by VPDPBUSD. Two vectors of outputs share a broadcast of
// activations: 7 instructions for 4 products instead of 9.
TEXT ·dotsAVXVNNI(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
#include "quant_dots_amd64.h"

	// Results of four rows wait in memory; of fewer, whose groups follow one
	// another sooner, in registers.
four:
	ZERO2(Y0, Y1)
	ZERO2(Y2, Y3)
	ZERO2(Y4, Y5)
	ZERO2(Y6, Y7)
	MOVQ GROUP(R15), AX

four16:
	SIXTEEN(UNITS4, four16)
	SCALES
	CMPQ ZEROPOINT(R15), $0
	JNE  fourZeroPoint
	JOINED(0, Y0, Y1)
	JOINED(1, Y2, Y3)
	JOINED(2, Y4, Y5)
	JOINED(3, Y6, Y7)
	JMP  fourOn

fourZeroPoint:
	ZEROPOINTED(0, Y0, Y1)
	ZEROPOINTED(1, Y2, Y3)
	ZEROPOINTED(2, Y4, Y5)
	ZEROPOINTED(3, Y6, Y7)

fourOn:
	GROUPON(four)
	MOVQ $4, R9
	JMP  partDone

two:
	RESULTS(0, Y4, Y5)
	RESULTS(1, Y6, Y7)

two1:
	ZERO2(Y0, Y1)
	ZERO2(Y2, Y3)
	MOVQ GROUP(R15), AX

two16:
	SIXTEEN(UNITS2, two16)
	SCALES
	CMPQ ZEROPOINT(R15), $0
	JNE  twoZeroPoint
	ADD(0, Y0, Y1, Y4, Y5)
	ADD(1, Y2, Y3, Y6, Y7)
	ADDBIAS(0, Y4, Y5)
	ADDBIAS(1, Y6, Y7)
	JMP  twoOn

twoZeroPoint:
	TAKEZEROPOINT(0, Y0, Y1)
	TAKEZEROPOINT(1, Y2, Y3)
	ADD(0, Y0, Y1, Y4, Y5)
	ADD(1, Y2, Y3, Y6, Y7)

twoOn:
	GROUPON(two1)
	KEEP(0, Y4, Y5)
	KEEP(1, Y6, Y7)
	MOVQ $2, R9
	JMP  partDone

one:
	RESULTS(0, Y4, Y5)

one1:
	ZERO2(Y0, Y1)
	MOVQ GROUP(R15), AX

one16:
	SIXTEEN(UNITS1, one16)
	SCALES
	CMPQ ZEROPOINT(R15), $0
	JNE  oneZeroPoint
	ADD(0, Y0, Y1, Y4, Y5)
	ADDBIAS(0, Y4, Y5)
	JMP  oneOn

oneZeroPoint:
	TAKEZEROPOINT(0, Y0, Y1)
	ADD(0, Y0, Y1, Y4, Y5)

oneOn:
	GROUPON(one1)
	KEEP(0, Y4, Y5)
	MOVQ $1, R9
	JMP  partDone
