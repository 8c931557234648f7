// For who defines
//
//	NORMROWS, ADDROWS  the functions
//	V0 to V4           registers
//	WIDTH              bytes of one
//	ZERO(r)            sets one to 0
//	SQUARES(x)         adds the squares of four registers' elements to V0 to V3
//	SUMSQUARES         adds these up in X0

// func normRows(dst *float32, ldd int, x *float32, ldx int, w *float32, n, rows int, div, eps, num float64)
//
// n is a multiple of the lanes. The sum of a row's squares is that of sumSquares; w may be nil.
TEXT NORMROWS(SB), NOSPLIT, $0-80
	MOVQ   dst+0(FP), DI
	MOVQ   ldd+8(FP), R8
	SHLQ   $2, R8
	MOVQ   x+16(FP), SI
	MOVQ   ldx+24(FP), R9
	SHLQ   $2, R9
	MOVQ   w+32(FP), DX
	MOVQ   n+40(FP), R10
	MOVQ   rows+48(FP), R11
	VMOVSD div+56(FP), X12
	VMOVSD eps+64(FP), X13
	VMOVSD num+72(FP), X14

row:
	MOVQ SI, BX
	MOVQ R10, CX
	ZERO(V0)
	ZERO(V1)
	ZERO(V2)
	ZERO(V3)
	SUBQ $WIDTH, CX
	JL   rest

four:
	SQUARES(BX)
	ADDQ $(4*WIDTH), BX
	SUBQ $WIDTH, CX
	JGE  four

rest:
	ADDQ $WIDTH, CX
	JZ   summed

one:
	VMOVUPS     (BX), V4
	VFMADD231PS V4, V4, V0
	ADDQ        $WIDTH, BX
	SUBQ        $(WIDTH/4), CX
	JG          one

summed:
	SUMSQUARES
	VCVTSS2SD    X0, X0, X0
	VDIVSD       X12, X0, X0
	VADDSD       X13, X0, X0
	VSQRTSD      X0, X0, X0
	VDIVSD       X0, X14, X0
	VCVTSD2SS    X0, X0, X0
	VBROADCASTSS X0, V1
	XORQ         AX, AX
	MOVQ         R10, CX
	TESTQ        DX, DX
	JZ           bare

weighted:
	VMULPS  (SI)(AX*1), V1, V0
	VMULPS  (DX)(AX*1), V0, V0
	VMOVUPS V0, (DI)(AX*1)
	ADDQ    $WIDTH, AX
	SUBQ    $(WIDTH/4), CX
	JG      weighted
	JMP     next

bare:
	VMULPS  (SI)(AX*1), V1, V0
	VMOVUPS V0, (DI)(AX*1)
	ADDQ    $WIDTH, AX
	SUBQ    $(WIDTH/4), CX
	JG      bare

next:
	ADDQ R8, DI
	ADDQ R9, SI
	DECQ R11
	JNZ  row
	VZEROUPPER
	RET

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
