// Dot products by VPDPBUSD in 256 bits, a block of 16 outputs: two vectors of outputs share
// a broadcast of activations, 7 instructions for 4 products instead of 9. It is included in
// two parts, as two encodings of the instruction have it: a file that has it first includes
// this, with
//
//	ROW01(u, row), ROW23(u, row), ROW45(u, row), ROW67(u, row)
//
// the products of unit u, 4 elements, of a row with the 8 outputs in Y8 and the 8 in Y9,
// added to two of Y0 to Y7; and then quant_dots_vnni_code_amd64.h within its TEXT.

#define UNITS1(u) \
	VMOVDQU (64*u)(DX), Y8; \
	VMOVDQU (64*u+32)(DX), Y9; \
	ROW01(u, (SI))
#define UNITS2(u) \
	UNITS1(u); \
	ROW23(u, (SI)(R10*1))
#define UNITS4(u) \
	UNITS2(u); \
	ROW45(u, (SI)(R10*2)); \
	ROW67(u, (SI)(R11*1))

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
