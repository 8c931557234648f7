#include "textflag.h"
#include "quant_amd64.h"
#include "quant_alone_avx512_amd64.h"

// One row by VPDPBUSD: 16 outs, 64 elements of each, then a tree that adds the
// 16 lanes of each out. Sums are of whole numbers and so exact: the bits are
// those of the tiles.

// func quantAlone(t *quantCall)
//
// Blocks of 16 outs for one row. Every loop is over the same: prefetch, sums of
// 64 elements, groups.
TEXT ·quantAlone(SB), NOSPLIT, $64-8
	MOVQ t+0(FP), R15

blockStart:
	MOVQ BLOCKS(R15), R14
	CMPQ SSTRIDE(R15), $0
	JE   widened
	MOVQ W(R15), AX
	MOVQ AX, 0(SP)
	MOVQ BLOCKSCALES(R14), AX
	MOVQ AX, 8(SP)
	MOVQ SSTRIDE(R15), AX
	MOVQ AX, 16(SP)
	MOVQ OUTS(R15), AX
	MOVQ AX, 24(SP)
	MOVQ SGROUPS(R15), AX
	MOVQ AX, 32(SP)
	CALL ·widenScales(SB)
	MOVQ BIAS(R15), AX
	MOVQ AX, 0(SP)
	MOVQ BLOCKBIASES(R14), AX
	MOVQ AX, 8(SP)
	CALL ·widenScales(SB)
	SCALESAHEAD(scalesLine, scalesRow, widened)

widened:
	VPXORD Z31, Z31, Z31
	CONSTANTS(ready)

ready:
	MOVL $0x00F0, CX
	KMOVW CX, K3
	MOVL $0x0F00, CX
	KMOVW CX, K5
	MOVL $0xF000, CX
	KMOVW CX, K6
	MOVL $0x80808080, CX
	CMPQ FORMAT(R15), $2
	JE   raised
	MOVL $0x00010001, CX

raised:
	VPBROADCASTD CX, Z30
	MOVQ ELEMENTS(R15), CX
	MOVQ CX, left-8(SP)
	MOVQ AHEADBYTES(R15), CX
	MOVQ CX, ahead-16(SP)
	MOVQ BLOCKNEXT(R14), CX
	MOVQ CX, next-24(SP)
	MOVQ BLOCKA(R14), AX
	MOVQ ASTRIDE(R15), BX
	LEAQ (BX)(BX*2), R9
	LEAQ (BX)(BX*4), R10
	LEAQ (R9)(BX*4), R11
	LEAQ (AX)(BX*8), R14
	MOVQ AX, R8
	ADDQ AHEAD(R15), R8
	MOVQ B(R15), SI
	MOVQ W(R15), DX
	MOVQ BIAS(R15), DI
	MOVQ SX(R15), R12
	MOVQ XS(R15), R13
	MOVQ FORMAT(R15), CX
	CMPQ CX, $1
	JB   bytes
	JE   nibbles
	CMPQ CX, $3
	JB   q80
	JE   q40
	CMPQ CX, $4
	JE   q4k
	JMP  q6k

bytes:
	CMPQ GROUPS(R15), $2
	JB   bytes128
	JE   bytes64

bytes32:
	AHEAD8
	VMOVDQU32 (SI), Z23
	EACHROW(DOT8)
	SUMS
	SUM32
	ADDBIAS(0, Z0)
	ADDBIAS(1, Z1)
	GROUPSON(2)
	NEXTSTEP(64, 64, bytes32)

bytes64:
	AHEAD8
	VMOVDQU32 (SI), Z23
	EACHROW(DOT8)
	SUMS
	SUM64
	ADDBIAS(0, Z0)
	GROUPSON(1)
	NEXTSTEP(64, 64, bytes64)

bytes128:
	AHEAD8
	VMOVDQU32 (SI), Z23
	EACHROW(DOT8)
	VMOVDQU32 64(SI), Z23
	EACHROW(MORE8)
	SUMS
	SUM64
	ADDBIAS(0, Z0)
	GROUPSON(1)
	NEXTSTEP(128, 128, bytes128)

nibbles:
	CMPQ GROUPS(R15), $2
	JB   nibbles128
	JE   nibbles64

	// 64 bytes are 128 numbers, and one tree adds them all.
nibbles32:
	AHEAD8
	VMOVDQU32 (SI), Z23
	VMOVDQU32 64(SI), Z22
	EACHROW(DOTNIBBLES)
	SMALLSUMS
	SUM16
	ADDBIAS(0, Z0)
	ADDBIAS(1, Z1)
	ADDBIAS(2, Z2)
	ADDBIAS(3, Z3)
	GROUPSON(4)
	NEXTSTEP(64, 128, nibbles32)

nibbles64:
	AHEAD8
	VMOVDQU32 (SI), Z23
	VMOVDQU32 64(SI), Z22
	EACHROW(DOTNIBBLES)
	SMALLSUMS
	SUM32
	ADDBIAS(0, Z0)
	ADDBIAS(1, Z1)
	GROUPSON(2)
	NEXTSTEP(64, 128, nibbles64)

nibbles128:
	AHEAD8
	VMOVDQU32 (SI), Z23
	VMOVDQU32 64(SI), Z22
	EACHROW(DOTNIBBLES)
	SMALLSUMS
	SUM64
	ADDBIAS(0, Z0)
	GROUPSON(1)
	NEXTSTEP(64, 128, nibbles128)

// Blocks of 32: two make 64 elements.
#define DOTQ80(from0, from1, acc) \
	VMOVDQU32 from0, Y16; \
	VINSERTI64X4 $1, from1, Z16, Z16; \
	VPXORD Z30, Z16, Z16; \
	DOT(Z16, acc)
#define DOTQ80LOW(row, ahead, acc) \
	PREFETCHT0 ahead; \
	DOTQ80(2 row, 36 row, acc)
#define DOTQ80HIGH(row, ahead, acc) \
	PREFETCHT0 64 ahead; \
	PREFETCHT0 128 ahead; \
	DOTQ80(70 row, 104 row, acc)

// DOTQ40 takes four blocks of 16 bytes, 18 apart.
#define DOTQ40(row, ahead, acc) \
	VBROADCASTI32X4 2 row, Z16; \
	VBROADCASTI32X4 20 row, K3, Z16; \
	VBROADCASTI32X4 38 row, K5, Z16; \
	VBROADCASTI32X4 56 row, K6, Z16; \
	PREFETCHT0 ahead; \
	PREFETCHT0 64 ahead; \
	NIBBLES(acc)

q80:
	AHEAD8
	SCALES4(34)
	VMOVDQU32 (SI), Z23
	EACHROW(DOTQ80LOW)
	SUMS
	SUM32
	ADDZEROPOINT(0, Z0)
	ADDZEROPOINT(1, Z1)
	VMOVDQU32 64(SI), Z23
	EACHROW(DOTQ80HIGH)
	SUMS
	SUM32
	ADDZEROPOINT(2, Z0)
	ADDZEROPOINT(3, Z1)
	ADDQ $16, R12
	ADDQ $16, R13
	NEXTSTEP(136, 128, q80)

q40:
	AHEAD8
	SCALES4(18)
	VMOVDQU32 (SI), Z23
	VMOVDQU32 64(SI), Z22
	EACHROW(DOTQ40)
	SMALLSUMS
	SUM16
	ADDZEROPOINT(0, Z0)
	ADDZEROPOINT(1, Z1)
	ADDZEROPOINT(2, Z2)
	ADDZEROPOINT(3, Z3)
	ADDQ $16, R12
	ADDQ $16, R13
	NEXTSTEP(72, 128, q40)

#define DOTSPLIT(from, acc) \
	SPLIT(from, Z16); \
	DOT(Z16, acc)
#define SPLIT0(row, ahead, acc) \
	PREFETCHT0 ahead; \
	DOTSPLIT(16 row, acc)
#define SPLIT1(row, ahead, acc) \
	PREFETCHT0 64 ahead; \
	DOTSPLIT(48 row, acc)
#define SPLIT2(row, ahead, acc) \
	PREFETCHT0 128 ahead; \
	DOTSPLIT(80 row, acc)
#define SPLIT3(row, ahead, acc) DOTSPLIT(112 row, acc)

#define QUARTER4K(M, x, i) \
	VMOVDQU32 x(SI), Z23; \
	EACHROW(M); \
	SMALLSUMS; \
	SUM32; \
	ADDBIAS(i, Z0); \
	ADDBIAS((i+1), Z1)

q4k:
	MOVQ R14, CX
	MOVQ DI, R14
	SCALES4K
	MOVQ CX, R14
	AHEAD8
	QUARTER4K(SPLIT0, 0, 0)
	QUARTER4K(SPLIT1, 64, 2)
	QUARTER4K(SPLIT2, 128, 4)
	QUARTER4K(SPLIT3, 192, 6)
	ADDQ $32, R12
	ADDQ $32, R13
	NEXTSTEP(144, 256, q4k)

#define DOTQ6LOW(from0, from1, acc) \
	VMOVDQU32 from0, Z16; \
	VBROADCASTI64X4 from1, Z17; \
	VPSLLVW Z26, Z17, Z17; \
	VPANDD Z27, Z17, Z17; \
	VPTERNLOGD $0xF8, Z24, Z16, Z17; \
	DOT(Z17, acc)

#define DOTQ6HIGH(from0, from1, acc) \
	VMOVDQU32 from0, Z16; \
	VBROADCASTI64X4 from1, Z17; \
	VPSRLW $4, Z16, Z16; \
	VPSRLVW Z25, Z17, Z17; \
	VPANDD Z27, Z17, Z17; \
	VPTERNLOGD $0xF8, Z24, Z16, Z17; \
	DOT(Z17, acc)

#define SIX0(row, ahead, acc) \
	PREFETCHT0 ahead; \
	DOTQ6LOW(row, 128 row, acc)
#define SIX1(row, ahead, acc) \
	PREFETCHT0 64 ahead; \
	DOTQ6HIGH(row, 128 row, acc)
#define SIX2(row, ahead, acc) \
	PREFETCHT0 128 ahead; \
	DOTQ6LOW(64 row, 160 row, acc)
#define SIX3(row, ahead, acc) \
	PREFETCHT0 192 ahead; \
	DOTQ6HIGH(64 row, 160 row, acc)

#define QUARTER6K(M, x, i) \
	VMOVDQU32 x(SI), Z23; \
	EACHROW(M); \
	SUMS; \
	SUM16; \
	ADDZEROPOINT(i, Z0); \
	ADDZEROPOINT((i+1), Z1); \
	ADDZEROPOINT((i+2), Z2); \
	ADDZEROPOINT((i+3), Z3)

q6k:
	AHEAD8
	SCALES6K
	QUARTER6K(SIX0, 0, 0)
	QUARTER6K(SIX1, 64, 4)
	QUARTER6K(SIX2, 128, 8)
	QUARTER6K(SIX3, 192, 12)
	ADDQ $64, R12
	ADDQ $64, R13
	NEXTSTEP(210, 256, q6k)

finish:
	MOVQ BLOCKS(R15), R14
	MOVQ BLOCKC(R14), DI
	VMOVUPS Z31, (DI)
	ADDQ $BLOCKSIZE, BLOCKS(R15)
	DECQ COUNT(R15)
	JNZ  blockStart
	VZEROUPPER
	RET
