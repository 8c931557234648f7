#include "textflag.h"
#include "tiles_amx_amd64.h"

// Offsets in tileCall.
#define CFG      0
#define A        8
#define ASTRIDE  16
#define PHASEA   24
#define SUPERA   32
#define B0       40
#define GROUP    48
#define GROUPS   56
#define B1       64
#define B1STRIDE 72
#define B1STEP   80
#define C        88
#define CSTRIDE  96
#define PHASEC   104
#define SUPERC   112
#define STEPS    120
#define SUPERS   128
#define PHASES   136
#define AHEAD    144

#define PREFETCH8 \
	PREFETCHT0 (DI); \
	PREFETCHT0 (DI)(BX*1); \
	PREFETCHT0 (DI)(BX*2); \
	PREFETCHT0 (DI)(R9*1); \
	PREFETCHT0 (DI)(BX*4); \
	PREFETCHT0 (DI)(R10*1); \
	PREFETCHT0 (DI)(R9*2); \
	PREFETCHT0 (DI)(R11*1)

// PREFETCH16 fetches a line of 16 rows at DI, and moves DI to their next
// lines; BX is the rows' stride, R9, R10, R11 are 3, 5 and 7 times it.
#define PREFETCH16 \
	PREFETCH8; \
	LEAQ (DI)(BX*8), DI; \
	PREFETCH8; \
	NEGQ BX; \
	LEAQ 64(DI)(BX*8), DI; \
	NEGQ BX

// func tilesNarrow(t *tileCall)
//
// One A tile and up to four B tiles at a time: B0 and those GROUP bytes further
// have 16 columns, B1 is the last one. The 16 rows of the A tile are the only
// streams of memory. All but the last AHEAD steps prefetch their own rows, the
// last ones the start of the next block's.
TEXT ·tilesNarrow(SB), NOSPLIT, $40-8
	MOVQ t+0(FP), R15
	MOVQ CFG(R15), AX
	LDTILECFG_AX
	MOVQ ASTRIDE(R15), BX
	LEAQ (BX)(BX*2), R9
	LEAQ (BX)(BX*4), R10
	LEAQ (R9)(BX*4), R11
	MOVQ $64, DX
	MOVQ B1STRIDE(R15), R13
	MOVQ SUPERS(R15), AX
	MOVQ AX, supers-8(SP)
	MOVQ $0, phase-16(SP)
	MOVQ A(R15), AX
	MOVQ AX, a-24(SP)
	MOVQ C(R15), AX
	MOVQ AX, c-32(SP)

narrowBlock:
	// AX: A; CX, R8, R14, R12: B; DI: the prefetches; SI: steps left.
	MOVQ  PHASEA(R15), AX
	IMULQ phase-16(SP), AX
	ADDQ  a-24(SP), AX
	MOVQ  AHEAD(R15), DI
	MOVQ  STEPS(R15), SI
	SUBQ  DI, SI
	SHLQ  $6, DI
	ADDQ  AX, DI
	MOVQ  B0(R15), CX
	MOVQ  GROUP(R15), R8
	LEAQ  (CX)(R8*2), R14
	ADDQ  CX, R8
	MOVQ  B1(R15), R12
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)
	MOVQ  $0, segment-40(SP)
	CMPQ  SI, $0
	JE    narrowSegment

narrowSteps:
	CMPQ GROUPS(R15), $2
	JB   step1
	JE   step2
	CMPQ GROUPS(R15), $3
	JE   step3

step4:
	TILELOADDT1(0, 3, 6)
	TILELOADD(1, 2, 4)
	TDPBF16PS(4, 6, 0)
	ADDQ $1024, CX
	TILELOADD(8, 2, 4)
	TDPBF16PS(4, 6, 1)
	ADDQ $1024, R8
	TILELOADD(14, 2, 4)
	TDPBF16PS(4, 6, 2)
	ADDQ $1024, R14
	TILELOADD(12, 13, 5)
	PREFETCH16
	TDPBF16PS(5, 6, 3)
	ADDQ $64, AX
	ADDQ B1STEP(R15), R12
	DECQ SI
	JNZ  step4

narrowSegment:
	CMPQ segment-40(SP), $0
	JNE  narrowStore
	MOVQ $1, segment-40(SP)
	MOVQ AHEAD(R15), SI
	CMPQ SI, $0
	JE   narrowStore
	MOVQ phase-16(SP), DI
	INCQ DI
	CMPQ DI, PHASES(R15)
	JNE  narrowNext
	CMPQ supers-8(SP), $1
	JE   narrowLast
	MOVQ SUPERA(R15), DI
	ADDQ a-24(SP), DI
	JMP  narrowSteps

narrowLast:
	MOVQ AX, DI
	JMP  narrowSteps

narrowNext:
	IMULQ PHASEA(R15), DI
	ADDQ  a-24(SP), DI
	JMP   narrowSteps

step1:
	TILELOADDT1(0, 3, 6)
	TILELOADD(12, 13, 5)
	PREFETCH16
	TDPBF16PS(5, 6, 0)
	ADDQ $64, AX
	ADDQ B1STEP(R15), R12
	DECQ SI
	JNZ  step1
	JMP  narrowSegment

step2:
	TILELOADDT1(0, 3, 6)
	TILELOADD(1, 2, 4)
	TDPBF16PS(4, 6, 0)
	ADDQ $1024, CX
	TILELOADD(12, 13, 5)
	PREFETCH16
	TDPBF16PS(5, 6, 1)
	ADDQ $64, AX
	ADDQ B1STEP(R15), R12
	DECQ SI
	JNZ  step2
	JMP  narrowSegment

step3:
	TILELOADDT1(0, 3, 6)
	TILELOADD(1, 2, 4)
	TDPBF16PS(4, 6, 0)
	ADDQ $1024, CX
	TILELOADD(8, 2, 4)
	TDPBF16PS(4, 6, 1)
	ADDQ $1024, R8
	TILELOADD(12, 13, 5)
	PREFETCH16
	TDPBF16PS(5, 6, 2)
	ADDQ $64, AX
	ADDQ B1STEP(R15), R12
	DECQ SI
	JNZ  step3
	JMP  narrowSegment

narrowStore:
	MOVQ  PHASEC(R15), DI
	IMULQ phase-16(SP), DI
	ADDQ  c-32(SP), DI
	MOVQ  CSTRIDE(R15), SI
	TILESTORED(0, 7, 6)
	MOVQ  GROUPS(R15), CX
	DECQ  CX
	JZ    narrowStored
	ADDQ  $64, DI
	TILESTORED(1, 7, 6)
	DECQ  CX
	JZ    narrowStored
	ADDQ  $64, DI
	TILESTORED(2, 7, 6)
	DECQ  CX
	JZ    narrowStored
	ADDQ  $64, DI
	TILESTORED(3, 7, 6)

narrowStored:
	INCQ phase-16(SP)
	MOVQ phase-16(SP), AX
	CMPQ AX, PHASES(R15)
	JNE  narrowBlock
	MOVQ $0, phase-16(SP)
	MOVQ SUPERA(R15), AX
	ADDQ AX, a-24(SP)
	MOVQ SUPERC(R15), AX
	ADDQ AX, c-32(SP)
	DECQ supers-8(SP)
	JNZ  narrowBlock
	TILERELEASE
	RET

// func tilePack(dst *uint16, x *float32, stride, rows, steps int)
//
// Packs rows 1..16 of x (stride bytes apart), 32 elements a step, into tiles
// of 16 x rows dwords.
#define PACKROW(z) \
	VMOVUPS 0(AX), Z16; \
	VMOVUPS 64(AX), Z17; \
	VCVTNE2PS2BF16(16, 17, z); \
	CMPQ    CX, $1; \
	CMOVQEQ R9, DX; \
	ADDQ    DX, AX; \
	SUBQ    R10, CX

TEXT ·tilePack(SB), NOSPLIT, $0-40
	MOVQ  dst+0(FP), DI
	MOVQ  x+8(FP), SI
	MOVQ  stride+16(FP), BX
	MOVQ  rows+24(FP), R8
	MOVQ  steps+32(FP), R11
	XORQ  R9, R9
	MOVQ  $1, R10
	MOVQ  R8, CX
	MOVQ  $1, AX
	SHLQ  CX, AX
	DECQ  AX
	KMOVW AX, K1
	LEAQ  (R8*4), R12

packStep:
	// The rows past the last are the last again; the mask drops them.
	MOVQ SI, AX
	MOVQ R8, CX
	MOVQ BX, DX
	PACKROW(0)
	PACKROW(1)
	PACKROW(2)
	PACKROW(3)
	PACKROW(4)
	PACKROW(5)
	PACKROW(6)
	PACKROW(7)
	PACKROW(8)
	PACKROW(9)
	PACKROW(10)
	PACKROW(11)
	PACKROW(12)
	PACKROW(13)
	PACKROW(14)
	PACKROW(15)
	TRANSPOSE16
	VMOVUPS Z0, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z1, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z2, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z3, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z4, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z5, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z6, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z7, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z8, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z9, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z10, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z11, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z12, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z13, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z14, K1, (DI)
	ADDQ R12, DI
	VMOVUPS Z15, K1, (DI)
	ADDQ R12, DI
	ADDQ $128, SI
	DECQ R11
	JNZ  packStep
	VZEROUPPER
	RET

// func tileTranspose(y *float32, ldy int, c *float32, ldc, outs, rows int)
//
// y[r*ldy + o] = c[o*ldc + r] for o < outs, r < rows <= 16; strides in bytes.
// c must be readable up to a multiple of 16 outs and 16 rows.
#define STOREROW(z) \
	VMOVUPS z, K1, (AX); \
	ADDQ    BX, AX; \
	DECQ    CX; \
	JZ      transposeNext

TEXT ·tileTranspose(SB), NOSPLIT, $0-48
	MOVQ y+0(FP), DI
	MOVQ ldy+8(FP), BX
	MOVQ c+16(FP), SI
	MOVQ ldc+24(FP), DX
	MOVQ outs+32(FP), R8
	LEAQ (DX)(DX*2), R9
	LEAQ (DX)(DX*4), R10
	LEAQ (R9)(DX*4), R11

transposeBlock:
	MOVL  $0xFFFF, AX
	CMPQ  R8, $16
	JGE   transposeMask
	MOVQ  R8, CX
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX

transposeMask:
	KMOVW   AX, K1
	VMOVUPS (SI), Z0
	VMOVUPS (SI)(DX*1), Z1
	VMOVUPS (SI)(DX*2), Z2
	VMOVUPS (SI)(R9*1), Z3
	VMOVUPS (SI)(DX*4), Z4
	VMOVUPS (SI)(R10*1), Z5
	VMOVUPS (SI)(R9*2), Z6
	VMOVUPS (SI)(R11*1), Z7
	LEAQ    (SI)(DX*8), SI
	VMOVUPS (SI), Z8
	VMOVUPS (SI)(DX*1), Z9
	VMOVUPS (SI)(DX*2), Z10
	VMOVUPS (SI)(R9*1), Z11
	VMOVUPS (SI)(DX*4), Z12
	VMOVUPS (SI)(R10*1), Z13
	VMOVUPS (SI)(R9*2), Z14
	VMOVUPS (SI)(R11*1), Z15
	LEAQ    (SI)(DX*8), SI
	TRANSPOSE16
	MOVQ    DI, AX
	MOVQ    rows+40(FP), CX
	STOREROW(Z0)
	STOREROW(Z1)
	STOREROW(Z2)
	STOREROW(Z3)
	STOREROW(Z4)
	STOREROW(Z5)
	STOREROW(Z6)
	STOREROW(Z7)
	STOREROW(Z8)
	STOREROW(Z9)
	STOREROW(Z10)
	STOREROW(Z11)
	STOREROW(Z12)
	STOREROW(Z13)
	STOREROW(Z14)
	STOREROW(Z15)

transposeNext:
	ADDQ $64, DI
	SUBQ $16, R8
	JG   transposeBlock
	VZEROUPPER
	RET
