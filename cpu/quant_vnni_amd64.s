#include "textflag.h"
#include "quant_amd64.h"
#include "quant_vnni_amd64.h"

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
	AHEAD16(0)
	VMOVDQU32 (SI), Z23
	EACH16(DOT8, 0)
	SUMS
	SUM32
	ADDBIAS(0, Z0)
	ADDBIAS(1, Z1)
	GROUPSON(2)
	NEXTSTEP(64, 64, bytes32)

bytes64:
	AHEAD16(0)
	VMOVDQU32 (SI), Z23
	EACH16(DOT8, 0)
	SUMS
	SUM64
	ADDBIAS(0, Z0)
	GROUPSON(1)
	NEXTSTEP(64, 64, bytes64)

bytes128:
	AHEAD16(0)
	VMOVDQU32 (SI), Z23
	EACH16(DOT8, 0)
	AHEAD16(64)
	VMOVDQU32 64(SI), Z23
	EACH16(MORE8, 64)
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
	AHEAD16(0)
	VMOVDQU32 (SI), Z23
	VMOVDQU32 64(SI), Z22
	EACH16(DOTNIBBLES, 0)
	SMALLSUMS
	SUM16
	ADDBIAS(0, Z0)
	ADDBIAS(1, Z1)
	ADDBIAS(2, Z2)
	ADDBIAS(3, Z3)
	GROUPSON(4)
	NEXTSTEP(64, 128, nibbles32)

nibbles64:
	AHEAD16(0)
	VMOVDQU32 (SI), Z23
	VMOVDQU32 64(SI), Z22
	EACH16(DOTNIBBLES, 0)
	SMALLSUMS
	SUM32
	ADDBIAS(0, Z0)
	ADDBIAS(1, Z1)
	GROUPSON(2)
	NEXTSTEP(64, 128, nibbles64)

nibbles128:
	AHEAD16(0)
	VMOVDQU32 (SI), Z23
	VMOVDQU32 64(SI), Z22
	EACH16(DOTNIBBLES, 0)
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

// DOTQ40 takes four blocks of 16 bytes, 18 apart.
#define DOTQ40(row, acc) \
	VBROADCASTI32X4 2 row, Z16; \
	VBROADCASTI32X4 20 row, K3, Z16; \
	VBROADCASTI32X4 38 row, K5, Z16; \
	VBROADCASTI32X4 56 row, K6, Z16; \
	NIBBLES(acc)

#define ROWS16(M) \
	M((AX), Z0); \
	M((AX)(BX*1), Z1); \
	M((AX)(BX*2), Z2); \
	M((AX)(R9*1), Z3); \
	M((AX)(BX*4), Z4); \
	M((AX)(R10*1), Z5); \
	M((AX)(R9*2), Z6); \
	M((AX)(R11*1), Z7); \
	M((R14), Z8); \
	M((R14)(BX*1), Z9); \
	M((R14)(BX*2), Z10); \
	M((R14)(R9*1), Z11); \
	M((R14)(BX*4), Z12); \
	M((R14)(R10*1), Z13); \
	M((R14)(R9*2), Z14); \
	M((R14)(R11*1), Z15)

#define PAIRS16(M, off0, off1) \
	M(off0(AX), off1(AX), Z0); \
	M(off0(AX)(BX*1), off1(AX)(BX*1), Z1); \
	M(off0(AX)(BX*2), off1(AX)(BX*2), Z2); \
	M(off0(AX)(R9*1), off1(AX)(R9*1), Z3); \
	M(off0(AX)(BX*4), off1(AX)(BX*4), Z4); \
	M(off0(AX)(R10*1), off1(AX)(R10*1), Z5); \
	M(off0(AX)(R9*2), off1(AX)(R9*2), Z6); \
	M(off0(AX)(R11*1), off1(AX)(R11*1), Z7); \
	M(off0(R14), off1(R14), Z8); \
	M(off0(R14)(BX*1), off1(R14)(BX*1), Z9); \
	M(off0(R14)(BX*2), off1(R14)(BX*2), Z10); \
	M(off0(R14)(R9*1), off1(R14)(R9*1), Z11); \
	M(off0(R14)(BX*4), off1(R14)(BX*4), Z12); \
	M(off0(R14)(R10*1), off1(R14)(R10*1), Z13); \
	M(off0(R14)(R9*2), off1(R14)(R9*2), Z14); \
	M(off0(R14)(R11*1), off1(R14)(R11*1), Z15)

q80:
	AHEAD16(0)
	AHEAD16(64)
	SCALES4(34)
	VMOVDQU32 (SI), Z23
	PAIRS16(DOTQ80, 2, 36)
	SUMS
	SUM32
	ADDLESS(0, Z0)
	ADDLESS(1, Z1)
	VMOVDQU32 64(SI), Z23
	PAIRS16(DOTQ80, 70, 104)
	SUMS
	SUM32
	ADDLESS(2, Z0)
	ADDLESS(3, Z1)
	ADDQ $16, R12
	ADDQ $16, R13
	NEXTSTEP(136, 128, q80)

q40:
	AHEAD16(0)
	AHEAD16(64)
	SCALES4(18)
	VMOVDQU32 (SI), Z23
	VMOVDQU32 64(SI), Z22
	ROWS16(DOTQ40)
	SMALLSUMS
	SUM16
	ADDLESS(0, Z0)
	ADDLESS(1, Z1)
	ADDLESS(2, Z2)
	ADDLESS(3, Z3)
	ADDQ $16, R12
	ADDQ $16, R13
	NEXTSTEP(72, 128, q40)

#define QUARTER4K(off, x, i) \
	VMOVDQU32 x(SI), Z23; \
	EACH16(DOTSPLIT, off); \
	SMALLSUMS; \
	SUM32; \
	ADDBIAS(i, Z0); \
	ADDBIAS((i+1), Z1)

q4k:
	AHEAD16(0)
	MOVQ R14, CX
	MOVQ DI, R14
	SCALES4K
	MOVQ CX, R14
	QUARTER4K(16, 0, 0)
	AHEAD16(64)
	QUARTER4K(48, 64, 2)
	AHEAD16(128)
	QUARTER4K(80, 128, 4)
	QUARTER4K(112, 192, 6)
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

#define QUARTER6K(M, low, high, x, i) \
	VMOVDQU32 x(SI), Z23; \
	PAIRS16(M, low, high); \
	SUMS; \
	SUM16; \
	ADDLESS(i, Z0); \
	ADDLESS((i+1), Z1); \
	ADDLESS((i+2), Z2); \
	ADDLESS((i+3), Z3)

q6k:
	AHEAD16(0)
	SCALES6K
	QUARTER6K(DOTQ6LOW, 0, 128, 0, 0)
	AHEAD16(64)
	QUARTER6K(DOTQ6HIGH, 0, 128, 64, 4)
	AHEAD16(128)
	QUARTER6K(DOTQ6LOW, 64, 160, 128, 8)
	AHEAD16(192)
	QUARTER6K(DOTQ6HIGH, 64, 160, 192, 12)
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
