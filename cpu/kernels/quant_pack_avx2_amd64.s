#include "textflag.h"

// func quantizeRowAVX2(q *int8, scale, sum *float32, stride int, x *float32, groups, group, zeroPoint int, order *[16]uint8)
//
// quantizeRow for AVX2, with the same bits; each 16 numbers are then sorted: the
// one at i is that at order[i].
TEXT ·quantizeRowAVX2(SB), NOSPLIT, $0-72
	MOVQ q+0(FP), DI
	MOVQ scale+8(FP), R8
	MOVQ sum+16(FP), R9
	MOVQ stride+24(FP), R10
	MOVQ x+32(FP), SI
	MOVQ groups+40(FP), R11
	MOVQ group+48(FP), R12
	MOVQ zeroPoint+56(FP), R13
	MOVQ order+64(FP), AX
	VMOVDQU (AX), X8
	MOVL $0x7FFFFFFF, AX
	VMOVD AX, X4
	VPBROADCASTD X4, Y4
	MOVL $0x42FE0000, AX // 127
	VMOVD AX, X5

group:
	VPXOR Y0, Y0, Y0
	MOVQ R12, CX
	MOVQ SI, AX

largest:
	VPAND (AX), Y4, Y1
	VPAND 32(AX), Y4, Y2
	VPMAXUD Y1, Y0, Y0
	VPMAXUD Y2, Y0, Y0
	ADDQ $64, AX
	SUBQ $16, CX
	JNZ  largest
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4E, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xB1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	VXORPS X6, X6, X6
	VXORPS X7, X7, X7
	CMPL AX, $0x0D800000
	JB   round
	VDIVSS X5, X0, X6 // scale = largest / 127
	VDIVSS X0, X5, X7

round:
	VBROADCASTSS X7, Y7
	VMOVSS X6, (R8)
	VPXOR Y2, Y2, Y2
	MOVQ R12, CX

units:
	VMULPS (SI), Y7, Y0
	VMULPS 32(SI), Y7, Y1
	VCVTPS2DQ Y0, Y0
	VCVTPS2DQ Y1, Y1
	VPADDD Y0, Y2, Y2
	VPADDD Y1, Y2, Y2
	VPACKSSDW Y1, Y0, Y0
	VPERMQ $0xD8, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPACKSSWB X1, X0, X0
	VPSHUFB X8, X0, X0
	VMOVDQU X0, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	SUBQ $16, CX
	JNZ  units
	VEXTRACTI128 $1, Y2, X1
	VPADDD X1, X2, X2
	VPSHUFD $0x4E, X2, X1
	VPADDD X1, X2, X2
	VPSHUFD $0xB1, X2, X1
	VPADDD X1, X2, X2
	CMPQ R13, $0
	JE   scaled
	VMOVD X2, AX
	IMULL R13, AX
	MOVL AX, (R9)
	JMP  summed

scaled:
	VCVTDQ2PS X2, X2
	VMULSS X2, X6, X2
	VMOVSS X2, (R9)

summed:
	ADDQ R10, R8
	ADDQ R10, R9
	DECQ R11
	JNZ  group
	VZEROUPPER
	RET

// func widenActivations(dst *int16, src *int8, sixteens int)
//
// Widens 16 times as many numbers to words; of each 4 the even ones come first. src may
// be the second half of dst.
TEXT ·widenActivations(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ sixteens+16(FP), CX
	VMOVDQU evenWords<>(SB), Y1

sixteen:
	VPMOVSXBW (SI), Y0
	VPSHUFB Y1, Y0, Y0
	VMOVDQU Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  sixteen
	VZEROUPPER
	RET

DATA evenWords<>+0(SB)/8, $0x0706030205040100
DATA evenWords<>+8(SB)/8, $0x0F0E0B0A0D0C0908
DATA evenWords<>+16(SB)/8, $0x0706030205040100
DATA evenWords<>+24(SB)/8, $0x0F0E0B0A0D0C0908
GLOBL evenWords<>(SB), RODATA|NOPTR, $32

// HALFROWS(i): 16 bytes of row i, and of row i + 4.
#define HALFROWS(at, row0, row4, x, y) \
	VMOVDQU at row0, x; \
	VINSERTI128 $1, at row4, y, y

// SCALEPAIR widens the two bf16 of each dword, for two groups.
#define SCALEPAIR(y) \
	VPSLLD $16, y, Y4; \
	VPAND Y8, y, y; \
	VMOVUPS Y4, (DI); \
	VMOVUPS y, (DI)(R12*1); \
	LEAQ (DI)(R12*2), DI

// func widenScales8(dst *float32, lanes int, src *byte, stride, eights int)
//
// Widens bf16 [8, groups], rows stride bytes apart, to f32 [groups, 8], groups
// lanes floats apart, for groups of 8 times eights. The rows lanes further on are
// prefetched.
TEXT ·widenScales8(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ lanes+8(FP), R12
	MOVQ src+16(FP), SI
	MOVQ stride+24(FP), BX
	MOVQ eights+32(FP), CX
	LEAQ (BX)(BX*2), R9
	LEAQ (SI)(BX*4), R14
	MOVQ R12, R10
	IMULQ BX, R10
	ADDQ SI, R10
	SHLQ $2, R12
	LEAQ (R10)(BX*4), R11
	MOVL $0xFFFF0000, AX
	VMOVD AX, X8
	VPBROADCASTD X8, Y8

eight:
	HALFROWS(0, (SI), (R14), X0, Y0)
	HALFROWS(0, (SI)(BX*1), (R14)(BX*1), X1, Y1)
	HALFROWS(0, (SI)(BX*2), (R14)(BX*2), X2, Y2)
	HALFROWS(0, (SI)(R9*1), (R14)(R9*1), X3, Y3)
	PREFETCHT0 (R10)
	PREFETCHT0 (R10)(BX*1)
	PREFETCHT0 (R10)(BX*2)
	PREFETCHT0 (R10)(R9*1)
	PREFETCHT0 (R11)
	PREFETCHT0 (R11)(BX*1)
	PREFETCHT0 (R11)(BX*2)
	PREFETCHT0 (R11)(R9*1)
	VPUNPCKLDQ Y1, Y0, Y4
	VPUNPCKHDQ Y1, Y0, Y5
	VPUNPCKLDQ Y3, Y2, Y6
	VPUNPCKHDQ Y3, Y2, Y7
	VPUNPCKLQDQ Y6, Y4, Y0
	VPUNPCKHQDQ Y6, Y4, Y1
	VPUNPCKLQDQ Y7, Y5, Y2
	VPUNPCKHQDQ Y7, Y5, Y3
	SCALEPAIR(Y0)
	SCALEPAIR(Y1)
	SCALEPAIR(Y2)
	SCALEPAIR(Y3)
	ADDQ $16, SI
	ADDQ $16, R14
	ADDQ $16, R10
	ADDQ $16, R11
	DECQ CX
	JNZ  eight
	VZEROUPPER
	RET
