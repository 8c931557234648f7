#include "textflag.h"
#include "tiles_amx_amd64.h"

// Offsets in manyCall.
#define CFG     0
#define A       8
#define ASECOND 16
#define B       24
#define BSTRIDE 32
#define BSTEP   40
#define BGROUP  48
#define C       56
#define CSECOND 64
#define STEPS   72
#define GROUPS  80
#define RESUME  88
#define AHEAD   96
#define AROW    104
#define AROWS   112

// func tilesMany(t *manyCall)
//
// The A tiles of two blocks of 16 outputs meet one B tile after the other: four
// tiles hold anything at a time. A step fetches one line of what is copied next.
TEXT ·tilesMany(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
	MOVQ CFG(R15), AX
	LDTILECFG_AX
	MOVQ B(R15), R8
	MOVQ BSTRIDE(R15), R9
	MOVQ BSTEP(R15), R11
	MOVQ C(R15), R10
	MOVQ CSECOND(R15), R12
	ADDQ R10, R12
	MOVQ GROUPS(R15), R13
	MOVQ AHEAD(R15), R14
	MOVQ AROWS(R15), BX
	MOVQ $64, DX

manyGroup:
	CMPQ RESUME(R15), $0
	JNE  manyResume
	TILEZERO(0)
	TILEZERO(1)
	JMP  manyBegin

manyResume:
	TILELOADD(10, 2, 0)
	TILELOADD(12, 2, 1)

manyBegin:
	MOVQ A(R15), AX
	MOVQ ASECOND(R15), CX
	ADDQ AX, CX
	MOVQ STEPS(R15), SI

manyStep:
	TILELOADD(8, 9, 2)
	TILELOADD(0, 2, 3)
	TDPBF16PS(2, 3, 0)
	TILELOADD(1, 2, 3)
	TDPBF16PS(2, 3, 1)
	PREFETCHT1 (R14)
	ADDQ R11, R8
	ADDQ $1024, AX
	ADDQ $1024, CX
	ADDQ $64, R14
	DECQ SI
	JNZ  manyStep

	TILESTORED(0, 10, 2)
	TILESTORED(1, 12, 2)
	ADDQ $1024, R10
	ADDQ $1024, R12
	ADDQ BGROUP(R15), R8

	// Past the last row of the next block, its line ends are fetched again.
	MOVQ  STEPS(R15), SI
	SHLQ  $6, SI
	SUBQ  SI, R14
	DECQ  BX
	JLE   manyFetched
	ADDQ  AROW(R15), R14

manyFetched:
	DECQ R13
	JNZ  manyGroup
	TILERELEASE
	RET

#define COPYROW(from, index, scale, at) \
	VMOVUPS (from)(index*scale), Z0; \
	VMOVUPS Z0, at(DI)

// func tileGather(dst *byte, a *byte, stride, steps int)
//
// 16 rows of a, stride bytes apart, as tiles one after the other: a line of
// each row at a time, so that their reads overlap.
TEXT ·tileGather(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ stride+16(FP), BX
	MOVQ steps+24(FP), CX
	LEAQ (BX)(BX*2), R9
	LEAQ (BX)(BX*4), R10
	LEAQ (R9)(BX*4), R11

gatherStep:
	LEAQ (SI)(BX*8), R8
	COPYROW(SI, BX, 1, 64)
	VMOVUPS (SI), Z0
	VMOVUPS Z0, (DI)
	COPYROW(SI, BX, 2, 128)
	COPYROW(SI, R9, 1, 192)
	COPYROW(SI, BX, 4, 256)
	COPYROW(SI, R10, 1, 320)
	COPYROW(SI, R9, 2, 384)
	COPYROW(SI, R11, 1, 448)
	VMOVUPS (R8), Z0
	VMOVUPS Z0, 512(DI)
	COPYROW(R8, BX, 1, 576)
	COPYROW(R8, BX, 2, 640)
	COPYROW(R8, R9, 1, 704)
	COPYROW(R8, BX, 4, 768)
	COPYROW(R8, R10, 1, 832)
	COPYROW(R8, R9, 2, 896)
	COPYROW(R8, R11, 1, 960)
	ADDQ $64, SI
	ADDQ $1024, DI
	DECQ CX
	JNZ  gatherStep
	VZEROUPPER
	RET
