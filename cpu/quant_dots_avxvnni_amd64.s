#include "textflag.h"
#include "quant_dots_ymm_amd64.h"

// VPDPBUSD(x, w, acc): acc += w * x in the encoding of AVX-VNNI, unsigned bytes of
// w, signed ones of x. Go's assembler has only that of AVX-512. Registers are
// numbers below 8.
#define VPDPBUSDY(x, w, acc) \
	BYTE $0xC4; BYTE $0xE2; BYTE $(0x7D ^ ((w) << 3)); BYTE $0x50; BYTE $(0xC0 | ((acc) << 3) | (x))

#define ROW(u, row, acc) \
	VPBROADCASTD (4*u)row, Y5; \
	VPDPBUSDY(5, 4, acc)

#define UNITS1(u) \
	VMOVDQU (32*u)(DX), Y4; \
	ROW(u, (SI), 0)
#define UNITS2(u) \
	UNITS1(u); \
	ROW(u, (SI)(R10*1), 1)
#define UNITS4(u) \
	UNITS2(u); \
	ROW(u, (SI)(R10*2), 2); \
	ROW(u, (SI)(R11*1), 3)

// SIXTEEN multiplies 16 elements of a group until AX of them are done.
#define SIXTEEN(UNITS, loop) \
	UNITS(0) \
	UNITS(1) \
	UNITS(2) \
	UNITS(3) \
	ADDQ $128, DX \
	ADDQ $16, SI \
	SUBQ $16, AX \
	JNZ  loop

#define PARTS \
	CMPQ AX, $4; \
	JGE  four; \
	CMPQ AX, $2; \
	JGE  two; \
	JMP  one

// func dotsAVXVNNI(t *dotsCall)
//
// A block of 8 outputs by VPDPBUSD.
TEXT ·dotsAVXVNNI(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
#include "quant_dots_amd64.h"

four:
	RESULTS4(Y8, Y9, Y10, Y11)

four1:
	ZERO4(Y0, Y1, Y2, Y3)
	MOVQ GROUP(R15), AX

four16:
	SIXTEEN(UNITS4, four16)
	JOIN4(Y0, Y1, Y2, Y3, Y8, Y9, Y10, Y11, fourLess, fourOn, four1)
	KEEP4(Y8, Y9, Y10, Y11)
	JMP partDone

two:
	RESULTS2(Y8, Y9)

two1:
	ZERO2(Y0, Y1)
	MOVQ GROUP(R15), AX

two16:
	SIXTEEN(UNITS2, two16)
	JOIN2(Y0, Y1, Y8, Y9, twoLess, twoOn, two1)
	KEEP2(Y8, Y9)
	JMP partDone

one:
	RESULTS1(Y8)

one1:
	ZERO1(Y0)
	MOVQ GROUP(R15), AX

one16:
	SIXTEEN(UNITS1, one16)
	JOIN1(Y0, Y8, oneLess, oneOn, one1)
	KEEP1(Y8)
	JMP partDone
