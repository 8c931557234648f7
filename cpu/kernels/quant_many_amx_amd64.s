#include "textflag.h"
#include "tiles_amx_amd64.h"
#include "quant_amd64.h"

// Offsets in quantManyCall, behind its quantCall.
#define MSTEPS  304
#define MBLOCKS 312
#define MTILES  320
#define MA      328
#define MANEXT  336
#define MB      344
#define MBNEXT  352
#define MSX     360
#define MXS     368
#define MSXNEXT 376
#define MW      384
#define MBIAS   392
#define MWNEXT  400
#define MC      408
#define MCBLOCK 416
#define MCTILE  424
#define MRESUME 432
#define MAHEAD  440
#define MAROW   448
#define MAROWS  456
#define MALEFT  464
#define MY      472
#define MYROW   480
#define MYTILE  488

#include "quant_mix_amx_amd64.h"

// YROW stores one of R8 rows to CX, R9 apart.
#define YROW(o, acc) \
	VMOVUPS acc, (CX); \
	ADDQ R9, CX; \
	DECQ R8; \
	JZ   given
#define LOADROW(o, acc)  VMOVUPS (64*o)(CX), acc
#define STOREROW(o, acc) VMOVUPS acc, (64*o)(CX)

// func quantMany(t *quantManyCall)
//
// Some steps of some blocks of 16 outs, each with all tiles of 16 rows: a tile of
// rows meets the blocks one after the other. Sums are joined a step behind,
// across blocks and tiles too.
TEXT ·quantMany(SB), NOSPLIT, $64-8
	MOVQ t+0(FP), R15
	MOVQ CFG(R15), AX
	LDTILECFG_AX
	MOVQ BSTRIDE(R15), R11
	MOVQ TSTRIDE(R15), R12
	MOVQ GSTEP(R15), R13
	MOVQ $64, SI
	ROWMASK
	MOVQ $0, half-8(SP)
	MOVQ $0, before-16(SP) // the sums of the unit before, none at first

tile:
	MOVQ MA(R15), AX
	MOVQ AX, a-24(SP)
	MOVQ MC(R15), AX
	MOVQ AX, c-32(SP)
	MOVQ MY(R15), AX
	MOVQ AX, y-56(SP)
	MOVQ MBLOCKS(R15), AX
	MOVQ AX, blocks-40(SP)

unit:
	// The first step of a block, while the last one of the block before is joined.
	MOVQ a-24(SP), AX
	MOVQ MB(R15), R10
	MOVQ D(R15), R8
	MOVQ R8, R9
	ADDQ half-8(SP), R8
	XORQ $DHALF, half-8(SP)
	ADDQ half-8(SP), R9
	CMPQ before-16(SP), $0
	JE   alone
	CALL mix<>(SB)
	MOVQ before-16(SP), CX
	CALL give<>(SB)
	JMP  begin

alone:
	CALL multiply<>(SB)

begin:
	MOVQ c-32(SP), CX
	MOVQ CX, before-16(SP)
	CMPQ MY(R15), $0
	JE   results
	MOVQ y-56(SP), DX
	MOVQ DX, before-16(SP)

results:
	CMPQ MRESUME(R15), $0
	JE   zero
	EACHSUM(LOADROW)
	JMP  loaded

zero:
	EACHSUM(ZERO)

loaded:
	// Scales of the block's weights: blocks count down.
	MOVQ MBLOCKS(R15), CX
	SUBQ blocks-40(SP), CX
	IMULQ MWNEXT(R15), CX
	MOVQ MW(R15), DX
	MOVQ MBIAS(R15), DI
	ADDQ CX, DX
	ADDQ CX, DI
	MOVQ MSX(R15), R14
	MOVQ MXS(R15), BX
	MOVQ MSTEPS(R15), CX
	DECQ CX
	MOVQ CX, steps-48(SP)

step:
	// What is decoded next is fetched, two lines of a row a step.
	MOVQ MAHEAD(R15), CX
	PREFETCHT1 (CX)
	PREFETCHT1 64(CX)
	ADDQ MAROW(R15), CX
	MOVQ CX, MAHEAD(R15)
	DECQ MALEFT(R15)
	JNZ  fetched
	MOVQ MAROWS(R15), CX
	MOVQ CX, MALEFT(R15)
	IMULQ MAROW(R15), CX
	SUBQ $128, CX
	SUBQ CX, MAHEAD(R15)

fetched:
	CMPQ steps-48(SP), $0
	JE   stepped
	ADDQ $1920, AX
	MOVQ D(R15), R8
	MOVQ R8, R9
	ADDQ half-8(SP), R8
	XORQ $DHALF, half-8(SP)
	ADDQ half-8(SP), R9
	CALL mix<>(SB)
	DECQ steps-48(SP)
	JMP  step

stepped:
	MOVQ MANEXT(R15), CX
	ADDQ CX, a-24(SP)
	MOVQ MCBLOCK(R15), CX
	ADDQ CX, c-32(SP)
	ADDQ $64, y-56(SP)
	DECQ blocks-40(SP)
	JNZ  unit

	// The next tile of rows.
	MOVQ MBNEXT(R15), CX
	ADDQ CX, MB(R15)
	MOVQ MSXNEXT(R15), CX
	ADDQ CX, MSX(R15)
	ADDQ CX, MXS(R15)
	MOVQ MCTILE(R15), CX
	ADDQ CX, MC(R15)
	MOVQ MYTILE(R15), CX
	ADDQ CX, MY(R15)
	DECQ MTILES(R15)
	JNZ  tile

	MOVQ D(R15), R9
	XORQ $DHALF, half-8(SP)
	ADDQ half-8(SP), R9
	CALL join<>(SB)
	MOVQ before-16(SP), CX
	CALL give<>(SB)
	TILERELEASE
	VZEROUPPER
	RET

// give stores what Z0 to Z15 have at CX: [16, 16] as they are, or, with the last
// steps, as rows of y.
TEXT give<>(SB), NOSPLIT, $0-0
	CMPQ MY(R15), $0
	JNE  last
	EACHSUM(STOREROW)
	RET

last:
	TRANSPOSE16
	MOVQ ROWS(R15), R8
	MOVQ MYROW(R15), R9
	EACHSUM(YROW)

given:
	RET
