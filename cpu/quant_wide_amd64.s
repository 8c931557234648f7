#include "textflag.h"
#include "amx_amd64.h"
#include "quant_amd64.h"

// Offsets in wideCall.
#define WCFG     0
#define WA0      8
#define WA1      16
#define WASTRIDE 24
#define WGSTEP   32
#define WB0      40
#define WB1      48
#define WB0ROW   56
#define WB1ROW   64
#define WB0STEP  72
#define WB1STEP  80
#define WSX0     88
#define WXS0     96
#define WSX1     104
#define WXS1     112
#define WW0      120
#define WW1      128
#define WBIAS0   136
#define WBIAS1   144
#define WD       152
#define WC0      160
#define WC1      168
#define WCROW    176
#define WBATCHES 184
#define WKIND    192

// The sums of a batch: [groups, quadrants, 16, 16]; two batches.
#define WDGROUP 4096
#define WDHALF  8192

#define FOUR(TDP) \
	TILELOADD(10, 11, 6) \
	TILELOADD(0, 12, 4) \
	TILELOADD(8, 9, 7) \
	TDP(6, 4, 0) \
	TILELOADD(1, 12, 5) \
	TDP(7, 4, 1) \
	TDP(6, 5, 2) \
	TDP(7, 5, 3) \
	ADDQ R13, AX; \
	ADDQ R13, CX; \
	ADDQ WB0STEP(R15), R10; \
	ADDQ WB1STEP(R15), R8

#define ZEROS \
	TILEZERO(0) \
	TILEZERO(1) \
	TILEZERO(2) \
	TILEZERO(3)

#define STOREFOUR \
	TILESTORED(0, 7, 6) \
	ADDQ $1024, DI; \
	TILESTORED(1, 7, 6) \
	ADDQ $1024, DI; \
	TILESTORED(2, 7, 6) \
	ADDQ $1024, DI; \
	TILESTORED(3, 7, 6) \
	ADDQ $1024, DI

// func quantWide(t *wideCall)
//
// 32 outs by 32 rows: two A tiles and two B tiles make four sums. While a batch
// of two groups (one of 128) is multiplied, the one before is scaled and added.
TEXT ·quantWide(SB), NOSPLIT, $16-8
	MOVQ t+0(FP), R15
	MOVQ WCFG(R15), AX
	LDTILECFG_AX
	MOVQ $0, half-8(SP)
	MOVQ WBATCHES(R15), AX
	MOVQ AX, left-16(SP)

batch:
	MOVQ WA0(R15), AX
	MOVQ WA1(R15), CX
	MOVQ WASTRIDE(R15), R12
	MOVQ WGSTEP(R15), R13
	MOVQ WB0(R15), R10
	MOVQ WB0ROW(R15), R11
	MOVQ WB1(R15), R8
	MOVQ WB1ROW(R15), R9
	MOVQ WD(R15), DI
	ADDQ half-8(SP), DI
	MOVQ $64, SI
	CMPQ WKIND(R15), $0
	JE   batch128
	CMPQ WKIND(R15), $3
	JAE  batchSigned
	ZEROS
	FOUR(TDPBUSD)
	STOREFOUR
	ZEROS
	FOUR(TDPBUSD)
	STOREFOUR
	JMP  multiplied

batchSigned:
	ZEROS
	FOUR(TDPBSSD)
	STOREFOUR
	ZEROS
	FOUR(TDPBSSD)
	STOREFOUR
	JMP  multiplied

batch128:
	ZEROS
	FOUR(TDPBUSD)
	FOUR(TDPBUSD)
	STOREFOUR

multiplied:
	MOVQ AX, WA0(R15)
	MOVQ CX, WA1(R15)
	MOVQ R10, WB0(R15)
	MOVQ R8, WB1(R15)
	MOVQ WBATCHES(R15), AX
	CMPQ AX, left-16(SP)
	JE   added

add:
	// R13: sums; SI, R8: scales and sums of the activations, R12 their step; DX,
	// R14: scales and biases; DI: the result, BX its step; CX: groups.
	MOVQ WD(R15), R13
	ADDQ $WDHALF, R13
	SUBQ half-8(SP), R13
	MOVQ WCROW(R15), BX
	MOVQ WSX0(R15), SI
	MOVQ WXS0(R15), R8
	MOVQ WB0ROW(R15), R12
	MOVQ WW0(R15), DX
	MOVQ WBIAS0(R15), R14
	MOVQ WC0(R15), DI
	CALL quadrant<>(SB)
	MOVQ WSX1(R15), SI
	MOVQ WXS1(R15), R8
	MOVQ WB1ROW(R15), R12
	MOVQ WW0(R15), DX
	MOVQ WBIAS0(R15), R14
	MOVQ WC0(R15), DI
	ADDQ $64, DI
	CALL quadrant<>(SB)
	MOVQ WSX0(R15), SI
	MOVQ WXS0(R15), R8
	MOVQ WB0ROW(R15), R12
	MOVQ WW1(R15), DX
	MOVQ WBIAS1(R15), R14
	MOVQ WC1(R15), DI
	CALL quadrant<>(SB)
	MOVQ SI, WSX0(R15)
	MOVQ R8, WXS0(R15)
	MOVQ WSX1(R15), SI
	MOVQ WXS1(R15), R8
	MOVQ WB1ROW(R15), R12
	MOVQ WW1(R15), DX
	MOVQ WBIAS1(R15), R14
	MOVQ WC1(R15), DI
	ADDQ $64, DI
	CALL quadrant<>(SB)
	MOVQ SI, WSX1(R15)
	MOVQ R8, WXS1(R15)
	MOVQ DX, AX
	SUBQ WW1(R15), AX
	ADDQ AX, WW0(R15)
	ADDQ AX, WW1(R15)
	ADDQ AX, WBIAS0(R15)
	ADDQ AX, WBIAS1(R15)

added:
	XORQ $WDHALF, half-8(SP)
	DECQ left-16(SP)
	JG   batch
	JEQ  add
	TILERELEASE
	VZEROUPPER
	RET

#define WIDEONE(o, acc) \
	VCVTDQ2PS (64*o)(R13), Z16; \
	VMULPS Z30, Z16, Z16; \
	VFMADD231PS.BCST (4*o)(DX), Z16, acc

#define WIDEBIAS(o, acc) \
	WIDEONE(o, acc); \
	VFMADD231PS.BCST (4*o)(R14), Z31, acc

#define EACHSUM(M) \
	M(0, Z0); \
	M(1, Z1); \
	M(2, Z2); \
	M(3, Z3); \
	M(4, Z4); \
	M(5, Z5); \
	M(6, Z6); \
	M(7, Z7); \
	M(8, Z8); \
	M(9, Z9); \
	M(10, Z10); \
	M(11, Z11); \
	M(12, Z12); \
	M(13, Z13); \
	M(14, Z14); \
	M(15, Z15)

// quadrant adds a batch of sums, 16 outs by 16 rows, to the result.
TEXT quadrant<>(SB), NOSPLIT, $0-0
	LEAQ (BX)(BX*2), R9
	LEAQ (BX)(BX*4), R10
	LEAQ (R9)(BX*4), R11
	LEAQ (DI)(BX*8), CX
	VMOVUPS (DI), Z0
	VMOVUPS (DI)(BX*1), Z1
	VMOVUPS (DI)(BX*2), Z2
	VMOVUPS (DI)(R9*1), Z3
	VMOVUPS (DI)(BX*4), Z4
	VMOVUPS (DI)(R10*1), Z5
	VMOVUPS (DI)(R9*2), Z6
	VMOVUPS (DI)(R11*1), Z7
	VMOVUPS (CX), Z8
	VMOVUPS (CX)(BX*1), Z9
	VMOVUPS (CX)(BX*2), Z10
	VMOVUPS (CX)(R9*1), Z11
	VMOVUPS (CX)(BX*4), Z12
	VMOVUPS (CX)(R10*1), Z13
	VMOVUPS (CX)(R9*2), Z14
	VMOVUPS (CX)(R11*1), Z15
	VMOVUPS (SI), Z30
	CMPQ WKIND(R15), $3
	JAE  plain
	VMOVUPS (R8), Z31
	EACHSUM(WIDEBIAS)
	ADDQ R12, SI
	ADDQ R12, R8
	ADDQ $64, DX
	ADDQ $64, R14
	CMPQ WKIND(R15), $0
	JE   keep
	VMOVUPS (SI), Z30
	VMOVUPS (R8), Z31
	ADDQ $WDGROUP, R13
	EACHSUM(WIDEBIAS)
	SUBQ $WDGROUP, R13
	ADDQ R12, SI
	ADDQ R12, R8
	ADDQ $64, DX
	ADDQ $64, R14
	JMP  keep

plain:
	EACHSUM(WIDEONE)
	ADDQ R12, SI
	VMOVUPS (SI), Z30
	ADDQ $64, DX
	ADDQ $WDGROUP, R13
	EACHSUM(WIDEONE)
	SUBQ $WDGROUP, R13
	ADDQ R12, SI
	ADDQ $64, DX

keep:
	ADDQ $1024, R13
	VMOVUPS Z0, (DI)
	VMOVUPS Z1, (DI)(BX*1)
	VMOVUPS Z2, (DI)(BX*2)
	VMOVUPS Z3, (DI)(R9*1)
	VMOVUPS Z4, (DI)(BX*4)
	VMOVUPS Z5, (DI)(R10*1)
	VMOVUPS Z6, (DI)(R9*2)
	VMOVUPS Z7, (DI)(R11*1)
	VMOVUPS Z8, (CX)
	VMOVUPS Z9, (CX)(BX*1)
	VMOVUPS Z10, (CX)(BX*2)
	VMOVUPS Z11, (CX)(R9*1)
	VMOVUPS Z12, (CX)(BX*4)
	VMOVUPS Z13, (CX)(R10*1)
	VMOVUPS Z14, (CX)(R9*2)
	VMOVUPS Z15, (CX)(R11*1)
	RET
