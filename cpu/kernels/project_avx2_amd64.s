#include "textflag.h"
#include "go_asm.h"
#include "reduce_avx2_amd64.h"

// The tiles of the exact projector in 8 lanes, with 16 registers: 4 outs × 1 or
// 2 rows, 2 outs × 3..6 rows, one accumulator for each (row, out). A step is 16
// elements of k, the even ones first. Registers are those of the 512-bit tiles.

// EVEN4 and ODD4 widen half a step of each of four outs, EVEN2 and ODD2 of two. Y15 is the
// mask of odd elements, which ODDMASK sets.
#define EVEN4(a, b, c, d) \
	VMOVDQU a, Y8;         \
	VMOVDQU b, Y9;         \
	VMOVDQU c, Y10;        \
	VMOVDQU d, Y11;        \
	VPSLLD  $16, Y8, Y8;   \
	VPSLLD  $16, Y9, Y9;   \
	VPSLLD  $16, Y10, Y10; \
	VPSLLD  $16, Y11, Y11

#define ODD4(a, b, c, d) \
	VPAND a, Y15, Y8;  \
	VPAND b, Y15, Y9;  \
	VPAND c, Y15, Y10; \
	VPAND d, Y15, Y11

#define EVEN2(a, b) \
	VMOVDQU a, Y12;        \
	VMOVDQU b, Y13;        \
	VPSLLD  $16, Y12, Y12; \
	VPSLLD  $16, Y13, Y13

#define ODD2(a, b) \
	VPAND a, Y15, Y12; \
	VPAND b, Y15, Y13

#define ODDMASK \
	VPCMPEQD Y15, Y15, Y15; \
	VPSLLD   $16, Y15, Y15

#define BF16EVEN4(at) EVEN4(at(DI), at(DI)(R8*1), at(DI)(R8*2), at(DI)(R9*1))
#define BF16ODD4(at) ODD4(at(DI), at(DI)(R8*1), at(DI)(R8*2), at(DI)(R9*1))
#define BF16EVEN2(at) EVEN2(at(DI), at(DI)(R8*1))
#define BF16ODD2(at) ODD2(at(DI), at(DI)(R8*1))

#define F32EVEN4(at) \
	VMOVUPS at(DI), Y8;        \
	VMOVUPS at(DI)(R8*1), Y9;  \
	VMOVUPS at(DI)(R8*2), Y10; \
	VMOVUPS at(DI)(R9*1), Y11

#define F32ODD4(at) F32EVEN4((at+32))

#define F32EVEN2(at) \
	VMOVUPS at(DI), Y12;      \
	VMOVUPS at(DI)(R8*1), Y13

#define F32ODD2(at) F32EVEN2((at+32))

#define ROW4(x, a, b, c, d) \
	VMOVUPS     x, Y12;      \
	VFMADD231PS Y8, Y12, a;  \
	VFMADD231PS Y9, Y12, b;  \
	VFMADD231PS Y10, Y12, c; \
	VFMADD231PS Y11, Y12, d

#define ROW2(x, a, b) \
	VMOVUPS     x, Y14;      \
	VFMADD231PS Y12, Y14, a; \
	VFMADD231PS Y13, Y14, b

#define MUL1(at) ROW4(at(SI), Y0, Y1, Y2, Y3)
#define MUL2(at) MUL1(at); ROW4(at(SI)(DX*1), Y4, Y5, Y6, Y7)
#define MUL3(at) ROW2(at(SI), Y0, Y1); ROW2(at(SI)(DX*1), Y2, Y3); ROW2(at(SI)(DX*2), Y4, Y5)
#define MUL4(at) MUL3(at); ROW2(at(R10), Y6, Y7)
#define MUL5(at) MUL4(at); ROW2(at(R10)(DX*1), Y8, Y9)
#define MUL6(at) MUL5(at); ROW2(at(R10)(DX*2), Y10, Y11)

#define CLEARV(a) VXORPS a, a, a
#define CLEAR1 CLEARV(Y0); CLEARV(Y1); CLEARV(Y2); CLEARV(Y3)
#define CLEAR2 CLEAR1; CLEARV(Y4); CLEARV(Y5); CLEARV(Y6); CLEARV(Y7)
#define CLEAR3 CLEAR1; CLEARV(Y4); CLEARV(Y5)
#define CLEAR4 CLEAR2
#define CLEAR5 CLEAR2; CLEARV(Y8); CLEARV(Y9)
#define CLEAR6 CLEAR5; CLEARV(Y10); CLEARV(Y11)

#define LOAD2V(at, a, b) \
	VMOVUPS at(R13), a;      \
	VMOVUPS (at+32)(R13), b
#define LOAD1 LOAD2V(0, Y0, Y1); LOAD2V(64, Y2, Y3)
#define LOAD2 LOAD1; LOAD2V(128, Y4, Y5); LOAD2V(192, Y6, Y7)
#define LOAD3 LOAD1; LOAD2V(128, Y4, Y5)
#define LOAD4 LOAD2
#define LOAD5 LOAD2; LOAD2V(256, Y8, Y9)
#define LOAD6 LOAD5; LOAD2V(320, Y10, Y11)

#define STORE2V(at, a, b) \
	VMOVUPS a, at(R13);      \
	VMOVUPS b, (at+32)(R13)
#define STORE1 STORE2V(0, Y0, Y1); STORE2V(64, Y2, Y3)
#define STORE2 STORE1; STORE2V(128, Y4, Y5); STORE2V(192, Y6, Y7)
#define STORE3 STORE1; STORE2V(128, Y4, Y5)
#define STORE4 STORE2
#define STORE5 STORE2; STORE2V(256, Y8, Y9)
#define STORE6 STORE5; STORE2V(320, Y10, Y11)

// SUM2V stores two sums: lanes i with i+4, i+2, i+1.
#define SUM2V(at, a, b) \
	VPERM2F128   $0x20, b, a, Y12;   \
	VPERM2F128   $0x31, b, a, Y13;   \
	VADDPS       Y13, Y12, Y12;      \
	VPERMILPS    $0x4e, Y12, Y13;    \
	VADDPS       Y13, Y12, Y12;      \
	VPERMILPS    $0xb1, Y12, Y13;    \
	VADDPS       Y13, Y12, Y12;      \
	VEXTRACTF128 $1, Y12, X13;       \
	VMOVSS       X12, at(CX);        \
	VMOVSS       X13, (at+4)(CX)
#define DOWN ADDQ tileArgs_ldy(AX), CX
#define SUM1 SUM2V(0, Y0, Y1); SUM2V(8, Y2, Y3)
#define SUM2 SUM1; DOWN; SUM2V(0, Y4, Y5); SUM2V(8, Y6, Y7)
#define SUM3 SUM2V(0, Y0, Y1); DOWN; SUM2V(0, Y2, Y3); DOWN; SUM2V(0, Y4, Y5)
#define SUM4 SUM3; DOWN; SUM2V(0, Y6, Y7)
#define SUM5 SUM4; DOWN; SUM2V(0, Y8, Y9)
#define SUM6 SUM5; DOWN; SUM2V(0, Y10, Y11)

#define AHEAD4 \
	PREFETCHT0 (R11);       \
	PREFETCHT0 (R11)(R8*1); \
	PREFETCHT0 (R11)(R8*2); \
	PREFETCHT0 (R11)(R9*1)

#define AHEAD2 \
	PREFETCHT0 (R11);       \
	PREFETCHT0 (R11)(R8*1)

// Two steps of f32 weights are two lines.
#define AHEADF4 \
	AHEAD4;                   \
	PREFETCHT0 64(R11);       \
	PREFETCHT0 64(R11)(R8*1); \
	PREFETCHT0 64(R11)(R8*2); \
	PREFETCHT0 64(R11)(R9*1)

#define AHEADF2 \
	AHEAD2;                   \
	PREFETCHT0 64(R11);       \
	PREFETCHT0 64(R11)(R8*1)

// TILE runs all groups, with AX set: an odd step, and pairs of steps, each with a prefetch.
// wstep is the bytes of weights in a step.
#define TILE(rows, outs, EVEN, ODD, wstep, AHEAD, MUL, CLEARALL, LOADALL, STOREALL, SUMALL) \
	MOVQ     tileArgs_y(AX), BX;    \
	MOVQ     tileArgs_acc(AX), R13; \
	MOVQ     tileArgs_w(AX), DI;    \
	MOVQ     tileArgs_ldw(AX), R8;  \
	LEAQ     (R8)(R8*2), R9;        \
	MOVQ     tileArgs_x(AX), SI;    \
	MOVQ     tileArgs_ldx(AX), DX;  \
	LEAQ     (SI)(DX*2), R10;       \
	ADDQ     DX, R10;               \
	MOVQ     tileArgs_ahead(AX), R11;     \
	MOVQ     tileArgs_aheadStep(AX), R12; \
	ADDQ     R12, R12;                    \
	MOVQ     tileArgs_groups(AX), R15;    \
	ODDMASK;                        \
group:                              \
	CMPQ     tileArgs_resume(AX), $0; \
	JNE      resume;                \
	CLEARALL;                       \
	JMP      start;                 \
resume:                             \
	LOADALL;                        \
start:                              \
	MOVQ     tileArgs_steps(AX), CX; \
	TESTQ    $1, CX;                \
	JZ       pairs;                 \
	EVEN(0);                        \
	MUL(0);                         \
	ODD(0);                         \
	MUL(32);                        \
	ADDQ     $wstep, DI;            \
	ADDQ     $64, SI;               \
	ADDQ     $64, R10;              \
pairs:                              \
	SHRQ     $1, CX;                \
	JZ       done;                  \
step:                               \
	AHEAD;                          \
	CMPQ     CX, tileArgs_aheadLeft(AX); \
	JNE      near;                  \
	ADDQ     tileArgs_aheadJump(AX), R11; \
near:                               \
	EVEN(0);                        \
	MUL(0);                         \
	ODD(0);                         \
	MUL(32);                        \
	EVEN(wstep);                    \
	MUL(64);                        \
	ODD(wstep);                     \
	MUL(96);                        \
	ADDQ     R12, R11;              \
	ADDQ     $(2*wstep), DI;        \
	ADDQ     $128, SI;              \
	ADDQ     $128, R10;             \
	DECQ     CX;                    \
	JNZ      step;                  \
done:                               \
	MOVQ     tileArgs_steps(AX), CX; \
	IMULQ    $wstep, CX;            \
	SUBQ     CX, DI;                \
	LEAQ     (DI)(R8*outs), DI;     \
	MOVQ     tileArgs_steps(AX), CX; \
	SHLQ     $6, CX;                \
	SUBQ     CX, SI;                \
	SUBQ     CX, R10;               \
	TESTQ    BX, BX;                \
	JNZ      sum;                   \
	STOREALL;                       \
	JMP      next;                  \
sum:                                \
	MOVQ     BX, CX;                \
	SUMALL;                         \
	ADDQ     $(4*outs), BX;         \
next:                               \
	ADDQ     $(32*rows*outs), R13;  \
	DECQ     R15;                   \
	JNZ      group;                 \
	VZEROUPPER;                     \
	RET

// func avx2Tile(a *tileArgs)
TEXT ·avx2Tile(SB), NOSPLIT, $0-8
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
	TILE(1, 4, BF16EVEN4, BF16ODD4, 32, AHEAD4, MUL1, CLEAR1, LOAD1, STORE1, SUM1)

TEXT bf16Tile2<>(SB), NOSPLIT, $0-0
	TILE(2, 4, BF16EVEN4, BF16ODD4, 32, AHEAD4, MUL2, CLEAR2, LOAD2, STORE2, SUM2)

TEXT bf16Tile3<>(SB), NOSPLIT, $0-0
	TILE(3, 2, BF16EVEN2, BF16ODD2, 32, AHEAD2, MUL3, CLEAR3, LOAD3, STORE3, SUM3)

TEXT bf16Tile4<>(SB), NOSPLIT, $0-0
	TILE(4, 2, BF16EVEN2, BF16ODD2, 32, AHEAD2, MUL4, CLEAR4, LOAD4, STORE4, SUM4)

TEXT bf16Tile5<>(SB), NOSPLIT, $0-0
	TILE(5, 2, BF16EVEN2, BF16ODD2, 32, AHEAD2, MUL5, CLEAR5, LOAD5, STORE5, SUM5)

TEXT bf16Tile6<>(SB), NOSPLIT, $0-0
	TILE(6, 2, BF16EVEN2, BF16ODD2, 32, AHEAD2, MUL6, CLEAR6, LOAD6, STORE6, SUM6)

TEXT f32Tile1<>(SB), NOSPLIT, $0-0
	TILE(1, 4, F32EVEN4, F32ODD4, 64, AHEADF4, MUL1, CLEAR1, LOAD1, STORE1, SUM1)

TEXT f32Tile2<>(SB), NOSPLIT, $0-0
	TILE(2, 4, F32EVEN4, F32ODD4, 64, AHEADF4, MUL2, CLEAR2, LOAD2, STORE2, SUM2)

TEXT f32Tile3<>(SB), NOSPLIT, $0-0
	TILE(3, 2, F32EVEN2, F32ODD2, 64, AHEADF2, MUL3, CLEAR3, LOAD3, STORE3, SUM3)

TEXT f32Tile4<>(SB), NOSPLIT, $0-0
	TILE(4, 2, F32EVEN2, F32ODD2, 64, AHEADF2, MUL4, CLEAR4, LOAD4, STORE4, SUM4)

TEXT f32Tile5<>(SB), NOSPLIT, $0-0
	TILE(5, 2, F32EVEN2, F32ODD2, 64, AHEADF2, MUL5, CLEAR5, LOAD5, STORE5, SUM5)

TEXT f32Tile6<>(SB), NOSPLIT, $0-0
	TILE(6, 2, F32EVEN2, F32ODD2, 64, AHEADF2, MUL6, CLEAR6, LOAD6, STORE6, SUM6)

// func avx2Split(dst *float32, src *byte, steps int)
//
// Each 16 f32s become the 8 even ones and the 8 odd ones: VSHUFPS leaves the
// quarters of two vectors interleaved, VPERMPD puts them in order.
TEXT ·avx2Split(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ steps+16(FP), CX
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VSHUFPS $0x88, Y1, Y0, Y2
	VSHUFPS $0xdd, Y1, Y0, Y3
	VPERMPD $0xd8, Y2, Y2
	VPERMPD $0xd8, Y3, Y3
	VMOVUPS Y2, (DI)
	VMOVUPS Y3, 32(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	DECQ    CX
	JNZ     loop
	VZEROUPPER
	RET

#define NEAR ·avx2Near
#define NEARBEGIN
#define NEAREND
#include "project_near_amd64.h"

// Parts of four to six rows meet two outs and then the other two, those of two and three
// rows four outs at once.

// NEARROWS2 to NEARROWS6 multiply half a step, whose activations lie at bytes behind the
// rows' pointers.
#define NEARROWS4(at) \
	ROW2(at(R8)(AX*2), Y0, Y1);  \
	ROW2(at(R9)(AX*2), Y2, Y3);  \
	ROW2(at(R10)(AX*2), Y4, Y5); \
	ROW2(at(R11)(AX*2), Y6, Y7)
#define NEARROWS5(at) NEARROWS4(at); ROW2(at(R12)(AX*2), Y8, Y9)
#define NEARROWS6(at) NEARROWS5(at); ROW2(at(R13)(AX*2), Y10, Y11)
#define NEARROWS2(at) \
	ROW4(at(R8)(AX*2), Y0, Y1, Y2, Y3); \
	ROW4(at(R9)(AX*2), Y4, Y5, Y6, Y7)

// NEARPAIR multiplies two outs, whose weights are p and q, two steps a turn.
#define NEARPAIR(p, q, turn, ROWS) \
	ODDMASK;                         \
	XORQ AX, AX;                     \
	MOVQ NEARSTEPS(R15), DX;         \
turn:                              \
	EVEN2((p)(AX*1), (q)(AX*1));     \
	ROWS(0);                         \
	ODD2((p)(AX*1), (q)(AX*1));      \
	ROWS(32);                        \
	EVEN2(32(p)(AX*1), 32(q)(AX*1)); \
	ROWS(64);                        \
	ODD2(32(p)(AX*1), 32(q)(AX*1));  \
	ROWS(96);                        \
	ADDQ $64, AX;                    \
	DECQ DX;                         \
	JNZ  turn;                       \
	MOVQ NEARLDY(R15), DX;           \
	LEAQ (R14)(DX*2), AX;            \
	ADDQ DX, AX

// NEARSUM4 to NEARSUM6 store the two sums of each row, at bytes behind R14. AX is three rows
// on.
#define NEARSUM4(at) \
	REDUCE8;                        \
	VEXTRACTF128 $1, Y0, X1;        \
	VMOVLPS      X0, at(R14);       \
	VMOVHPS      X0, at(R14)(DX*1); \
	VMOVLPS      X1, at(R14)(DX*2); \
	VMOVHPS      X1, at(AX)

#define NEARSUM5(at) \
	NEARSUM4(at);            \
	FOLD4(Y8, Y9);           \
	FOLD2(Y8, Y8);           \
	FOLD1(Y8, Y8);           \
	VEXTRACTF128 $1, Y8, X9; \
	VUNPCKLPS    X9, X8, X8; \
	VMOVLPS      X8, at(AX)(DX*1)

#define NEARSUM6(at) \
	NEARSUM4(at);                  \
	FOLD4(Y8, Y10);                \
	FOLD4(Y9, Y11);                \
	FOLD2(Y8, Y9);                 \
	FOLD1(Y8, Y8);                 \
	VEXTRACTF128 $1, Y8, X9;       \
	VMOVLPS      X8, at(AX)(DX*1); \
	VMOVLPS      X9, at(AX)(DX*2)

near6:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	MOVQ 16(DX), R10
	MOVQ 24(DX), R11
	MOVQ 32(DX), R12
	MOVQ 40(DX), R13
	CLEAR6
	NEARPAIR(BX, CX, turn6, NEARROWS6)
	NEARSUM6(0)
	CLEAR6
	NEARPAIR(SI, DI, other6, NEARROWS6)
	NEARSUM6(8)
	LEAQ (R14)(DX*4), R14
	LEAQ (R14)(DX*2), R14
	JMP  nearPart

near5:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	MOVQ 16(DX), R10
	MOVQ 24(DX), R11
	MOVQ 32(DX), R12
	CLEAR5
	NEARPAIR(BX, CX, turn5, NEARROWS5)
	NEARSUM5(0)
	CLEAR5
	NEARPAIR(SI, DI, other5, NEARROWS5)
	NEARSUM5(8)
	LEAQ (AX)(DX*2), R14
	JMP  nearPart

near4:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	MOVQ 16(DX), R10
	MOVQ 24(DX), R11
	CLEAR4
	NEARPAIR(BX, CX, turn4, NEARROWS4)
	NEARSUM4(0)
	CLEAR4
	NEARPAIR(SI, DI, other4, NEARROWS4)
	NEARSUM4(8)
	LEAQ (R14)(DX*4), R14
	JMP  nearPart

// Three rows have no register for the mask: NEAROUT takes half a step of an out in Y15, and
// the rows' activations in Y12 to Y14.
#define NEARX3(at) \
	VMOVUPS at(R8)(AX*2), Y12; \
	VMOVUPS at(R9)(AX*2), Y13; \
	VMOVUPS at(R10)(AX*2), Y14

#define NEAROUT(a, b, c) \
	VFMADD231PS Y15, Y12, a; \
	VFMADD231PS Y15, Y13, b; \
	VFMADD231PS Y15, Y14, c

#define NEAREVEN(w, a, b, c) \
	VMOVDQU w, Y15;        \
	VPSLLD  $16, Y15, Y15; \
	NEAROUT(a, b, c)

#define NEARODD(w, a, b, c) \
	VMOVDQU oddMask<>(SB), Y15; \
	VPAND   w, Y15, Y15;        \
	NEAROUT(a, b, c)

#define NEARSTEP3(at) \
	NEARX3(2*at);                        \
	NEAREVEN(at(BX)(AX*1), Y0, Y4, Y8);  \
	NEAREVEN(at(CX)(AX*1), Y1, Y5, Y9);  \
	NEAREVEN(at(SI)(AX*1), Y2, Y6, Y10); \
	NEAREVEN(at(DI)(AX*1), Y3, Y7, Y11); \
	NEARX3((2*at+32));                   \
	NEARODD(at(BX)(AX*1), Y0, Y4, Y8);   \
	NEARODD(at(CX)(AX*1), Y1, Y5, Y9);   \
	NEARODD(at(SI)(AX*1), Y2, Y6, Y10);  \
	NEARODD(at(DI)(AX*1), Y3, Y7, Y11)

near3:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	MOVQ 16(DX), R10
	CLEAR6
	XORQ AX, AX
	MOVQ NEARSTEPS(R15), DX

turn3:
	NEARSTEP3(0)
	NEARSTEP3(32)
	ADDQ $64, AX
	DECQ DX
	JNZ  turn3
	MOVQ NEARLDY(R15), DX
	REDUCE8
	FOLD4(Y8, Y9)
	FOLD4(Y10, Y11)
	FOLD2(Y8, Y10)
	FOLD1(Y8, Y8)
	VEXTRACTF128 $1, Y8, X9
	VUNPCKLPS X9, X8, X8
	VMOVUPS X0, (R14)
	VEXTRACTF128 $1, Y0, (R14)(DX*1)
	VMOVUPS X8, (R14)(DX*2)
	LEAQ (R14)(DX*2), R14
	ADDQ DX, R14
	JMP  nearPart

near2:
	MOVQ 0(DX), R8
	MOVQ 8(DX), R9
	ODDMASK
	CLEAR2
	XORQ AX, AX
	MOVQ NEARSTEPS(R15), DX

turn2:
	EVEN4((BX)(AX*1), (CX)(AX*1), (SI)(AX*1), (DI)(AX*1))
	NEARROWS2(0)
	ODD4((BX)(AX*1), (CX)(AX*1), (SI)(AX*1), (DI)(AX*1))
	NEARROWS2(32)
	EVEN4(32(BX)(AX*1), 32(CX)(AX*1), 32(SI)(AX*1), 32(DI)(AX*1))
	NEARROWS2(64)
	ODD4(32(BX)(AX*1), 32(CX)(AX*1), 32(SI)(AX*1), 32(DI)(AX*1))
	NEARROWS2(96)
	ADDQ $64, AX
	DECQ DX
	JNZ  turn2
	MOVQ NEARLDY(R15), DX
	REDUCE8
	VMOVUPS X0, (R14)
	VEXTRACTF128 $1, Y0, (R14)(DX*1)
	LEAQ (R14)(DX*2), R14
	JMP  nearPart

DATA oddMask<>+0(SB)/8, $0xffff0000ffff0000
DATA oddMask<>+8(SB)/8, $0xffff0000ffff0000
DATA oddMask<>+16(SB)/8, $0xffff0000ffff0000
DATA oddMask<>+24(SB)/8, $0xffff0000ffff0000
GLOBL oddMask<>(SB), RODATA|NOPTR, $32
