#include "textflag.h"
#include "delta_rows_amd64.h"

// DELTA makes a register of columns of δ = β·(v - α·sum). α is in Y12, β in Y13.
#define DELTA(at, sum) \
	VMULPS  sum, Y12, sum; \
	VMOVUPS at(R9), Y8;    \
	VSUBPS  sum, Y8, sum;  \
	VMULPS  sum, Y13, sum; \
	VMOVUPS sum, at(R10)

// FOLD sets columns of s to key·δ + α·s, and adds them to the output's sums and to those of
// the row that follows. The keys are in Y8 and Y10, the query in Y9, δ where it was stored.
#define FOLD(at, out, next) \
	VMULPS      at(R11), Y12, Y11; \
	VFMADD231PS at(R10), Y8, Y11;  \
	VMOVUPS     Y11, at(R11);      \
	VFMADD231PS Y11, Y9, out;      \
	VFMADD231PS Y11, Y10, next

// func avx2DeltaRows(c *deltaCall)
//
// A row's state is gone through once: what it adds to the next row's sums is added as it is
// made. One part goes through all rows and then the other, SI bytes behind it in the call.
TEXT ·avx2DeltaRows(SB), NOSPLIT, $32-8
	MOVQ c+0(FP), R15
	XORQ SI, SI

part:
	MOVQ   STATEA(R15)(SI*1), DI
	MOVQ   LDS(R15), R8
	MOVQ   QUERY(R15), CX
	MOVQ   KEY(R15), DX
	MOVQ   KEYS(R15), R14
	MOVQ   ROWS(R15), R13
	MOVQ   $0, v-8(SP)
	MOVQ   $0, d-16(SP)
	MOVQ   $0, o-24(SP)
	MOVQ   $0, h-32(SP)
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	MOVQ   DI, R11
	XORQ   AX, AX

sum:
	VBROADCASTSS (DX)(AX*4), Y8
	VFMADD231PS  (R11), Y8, Y0
	VFMADD231PS  32(R11), Y8, Y1
	VFMADD231PS  64(R11), Y8, Y2
	VFMADD231PS  96(R11), Y8, Y3
	ADDQ         R8, R11
	INCQ         AX
	CMPQ         AX, R14
	JLT          sum

row:
	MOVQ         h-32(SP), AX
	MOVQ         ALPHAA(R15)(SI*1), BX
	VBROADCASTSS (BX)(AX*1), Y12
	MOVQ         BETAA(R15)(SI*1), BX
	VBROADCASTSS (BX)(AX*1), Y13
	ADDQ         LDH(R15), AX
	MOVQ         AX, h-32(SP)

	MOVQ v-8(SP), AX
	MOVQ VA(R15)(SI*1), R9
	ADDQ AX, R9
	ADDQ LDV(R15), AX
	MOVQ AX, v-8(SP)
	MOVQ d-16(SP), AX
	MOVQ DA(R15)(SI*1), R10
	ADDQ AX, R10
	ADDQ LDD(R15), AX
	MOVQ AX, d-16(SP)
	DELTA(0, Y0)
	DELTA(32, Y1)
	DELTA(64, Y2)
	DELTA(96, Y3)

	// The last row's sums of a next one are made of its own key, and not used.
	XORQ    BX, BX
	CMPQ    R13, $1
	CMOVQNE LDK(R15), BX
	ADDQ    DX, BX
	VXORPS  Y0, Y0, Y0
	VXORPS  Y1, Y1, Y1
	VXORPS  Y2, Y2, Y2
	VXORPS  Y3, Y3, Y3
	VXORPS  Y4, Y4, Y4
	VXORPS  Y5, Y5, Y5
	VXORPS  Y6, Y6, Y6
	VXORPS  Y7, Y7, Y7
	MOVQ    DI, R11
	XORQ    AX, AX

update:
	VBROADCASTSS (DX)(AX*4), Y8
	VBROADCASTSS (CX)(AX*4), Y9
	VBROADCASTSS (BX)(AX*4), Y10
	FOLD(0, Y4, Y0)
	FOLD(32, Y5, Y1)
	FOLD(64, Y6, Y2)
	FOLD(96, Y7, Y3)
	ADDQ         R8, R11
	INCQ         AX
	CMPQ         AX, R14
	JLT          update

	MOVQ    o-24(SP), AX
	MOVQ    OA(R15)(SI*1), R11
	ADDQ    AX, R11
	ADDQ    LDO(R15), AX
	MOVQ    AX, o-24(SP)
	VMOVUPS Y4, (R11)
	VMOVUPS Y5, 32(R11)
	VMOVUPS Y6, 64(R11)
	VMOVUPS Y7, 96(R11)
	MOVQ    LDK(R15), AX
	ADDQ    AX, DX
	ADDQ    AX, CX
	DECQ    R13
	JNZ     row
	ADDQ    $8, SI
	CMPQ    SI, $16
	JLT     part
	VZEROUPPER
	RET
