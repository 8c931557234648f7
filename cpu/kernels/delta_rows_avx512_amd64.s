#include "textflag.h"
#include "delta_rows_amd64.h"

// DELTA makes a register of columns of δ = β·(v - α·sum).
#define DELTA(at, v, d, sum, alpha, beta) \
	VMULPS  sum, alpha, sum; \
	VMOVUPS at(v), Z8;      \
	VSUBPS  sum, Z8, sum;   \
	VMULPS  sum, beta, sum; \
	VMOVUPS sum, at(d)

// FOLD sets columns of s to key·δ + α·s, and adds them to the output's sums and to those of
// the row that follows. The keys are in Z8 and Z10, the query in Z9.
#define FOLD(at, s, alpha, delta, out, next, t) \
	VMULPS      at(s), alpha, t; \
	VFMADD231PS delta, Z8, t;    \
	VMOVUPS     t, at(s);        \
	VFMADD231PS t, Z9, out;      \
	VFMADD231PS t, Z10, next

// func avx512DeltaRows(c *deltaCall)
//
// A row's state is gone through once: what it adds to the next row's sums is added as it is
// made. The four registers of columns are two of each part.
TEXT ·avx512DeltaRows(SB), NOSPLIT, $40-8
	MOVQ   c+0(FP), R15
	MOVQ   STATEA(R15), DI
	MOVQ   STATEB(R15), SI
	MOVQ   LDS(R15), R8
	MOVQ   QUERY(R15), CX
	MOVQ   KEY(R15), DX
	MOVQ   KEYS(R15), R14
	MOVQ   ROWS(R15), R13
	MOVQ   $0, v-8(SP)
	MOVQ   $0, d-16(SP)
	MOVQ   $0, o-24(SP)
	MOVQ   $0, h-32(SP)
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	MOVQ   DI, R10
	MOVQ   SI, R11
	XORQ   AX, AX

sum:
	VBROADCASTSS (DX)(AX*4), Z8
	VFMADD231PS  (R10), Z8, Z0
	VFMADD231PS  64(R10), Z8, Z1
	VFMADD231PS  (R11), Z8, Z2
	VFMADD231PS  64(R11), Z8, Z3
	ADDQ         R8, R10
	ADDQ         R8, R11
	INCQ         AX
	CMPQ         AX, R14
	JLT          sum

row:
	MOVQ         h-32(SP), AX
	MOVQ         ALPHAA(R15), BX
	VBROADCASTSS (BX)(AX*1), Z12
	MOVQ         ALPHAB(R15), BX
	VBROADCASTSS (BX)(AX*1), Z13
	MOVQ         BETAA(R15), BX
	VBROADCASTSS (BX)(AX*1), Z14
	MOVQ         BETAB(R15), BX
	VBROADCASTSS (BX)(AX*1), Z15
	ADDQ         LDH(R15), AX
	MOVQ         AX, h-32(SP)

	MOVQ v-8(SP), AX
	MOVQ VA(R15), R9
	ADDQ AX, R9
	MOVQ VB(R15), R12
	ADDQ AX, R12
	ADDQ LDV(R15), AX
	MOVQ AX, v-8(SP)
	MOVQ d-16(SP), AX
	MOVQ DA(R15), R10
	ADDQ AX, R10
	MOVQ DB(R15), R11
	ADDQ AX, R11
	ADDQ LDD(R15), AX
	MOVQ AX, d-16(SP)
	DELTA(0, R9, R10, Z0, Z12, Z14)
	DELTA(64, R9, R10, Z1, Z12, Z14)
	DELTA(0, R12, R11, Z2, Z13, Z15)
	DELTA(64, R12, R11, Z3, Z13, Z15)

	// The last row's sums of a next one are made of its own key, and not used.
	XORQ    BX, BX
	CMPQ    R13, $1
	CMOVQNE LDK(R15), BX
	ADDQ    DX, BX
	VPXORD  Z4, Z4, Z4
	VPXORD  Z5, Z5, Z5
	VPXORD  Z6, Z6, Z6
	VPXORD  Z7, Z7, Z7
	VPXORD  Z16, Z16, Z16
	VPXORD  Z17, Z17, Z17
	VPXORD  Z18, Z18, Z18
	VPXORD  Z19, Z19, Z19
	MOVQ    DI, R10
	MOVQ    SI, R11
	XORQ    AX, AX

update:
	VBROADCASTSS (DX)(AX*4), Z8
	VBROADCASTSS (CX)(AX*4), Z9
	VBROADCASTSS (BX)(AX*4), Z10
	FOLD(0, R10, Z12, Z0, Z4, Z16, Z20)
	FOLD(64, R10, Z12, Z1, Z5, Z17, Z21)
	FOLD(0, R11, Z13, Z2, Z6, Z18, Z22)
	FOLD(64, R11, Z13, Z3, Z7, Z19, Z23)
	ADDQ         R8, R10
	ADDQ         R8, R11
	INCQ         AX
	CMPQ         AX, R14
	JLT          update

	MOVQ    o-24(SP), AX
	MOVQ    OA(R15), R10
	ADDQ    AX, R10
	MOVQ    OB(R15), R11
	ADDQ    AX, R11
	ADDQ    LDO(R15), AX
	MOVQ    AX, o-24(SP)
	VMOVUPS Z4, (R10)
	VMOVUPS Z5, 64(R10)
	VMOVUPS Z6, (R11)
	VMOVUPS Z7, 64(R11)
	VMOVAPS Z16, Z0
	VMOVAPS Z17, Z1
	VMOVAPS Z18, Z2
	VMOVAPS Z19, Z3
	MOVQ    LDK(R15), AX
	ADDQ    AX, DX
	ADDQ    AX, CX
	DECQ    R13
	JNZ     row
	VZEROUPPER
	RET
