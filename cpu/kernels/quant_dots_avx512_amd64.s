#include "textflag.h"

// Vectors of 512 bits for quant_dots_amd64.h: 16 outputs at a time, rows 0 to 3 from AX, 4
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

#define LANEBYTES 128
#define VECTORBYTES 64
#define TILEROWS 4

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

// Products of unit u, 4 elements, of up to 4 rows with the 16 outputs in Z8 and
// the 16 in Z9; sums of row i are in Z(2i) and Z(2i+1).
#define ROW(u, row, low, high) \
	VPBROADCASTD (4*u)row, Z10; \
	VPDPBUSD Z10, Z8, low; \
	VPDPBUSD Z10, Z9, high

#define UNITS1(u) \
	VMOVDQU32 (128*u)(DX), Z8; \
	VMOVDQU32 (128*u+64)(DX), Z9; \
	ROW(u, (SI), Z0, Z1)
#define UNITS2(u) \
	UNITS1(u); \
	ROW(u, (SI)(R10*1), Z2, Z3)
#define UNITS4(u) \
	UNITS2(u); \
	ROW(u, (SI)(R10*2), Z4, Z5); \
	ROW(u, (SI)(R11*1), Z6, Z7)

// SIXTEEN multiplies 16 elements of a group until AX of them are done.
#define SIXTEEN(UNITS, loop) \
	UNITS(0) \
	UNITS(1) \
	UNITS(2) \
	UNITS(3) \
	ADDQ $512, DX \
	ADDQ $16, SI \
	SUBQ $16, AX \
	JNZ  loop

// ADD adds the sums a and b of row i to its results r and s, with scales in Z12
// and Z13; ADDBIAS the biases of Z14 and Z15, and TAKEZEROPOINT takes from the sums
// what the numbers were raised by.
#define ADD(i, a, b, r, s) \
	VCVTDQ2PS a, a; \
	VCVTDQ2PS b, b; \
	VMULPS.BCST (4*i)(R12), a, a; \
	VMULPS.BCST (4*i)(R12), b, b; \
	VFMADD231PS Z12, a, r; \
	VFMADD231PS Z13, b, s
#define ADDBIAS(i, r, s) \
	VFMADD231PS.BCST (4*i)(R13), Z14, r; \
	VFMADD231PS.BCST (4*i)(R13), Z15, s
#define TAKEZEROPOINT(i, a, b) \
	VPSUBD.BCST (4*i)(R13), a, a; \
	VPSUBD.BCST (4*i)(R13), b, b

// Each of these for 1, 2 or 4 rows: sums in Z0.., results in Z16...
#define ADDS1 ADD(0, Z0, Z1, Z16, Z17)
#define ADDS2 ADDS1; ADD(1, Z2, Z3, Z18, Z19)
#define ADDS4 ADDS2; ADD(2, Z4, Z5, Z20, Z21); ADD(3, Z6, Z7, Z22, Z23)
#define BIASES1 ADDBIAS(0, Z16, Z17)
#define BIASES2 BIASES1; ADDBIAS(1, Z18, Z19)
#define BIASES4 BIASES2; ADDBIAS(2, Z20, Z21); ADDBIAS(3, Z22, Z23)
#define ZEROPOINT1 TAKEZEROPOINT(0, Z0, Z1)
#define ZEROPOINT2 ZEROPOINT1; TAKEZEROPOINT(1, Z2, Z3)
#define ZEROPOINT4 ZEROPOINT2; TAKEZEROPOINT(2, Z4, Z5); TAKEZEROPOINT(3, Z6, Z7)
#define ZERO2(a, b) VPXORD a, a, a; VPXORD b, b, b
#define ZEROS1 ZERO2(Z0, Z1)
#define ZEROS2 ZEROS1; ZERO2(Z2, Z3)
#define ZEROS4 ZEROS2; ZERO2(Z4, Z5); ZERO2(Z6, Z7)
#define RESULTS1 VMOVUPS (R14), Z16; VMOVUPS 64(R14), Z17
#define RESULTS2 RESULTS1; VMOVUPS 128(R14), Z18; VMOVUPS 192(R14), Z19
#define RESULTS4 RESULTS2; VMOVUPS 256(R14), Z20; VMOVUPS 320(R14), Z21; VMOVUPS 384(R14), Z22; VMOVUPS 448(R14), Z23
#define KEEP1 VMOVUPS Z16, (R14); VMOVUPS Z17, 64(R14)
#define KEEP2 KEEP1; VMOVUPS Z18, 128(R14); VMOVUPS Z19, 192(R14)
#define KEEP4 KEEP2; VMOVUPS Z20, 256(R14); VMOVUPS Z21, 320(R14); VMOVUPS Z22, 384(R14); VMOVUPS Z23, 448(R14)

// GROUPROWS multiplies n rows with all groups.
#define GROUPROWS(n, ZEROS, UNITS, ADDS, BIASES, ZEROPOINTS, KEEP, group, sixteen, zeroPoint, on) \
group: \
	ZEROS \
	MOVQ GROUP(R15), AX \
sixteen: \
	SIXTEEN(UNITS, sixteen) \
	VMOVUPS (DI), Z12 \
	VMOVUPS 64(DI), Z13 \
	CMPQ ZEROPOINT(R15), $0 \
	JNE  zeroPoint \
	VMOVUPS (R8), Z14 \
	VMOVUPS 64(R8), Z15 \
	ADDS \
	BIASES \
	JMP  on \
zeroPoint: \
	ZEROPOINTS \
	ADDS \
on: \
	ADDQ BX, R12 \
	ADDQ BX, R13 \
	ADDQ $128, DI \
	ADDQ $128, R8 \
	DECQ CX \
	JNZ  group \
	KEEP \
	MOVQ $n, R9 \
	JMP  partDone

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

// func dotsAVX512(t *dotsCall)
//
// A block of 32 outputs by VPDPBUSD. Two vectors of outputs share a broadcast of
// activations: 6 loads for 8 products instead of 9.
TEXT ·dotsAVX512(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
#include "quant_dots_amd64.h"

four:
	RESULTS4
	GROUPROWS(4, ZEROS4, UNITS4, ADDS4, BIASES4, ZEROPOINT4, KEEP4, four1, four16, fourZeroPoint, fourOn)

two:
	RESULTS2
	GROUPROWS(2, ZEROS2, UNITS2, ADDS2, BIASES2, ZEROPOINT2, KEEP2, two1, two16, twoZeroPoint, twoOn)

one:
	RESULTS1
	GROUPROWS(1, ZEROS1, UNITS1, ADDS1, BIASES1, ZEROPOINT1, KEEP1, one1, one16, oneZeroPoint, oneOn)

// SCALEPAIR widens the two bf16 of each dword, for two groups. Z8: the high halves.
#define SCALEPAIR(z) \
	VPSLLD $16, z, Z4; \
	VPANDD Z8, z, z; \
	VMOVUPS Z4, (DI); \
	VMOVUPS z, (DI)(DX*1); \
	LEAQ (DI)(DX*2), DI

// func widenScales16(dst *float32, lanes int, src *byte, stride, eights int)
//
// widenScales8 for 16 rows.
TEXT ·widenScales16(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ lanes+8(FP), DX
	MOVQ src+16(FP), AX
	MOVQ stride+24(FP), BX
	MOVQ eights+32(FP), CX
	LEAQ (BX)(BX*2), R9
	POINTERS
	MOVQ DX, R8
	IMULQ BX, R8
	ADDQ AX, R8
	PREFETCHES
	SHLQ $2, DX
	MOVL $0xFFFF0000, R15
	VPBROADCASTD R15, Z8

eight:
	LOAD(0)
	TRANSPOSE
	SCALEPAIR(Z0)
	SCALEPAIR(Z1)
	SCALEPAIR(Z2)
	SCALEPAIR(Z3)
	AHEAD0(0)
	AHEAD1(0)
	AHEAD2(0)
	AHEAD3(0)
	ADVANCE(16)
	DECQ CX
	JNZ  eight
	VZEROUPPER
	RET
