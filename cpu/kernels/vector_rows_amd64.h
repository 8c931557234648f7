// For who defines
//
//	ADDROWS  the function
//	V0, V1   registers
//	WIDTH    bytes of one

// func addRows(dst *float32, ldd int, list *int, x *float32, n int, weights *float32, rows int)
//
// n is a multiple of the lanes; list and weights may be nil.
TEXT ADDROWS(SB), NOSPLIT, $0-56
	MOVQ         dst+0(FP), DI
	MOVQ         ldd+8(FP), R8
	SHLQ         $2, R8
	MOVQ         list+16(FP), R9
	MOVQ         x+24(FP), SI
	MOVQ         n+32(FP), R10
	MOVQ         weights+40(FP), R11
	MOVQ         rows+48(FP), R12
	XORQ         R13, R13
	MOVL         $0x3f800000, AX // 1
	VMOVD        AX, X1
	VBROADCASTSS X1, V1

row:
	MOVQ  R13, BX
	TESTQ R9, R9
	JZ    placed
	MOVQ  (R9)(R13*8), BX

placed:
	IMULQ        R8, BX
	ADDQ         DI, BX
	MOVQ         R10, CX
	TESTQ        R11, R11
	JZ           add
	VBROADCASTSS (R11)(R13*4), V1

add:
	VMULPS  (SI), V1, V0
	VADDPS  (BX), V0, V0
	VMOVUPS V0, (BX)
	ADDQ    $WIDTH, SI
	ADDQ    $WIDTH, BX
	SUBQ    $(WIDTH/4), CX
	JG      add
	INCQ    R13
	CMPQ    R13, R12
	JLT     row
	VZEROUPPER
	RET
