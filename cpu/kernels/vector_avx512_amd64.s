#include "textflag.h"
#include "exp_avx512_amd64.h"

// Every loop handles 16 elements under mask K1, which is full but for the last
// round: tails need no code of their own. Masked-off lanes are neither read
// nor written, so nothing past a slice is touched.

#define FULLMASK \
	MOVL  $0xffff, AX; \
	KMOVW AX, K1

// TAILMASK narrows K1 to the CX elements left, if fewer than 16.
#define TAILMASK(label) \
	CMPQ  CX, $16;     \
	JGE   label;       \
	MOVL  $0xffff, AX; \
	BZHIL CX, AX, AX;  \
	KMOVW AX, K1

// SUM16 folds Z0 to one number in X0: lanes i and i+8, i+4, i+2, i+1.
#define SUM16 \
	VEXTRACTF64X4 $1, Z0, Y1; \
	VADDPS        Y1, Y0, Y0; \
	VEXTRACTF128  $1, Y0, X1; \
	VADDPS        X1, X0, X0; \
	VPERMILPS     $0x4e, X0, X1; \
	VADDPS        X1, X0, X0; \
	VPERMILPS     $0xb1, X0, X1; \
	VADDPS        X1, X0, X0

// SQUARES64 adds the squares of 64 elements to Z0 to Z3, SUMSQUARES adds these up in X0.
#define SQUARES64(x) \
	VMOVUPS     (x), Z4;    \
	VMOVUPS     64(x), Z5;  \
	VMOVUPS     128(x), Z6; \
	VMOVUPS     192(x), Z7; \
	VFMADD231PS Z4, Z4, Z0; \
	VFMADD231PS Z5, Z5, Z1; \
	VFMADD231PS Z6, Z6, Z2; \
	VFMADD231PS Z7, Z7, Z3

#define SUMSQUARES \
	VADDPS Z1, Z0, Z0; \
	VADDPS Z3, Z2, Z2; \
	VADDPS Z2, Z0, Z0; \
	SUM16

// func avx512WidenBF16(dst *float32, src *byte, n int)
TEXT ·avx512WidenBF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	CMPQ CX, $64
	JLT  few

many:
	VPMOVZXWD (SI), Z0
	VPMOVZXWD 32(SI), Z1
	VPMOVZXWD 64(SI), Z2
	VPMOVZXWD 96(SI), Z3
	VPSLLD    $16, Z0, Z0
	VPSLLD    $16, Z1, Z1
	VPSLLD    $16, Z2, Z2
	VPSLLD    $16, Z3, Z3
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, 64(DI)
	VMOVDQU32 Z2, 128(DI)
	VMOVDQU32 Z3, 192(DI)
	ADDQ      $128, SI
	ADDQ      $256, DI
	SUBQ      $64, CX
	CMPQ      CX, $64
	JGE       many
	TESTQ     CX, CX
	JEQ       done

few:
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVDQU16.Z (SI), K1, Y0
	VPMOVZXWD   Y0, Z0
	VPSLLD      $16, Z0, Z0
	VMOVDQU32   Z0, K1, (DI)
	ADDQ        $32, SI
	ADDQ        $64, DI
	SUBQ        $16, CX
	JG          loop

done:
	VZEROUPPER
	RET

// func avx512WidenF16(dst *float32, src *byte, n int)
TEXT ·avx512WidenF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVDQU16.Z (SI), K1, Y0
	VCVTPH2PS   Y0, Z0
	VMOVUPS     Z0, K1, (DI)
	ADDQ        $32, SI
	ADDQ        $64, DI
	SUBQ        $16, CX
	JG          loop
	VZEROUPPER
	RET

// func avx512NarrowBF16(dst *byte, src *float32, n int)
//
// Integer arithmetic, since VCVTNEPS2BF16 flushes subnormals to zero.
TEXT ·avx512NarrowBF16(SB), NOSPLIT, $0-24
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	MOVL         $1, AX
	VPBROADCASTD AX, Z16
	MOVL         $0x7fff, AX
	VPBROADCASTD AX, Z17
	MOVL         $0x40, AX
	VPBROADCASTD AX, Z18
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z (SI), K1, Z0
	VCMPPS    $3, Z0, Z0, K2
	VPSRLD    $16, Z0, Z1
	VPANDD    Z16, Z1, Z2
	VPADDD    Z17, Z2, Z2
	VPADDD    Z2, Z0, Z0
	VPSRLD    $16, Z0, Z0
	VPORD     Z18, Z1, K2, Z0
	VPMOVDW   Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func avx512WidenInt8(dst *float32, src *byte, n int, scale float32)
TEXT ·avx512WidenInt8(SB), NOSPLIT, $0-28
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS scale+24(FP), Z16
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVDQU8.Z (SI), K1, X0
	VPMOVSXBD  X0, Z0
	VCVTDQ2PS  Z0, Z0
	VMULPS     Z16, Z0, Z0
	VMOVUPS    Z0, K1, (DI)
	ADDQ       $16, SI
	ADDQ       $64, DI
	SUBQ       $16, CX
	JG         loop
	VZEROUPPER
	RET

// func avx512SumSquares(x *float32, n int) float32
TEXT ·avx512SumSquares(SB), NOSPLIT, $0-20
	MOVQ   x+0(FP), SI
	MOVQ   n+8(FP), CX
	VXORPS Z0, Z0, Z0
	VXORPS Z1, Z1, Z1
	VXORPS Z2, Z2, Z2
	VXORPS Z3, Z3, Z3
	FULLMASK
	SUBQ   $64, CX
	JL     rest
loop64:
	SQUARES64(SI)
	ADDQ $256, SI
	SUBQ $64, CX
	JGE  loop64
rest:
	ADDQ $64, CX
	JZ   done
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z   (SI), K1, Z4
	VFMADD231PS Z4, Z4, Z0
	ADDQ        $64, SI
	SUBQ        $16, CX
	JG          loop
done:
	SUMSQUARES
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// func avx512ScaleMul(dst, x, w *float32, n int, s float32)
TEXT ·avx512ScaleMul(SB), NOSPLIT, $0-36
	MOVQ         dst+0(FP), DI
	MOVQ         x+8(FP), SI
	MOVQ         w+16(FP), DX
	MOVQ         n+24(FP), CX
	VBROADCASTSS s+32(FP), Z16
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z (DX), K1, Z1
	VMULPS    Z16, Z0, Z0
	VMULPS    Z1, Z0, Z0
	VMOVUPS   Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DX
	ADDQ      $64, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func avx512Add(dst, x *float32, n int)
TEXT ·avx512Add(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z (DI), K1, Z1
	VADDPS    Z0, Z1, Z0
	VMOVUPS   Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func avx512Scale(x *float32, n int, s float32)
TEXT ·avx512Scale(SB), NOSPLIT, $0-20
	MOVQ         x+0(FP), DI
	MOVQ         n+8(FP), CX
	VBROADCASTSS s+16(FP), Z16
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z (DI), K1, Z0
	VMULPS    Z16, Z0, Z0
	VMOVUPS   Z0, K1, (DI)
	ADDQ      $64, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func avx512Rotate(a, b, cos, sin *float32, n int)
TEXT ·avx512Rotate(SB), NOSPLIT, $0-40
	MOVQ a+0(FP), DI
	MOVQ b+8(FP), SI
	MOVQ cos+16(FP), DX
	MOVQ sin+24(FP), BX
	MOVQ n+32(FP), CX
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z   (DI), K1, Z0
	VMOVUPS.Z   (SI), K1, Z1
	VMOVUPS.Z   (DX), K1, Z2
	VMOVUPS.Z   (BX), K1, Z3
	VMULPS      Z3, Z1, Z4
	VMULPS      Z3, Z0, Z5
	VFMSUB231PS Z2, Z0, Z4
	VFMADD231PS Z2, Z1, Z5
	VMOVUPS     Z4, K1, (DI)
	VMOVUPS     Z5, K1, (SI)
	ADDQ        $64, DI
	ADDQ        $64, SI
	ADDQ        $64, DX
	ADDQ        $64, BX
	SUBQ        $16, CX
	JG          loop
	VZEROUPPER
	RET

// func avx512SiluMul(dst, gate, up *float32, n int)
TEXT ·avx512SiluMul(SB), NOSPLIT, $0-32
	MOVQ   dst+0(FP), DI
	MOVQ   gate+8(FP), SI
	MOVQ   up+16(FP), DX
	MOVQ   n+24(FP), CX
	VXORPS Z7, Z7, Z7
	EXPCONSTANTS
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z (DX), K1, Z4
	VSUBPS    Z0, Z7, Z1
	CLAMP(Z1)
	EXP(Z1, Z2, Z3)
	VADDPS    Z27, Z3, Z3
	VDIVPS    Z3, Z0, Z0
	VMULPS    Z4, Z0, Z0
	VMOVUPS   Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DX
	ADDQ      $64, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func avx512Maximum(x *float32, n int) float32
//
// The accumulator is VMAXPS's second source, which wins over a NaN.
TEXT ·avx512Maximum(SB), NOSPLIT, $0-20
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVL         $0xff800000, AX
	VPBROADCASTD AX, Z0
	VMOVAPS      Z0, Z1
	VMOVAPS      Z0, Z2
	VMOVAPS      Z0, Z3
	FULLMASK
	SUBQ         $64, CX
	JL           rest
loop64:
	VMOVUPS (SI), Z4
	VMOVUPS 64(SI), Z5
	VMOVUPS 128(SI), Z6
	VMOVUPS 192(SI), Z7
	VMAXPS  Z0, Z4, Z0
	VMAXPS  Z1, Z5, Z1
	VMAXPS  Z2, Z6, Z2
	VMAXPS  Z3, Z7, Z3
	ADDQ    $256, SI
	SUBQ    $64, CX
	JGE     loop64
rest:
	ADDQ $64, CX
	JZ   done
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z (SI), K1, Z4
	VMAXPS    Z0, Z4, K1, Z0
	ADDQ      $64, SI
	SUBQ      $16, CX
	JG        loop
done:
	VMAXPS        Z1, Z0, Z0
	VMAXPS        Z3, Z2, Z2
	VMAXPS        Z2, Z0, Z0
	VEXTRACTF64X4 $1, Z0, Y1
	VMAXPS        Y1, Y0, Y0
	VEXTRACTF128  $1, Y0, X1
	VMAXPS        X1, X0, X0
	VPERMILPS     $0x4e, X0, X1
	VMAXPS        X1, X0, X0
	VPERMILPS     $0xb1, X0, X1
	VMAXPS        X1, X0, X0
	VMOVSS        X0, ret+16(FP)
	VZEROUPPER
	RET

// func avx512ExpSum(x *float32, n int, shift float32) float32
TEXT ·avx512ExpSum(SB), NOSPLIT, $0-28
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS shift+16(FP), Z7
	VXORPS       Z0, Z0, Z0
	EXPCONSTANTS
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z (SI), K1, Z1
	VSUBPS    Z7, Z1, Z1
	CLAMP(Z1)
	EXP(Z1, Z2, Z3)
	VADDPS    Z3, Z0, K1, Z0
	VMOVUPS   Z3, K1, (SI)
	ADDQ      $64, SI
	SUBQ      $16, CX
	JG        loop
	SUM16
	VMOVSS    X0, ret+24(FP)
	VZEROUPPER
	RET

// func avx512ExpSums(x *float32, n int, shift float32) (s0, s1 float32)
TEXT ·avx512ExpSums(SB), NOSPLIT, $0-32
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS shift+16(FP), Z7
	VXORPS       Z0, Z0, Z0
	VXORPS       Z6, Z6, Z6
	EXPCONSTANTS
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z   (SI), K1, Z1
	VSUBPS      Z7, Z1, Z1
	CLAMP(Z1)
	VMOVAPS     Z1, Z4
	EXP(Z1, Z2, Z3)
	VADDPS      Z3, Z0, K1, Z0
	VFMADD231PS Z4, Z3, K1, Z6
	ADDQ        $64, SI
	SUBQ        $16, CX
	JG          loop
	SUM16
	VMOVSS      X0, s0+24(FP)
	VMOVAPS     Z6, Z0
	SUM16
	VMOVSS      X0, s1+28(FP)
	VZEROUPPER
	RET

#define NORMROWS ·avx512NormRows
#define ADDROWS ·avx512AddRows
#define WIDTH 64
#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define ZERO(r) VPXORD r, r, r
#define SQUARES(x) SQUARES64(x)
#include "vector_rows_amd64.h"

// func avx512FirstAtLeast(x *float32, n int, bar float32) int
TEXT ·avx512FirstAtLeast(SB), NOSPLIT, $0-32
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS bar+16(FP), Z16
	XORQ         BX, BX
	SUBQ         $64, CX
	JL           rest

loop64:
	VMOVUPS   (SI)(BX*4), Z0
	VMOVUPS   64(SI)(BX*4), Z1
	VMOVUPS   128(SI)(BX*4), Z2
	VMOVUPS   192(SI)(BX*4), Z3
	VCMPPS    $13, Z16, Z0, K1
	VCMPPS    $13, Z16, Z1, K2
	VCMPPS    $13, Z16, Z2, K3
	VCMPPS    $13, Z16, Z3, K4
	KORW      K1, K2, K5
	KORW      K3, K4, K6
	KORTESTW  K5, K6
	JNZ       found
	ADDQ      $64, BX
	SUBQ      $64, CX
	JGE       loop64

rest:
	ADDQ $64, CX
	JZ   none

loop:
	MOVL      $0xffff, AX
	CMPQ      CX, $16
	JGE       body
	BZHIL     CX, AX, AX

body:
	KMOVW     AX, K1
	VMOVUPS.Z (SI)(BX*4), K1, Z0
	VCMPPS    $13, Z16, Z0, K1, K2
	KMOVW     K2, AX
	TESTL     AX, AX
	JNZ       here
	ADDQ      $16, BX
	SUBQ      $16, CX
	JG        loop

none:
	MOVQ n+8(FP), BX
	MOVQ BX, ret+24(FP)
	VZEROUPPER
	RET

found:
	// One of the 64 it is: the masks follow each other.
	KMOVW K1, AX
	KMOVW K2, CX
	SHLQ  $16, CX
	ORQ   CX, AX
	KMOVW K3, CX
	SHLQ  $32, CX
	ORQ   CX, AX
	KMOVW K4, CX
	SHLQ  $48, CX
	ORQ   CX, AX

here:
	BSFQ AX, AX
	ADDQ AX, BX
	MOVQ BX, ret+24(FP)
	VZEROUPPER
	RET

// func avx512GateDiv(x, gate *float32, n int)
//
// -gate - 0 is what ExpSum takes, signs of zeros and all.
TEXT ·avx512GateDiv(SB), NOSPLIT, $0-24
	MOVQ   x+0(FP), DI
	MOVQ   gate+8(FP), SI
	MOVQ   n+16(FP), CX
	VXORPS       Z7, Z7, Z7
	MOVL         $0x80000000, AX
	VPBROADCASTD AX, Z6
	EXPCONSTANTS
	FULLMASK
loop:
	TAILMASK(body)
body:
	VMOVUPS.Z (SI), K1, Z1
	VMOVUPS.Z (DI), K1, Z0
	VPXORD    Z6, Z1, Z1
	VSUBPS    Z7, Z1, Z1
	CLAMP(Z1)
	EXP(Z1, Z2, Z3)
	VADDPS    Z27, Z3, Z3
	VDIVPS    Z3, Z0, Z0
	VMOVUPS   Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET
