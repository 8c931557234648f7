#include "textflag.h"

// Vectors of 512 bits for quant_dots_amd64.h: 16 outputs, rows 0 to 3 from AX, 4
// to 7 from R14, 8 to 11 from R10 and 12 to 15 from R11.

#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define V5 Z5
#define V6 Z6
#define V7 Z7
#define V8 Z8
#define V9 Z9
#define V10 Z10
#define V11 Z11
#define V12 Z12
#define V13 Z13
#define V14 Z14
#define V15 Z15

#define LANEBYTES 64
#define VECTORBYTES 64
#define TILEROWS 8

#define MOVU VMOVDQU32
#define AND VPANDD
#define OR VPORD
#define XOR VPXORD
#define XORSELF(v) VPXORD v, v, v

#define POINTERS \
	LEAQ (AX)(BX*4), R14; \
	LEAQ (AX)(BX*8), R10; \
	LEAQ (R14)(BX*8), R11

#define PREFETCHES \
	LEAQ (R8)(BX*4), R12; \
	LEAQ (R8)(BX*8), SI; \
	LEAQ (R12)(BX*8), R13

#define ADVANCE(n) \
	ADDQ $n, AX; \
	ADDQ $n, R14; \
	ADDQ $n, R10; \
	ADDQ $n, R11; \
	ADDQ $n, R8; \
	ADDQ $n, R12; \
	ADDQ $n, SI; \
	ADDQ $n, R13

// Rows 0, 4, 8 and 12, and so on.
#define AHEAD0(off) \
	PREFETCHT0 off(R8); \
	PREFETCHT0 off(R12); \
	PREFETCHT0 off(SI); \
	PREFETCHT0 off(R13)
#define AHEAD1(off) \
	PREFETCHT0 off(R8)(BX*1); \
	PREFETCHT0 off(R12)(BX*1); \
	PREFETCHT0 off(SI)(BX*1); \
	PREFETCHT0 off(R13)(BX*1)
#define AHEAD2(off) \
	PREFETCHT0 off(R8)(BX*2); \
	PREFETCHT0 off(R12)(BX*2); \
	PREFETCHT0 off(SI)(BX*2); \
	PREFETCHT0 off(R13)(BX*2)
#define AHEAD3(off) \
	PREFETCHT0 off(R8)(R9*1); \
	PREFETCHT0 off(R12)(R9*1); \
	PREFETCHT0 off(SI)(R9*1); \
	PREFETCHT0 off(R13)(R9*1)

#define LOAD4(row0, row4, row8, row12, x, y, z) \
	VMOVDQU row0, x; \
	VINSERTI128 $1, row4, y, y; \
	VINSERTI32X4 $2, row8, z, z; \
	VINSERTI32X4 $3, row12, z, z

#define LOAD(off) \
	LOAD4(off(AX), off(R14), off(R10), off(R11), X0, Y0, Z0); \
	LOAD4(off(AX)(BX*1), off(R14)(BX*1), off(R10)(BX*1), off(R11)(BX*1), X1, Y1, Z1); \
	LOAD4(off(AX)(BX*2), off(R14)(BX*2), off(R10)(BX*2), off(R11)(BX*2), X2, Y2, Z2); \
	LOAD4(off(AX)(R9*1), off(R14)(R9*1), off(R10)(R9*1), off(R11)(R9*1), X3, Y3, Z3)

// WORDS gathers the words of 8 rows.
#define WORDS(off, p, q, x) \
	VPXOR x, x, x; \
	VPINSRW $0, off(p), x, x; \
	VPINSRW $1, off(p)(BX*1), x, x; \
	VPINSRW $2, off(p)(BX*2), x, x; \
	VPINSRW $3, off(p)(R9*1), x, x; \
	VPINSRW $4, off(q), x, x; \
	VPINSRW $5, off(q)(BX*1), x, x; \
	VPINSRW $6, off(q)(BX*2), x, x; \
	VPINSRW $7, off(q)(R9*1), x, x

// HALFSCALES goes by way of Z8 and Z9.
#define HALFSCALES(off, dst) \
	WORDS(off, AX, R14, X8); \
	WORDS(off, R10, R11, X9); \
	VINSERTI128 $1, X9, Y8, Y8; \
	VCVTPH2PS Y8, dst

// HALVES goes by way of Z6.
#define HALVES(src, low, high) \
	VPMOVDW src, Y6; \
	VCVTPH2PS Y6, low; \
	VPSRLD $16, src, Z6; \
	VPMOVDW Z6, Y6; \
	VCVTPH2PS Y6, high

// Products of unit u, 4 elements, of up to 8 rows.
#define UNITS1(u) \
	VMOVDQU32 (64*u)(DX), Z8; \
	VPDPBUSD.BCST (4*u)(SI), Z8, Z0
#define UNITS2(u) \
	UNITS1(u); \
	VPDPBUSD.BCST (4*u)(SI)(R10*1), Z8, Z1
#define UNITS4(u) \
	UNITS2(u); \
	VPDPBUSD.BCST (4*u)(SI)(R10*2), Z8, Z2; \
	VPDPBUSD.BCST (4*u)(SI)(R11*1), Z8, Z3
#define UNITS8(u) \
	UNITS4(u); \
	VPDPBUSD.BCST (4*u)(SI)(R10*4), Z8, Z4; \
	VPDPBUSD.BCST (4*u)(SI)(R9*1), Z8, Z5; \
	VPDPBUSD.BCST (4*u)(SI)(R11*2), Z8, Z6; \
	VPDPBUSD.BCST (4*u)(SI)(R14*1), Z8, Z7

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

// ADD adds the sums of row i to its result, with scales in Z9; ADDBIAS the bias
// of Z10, and TAKELESS takes from the sums what the numbers were raised by.
#define ADD(i, sum, result) \
	VCVTDQ2PS sum, sum; \
	VMULPS.BCST (4*i)(R12), sum, sum; \
	VFMADD231PS Z9, sum, result
#define ADDBIAS(i, result) \
	VFMADD231PS.BCST (4*i)(R13), Z10, result
#define TAKELESS(i, sum) \
	VPSUBD.BCST (4*i)(R13), sum, sum

// Each of these for 1, 2, 4 or 8 rows: sums in Z0.., results in Z16...
#define ADDS1 ADD(0, Z0, Z16)
#define ADDS2 ADDS1; ADD(1, Z1, Z17)
#define ADDS4 ADDS2; ADD(2, Z2, Z18); ADD(3, Z3, Z19)
#define ADDS8 ADDS4; ADD(4, Z4, Z20); ADD(5, Z5, Z21); ADD(6, Z6, Z22); ADD(7, Z7, Z23)
#define BIASES1 ADDBIAS(0, Z16)
#define BIASES2 BIASES1; ADDBIAS(1, Z17)
#define BIASES4 BIASES2; ADDBIAS(2, Z18); ADDBIAS(3, Z19)
#define BIASES8 BIASES4; ADDBIAS(4, Z20); ADDBIAS(5, Z21); ADDBIAS(6, Z22); ADDBIAS(7, Z23)
#define LESS1 TAKELESS(0, Z0)
#define LESS2 LESS1; TAKELESS(1, Z1)
#define LESS4 LESS2; TAKELESS(2, Z2); TAKELESS(3, Z3)
#define LESS8 LESS4; TAKELESS(4, Z4); TAKELESS(5, Z5); TAKELESS(6, Z6); TAKELESS(7, Z7)
#define ZERO(z) VPXORD z, z, z
#define ZERO1 ZERO(Z0)
#define ZERO2 ZERO1; ZERO(Z1)
#define ZERO4 ZERO2; ZERO(Z2); ZERO(Z3)
#define ZERO8 ZERO4; ZERO(Z4); ZERO(Z5); ZERO(Z6); ZERO(Z7)
#define RESULTS1 VMOVUPS (R14), Z16
#define RESULTS2 RESULTS1; VMOVUPS 64(R14), Z17
#define RESULTS4 RESULTS2; VMOVUPS 128(R14), Z18; VMOVUPS 192(R14), Z19
#define RESULTS8 RESULTS4; VMOVUPS 256(R14), Z20; VMOVUPS 320(R14), Z21; VMOVUPS 384(R14), Z22; VMOVUPS 448(R14), Z23
#define KEEP1 VMOVUPS Z16, (R14)
#define KEEP2 KEEP1; VMOVUPS Z17, 64(R14)
#define KEEP4 KEEP2; VMOVUPS Z18, 128(R14); VMOVUPS Z19, 192(R14)
#define KEEP8 KEEP4; VMOVUPS Z20, 256(R14); VMOVUPS Z21, 320(R14); VMOVUPS Z22, 384(R14); VMOVUPS Z23, 448(R14)

// GROUPROWS multiplies n rows with all groups.
#define GROUPROWS(n, ZEROS, UNITS, ADDS, BIASES, LESSES, KEEP, group, sixteen, less, on) \
group: \
	ZEROS \
	MOVQ GROUP(R15), AX \
sixteen: \
	SIXTEEN(UNITS, sixteen) \
	VMOVUPS (DI), Z9 \
	CMPQ LESS(R15), $0 \
	JNE  less \
	VMOVUPS (R8), Z10 \
	ADDS \
	BIASES \
	JMP  on \
less: \
	LESSES \
	ADDS \
on: \
	ADDQ BX, R12 \
	ADDQ BX, R13 \
	ADDQ $64, DI \
	ADDQ $64, R8 \
	DECQ CX \
	JNZ  group \
	MOVQ TC(R15), R14 \
	KEEP \
	MOVQ $n, R9 \
	JMP  partDone

#define PARTS \
	CMPQ AX, $8; \
	JGE  eight; \
	CMPQ AX, $4; \
	JGE  four; \
	CMPQ AX, $2; \
	JGE  two; \
	JMP  one

// func dotsAVX512(t *dotsCall)
//
// A block of 16 outputs by VPDPBUSD.
TEXT ·dotsAVX512(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
#include "quant_dots_amd64.h"

eight:
	RESULTS8
	LEAQ (R10)(R10*4), R9
	LEAQ (R11)(R10*4), R14
	GROUPROWS(8, ZERO8, UNITS8, ADDS8, BIASES8, LESS8, KEEP8, eight1, eight16, eightLess, eightOn)

four:
	RESULTS4
	GROUPROWS(4, ZERO4, UNITS4, ADDS4, BIASES4, LESS4, KEEP4, four1, four16, fourLess, fourOn)

two:
	RESULTS2
	GROUPROWS(2, ZERO2, UNITS2, ADDS2, BIASES2, LESS2, KEEP2, two1, two16, twoLess, twoOn)

one:
	RESULTS1
	GROUPROWS(1, ZERO1, UNITS1, ADDS1, BIASES1, LESS1, KEEP1, one1, one16, oneLess, oneOn)

// SCALEPAIR widens the two bf16 of each dword. Z8: the high halves.
#define SCALEPAIR(z, at) \
	VPSLLD $16, z, Z4; \
	VPANDD Z8, z, z; \
	VMOVUPS Z4, at(DI); \
	VMOVUPS z, (at+64)(DI)

// func widenScales16(dst *float32, src *byte, stride, eights int)
//
// Widens bf16 [16, groups], rows stride bytes apart, to f32 [groups, 16], for
// groups of 8 times eights. The next 16 rows are prefetched.
TEXT ·widenScales16(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), AX
	MOVQ stride+16(FP), BX
	MOVQ eights+24(FP), CX
	LEAQ (BX)(BX*2), R9
	POINTERS
	LEAQ (R10)(BX*8), R8
	PREFETCHES
	MOVL $0xFFFF0000, DX
	VPBROADCASTD DX, Z8

eight:
	LOAD(0)
	TRANSPOSE
	SCALEPAIR(Z0, 0)
	SCALEPAIR(Z1, 128)
	SCALEPAIR(Z2, 256)
	SCALEPAIR(Z3, 384)
	AHEAD0(0)
	AHEAD1(0)
	AHEAD2(0)
	AHEAD3(0)
	ADDQ $512, DI
	ADVANCE(16)
	DECQ CX
	JNZ  eight
	VZEROUPPER
	RET
