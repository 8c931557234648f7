#include "textflag.h"
#include "go_asm.h"

// The tiles of the exact projector: 4 outs × 1..6 rows, one accumulator of 16
// lanes for each (row, out), so 24 of the 32 registers at most. A step is 32
// elements of k: first the 16 even ones, then the 16 odd ones. At 6 rows a step
// is 48 FMAs and 8 conversions on the two vector ports, with 24 loads: 86 % of
// the FMA peak at best. 2 outs × 12 rows would convert half as much, but small
// row counts are what decoding has.
//
// Registers: SI, R10 x rows 0 and 3; DX bytes of an x row; DI w; R8, R9 one and
// three times the bytes of a w row; R11, R12 prefetch pointer and its step; BX y;
// R13 accumulators; R15 groups left; CX steps left; AX the arguments.

// quarters picks the first lane of each 128 bits.
DATA quarters<>+0(SB)/4, $0
DATA quarters<>+4(SB)/4, $4
DATA quarters<>+8(SB)/4, $8
DATA quarters<>+12(SB)/4, $12
GLOBL quarters<>(SB), RODATA|NOPTR, $16

// The 32-bit pair of bfloat16s as two f32s: the even one is the lower half.
#define BF16EVEN \
	VPSLLD $16, (DI), Z24;        \
	VPSLLD $16, (DI)(R8*1), Z25;  \
	VPSLLD $16, (DI)(R8*2), Z26;  \
	VPSLLD $16, (DI)(R9*1), Z27

#define BF16ODD \
	VPANDD (DI), Z31, Z24;       \
	VPANDD (DI)(R8*1), Z31, Z25; \
	VPANDD (DI)(R8*2), Z31, Z26; \
	VPANDD (DI)(R9*1), Z31, Z27

// Weights that were widened and split into even and odd vectors before.
#define F32EVEN \
	VMOVUPS (DI), Z24;       \
	VMOVUPS (DI)(R8*1), Z25; \
	VMOVUPS (DI)(R8*2), Z26; \
	VMOVUPS (DI)(R9*1), Z27

#define F32ODD \
	VMOVUPS 64(DI), Z24;       \
	VMOVUPS 64(DI)(R8*1), Z25; \
	VMOVUPS 64(DI)(R8*2), Z26; \
	VMOVUPS 64(DI)(R9*1), Z27

#define ROW(x, a, b, c, d) \
	VMOVUPS     x, Z28;      \
	VFMADD231PS Z24, Z28, a; \
	VFMADD231PS Z25, Z28, b; \
	VFMADD231PS Z26, Z28, c; \
	VFMADD231PS Z27, Z28, d

#define MUL1(at) ROW(at(SI), Z0, Z1, Z2, Z3)
#define MUL2(at) MUL1(at); ROW(at(SI)(DX*1), Z4, Z5, Z6, Z7)
#define MUL3(at) MUL2(at); ROW(at(SI)(DX*2), Z8, Z9, Z10, Z11)
#define MUL4(at) MUL3(at); ROW(at(R10), Z12, Z13, Z14, Z15)
#define MUL5(at) MUL4(at); ROW(at(R10)(DX*1), Z16, Z17, Z18, Z19)
#define MUL6(at) MUL5(at); ROW(at(R10)(DX*2), Z20, Z21, Z22, Z23)

#define CLEAR(a, b, c, d) \
	VXORPS a, a, a; \
	VXORPS b, b, b; \
	VXORPS c, c, c; \
	VXORPS d, d, d

#define LOAD(at, a, b, c, d) \
	VMOVUPS at(R13), a;       \
	VMOVUPS (at+64)(R13), b;  \
	VMOVUPS (at+128)(R13), c; \
	VMOVUPS (at+192)(R13), d

#define STORE(at, a, b, c, d) \
	VMOVUPS a, at(R13);       \
	VMOVUPS b, (at+64)(R13);  \
	VMOVUPS c, (at+128)(R13); \
	VMOVUPS d, (at+192)(R13)

#define FOLD(op, lo, hi, a, b, dst) \
	op     $lo, b, a, Z30;  \
	op     $hi, b, a, Z31;  \
	VADDPS Z31, Z30, dst

// SUM stores the four sums of one row: lanes i with i+8, i+4, i+2, i+1.
#define SUM(a, b, c, d) \
	FOLD(VSHUFF32X4, 0x44, 0xee, a, b, Z24);     \
	FOLD(VSHUFF32X4, 0x44, 0xee, c, d, Z25);     \
	FOLD(VSHUFF32X4, 0x88, 0xdd, Z24, Z25, Z24); \
	VPERMILPS $0x4e, Z24, Z25; \
	VADDPS    Z25, Z24, Z24;   \
	VPERMILPS $0xb1, Z24, Z25; \
	VADDPS    Z25, Z24, Z24;   \
	VPERMPS   Z24, Z29, Z24;   \
	VMOVUPS   X24, (CX);       \
	ADDQ      tileArgs_ldy(AX), CX

#define CLEAR1 CLEAR(Z0, Z1, Z2, Z3)
#define CLEAR2 CLEAR1; CLEAR(Z4, Z5, Z6, Z7)
#define CLEAR3 CLEAR2; CLEAR(Z8, Z9, Z10, Z11)
#define CLEAR4 CLEAR3; CLEAR(Z12, Z13, Z14, Z15)
#define CLEAR5 CLEAR4; CLEAR(Z16, Z17, Z18, Z19)
#define CLEAR6 CLEAR5; CLEAR(Z20, Z21, Z22, Z23)

#define LOAD1 LOAD(0, Z0, Z1, Z2, Z3)
#define LOAD2 LOAD1; LOAD(256, Z4, Z5, Z6, Z7)
#define LOAD3 LOAD2; LOAD(512, Z8, Z9, Z10, Z11)
#define LOAD4 LOAD3; LOAD(768, Z12, Z13, Z14, Z15)
#define LOAD5 LOAD4; LOAD(1024, Z16, Z17, Z18, Z19)
#define LOAD6 LOAD5; LOAD(1280, Z20, Z21, Z22, Z23)

#define STORE1 STORE(0, Z0, Z1, Z2, Z3)
#define STORE2 STORE1; STORE(256, Z4, Z5, Z6, Z7)
#define STORE3 STORE2; STORE(512, Z8, Z9, Z10, Z11)
#define STORE4 STORE3; STORE(768, Z12, Z13, Z14, Z15)
#define STORE5 STORE4; STORE(1024, Z16, Z17, Z18, Z19)
#define STORE6 STORE5; STORE(1280, Z20, Z21, Z22, Z23)

#define SUM1 SUM(Z0, Z1, Z2, Z3)
#define SUM2 SUM1; SUM(Z4, Z5, Z6, Z7)
#define SUM3 SUM2; SUM(Z8, Z9, Z10, Z11)
#define SUM4 SUM3; SUM(Z12, Z13, Z14, Z15)
#define SUM5 SUM4; SUM(Z16, Z17, Z18, Z19)
#define SUM6 SUM5; SUM(Z20, Z21, Z22, Z23)

// TILE runs all groups of 4 outs, with AX set. wstep is the bytes of weights in a step.
#define TILE(rows, EVEN, ODD, wstep, MUL, CLEARALL, LOADALL, STOREALL, SUMALL) \
	MOVQ       tileArgs_y(AX), BX;    \
	MOVQ       tileArgs_acc(AX), R13; \
	MOVQ       tileArgs_w(AX), DI;    \
	MOVQ       tileArgs_ldw(AX), R8;  \
	LEAQ       (R8)(R8*2), R9;        \
	MOVQ       tileArgs_x(AX), SI;    \
	MOVQ       tileArgs_ldx(AX), DX;  \
	LEAQ       (SI)(DX*2), R10;       \
	ADDQ       DX, R10;               \
	MOVQ       tileArgs_ahead(AX), R11;     \
	MOVQ       tileArgs_aheadStep(AX), R12; \
	MOVQ       tileArgs_groups(AX), R15;    \
group:                                \
	VPTERNLOGD $0xff, Z31, Z31, Z31;  \
	VPSLLD     $16, Z31, Z31;         \
	CMPQ       tileArgs_resume(AX), $0; \
	JNE        resume;                \
	CLEARALL;                         \
	JMP        start;                 \
resume:                               \
	LOADALL;                          \
start:                                \
	MOVQ       tileArgs_steps(AX), CX; \
step:                                 \
	PREFETCHT0 (R11);                 \
	PREFETCHT0 (R11)(R8*1);           \
	PREFETCHT0 (R11)(R8*2);           \
	PREFETCHT0 (R11)(R9*1);           \
	CMPQ       CX, tileArgs_aheadLeft(AX); \
	JNE        near;                  \
	ADDQ       tileArgs_aheadJump(AX), R11; \
near:                                 \
	EVEN;                             \
	MUL(0);                           \
	ODD;                              \
	MUL(64);                          \
	ADDQ       R12, R11;              \
	ADDQ       $wstep, DI;            \
	ADDQ       $128, SI;              \
	ADDQ       $128, R10;             \
	DECQ       CX;                    \
	JNZ        step;                  \
	MOVQ       tileArgs_steps(AX), CX; \
	IMULQ      $wstep, CX;            \
	SUBQ       CX, DI;                \
	LEAQ       (DI)(R8*4), DI;        \
	MOVQ       tileArgs_steps(AX), CX; \
	SHLQ       $7, CX;                \
	SUBQ       CX, SI;                \
	SUBQ       CX, R10;               \
	TESTQ      BX, BX;                \
	JNZ        sum;                   \
	STOREALL;                         \
	JMP        next;                  \
sum:                                  \
	MOVQ       BX, CX;                \
	VMOVUPS    quarters<>(SB), X29;   \
	SUMALL;                           \
	ADDQ       $16, BX;               \
next:                                 \
	ADDQ       $(256*rows), R13;      \
	DECQ       R15;                   \
	JNZ        group;                 \
	VZEROUPPER;                       \
	RET

// func avx512Tile(a *tileArgs)
TEXT ·avx512Tile(SB), NOSPLIT, $0-8
	MOVQ a+0(FP), AX
	MOVQ tileArgs_rows(AX), CX
	CMPQ tileArgs_f32(AX), $0
	JNE  f32
	CMPQ CX, $1
	JNE  2(PC)
	JMP  bf16Tile1<>(SB)
	CMPQ CX, $2
	JNE  2(PC)
	JMP  bf16Tile2<>(SB)
	CMPQ CX, $3
	JNE  2(PC)
	JMP  bf16Tile3<>(SB)
	CMPQ CX, $4
	JNE  2(PC)
	JMP  bf16Tile4<>(SB)
	CMPQ CX, $5
	JNE  2(PC)
	JMP  bf16Tile5<>(SB)
	JMP  bf16Tile6<>(SB)
f32:
	CMPQ CX, $1
	JNE  2(PC)
	JMP  f32Tile1<>(SB)
	CMPQ CX, $2
	JNE  2(PC)
	JMP  f32Tile2<>(SB)
	CMPQ CX, $3
	JNE  2(PC)
	JMP  f32Tile3<>(SB)
	CMPQ CX, $4
	JNE  2(PC)
	JMP  f32Tile4<>(SB)
	CMPQ CX, $5
	JNE  2(PC)
	JMP  f32Tile5<>(SB)
	JMP  f32Tile6<>(SB)

TEXT bf16Tile1<>(SB), NOSPLIT, $0-0
	TILE(1, BF16EVEN, BF16ODD, 64, MUL1, CLEAR1, LOAD1, STORE1, SUM1)

TEXT bf16Tile2<>(SB), NOSPLIT, $0-0
	TILE(2, BF16EVEN, BF16ODD, 64, MUL2, CLEAR2, LOAD2, STORE2, SUM2)

TEXT bf16Tile3<>(SB), NOSPLIT, $0-0
	TILE(3, BF16EVEN, BF16ODD, 64, MUL3, CLEAR3, LOAD3, STORE3, SUM3)

TEXT bf16Tile4<>(SB), NOSPLIT, $0-0
	TILE(4, BF16EVEN, BF16ODD, 64, MUL4, CLEAR4, LOAD4, STORE4, SUM4)

TEXT bf16Tile5<>(SB), NOSPLIT, $0-0
	TILE(5, BF16EVEN, BF16ODD, 64, MUL5, CLEAR5, LOAD5, STORE5, SUM5)

TEXT bf16Tile6<>(SB), NOSPLIT, $0-0
	TILE(6, BF16EVEN, BF16ODD, 64, MUL6, CLEAR6, LOAD6, STORE6, SUM6)

TEXT f32Tile1<>(SB), NOSPLIT, $0-0
	TILE(1, F32EVEN, F32ODD, 128, MUL1, CLEAR1, LOAD1, STORE1, SUM1)

TEXT f32Tile2<>(SB), NOSPLIT, $0-0
	TILE(2, F32EVEN, F32ODD, 128, MUL2, CLEAR2, LOAD2, STORE2, SUM2)

TEXT f32Tile3<>(SB), NOSPLIT, $0-0
	TILE(3, F32EVEN, F32ODD, 128, MUL3, CLEAR3, LOAD3, STORE3, SUM3)

TEXT f32Tile4<>(SB), NOSPLIT, $0-0
	TILE(4, F32EVEN, F32ODD, 128, MUL4, CLEAR4, LOAD4, STORE4, SUM4)

TEXT f32Tile5<>(SB), NOSPLIT, $0-0
	TILE(5, F32EVEN, F32ODD, 128, MUL5, CLEAR5, LOAD5, STORE5, SUM5)

TEXT f32Tile6<>(SB), NOSPLIT, $0-0
	TILE(6, F32EVEN, F32ODD, 128, MUL6, CLEAR6, LOAD6, STORE6, SUM6)

DATA evens<>+0(SB)/8, $0x0000000200000000
DATA evens<>+8(SB)/8, $0x0000000600000004
DATA evens<>+16(SB)/8, $0x0000000a00000008
DATA evens<>+24(SB)/8, $0x0000000e0000000c
DATA evens<>+32(SB)/8, $0x0000001200000010
DATA evens<>+40(SB)/8, $0x0000001600000014
DATA evens<>+48(SB)/8, $0x0000001a00000018
DATA evens<>+56(SB)/8, $0x0000001e0000001c
GLOBL evens<>(SB), RODATA|NOPTR, $64

// func avx512Split(dst *float32, src *byte, steps int)
//
// Each 32 f32s become the 16 even ones and the 16 odd ones.
TEXT ·avx512Split(SB), NOSPLIT, $0-24
	MOVQ       dst+0(FP), DI
	MOVQ       src+8(FP), SI
	MOVQ       steps+16(FP), CX
	VMOVDQU32  evens<>(SB), Z2
	VPTERNLOGD $0xff, Z3, Z3, Z3
	VPSUBD     Z3, Z2, Z3
loop:
	VMOVUPS  (SI), Z0
	VMOVUPS  64(SI), Z1
	VMOVAPS  Z0, Z4
	VPERMT2PS Z1, Z2, Z0
	VPERMT2PS Z1, Z3, Z4
	VMOVUPS  Z0, (DI)
	VMOVUPS  Z4, 64(DI)
	ADDQ     $128, SI
	ADDQ     $128, DI
	DECQ     CX
	JNZ      loop
	VZEROUPPER
	RET
