#include "textflag.h"
#include "tiles_amx_amd64.h"

// func quantPack(dst, src *int8, stride, rows, blocks int)
//
// Turns rows 1..16 of src (stride bytes apart), 64 bytes a block, into tiles of
// 16 x rows dwords.
#define BYTEROW(z) \
	VMOVDQU32 (AX), z; \
	CMPQ    CX, $1; \
	CMOVQEQ R9, DX; \
	ADDQ    DX, AX; \
	SUBQ    R10, CX

#define TILEROW(z) \
	VMOVDQU32 z, K1, (DI); \
	ADDQ R12, DI

TEXT ·quantPack(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ stride+16(FP), BX
	MOVQ rows+24(FP), R8
	MOVQ blocks+32(FP), R11
	XORQ R9, R9
	MOVQ $1, R10
	MOVQ R8, CX
	MOVQ $1, AX
	SHLQ CX, AX
	DECQ AX
	KMOVW AX, K1
	LEAQ (R8*4), R12

packBlock:
	MOVQ SI, AX
	MOVQ R8, CX
	MOVQ BX, DX
	BYTEROW(Z0)
	BYTEROW(Z1)
	BYTEROW(Z2)
	BYTEROW(Z3)
	BYTEROW(Z4)
	BYTEROW(Z5)
	BYTEROW(Z6)
	BYTEROW(Z7)
	BYTEROW(Z8)
	BYTEROW(Z9)
	BYTEROW(Z10)
	BYTEROW(Z11)
	BYTEROW(Z12)
	BYTEROW(Z13)
	BYTEROW(Z14)
	BYTEROW(Z15)
	TRANSPOSE16
	TILEROW(Z0)
	TILEROW(Z1)
	TILEROW(Z2)
	TILEROW(Z3)
	TILEROW(Z4)
	TILEROW(Z5)
	TILEROW(Z6)
	TILEROW(Z7)
	TILEROW(Z8)
	TILEROW(Z9)
	TILEROW(Z10)
	TILEROW(Z11)
	TILEROW(Z12)
	TILEROW(Z13)
	TILEROW(Z14)
	TILEROW(Z15)
	ADDQ $64, SI
	DECQ R11
	JNZ  packBlock
	VZEROUPPER
	RET
