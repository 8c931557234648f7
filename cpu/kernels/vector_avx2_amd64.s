#include "textflag.h"

// Loops handle 8 elements; the bodies are macros that take their load and store
// instructions, so that the tail is the same code under the mask Y15.

// lanes is 8 set and 8 clear lanes: the mask of n < 8 starts at 32 - 4n.
DATA lanes<>+0(SB)/8, $-1
DATA lanes<>+8(SB)/8, $-1
DATA lanes<>+16(SB)/8, $-1
DATA lanes<>+24(SB)/8, $-1
DATA lanes<>+32(SB)/8, $0
DATA lanes<>+40(SB)/8, $0
DATA lanes<>+48(SB)/8, $0
DATA lanes<>+56(SB)/8, $0
GLOBL lanes<>(SB), RODATA|NOPTR, $64

// TAILMASK sets Y15 to the first CX < 8 lanes.
#define TAILMASK \
	LEAQ    lanes<>+32(SB), AX; \
	SHLQ    $2, CX;             \
	SUBQ    CX, AX;             \
	SHRQ    $2, CX;             \
	VMOVUPS (AX), Y15

#define FULL(mem, r) VMOVUPS mem, r
#define MASKED(mem, r) VMASKMOVPS mem, Y15, r
#define STFULL(r, mem) VMOVUPS r, mem
#define STMASKED(r, mem) VMASKMOVPS r, Y15, mem

// SUM8 folds Y0 to one number in X0: lanes i and i+4, i+2, i+1.
#define SUM8 \
	VEXTRACTF128 $1, Y0, X1; \
	VADDPS       X1, X0, X0; \
	VPERMILPS    $0x4e, X0, X1; \
	VADDPS       X1, X0, X0; \
	VPERMILPS    $0xb1, X0, X1; \
	VADDPS       X1, X0, X0

// SQUARES32 adds the squares of 32 elements to Y0 to Y3, SUMSQUARES adds these up in X0.
#define SQUARES32(x) \
	VMOVUPS     (x), Y4;    \
	VMOVUPS     32(x), Y5;  \
	VMOVUPS     64(x), Y6;  \
	VMOVUPS     96(x), Y7;  \
	VFMADD231PS Y4, Y4, Y0; \
	VFMADD231PS Y5, Y5, Y1; \
	VFMADD231PS Y6, Y6, Y2; \
	VFMADD231PS Y7, Y7, Y3

#define SUMSQUARES \
	VADDPS Y1, Y0, Y0; \
	VADDPS Y3, Y2, Y2; \
	VADDPS Y2, Y0, Y0; \
	SUM8

// CLAMP and EXP are those of the 512-bit kernels, with their constants in
// memory (8 copies each), and 2^n in two factors, whose exponents stay normal
// down to the smallest subnormal result and up to infinity.
#define CLAMP(x) \
	VMOVUPS ·avx2ExpTable+0(SB), Y12;  \
	VMAXPS  x, Y12, x;                 \
	VMOVUPS ·avx2ExpTable+32(SB), Y12; \
	VMINPS  x, Y12, x

#define EXP(x, n, e) \
	VMULPS       ·avx2ExpTable+64(SB), x, n;     \
	VROUNDPS     $8, n, n;                       \
	VFNMADD231PS ·avx2ExpTable+96(SB), n, x;     \
	VFNMADD231PS ·avx2ExpTable+128(SB), n, x;    \
	VMOVUPS      ·avx2ExpTable+160(SB), e;       \
	VFMADD213PS  ·avx2ExpTable+192(SB), x, e;    \
	VFMADD213PS  ·avx2ExpTable+224(SB), x, e;    \
	VFMADD213PS  ·avx2ExpTable+256(SB), x, e;    \
	VFMADD213PS  ·avx2ExpTable+288(SB), x, e;    \
	VFMADD213PS  ·avx2ExpTable+320(SB), x, e;    \
	VFMADD213PS  ·avx2ExpTable+352(SB), x, e;    \
	VFMADD213PS  ·avx2ExpTable+352(SB), x, e;    \
	VCVTPS2DQ    n, n;                           \
	VPSRAD       $1, n, x;                       \
	VPSUBD       x, n, n;                        \
	VPADDD       ·avx2ExpTable+384(SB), x, x;    \
	VPADDD       ·avx2ExpTable+384(SB), n, n;    \
	VPSLLD       $23, x, x;                      \
	VPSLLD       $23, n, n;                      \
	VMULPS       x, e, e;                        \
	VMULPS       n, e, e

// func avx2WidenBF16(dst *float32, src *byte, n int)
TEXT ·avx2WidenBF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $8, CX
	JL   tail
loop:
	VPMOVZXWD (SI), Y0
	VPSLLD    $16, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JGE       loop
tail:
	ADDQ $8, CX
	JZ   done
one:
	MOVWLZX (SI), AX
	SHLL    $16, AX
	MOVL    AX, (DI)
	ADDQ    $2, SI
	ADDQ    $4, DI
	DECQ    CX
	JNZ     one
done:
	VZEROUPPER
	RET

// func avx2WidenF16(dst *float32, src *byte, n int)
TEXT ·avx2WidenF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $8, CX
	JL   tail
loop:
	VCVTPH2PS (SI), Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JGE       loop
tail:
	ADDQ $8, CX
	JZ   done
one:
	MOVWLZX   (SI), AX
	VMOVD     AX, X0
	VCVTPH2PS X0, X0
	VMOVSS    X0, (DI)
	ADDQ      $2, SI
	ADDQ      $4, DI
	DECQ      CX
	JNZ       one
done:
	VZEROUPPER
	RET

// ROUND leaves the 8 bfloat16s of Y0 in X0. Y4..Y6 are 1, 0x7fff and 0x40.
#define ROUND \
	VCMPPS       $3, Y0, Y0, Y3;  \
	VPSRLD       $16, Y0, Y1;     \
	VPAND        Y4, Y1, Y2;      \
	VPADDD       Y5, Y2, Y2;      \
	VPADDD       Y2, Y0, Y0;      \
	VPSRLD       $16, Y0, Y0;     \
	VPOR         Y6, Y1, Y1;      \
	VPBLENDVB    Y3, Y1, Y0, Y0;  \
	VEXTRACTI128 $1, Y0, X1;      \
	VPACKUSDW    X1, X0, X0

// func avx2NarrowBF16(dst *byte, src *float32, n int)
TEXT ·avx2NarrowBF16(SB), NOSPLIT, $0-24
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	MOVL         $1, AX
	VMOVD        AX, X4
	VPBROADCASTD X4, Y4
	MOVL         $0x7fff, AX
	VMOVD        AX, X5
	VPBROADCASTD X5, Y5
	MOVL         $0x40, AX
	VMOVD        AX, X6
	VPBROADCASTD X6, Y6
	SUBQ         $8, CX
	JL           tail
loop:
	VMOVUPS (SI), Y0
	ROUND
	VMOVDQU X0, (DI)
	ADDQ    $32, SI
	ADDQ    $16, DI
	SUBQ    $8, CX
	JGE     loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	MASKED((SI), Y0)
	ROUND
one:
	VPEXTRW $0, X0, AX
	MOVW    AX, (DI)
	VPSRLDQ $2, X0, X0
	ADDQ    $2, DI
	DECQ    CX
	JNZ     one
done:
	VZEROUPPER
	RET

// func avx2WidenInt8(dst *float32, src *byte, n int, scale float32)
TEXT ·avx2WidenInt8(SB), NOSPLIT, $0-28
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y2
	SUBQ         $8, CX
	JL           tail
loop:
	VPMOVSXBD (SI), Y0
	VCVTDQ2PS Y0, Y0
	VMULPS    Y2, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $8, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JGE       loop
tail:
	ADDQ $8, CX
	JZ   done
one:
	MOVBLSX   (SI), AX
	VMOVD     AX, X0
	VCVTDQ2PS X0, X0
	VMULSS    X2, X0, X0
	VMOVSS    X0, (DI)
	INCQ      SI
	ADDQ      $4, DI
	DECQ      CX
	JNZ       one
done:
	VZEROUPPER
	RET

// func avx2SumSquares(x *float32, n int) float32
TEXT ·avx2SumSquares(SB), NOSPLIT, $0-20
	MOVQ   x+0(FP), SI
	MOVQ   n+8(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	SUBQ   $32, CX
	JL     rest
loop32:
	SQUARES32(SI)
	ADDQ $128, SI
	SUBQ $32, CX
	JGE  loop32
rest:
	ADDQ $24, CX
	JL   tail
loop:
	VMOVUPS     (SI), Y4
	VFMADD231PS Y4, Y4, Y0
	ADDQ        $32, SI
	SUBQ        $8, CX
	JGE         loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	MASKED((SI), Y4)
	VFMADD231PS Y4, Y4, Y1
done:
	SUMSQUARES
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

#define SCALEMUL(LD, ST) \
	LD((SI), Y0);       \
	LD((DX), Y1);       \
	VMULPS Y2, Y0, Y0;  \
	VMULPS Y1, Y0, Y0;  \
	ST(Y0, (DI))

// func avx2ScaleMul(dst, x, w *float32, n int, s float32)
TEXT ·avx2ScaleMul(SB), NOSPLIT, $0-36
	MOVQ         dst+0(FP), DI
	MOVQ         x+8(FP), SI
	MOVQ         w+16(FP), DX
	MOVQ         n+24(FP), CX
	VBROADCASTSS s+32(FP), Y2
	SUBQ         $8, CX
	JL           tail
loop:
	SCALEMUL(FULL, STFULL)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	SCALEMUL(MASKED, STMASKED)
done:
	VZEROUPPER
	RET

#define ADD(LD, ST) \
	LD((SI), Y0);      \
	LD((DI), Y1);      \
	VADDPS Y0, Y1, Y0; \
	ST(Y0, (DI))

// func avx2Add(dst, x *float32, n int)
TEXT ·avx2Add(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $8, CX
	JL   tail
loop:
	ADD(FULL, STFULL)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	ADD(MASKED, STMASKED)
done:
	VZEROUPPER
	RET

#define SCALE(LD, ST) \
	LD((DI), Y0);      \
	VMULPS Y2, Y0, Y0; \
	ST(Y0, (DI))

// func avx2Scale(x *float32, n int, s float32)
TEXT ·avx2Scale(SB), NOSPLIT, $0-20
	MOVQ         x+0(FP), DI
	MOVQ         n+8(FP), CX
	VBROADCASTSS s+16(FP), Y2
	SUBQ         $8, CX
	JL           tail
loop:
	SCALE(FULL, STFULL)
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	SCALE(MASKED, STMASKED)
done:
	VZEROUPPER
	RET

#define ROTATE(LD, ST) \
	LD((DI), Y0);           \
	LD((SI), Y1);           \
	LD((DX), Y2);           \
	LD((BX), Y3);           \
	VMULPS      Y3, Y1, Y4; \
	VMULPS      Y3, Y0, Y5; \
	VFMSUB231PS Y2, Y0, Y4; \
	VFMADD231PS Y2, Y1, Y5; \
	ST(Y4, (DI));           \
	ST(Y5, (SI))

// func avx2Rotate(a, b, cos, sin *float32, n int)
TEXT ·avx2Rotate(SB), NOSPLIT, $0-40
	MOVQ a+0(FP), DI
	MOVQ b+8(FP), SI
	MOVQ cos+16(FP), DX
	MOVQ sin+24(FP), BX
	MOVQ n+32(FP), CX
	SUBQ $8, CX
	JL   tail
loop:
	ROTATE(FULL, STFULL)
	ADDQ $32, DI
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, BX
	SUBQ $8, CX
	JGE  loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	ROTATE(MASKED, STMASKED)
done:
	VZEROUPPER
	RET

#define SILUMUL(LD, ST) \
	LD((SI), Y0);          \
	LD((DX), Y4);          \
	VXORPS Y1, Y1, Y1;     \
	VSUBPS Y0, Y1, Y1;     \
	CLAMP(Y1);             \
	EXP(Y1, Y2, Y3);       \
	VADDPS ·avx2ExpTable+352(SB), Y3, Y3; \
	VDIVPS Y3, Y0, Y0;     \
	VMULPS Y4, Y0, Y0;     \
	ST(Y0, (DI))

// func avx2SiluMul(dst, gate, up *float32, n int)
TEXT ·avx2SiluMul(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ gate+8(FP), SI
	MOVQ up+16(FP), DX
	MOVQ n+24(FP), CX
	SUBQ $8, CX
	JL   tail
loop:
	SILUMUL(FULL, STFULL)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	SILUMUL(MASKED, STMASKED)
done:
	VZEROUPPER
	RET

// func avx2Maximum(x *float32, n int) float32
//
// The accumulator is VMAXPS's second source, which wins over a NaN.
TEXT ·avx2Maximum(SB), NOSPLIT, $0-20
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVL         $0xff800000, AX
	VMOVD        AX, X8
	VPBROADCASTD X8, Y8
	VMOVAPS      Y8, Y0
	VMOVAPS      Y8, Y1
	VMOVAPS      Y8, Y2
	VMOVAPS      Y8, Y3
	SUBQ         $32, CX
	JL           rest
loop32:
	VMOVUPS (SI), Y4
	VMOVUPS 32(SI), Y5
	VMOVUPS 64(SI), Y6
	VMOVUPS 96(SI), Y7
	VMAXPS  Y0, Y4, Y0
	VMAXPS  Y1, Y5, Y1
	VMAXPS  Y2, Y6, Y2
	VMAXPS  Y3, Y7, Y3
	ADDQ    $128, SI
	SUBQ    $32, CX
	JGE     loop32
rest:
	ADDQ $24, CX
	JL   tail
loop:
	VMOVUPS (SI), Y4
	VMAXPS  Y0, Y4, Y0
	ADDQ    $32, SI
	SUBQ    $8, CX
	JGE     loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	MASKED((SI), Y4)
	VBLENDVPS Y15, Y4, Y8, Y4
	VMAXPS    Y1, Y4, Y1
done:
	VMAXPS       Y1, Y0, Y0
	VMAXPS       Y3, Y2, Y2
	VMAXPS       Y2, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS       X1, X0, X0
	VPERMILPS    $0x4e, X0, X1
	VMAXPS       X1, X0, X0
	VPERMILPS    $0xb1, X0, X1
	VMAXPS       X1, X0, X0
	VMOVSS       X0, ret+16(FP)
	VZEROUPPER
	RET

// func avx2ExpSum(x *float32, n int, shift float32) float32
TEXT ·avx2ExpSum(SB), NOSPLIT, $0-28
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS shift+16(FP), Y7
	VXORPS       Y0, Y0, Y0
	SUBQ         $8, CX
	JL           tail
loop:
	VMOVUPS (SI), Y1
	VSUBPS  Y7, Y1, Y1
	CLAMP(Y1)
	EXP(Y1, Y2, Y3)
	VADDPS  Y3, Y0, Y0
	VMOVUPS Y3, (SI)
	ADDQ    $32, SI
	SUBQ    $8, CX
	JGE     loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	MASKED((SI), Y1)
	VSUBPS Y7, Y1, Y1
	CLAMP(Y1)
	EXP(Y1, Y2, Y3)
	VANDPS Y15, Y3, Y3
	VADDPS Y3, Y0, Y0
	STMASKED(Y3, (SI))
done:
	SUM8
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET

// func avx2ExpSums(x *float32, n int, shift float32) (s0, s1 float32)
TEXT ·avx2ExpSums(SB), NOSPLIT, $0-32
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS shift+16(FP), Y7
	VXORPS       Y0, Y0, Y0
	VXORPS       Y6, Y6, Y6
	SUBQ         $8, CX
	JL           tail
loop:
	VMOVUPS     (SI), Y1
	VSUBPS      Y7, Y1, Y1
	CLAMP(Y1)
	VMOVAPS     Y1, Y4
	EXP(Y1, Y2, Y3)
	VADDPS      Y3, Y0, Y0
	VFMADD231PS Y4, Y3, Y6
	ADDQ        $32, SI
	SUBQ        $8, CX
	JGE         loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	MASKED((SI), Y1)
	VSUBPS      Y7, Y1, Y1
	VANDPS      Y15, Y1, Y1
	CLAMP(Y1)
	VMOVAPS     Y1, Y4
	EXP(Y1, Y2, Y3)
	VANDPS      Y15, Y3, Y3
	VADDPS      Y3, Y0, Y0
	VFMADD231PS Y4, Y3, Y6
done:
	SUM8
	VMOVSS  X0, s0+24(FP)
	VMOVAPS Y6, Y0
	SUM8
	VMOVSS  X0, s1+28(FP)
	VZEROUPPER
	RET

#define NORMROWS ·avx2NormRows
#define ADDROWS ·avx2AddRows
#define WIDTH 32
#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define ZERO(r) VXORPS r, r, r
#define SQUARES(x) SQUARES32(x)
#include "vector_rows_amd64.h"

// func avx2FirstAtLeast(x *float32, n int, bar float32) int
TEXT ·avx2FirstAtLeast(SB), NOSPLIT, $0-32
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS bar+16(FP), Y8
	XORQ         BX, BX
	SUBQ         $32, CX
	JL           rest

loop32:
	VMOVUPS   (SI)(BX*4), Y0
	VMOVUPS   32(SI)(BX*4), Y1
	VMOVUPS   64(SI)(BX*4), Y2
	VMOVUPS   96(SI)(BX*4), Y3
	VCMPPS    $13, Y8, Y0, Y0
	VCMPPS    $13, Y8, Y1, Y1
	VCMPPS    $13, Y8, Y2, Y2
	VCMPPS    $13, Y8, Y3, Y3
	VORPS     Y1, Y0, Y4
	VORPS     Y3, Y2, Y5
	VORPS     Y5, Y4, Y4
	VMOVMSKPS Y4, AX
	TESTL     AX, AX
	JNZ       found
	ADDQ      $32, BX
	SUBQ      $32, CX
	JGE       loop32

rest:
	ADDQ $24, CX
	JL   tail

loop:
	VCMPPS    $2, (SI)(BX*4), Y8, Y0
	VMOVMSKPS Y0, AX
	TESTL     AX, AX
	JNZ       here
	ADDQ      $8, BX
	SUBQ      $8, CX
	JGE       loop

tail:
	ADDQ $8, CX
	JZ   none
	TAILMASK
	MASKED((SI)(BX*4), Y0)
	VCMPPS    $13, Y8, Y0, Y0
	VANDPS    Y15, Y0, Y0
	VMOVMSKPS Y0, AX
	TESTL     AX, AX
	JNZ       here

none:
	MOVQ n+8(FP), BX
	MOVQ BX, ret+24(FP)
	VZEROUPPER
	RET

found:
	// One of the 32 it is: the masks follow each other.
	VMOVMSKPS Y0, AX
	VMOVMSKPS Y1, CX
	SHLQ      $8, CX
	ORQ       CX, AX
	VMOVMSKPS Y2, CX
	SHLQ      $16, CX
	ORQ       CX, AX
	VMOVMSKPS Y3, CX
	SHLQ      $24, CX
	ORQ       CX, AX

here:
	BSFQ AX, AX
	ADDQ AX, BX
	MOVQ BX, ret+24(FP)
	VZEROUPPER
	RET

#define GATEDIV(LD, ST) \
	LD((SI), Y1);          \
	LD((DI), Y0);          \
	VXORPS Y6, Y1, Y1;     \
	VSUBPS Y7, Y1, Y1;     \
	CLAMP(Y1);             \
	EXP(Y1, Y2, Y3);       \
	VADDPS ·avx2ExpTable+352(SB), Y3, Y3; \
	VDIVPS Y3, Y0, Y0;     \
	ST(Y0, (DI))

// func avx2GateDiv(x, gate *float32, n int)
//
// -gate - 0 is what ExpSum takes, signs of zeros and all.
TEXT ·avx2GateDiv(SB), NOSPLIT, $0-24
	MOVQ     x+0(FP), DI
	MOVQ     gate+8(FP), SI
	MOVQ     n+16(FP), CX
	VXORPS   Y7, Y7, Y7
	VPCMPEQD Y6, Y6, Y6
	VPSLLD   $31, Y6, Y6
	SUBQ     $8, CX
	JL       tail
loop:
	GATEDIV(FULL, STFULL)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  loop
tail:
	ADDQ $8, CX
	JZ   done
	TAILMASK
	GATEDIV(MASKED, STMASKED)
done:
	VZEROUPPER
	RET
