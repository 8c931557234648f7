// The part of the quantDots kernels that all vector lengths share: the walk over
// the steps of a block, and the decoding of a step. It is included within a
// TEXT, by files that say what a vector is:
//
//	V0..V15    its registers
//	VECTORBYTES  its bytes: 4 elements of each of VECTORBYTES/4 outputs
//	LANEBYTES  those of all outputs of a block, which may be two vectors
//	MOVU, AND, OR, XOR, XORSELF  moves and logic
//	LOAD(off)  16 bytes of each row to V0..V3: row i, i+4, ... in lanes of 128 bits
//	ADVANCE(n) moves the row pointers and those of the prefetches
//	POINTERS   sets those from AX and the stride in BX, PREFETCHES these from R8
//	AHEAD0(off), AHEAD1(off), ...  prefetch a line of a quarter of the rows each
//	HALFSCALES(off, dst)  the f16 of each row at off, widened
//	HALVES(src, low, high)  the f16 in the halves of each dword, widened
//
//	Q80STORE4(at)  stores V0..V3, numbers of Q8_0, as units at and on; Q80BYTES for 16
//	             units, to where Q80BUFFER sets DX
//	DECODED    what is done with a step's bytes before they are multiplied
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
// In decoding, AX and the file's other row pointers stand at the step, BX is their
// distance, R9 three times it; DX is the buffer, DI the scales of the step.
//
// Prefetches lie between the loads: those of a step at its start, all at once,
// fill the 16 buffers that a core has for lines to come, and nothing is asked
// for while it waits: 10.4 instead of 11.4 GB/s for one row of 8-bit numbers.

#include "quant_decode_amd64.h"
#include "quant_call_amd64.h"

step:
	MOVQ $0, PART(R15)

	// SI: bytes of the vectors before this one.
decode:
	MOVQ PART(R15), SI
	MOVQ ASTRIDE(R15), BX
	LEAQ (BX)(BX*2), R9
	MOVQ SI, CX
	SHRQ $2, CX
	IMULQ BX, CX
	MOVQ A(R15), AX
	ADDQ CX, AX
	POINTERS
	MOVQ AHEAD(R15), R8
	ADDQ CX, R8
	MOVQ BUF(R15), DX
	ADDQ SI, DX
	MOVQ W(R15), DI
	ADDQ SI, DI
	CONSTANT(0x0F0F0F0F, X15, V15)
	MOVQ FORMAT(R15), CX
	CMPQ CX, $4
	JE   q4k
	JA   beyond4k
	PREFETCHES
	CMPQ CX, $1
	JB   bytes
	JE   nibbles
	CMPQ CX, $3
	JB   q80
	JMP  q40

bytes:
	MOVQ ELEMENTS(R15), CX

bytes64:
	LOAD(0)
	AHEAD0(0)
	TRANSPOSE
	STORE4(0)
	LOAD(16)
	AHEAD1(0)
	TRANSPOSE
	STORE4(4)
	LOAD(32)
	AHEAD2(0)
	TRANSPOSE
	STORE4(8)
	LOAD(48)
	AHEAD3(0)
	TRANSPOSE
	STORE4(12)
	ADDQ $(16*LANEBYTES), DX
	ADVANCE(64)
	SUBQ $64, CX
	JNZ  bytes64
	JMP  decoded

	// Of 8 elements the even ones come first, then the odd ones.
nibbles:
	MOVQ ELEMENTS(R15), CX

nibbles128:
	LOAD(0)
	AHEAD0(0)
	TRANSPOSE
	PAIRS4(0)
	LOAD(16)
	AHEAD1(0)
	TRANSPOSE
	PAIRS4(8)
	LOAD(32)
	AHEAD2(0)
	TRANSPOSE
	PAIRS4(16)
	LOAD(48)
	AHEAD3(0)
	TRANSPOSE
	PAIRS4(24)
	ADDQ $(32*LANEBYTES), DX
	ADVANCE(64)
	SUBQ $128, CX
	JNZ  nibbles128
	JMP  decoded

	// Two blocks are 68 bytes: where two lines end in them both are prefetched.
q80:
	Q80BUFFER
	CONSTANT(0x80808080, X15, V15)
	MOVQ ELEMENTS(R15), CX

q80Blocks:
	HALFSCALES(0, V8)
	VMOVUPS V8, (DI)
	LOAD(2)
	AHEAD0(0)
	AHEAD0(4)
	TRANSPOSE
	Q80STORE4(0)
	LOAD(18)
	AHEAD1(0)
	AHEAD1(4)
	TRANSPOSE
	Q80STORE4(4)
	HALFSCALES(34, V8)
	VMOVUPS V8, LANEBYTES(DI)
	LOAD(36)
	AHEAD2(0)
	AHEAD2(4)
	TRANSPOSE
	Q80STORE4(8)
	LOAD(52)
	AHEAD3(0)
	AHEAD3(4)
	TRANSPOSE
	Q80STORE4(12)
	ADDQ $(2*LANEBYTES), DI
	ADDQ $Q80BYTES, DX
	ADVANCE(68)
	SUBQ $64, CX
	JNZ  q80Blocks
	JMP  decoded

	// Four blocks are 72 bytes.
#define BLOCK40(i, AHEADROWS) \
	HALFSCALES((18*i), V8); \
	VMOVUPS V8, (i*LANEBYTES)(DI); \
	LOAD((18*i+2)); \
	AHEADROWS(0); \
	AHEADROWS(8); \
	TRANSPOSE; \
	NIBBLES4((8*i), (8*i+4))

q40:
	MOVQ ELEMENTS(R15), CX

q40Blocks:
	BLOCK40(0, AHEAD0)
	BLOCK40(1, AHEAD1)
	BLOCK40(2, AHEAD2)
	BLOCK40(3, AHEAD3)
	ADDQ $(4*LANEBYTES), DI
	ADDQ $(32*LANEBYTES), DX
	ADVANCE(72)
	SUBQ $128, CX
	JNZ  q40Blocks
	JMP  decoded

q4k:
	SCALES4K
	PREFETCHES
	LOAD(16)
	AHEAD0(0)
	TRANSPOSE
	NIBBLES4(0, 8)
	LOAD(32)
	AHEAD1(0)
	AHEAD2(0)
	TRANSPOSE
	NIBBLES4(4, 12)
	LOAD(48)
	AHEAD3(0)
	TRANSPOSE
	NIBBLES4(16, 24)
	LOAD(64)
	AHEAD0(64)
	AHEAD1(64)
	TRANSPOSE
	NIBBLES4(20, 28)
	LOAD(80)
	AHEAD2(64)
	TRANSPOSE
	NIBBLES4(32, 40)
	LOAD(96)
	AHEAD3(64)
	AHEAD0(128)
	TRANSPOSE
	NIBBLES4(36, 44)
	LOAD(112)
	AHEAD1(128)
	TRANSPOSE
	NIBBLES4(48, 56)
	LOAD(128)
	AHEAD2(128)
	AHEAD3(128)
	TRANSPOSE
	NIBBLES4(52, 60)
	JMP  decoded

	// The fifth bits of 32 bytes go with all 128 of the halves.
q5k:
	SCALES4K
	PREFETCHES
	CONSTANT(0x10101010, X12, V12)
	HALF5K(16, 48, 0, 0)
	HALF5K(32, 64, 4, 128)
	JMP  decoded

beyond4k:
	CMPQ CX, $6
	JE   q5k
	PREFETCHES

q6k:
	HALFSCALES(208, V8)
	LOAD(192)
	TRANSPOSE
	SCALES6K(V0, 0)
	SCALES6K(V1, 4)
	SCALES6K(V2, 8)
	SCALES6K(V3, 12)
	CONSTANT(0x30303030, X12, V12)
	QUARTER6K(128, 0, 0, 0)
	QUARTER6K(144, 16, 4, 64)
	QUARTER6K(160, 64, 32, 128)
	QUARTER6K(176, 80, 36, 192)

decoded:
	ADDQ $VECTORBYTES, PART(R15)
	CMPQ PART(R15), $LANEBYTES
	JB   decode
	MOVQ ASTEP(R15), AX
	ADDQ AX, A(R15)
	ADDQ AX, AHEAD(R15)
	DECQ LEFT(R15)
	JNZ  multiply
	MOVQ NEXT(R15), AX
	MOVQ AX, AHEAD(R15)

multiply:
	DECODED
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
	MOVQ FETCHES(R15), CX
	TESTQ CX, CX
	JEQ  fetched
	MOVQ FETCH(R15), SI
	MOVQ FETCHSTEP(R15), BX
	MOVQ FETCHLEFT(R15), AX

fetch:
	PREFETCHT1 (SI)
	ADDQ BX, SI
	DECQ AX
	JNZ  fetchOn
	ADDQ FETCHBACK(R15), SI
	MOVQ $(LANEBYTES/4), AX

fetchOn:
	DECQ CX
	JNZ  fetch
	MOVQ AX, FETCHLEFT(R15)
	MOVQ SI, FETCH(R15)

fetched:
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
	MOVQ XSTEP(R15), AX
	ADDQ AX, X(R15)
	DECQ STEPS(R15)
	JNZ  step
	VZEROUPPER
	RET
