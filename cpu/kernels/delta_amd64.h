// The recurrence of gated DeltaNet. It is included by files that name the functions and
// define what depends on the length of vectors (V0..V13 are the registers):
//
//	WIDTH    bytes of a register
//	ZERO(r)  sets one to 0
//	STEP4, FOLD4  the functions for tiles of four registers, STEP1, FOLD1 of one; TAPS
//	COLUMNS(op)   does op(bytes, register) for the registers of DeltaColumns columns
//	TAPSROWS, FOLDROWS  the functions for several rows
//	EXPS     the function; TOINT makes 32-bit integers of a register of float64, in H3, the
//	         lower half of V3

// A tile is some columns of a state, in one register or four. A column's sums are one
// multiply-add after the other; four registers of columns are enough of them to keep the
// multipliers busy.

// DELTA makes a register of columns of δ = β·(v - α·sum); α and β are in V12 and V13.
#define DELTA(at, sum) \
	VMULPS  sum, V12, sum; \
	VMOVUPS at(R9), V8;   \
	VSUBPS  sum, V8, sum; \
	VMULPS  sum, V13, sum; \
	VMOVUPS sum, at(R10)

// FOLD sets columns of dst to key·δ + α·src; the key is in V8.
#define FOLD(at, src, dst, delta) \
	VMULPS      at(src), V12, V10; \
	VFMADD231PS delta, V8, V10;    \
	VMOVUPS     V10, at(dst)

// func deltaStep(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)
TEXT STEP4(SB), NOSPLIT, $0-72
	MOVQ         s+0(FP), DI
	MOVQ         stride+8(FP), R8
	SHLQ         $2, R8
	MOVQ         q+16(FP), SI
	MOVQ         k+24(FP), DX
	MOVQ         v+32(FP), R9
	MOVQ         d+40(FP), R10
	MOVQ         o+48(FP), R11
	MOVQ         n+56(FP), CX
	VBROADCASTSS alpha+64(FP), V12
	VBROADCASTSS beta+68(FP), V13
	MOVQ         DI, AX
	MOVQ         DX, BX
	MOVQ         CX, R12
	ZERO(V0)
	ZERO(V1)
	ZERO(V2)
	ZERO(V3)

sum:
	VBROADCASTSS (BX), V8
	VFMADD231PS  (AX), V8, V0
	VFMADD231PS  (1*WIDTH)(AX), V8, V1
	VFMADD231PS  (2*WIDTH)(AX), V8, V2
	VFMADD231PS  (3*WIDTH)(AX), V8, V3
	ADDQ         R8, AX
	ADDQ         $4, BX
	DECQ         R12
	JNZ          sum

	DELTA(0, V0)
	DELTA(1*WIDTH, V1)
	DELTA(2*WIDTH, V2)
	DELTA(3*WIDTH, V3)
	ZERO(V4)
	ZERO(V5)
	ZERO(V6)
	ZERO(V7)

update:
	VBROADCASTSS (DX), V8
	VBROADCASTSS (SI), V9
	FOLD(0, DI, DI, V0)
	VFMADD231PS  V10, V9, V4
	FOLD(1*WIDTH, DI, DI, V1)
	VFMADD231PS  V10, V9, V5
	FOLD(2*WIDTH, DI, DI, V2)
	VFMADD231PS  V10, V9, V6
	FOLD(3*WIDTH, DI, DI, V3)
	VFMADD231PS  V10, V9, V7
	ADDQ         R8, DI
	ADDQ         $4, DX
	ADDQ         $4, SI
	DECQ         CX
	JNZ          update

	VMOVUPS V4, (R11)
	VMOVUPS V5, (1*WIDTH)(R11)
	VMOVUPS V6, (2*WIDTH)(R11)
	VMOVUPS V7, (3*WIDTH)(R11)
	VZEROUPPER
	RET

// func deltaFold(dst, src *float32, stride int, k, d *float32, n int, alpha float32)
TEXT FOLD4(SB), NOSPLIT, $0-52
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         stride+16(FP), R8
	SHLQ         $2, R8
	MOVQ         k+24(FP), DX
	MOVQ         d+32(FP), R10
	MOVQ         n+40(FP), CX
	VBROADCASTSS alpha+48(FP), V12
	VMOVUPS      (R10), V0
	VMOVUPS      (1*WIDTH)(R10), V1
	VMOVUPS      (2*WIDTH)(R10), V2
	VMOVUPS      (3*WIDTH)(R10), V3

fold:
	VBROADCASTSS (DX), V8
	FOLD(0, SI, DI, V0)
	FOLD(1*WIDTH, SI, DI, V1)
	FOLD(2*WIDTH, SI, DI, V2)
	FOLD(3*WIDTH, SI, DI, V3)
	ADDQ         R8, SI
	ADDQ         R8, DI
	ADDQ         $4, DX
	DECQ         CX
	JNZ          fold
	VZEROUPPER
	RET

// func deltaStep(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)
TEXT STEP1(SB), NOSPLIT, $0-72
	MOVQ         s+0(FP), DI
	MOVQ         stride+8(FP), R8
	SHLQ         $2, R8
	MOVQ         q+16(FP), SI
	MOVQ         k+24(FP), DX
	MOVQ         v+32(FP), R9
	MOVQ         d+40(FP), R10
	MOVQ         o+48(FP), R11
	MOVQ         n+56(FP), CX
	VBROADCASTSS alpha+64(FP), V12
	VBROADCASTSS beta+68(FP), V13
	MOVQ         DI, AX
	MOVQ         DX, BX
	MOVQ         CX, R12
	ZERO(V0)

sum:
	VBROADCASTSS (BX), V8
	VFMADD231PS  (AX), V8, V0
	ADDQ         R8, AX
	ADDQ         $4, BX
	DECQ         R12
	JNZ          sum

	DELTA(0, V0)
	ZERO(V4)

update:
	VBROADCASTSS (DX), V8
	VBROADCASTSS (SI), V9
	FOLD(0, DI, DI, V0)
	VFMADD231PS  V10, V9, V4
	ADDQ         R8, DI
	ADDQ         $4, DX
	ADDQ         $4, SI
	DECQ         CX
	JNZ          update

	VMOVUPS V4, (R11)
	VZEROUPPER
	RET

// func deltaFold(dst, src *float32, stride int, k, d *float32, n int, alpha float32)
TEXT FOLD1(SB), NOSPLIT, $0-52
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         stride+16(FP), R8
	SHLQ         $2, R8
	MOVQ         k+24(FP), DX
	MOVQ         d+32(FP), R10
	MOVQ         n+40(FP), CX
	VBROADCASTSS alpha+48(FP), V12
	VMOVUPS      (R10), V0

fold:
	VBROADCASTSS (DX), V8
	FOLD(0, SI, DI, V0)
	ADDQ         R8, SI
	ADDQ         R8, DI
	ADDQ         $4, DX
	DECQ         CX
	JNZ          fold
	VZEROUPPER
	RET

// func taps(dst *float32, x *[]float32, taps int, w *float32, stride, n int)
// n is a multiple of the lanes.
TEXT TAPS(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ taps+16(FP), R8
	MOVQ w+24(FP), DX
	MOVQ stride+32(FP), R9
	SHLQ $2, R9
	MOVQ n+40(FP), CX
	XORQ BX, BX

loop:
	ZERO(V0)
	MOVQ SI, R10
	LEAQ (DX)(BX*1), R11
	MOVQ R8, R12

tap:
	MOVQ        (R10), AX
	VMOVUPS     (AX)(BX*1), V1
	VFMADD231PS (R11), V1, V0
	ADDQ        $24, R10
	ADDQ        R9, R11
	DECQ        R12
	JNZ         tap

	VMOVUPS V0, (DI)(BX*1)
	ADDQ    $WIDTH, BX
	SUBQ    $(WIDTH/4), CX
	JNZ     loop
	VZEROUPPER
	RET

// func tapsRows(dst *float32, ldd, rows int, x *float32, ldx int, w *float32, taps, ldw, n int)
// n is a multiple of the lanes. Channels of a register go through all rows.
TEXT TAPSROWS(SB), NOSPLIT, $0-72
	MOVQ dst+0(FP), DI
	MOVQ ldd+8(FP), R8
	SHLQ $2, R8
	MOVQ x+24(FP), SI
	MOVQ ldx+32(FP), R9
	SHLQ $2, R9
	MOVQ w+40(FP), DX
	MOVQ ldw+56(FP), R10
	SHLQ $2, R10
	MOVQ n+64(FP), CX

block:
	MOVQ DI, R11
	MOVQ SI, R12
	MOVQ rows+16(FP), BX

next:
	ZERO(V0)
	MOVQ R12, R13
	MOVQ DX, R14
	MOVQ taps+48(FP), AX

tap:
	VMOVUPS     (R13), V1
	VFMADD231PS (R14), V1, V0
	ADDQ        R9, R13
	ADDQ        R10, R14
	DECQ        AX
	JNZ         tap

	VMOVUPS V0, (R11)
	ADDQ    R8, R11
	ADDQ    R9, R12
	DECQ    BX
	JNZ     next
	ADDQ    $WIDTH, DI
	ADDQ    $WIDTH, SI
	ADDQ    $WIDTH, DX
	SUBQ    $(WIDTH/4), CX
	JNZ     block
	VZEROUPPER
	RET

#define LOADCOLUMN(at, r) VMOVUPS at(SI), r
#define SCALECOLUMN(at, r) VMULPS V12, r, r
#define ADDCOLUMN(at, r) VFMADD231PS at(BX), V8, r
#define STORECOLUMN(at, r) VMOVUPS r, at(DI)

// func foldRows(dst, src *float32, lds int, k *float32, ldk int, d *float32, ldd int, alpha *float32, ldh int, keys, rows int)
// Strides are in bytes. DeltaColumns columns of a row of the state at a time take all rows
// that are folded in.
TEXT FOLDROWS(SB), NOSPLIT, $0-88
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ lds+16(FP), R8
	MOVQ k+24(FP), DX
	MOVQ ldk+32(FP), R9
	MOVQ ldd+48(FP), R10
	MOVQ ldh+64(FP), R11
	MOVQ keys+72(FP), CX

key:
	COLUMNS(LOADCOLUMN)
	MOVQ DX, AX
	MOVQ d+40(FP), BX
	MOVQ alpha+56(FP), R12
	MOVQ rows+80(FP), R13

fold:
	VBROADCASTSS (AX), V8
	VBROADCASTSS (R12), V12
	COLUMNS(SCALECOLUMN)
	COLUMNS(ADDCOLUMN)
	ADDQ         R9, AX
	ADDQ         R10, BX
	ADDQ         R11, R12
	DECQ         R13
	JNZ          fold
	COLUMNS(STORECOLUMN)
	ADDQ         R8, SI
	ADDQ         R8, DI
	ADDQ         $4, DX
	DECQ         CX
	JNZ          key
	VZEROUPPER
	RET

// Of math.Exp: log2(e), ln 2 in two parts, 1/16, the series from 1/8! to 1/0!, and 2.
DATA exps<>+0(SB)/8, $1.4426950408889634073599246810018920
DATA exps<>+8(SB)/8, $0.69314718055966295651160180568695068359375
DATA exps<>+16(SB)/8, $0.28235290563031577122588448175013436025525412068e-12
DATA exps<>+24(SB)/8, $0.0625
DATA exps<>+32(SB)/8, $2.4801587301587301587e-5
DATA exps<>+40(SB)/8, $1.9841269841269841270e-4
DATA exps<>+48(SB)/8, $1.3888888888888888889e-3
DATA exps<>+56(SB)/8, $8.3333333333333333333e-3
DATA exps<>+64(SB)/8, $4.1666666666666666667e-2
DATA exps<>+72(SB)/8, $1.6666666666666666667e-1
DATA exps<>+80(SB)/8, $0.5
DATA exps<>+88(SB)/8, $1.0
DATA exps<>+96(SB)/8, $2.0
GLOBL exps<>(SB), RODATA|NOPTR, $104

#define TERM(at) \
	VBROADCASTSD exps<>+at(SB), V2; \
	VFMADD213PD  V2, V0, V1

// func exps(x *float64, n int)
// n is a multiple of the float64 of a register. It has the operations of math.Exp with FMA, in
// its order; results are normal numbers, so that n in 2^n is added to their exponents.
TEXT EXPS(SB), NOSPLIT, $0-16
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), CX

exp:
	VMOVUPD      (DI), V0
	VBROADCASTSD exps<>+0(SB), V1
	VMULPD       V0, V1, V1
	TOINT(V1)
	VCVTDQ2PD    H3, V1
	VBROADCASTSD exps<>+8(SB), V2
	VFNMADD231PD V2, V1, V0
	VBROADCASTSD exps<>+16(SB), V2
	VFNMADD231PD V2, V1, V0
	VBROADCASTSD exps<>+24(SB), V2
	VMULPD       V2, V0, V0
	VBROADCASTSD exps<>+32(SB), V1
	TERM(40)
	TERM(48)
	TERM(56)
	TERM(64)
	TERM(72)
	TERM(80)
	TERM(88)
	VMULPD       V1, V0, V0
	VBROADCASTSD exps<>+96(SB), V2
	VADDPD       V2, V0, V1
	VMULPD       V1, V0, V0
	VADDPD       V2, V0, V1
	VMULPD       V1, V0, V0
	VADDPD       V2, V0, V1
	VMULPD       V1, V0, V0
	VADDPD       V2, V0, V1
	VBROADCASTSD exps<>+88(SB), V2
	VFMADD213PD  V2, V1, V0
	VPMOVSXDQ    H3, V1
	VPSLLQ       $52, V1, V1
	VPADDQ       V1, V0, V0
	VMOVUPD      V0, (DI)
	ADDQ         $WIDTH, DI
	SUBQ         $(WIDTH/8), CX
	JNZ          exp
	VZEROUPPER
	RET
