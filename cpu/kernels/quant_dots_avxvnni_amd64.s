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

// Sums begin with the bits of 1.5 * 2^23, so that they are floats at once: that number and
// the sum, exactly, as sums are less than 2^22 (128 * 255 * 127 is). Taking it away costs
// an addition, for which there are other ports than for products; conversions share theirs.
DATA sumBits<>+0(SB)/8, $0x4B4000004B400000
DATA sumBits<>+8(SB)/8, $0x4B4000004B400000
DATA sumBits<>+16(SB)/8, $0x4B4000004B400000
DATA sumBits<>+24(SB)/8, $0x4B4000004B400000
GLOBL sumBits<>(SB), RODATA|NOPTR, $32

#define BEGIN1 \
	VMOVDQU sumBits<>(SB), Y0; \
	VMOVDQA Y0, Y1
#define BEGIN2 \
	BEGIN1; \
	VMOVDQA Y0, Y2; \
	VMOVDQA Y0, Y3
#define BEGIN4 \
	BEGIN2; \
	VMOVDQA Y0, Y4; \
	VMOVDQA Y0, Y5; \
	VMOVDQA Y0, Y6; \
	VMOVDQA Y0, Y7

#define SUMBITS VMOVDQU sumBits<>(SB), Y10
#define FLOATS(a) VSUBPS Y10, a, a

#include "quant_join_amd64.h"

#define Q80STORE4(at) RAISED4(at)
#define Q80BYTES (16*LANEBYTES)
#define Q80BUFFER
#define DECODED

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
	BEGIN4
	MOVQ GROUP(R15), AX

four16:
	SIXTEEN(UNITS4, four16)
	SUMBITS
	JOIN4(fourZeroPoint, fourOn, four)
	MOVQ $4, R9
	JMP  partDone

two:
	RESULTS(0, Y4, Y5)
	RESULTS(1, Y6, Y7)

two1:
	BEGIN2
	MOVQ GROUP(R15), AX

two16:
	SIXTEEN(UNITS2, two16)
	SUMBITS
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
	BEGIN1
	MOVQ GROUP(R15), AX

one16:
	SIXTEEN(UNITS1, one16)
	SUMBITS
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
