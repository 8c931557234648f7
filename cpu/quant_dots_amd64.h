// The part of the quantDots kernels that all vector lengths share: the walk over
// the steps of a block, and the decoding of a step. It is included within a
// TEXT, by files that say what a vector is:
//
//	V0..V15    its registers
//	LANEBYTES  its bytes: 4 elements of each of LANEBYTES/4 outputs
//	MOVU, AND, OR, XOR, XORSELF  moves and logic
//	LOAD(off)  16 bytes of each row to V0..V3: row i, i+4, ... in lanes of 128 bits
//	ADVANCE(n) moves the row pointers
//	POINTERS   sets those from AX and the stride in BX
//	AHEADLINE  prefetches a line of each row from R8
//	HALFSCALES(off, dst)  the f16 of each row at off, widened
//	HALVES(src, low, high)  the f16 in the halves of each dword, widened
//
//	TILEROWS   rows whose activations are packed together
//	PARTS      jumps to the code for as many of the AX rows as it takes at once
//
// That code adds to the results of its rows in R14 and comes back to partDone with
// their number in R9. It may change all registers but R15, and finds
//
//	SI         activations, rows R10 apart (R11: three times that)
//	DX         decoded bytes
//	R12, R13   scales and sums of the activations of the first group, BX from
//	           group to group
//	DI, R8     scales and biases of the weights
//	CX         groups
//
// In decoding, AX and the file's other row pointers
// stand at the step, BX is their distance, R9 three times it; DX is the buffer,
// DI the scales and R13 the biases of the step.

#include "quant_decode_amd64.h"

// Offsets in dotsCall.
#define A        0
#define NEXT     8
#define ASTRIDE  16
#define ASTEP    24
#define FORMAT   32
#define STEPS    40
#define ELEMENTS 48
#define AHEAD    56
#define LEFT     64
#define LINES    72
#define BUF      80
#define W        88
#define BIAS     96
#define WSTEP    104
#define X        112
#define XSTRIDE  120
#define GROUP    128
#define GROUPS   136
#define SX       144
#define SXTILE   152
#define SXROW    160
#define SXAT     168
#define ROWS     176
#define C        184
#define LESS     192
#define KIND     200
#define TX       208
#define TSX      216
#define TXS      224
#define TC       232
#define TNEXT    240
#define TROWS    248
#define TPART    256
#define TLEFT    264

step:
	MOVQ ASTRIDE(R15), BX
	LEAQ (BX)(BX*2), R9
	MOVQ AHEAD(R15), AX
	MOVQ LINES(R15), CX
	POINTERS

aheadLine:
	AHEADLINE
	ADVANCE(64)
	DECQ CX
	JNZ  aheadLine
	MOVQ ASTEP(R15), CX
	ADDQ CX, AHEAD(R15)
	DECQ LEFT(R15)
	JNZ  rows
	MOVQ NEXT(R15), CX
	MOVQ CX, AHEAD(R15)

rows:
	MOVQ A(R15), AX
	POINTERS
	MOVQ BUF(R15), DX
	MOVQ W(R15), DI
	MOVQ BIAS(R15), R13
	CONSTANT(0x0F0F0F0F, X15, V15)
	MOVQ FORMAT(R15), R12
	CMPQ R12, $1
	JB   bytes
	JE   nibbles
	CMPQ R12, $3
	JB   q80
	JE   q40
	CMPQ R12, $4
	JE   q4k
	JMP  q6k

bytes:
	MOVQ ELEMENTS(R15), CX
	SHRQ $4, CX

bytes16:
	LOAD(0)
	TRANSPOSE
	STORE4(0)
	ADDQ $(4*LANEBYTES), DX
	ADVANCE(16)
	DECQ CX
	JNZ  bytes16
	JMP  decoded

	// Of 8 elements the even ones come first, then the odd ones.
nibbles:
	MOVQ ELEMENTS(R15), CX
	SHRQ $5, CX

nibbles32:
	LOAD(0)
	TRANSPOSE
	NIBBLES(V0, 0, 1)
	NIBBLES(V1, 2, 3)
	NIBBLES(V2, 4, 5)
	NIBBLES(V3, 6, 7)
	ADDQ $(8*LANEBYTES), DX
	ADVANCE(16)
	DECQ CX
	JNZ  nibbles32
	JMP  decoded

q80:
	CONSTANT(0x80808080, X15, V15)
	MOVQ ELEMENTS(R15), CX
	SHRQ $5, CX

q80Block:
	HALFSCALES(0, V8)
	VMOVUPS V8, (DI)
	ADDQ $LANEBYTES, DI
	LOAD(2)
	TRANSPOSE
	RAISED(V0, 0)
	RAISED(V1, 1)
	RAISED(V2, 2)
	RAISED(V3, 3)
	LOAD(18)
	TRANSPOSE
	RAISED(V0, 4)
	RAISED(V1, 5)
	RAISED(V2, 6)
	RAISED(V3, 7)
	ADDQ $(8*LANEBYTES), DX
	ADVANCE(34)
	DECQ CX
	JNZ  q80Block
	JMP  decoded

q40:
	MOVQ ELEMENTS(R15), CX
	SHRQ $5, CX

q40Block:
	HALFSCALES(0, V8)
	VMOVUPS V8, (DI)
	ADDQ $LANEBYTES, DI
	LOAD(2)
	TRANSPOSE
	NIBBLES4(0, 4)
	ADDQ $(8*LANEBYTES), DX
	ADVANCE(18)
	DECQ CX
	JNZ  q40Block
	JMP  decoded

q4k:
	CONSTANT(0x3F, X12, V12)
	CONSTANT(0x0F, X13, V13)
	CONSTANT(0x30, X14, V14)
	LOAD(0)
	TRANSPOSE
	HALVES(V0, V4, V5)
	XORSELF(V6)
	VSUBPS V5, V6, V5
	PAIR4K(0)
	PAIR4K(1)
	PAIR4K(2)
	PAIR4K(3)
	LOAD(16)
	TRANSPOSE
	NIBBLES4(0, 8)
	LOAD(32)
	TRANSPOSE
	NIBBLES4(4, 12)
	LOAD(48)
	TRANSPOSE
	NIBBLES4(16, 24)
	LOAD(64)
	TRANSPOSE
	NIBBLES4(20, 28)
	LOAD(80)
	TRANSPOSE
	NIBBLES4(32, 40)
	LOAD(96)
	TRANSPOSE
	NIBBLES4(36, 44)
	LOAD(112)
	TRANSPOSE
	NIBBLES4(48, 56)
	LOAD(128)
	TRANSPOSE
	NIBBLES4(52, 60)
	JMP  decoded

q6k:
	HALFSCALES(208, V8)
	LOAD(192)
	TRANSPOSE
	SCALES6K(V0, 0)
	SCALES6K(V1, 4)
	SCALES6K(V2, 8)
	SCALES6K(V3, 12)
	CONSTANT(0x30303030, X12, V12)
	QUARTER6K(128, 0, 0)
	QUARTER6K(144, 16, 4)
	QUARTER6K(160, 64, 32)
	QUARTER6K(176, 80, 36)

decoded:
	MOVQ ASTEP(R15), AX
	ADDQ AX, A(R15)
	MOVQ X(R15), AX
	MOVQ AX, TX(R15)
	MOVQ C(R15), AX
	MOVQ AX, TC(R15)
	MOVQ SX(R15), AX
	MOVQ AX, TNEXT(R15)
	MOVQ ROWS(R15), AX
	MOVQ AX, TLEFT(R15)

	// Rows that are packed together have their scales as [groups, rows], and
	// then their sums.
tile:
	MOVQ TLEFT(R15), BX
	MOVQ $TILEROWS, AX
	CMPQ BX, AX
	CMOVQGT AX, BX
	MOVQ BX, TROWS(R15)
	MOVQ BX, TPART(R15)
	MOVQ TNEXT(R15), CX
	MOVQ SXAT(R15), AX
	IMULQ BX, AX
	ADDQ CX, AX
	MOVQ AX, TSX(R15)
	MOVQ SXROW(R15), DX
	IMULQ BX, DX
	ADDQ DX, AX
	MOVQ AX, TXS(R15)
	ADDQ SXTILE(R15), CX
	MOVQ CX, TNEXT(R15)

part:
	MOVQ TX(R15), SI
	MOVQ TC(R15), R14
	MOVQ TSX(R15), R12
	MOVQ TXS(R15), R13
	MOVQ TROWS(R15), BX
	SHLQ $2, BX
	MOVQ BUF(R15), DX
	MOVQ W(R15), DI
	MOVQ BIAS(R15), R8
	MOVQ GROUPS(R15), CX
	MOVQ XSTRIDE(R15), R10
	LEAQ (R10)(R10*2), R11
	MOVQ TPART(R15), AX
	PARTS

	// R9 rows are done.
partDone:
	MOVQ XSTRIDE(R15), AX
	IMULQ R9, AX
	ADDQ AX, TX(R15)
	MOVQ $LANEBYTES, AX
	IMULQ R9, AX
	ADDQ AX, TC(R15)
	LEAQ (R9*4), AX
	ADDQ AX, TSX(R15)
	ADDQ AX, TXS(R15)
	SUBQ R9, TLEFT(R15)
	SUBQ R9, TPART(R15)
	JNZ  part
	CMPQ TLEFT(R15), $0
	JNE  tile
	MOVQ WSTEP(R15), AX
	ADDQ AX, W(R15)
	ADDQ AX, BIAS(R15)
	MOVQ GROUPS(R15), AX
	SHLQ $2, AX
	ADDQ AX, SXAT(R15)
	MOVQ ELEMENTS(R15), AX
	ADDQ AX, X(R15)
	DECQ STEPS(R15)
	JNZ  step
	VZEROUPPER
	RET
