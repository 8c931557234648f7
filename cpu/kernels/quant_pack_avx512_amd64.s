#include "textflag.h"
#include "tiles_amx_amd64.h"

// func quantizeRow(q *int8, scale, sum *float32, stride int, x *float32, groups, group, zeroPoint int)
//
// Rounds groups of x to int8 by 127 / (largest magnitude): scale and sum of
// group g, stride bytes apart, are the size of a unit and the units' sum times
// it. Magnitudes are compared as whole numbers, so that NaN and infinities
// reach the scale; groups below 2^-100 are zero. Where zeroPoint is not 0, sum is the
// units' sum times zeroPoint, a whole number.
TEXT ·quantizeRow(SB), NOSPLIT, $0-64
	MOVQ q+0(FP), DI
	MOVQ scale+8(FP), R8
	MOVQ sum+16(FP), R9
	MOVQ stride+24(FP), R10
	MOVQ x+32(FP), SI
	MOVQ groups+40(FP), R11
	MOVQ group+48(FP), R12
	MOVQ zeroPoint+56(FP), R13
	MOVL $0x7FFFFFFF, AX
	VPBROADCASTD AX, Z4
	MOVL $0x42FE0000, AX // 127
	VMOVD AX, X5

group:
	VPXORD Z0, Z0, Z0
	MOVQ R12, CX
	MOVQ SI, AX

largest:
	VPANDD (AX), Z4, Z1
	VPMAXUD Z1, Z0, Z0
	ADDQ $64, AX
	SUBQ $16, CX
	JNZ  largest
	VEXTRACTI64X4 $1, Z0, Y1
	VPMAXUD Y1, Y0, Y0
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
	VBROADCASTSS X7, Z7
	VMOVSS X6, (R8)
	VPXORD Z2, Z2, Z2
	MOVQ R12, CX

units:
	VMULPS (SI), Z7, Z0
	VCVTPS2DQ Z0, Z0
	VPADDD Z0, Z2, Z2
	VPMOVSDB Z0, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	SUBQ $16, CX
	JNZ  units
	VEXTRACTI64X4 $1, Z2, Y1
	VPADDD Y1, Y2, Y2
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

// func permuteBytes(q *int8, order *[128]uint8, blocks int)
//
// Sorts each 128 bytes: the byte at i is the one that was at order[i].
TEXT ·permuteBytes(SB), NOSPLIT, $0-24
	MOVQ q+0(FP), DI
	MOVQ order+8(FP), SI
	MOVQ blocks+16(FP), CX
	VMOVDQU64 (SI), Z4
	VMOVDQU64 64(SI), Z5

sort:
	VMOVDQU64 (DI), Z0
	VMOVDQU64 64(DI), Z1
	VMOVDQA64 Z4, Z2
	VMOVDQA64 Z5, Z3
	VPERMI2B Z1, Z0, Z2
	VPERMI2B Z1, Z0, Z3
	VMOVDQU64 Z2, (DI)
	VMOVDQU64 Z3, 64(DI)
	ADDQ $128, DI
	DECQ CX
	JNZ  sort
	VZEROUPPER
	RET

// func widenScales(dst *float32, src *byte, stride, outs, groups int)
//
// Widens bf16 [outs, groups], rows stride bytes apart, to f32 [groups, 16];
// groups in dst are rounded up to 32, and outs past the last are the last
// again. Pairs of groups are transposed together.
#define SCALEROW(z) \
	VMOVDQU16.Z (AX), K1, z; \
	CMPQ    CX, $1; \
	CMOVQEQ R9, DX; \
	ADDQ    DX, AX; \
	SUBQ    R10, CX

#define SCALEPAIR(z, to) \
	VPSLLD $16, z, Z16; \
	VPANDD Z17, z, z; \
	VMOVUPS Z16, to(DI); \
	VMOVUPS z, (to+64)(DI)

TEXT ·widenScales(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ stride+16(FP), BX
	MOVQ outs+24(FP), R8
	MOVQ groups+32(FP), R11
	XORQ R9, R9
	MOVQ $1, R10

scaleBlock:
	MOVQ $0xFFFFFFFF, AX
	CMPQ R11, $32
	JGE  scaleMask
	MOVQ R11, CX
	MOVQ $1, AX
	SHLQ CX, AX
	DECQ AX

scaleMask:
	KMOVD AX, K1
	MOVQ SI, AX
	MOVQ R8, CX
	MOVQ BX, DX
	SCALEROW(Z0)
	SCALEROW(Z1)
	SCALEROW(Z2)
	SCALEROW(Z3)
	SCALEROW(Z4)
	SCALEROW(Z5)
	SCALEROW(Z6)
	SCALEROW(Z7)
	SCALEROW(Z8)
	SCALEROW(Z9)
	SCALEROW(Z10)
	SCALEROW(Z11)
	SCALEROW(Z12)
	SCALEROW(Z13)
	SCALEROW(Z14)
	SCALEROW(Z15)
	TRANSPOSE16
	MOVL $0xFFFF0000, AX
	VPBROADCASTD AX, Z17
	SCALEPAIR(Z0, 0)
	SCALEPAIR(Z1, 128)
	SCALEPAIR(Z2, 256)
	SCALEPAIR(Z3, 384)
	SCALEPAIR(Z4, 512)
	SCALEPAIR(Z5, 640)
	SCALEPAIR(Z6, 768)
	SCALEPAIR(Z7, 896)
	SCALEPAIR(Z8, 1024)
	SCALEPAIR(Z9, 1152)
	SCALEPAIR(Z10, 1280)
	SCALEPAIR(Z11, 1408)
	SCALEPAIR(Z12, 1536)
	SCALEPAIR(Z13, 1664)
	SCALEPAIR(Z14, 1792)
	SCALEPAIR(Z15, 1920)
	ADDQ $2048, DI
	ADDQ $64, SI
	SUBQ $32, R11
	JG   scaleBlock
	RET
