#include "textflag.h"
#include "amx_amd64.h"
#include "quant_amd64.h"

// Halves of the buffers that stages hand on.
#define BUFHALF 2048
#define DHALF   8192

// Sums are zeroed together, ahead of the loads: where another thread of the core
// runs, 18 ns a tile instead of 30.
//
// AX: A, R12 its stride; R10: B, R11 its stride; R8: D, SI its stride.
#define GROUPU(a, b, c) \
	TILELOADD(0, 12, a) \
	TILELOADD(10, 11, b) \
	TDPBUSD(b, a, c) \
	ADDQ R13, AX; \
	ADDQ BGROUP(R15), R10
#define GROUPS4(a, b, c) \
	TILELOADD(0, 12, a) \
	TILELOADD(10, 11, b) \
	TDPBSSD(b, a, c) \
	ADDQ R13, AX; \
	ADDQ BGROUP(R15), R10
#define STORED(c) \
	TILESTORED(c, 8, 6) \
	ADDQ R9, R8

// ONE adds one group of one out to acc, for 16 rows.
#define ONE(o, acc) \
	VCVTDQ2PS (64*o)(R8), Z16; \
	VMULPS Z30, Z16, Z16; \
	VFMADD231PS.BCST (4*o)(DX), Z16, acc
#define ONEBIAS(o, acc) \
	ONE(o, acc); \
	VFMADD231PS.BCST (4*o)(DI), Z31, acc

#define KEEP(acc) \
	VMOVUPS acc, (DI); \
	DECQ CX; \
	JZ   done; \
	ADDQ SI, DI

// func quantBlocks(t *quantCall)
//
// Each block of up to 16 outs is a pipeline over steps of 128 elements: step i
// is decoded while step i-1 is multiplied and step i-2 is scaled and added.
TEXT ·quantBlocks(SB), NOSPLIT, $176-8
	MOVQ t+0(FP), R15
	MOVQ CFG(R15), AX
	TESTQ AX, AX
	JZ   blockStart
	LDTILECFG_AX

blockStart:
	// CALLs take the lowest 40 bytes of the frame.
	MOVQ BLOCKS(R15), R14
	CMPQ SSTRIDE(R15), $0
	JE   configured
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
	SCALESAHEAD(scalesLine, scalesRow, configured)

configured:
	MOVQ BLOCKA(R14), AX
	MOVQ AX, pa-8(SP)
	MOVQ AX, aa-16(SP)
	CMPQ FORMAT(R15), $2
	JNE  aligned
	ADDQ $2, aa-16(SP) // Q8_0: the scale comes first

aligned:
	MOVQ pa-8(SP), AX
	ADDQ AHEAD(R15), AX
	MOVQ AX, pp-24(SP)
	MOVQ BLOCKNEXT(R14), AX
	MOVQ AX, nextblock-136(SP)
	MOVQ LEFT(R15), AX
	MOVQ AX, left-32(SP)
	MOVQ W(R15), AX
	MOVQ AX, wout-40(SP)
	MOVQ AX, win-48(SP)
	MOVQ BIAS(R15), AX
	MOVQ AX, biasout-56(SP)
	MOVQ AX, biasin-64(SP)
	MOVQ SX(R15), AX
	MOVQ AX, sx-72(SP)
	MOVQ XS(R15), AX
	MOVQ AX, xs-80(SP)
	XORQ AX, AX
	MOVQ AX, step-88(SP)
	MOVQ AX, half-96(SP)
	MOVQ AX, bufin-104(SP)
	MOVQ AX, bufout-112(SP)
	MOVQ AX, din-120(SP)
	MOVQ AX, dout-128(SP)
	MOVQ B(R15), R10
	MOVQ BSTRIDE(R15), R11
	MOVQ TSTRIDE(R15), R12
	MOVQ GSTEP(R15), R13
	MOVQ $64, SI
	MOVQ $1024, R9
	CMPQ ROWS(R15), $1
	JNE  constants
	MOVQ $4, SI
	MOVQ $64, R9

constants:
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	VPXORD Z12, Z12, Z12
	VPXORD Z13, Z13, Z13
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15
	CONSTANTS(stages)

stages:
	MOVQ step-88(SP), AX
	CMPQ AX, STEPS(R15)
	JGE  tileStage
	// AX: rows of the step, BX their stride, CX how many; DI: the decoded rows,
	// DX their stride; R8: what to prefetch.
	MOVQ pa-8(SP), AX
	MOVQ ASTRIDE(R15), BX
	MOVQ OUTS(R15), CX
	MOVQ BUF(R15), DI
	ADDQ bufin-104(SP), DI
	MOVQ pp-24(SP), R8
	MOVQ FORMAT(R15), DX
	CMPQ DX, $1
	JB   direct
	JE   affine4
	CMPQ DX, $3
	JB   q80
	JE   q40
	CMPQ DX, $4
	JE   q4k
	JMP  q6k

q80:
	MOVQ wout-40(SP), DX
	SCALES4(34)
	ADDQ $256, DX
	MOVQ DX, wout-40(SP)

direct:
	CMPQ PSTEP(R15), $0
	JE   decoded

directRow:
	PREFETCHT0 (R8)
	PREFETCHT0 64(R8)
	ADDQ BX, R8
	DECQ CX
	JNZ  directRow
	JMP  decoded

affine4:
	CMPQ GROUPS(R15), $4
	JNE  split4
	MOVQ DECODED(R15), DX

affine4Row:
	VPMOVZXBW (AX), Z16
	VPMOVZXBW 32(AX), Z17
	PREFETCHT0 (R8)
	VPSLLW $4, Z16, Z18
	VPSLLW $4, Z17, Z19
	VPTERNLOGD $0xA8, Z24, Z18, Z16
	VPTERNLOGD $0xA8, Z24, Z19, Z17
	VMOVDQU32 Z16, (DI)
	VMOVDQU32 Z17, 64(DI)
	ADDQ BX, AX
	ADDQ BX, R8
	ADDQ DX, DI
	DECQ CX
	JNZ  affine4Row
	JMP  decoded

	// 64 elements become the even ones and the odd ones.
split4:
	MOVQ DECODED(R15), DX
	LEAQ (BX)(BX*2), R14
	CMPQ CX, $16
	JNE  split4Row

split4Rows:
	SPLIT4((AX), 32(AX), (DI), 64(DI))
	PREFETCHT0 (R8)
	ADDQ DX, DI
	SPLIT4((AX)(BX*1), 32(AX)(BX*1), (DI), 64(DI))
	PREFETCHT0 (R8)(BX*1)
	ADDQ DX, DI
	SPLIT4((AX)(BX*2), 32(AX)(BX*2), (DI), 64(DI))
	PREFETCHT0 (R8)(BX*2)
	ADDQ DX, DI
	SPLIT4((AX)(R14*1), 32(AX)(R14*1), (DI), 64(DI))
	PREFETCHT0 (R8)(R14*1)
	ADDQ DX, DI
	LEAQ (AX)(BX*4), AX
	LEAQ (R8)(BX*4), R8
	SUBQ $4, CX
	JNZ  split4Rows
	JMP  decoded

split4Row:
	SPLIT4((AX), 32(AX), (DI), 64(DI))
	ADDQ BX, AX
	ADDQ DX, DI
	DECQ CX
	JNZ  split4Row
	JMP  decoded

q40:
	MOVQ wout-40(SP), DX
	SCALES4(18)
	ADDQ $256, DX
	MOVQ DX, wout-40(SP)
	MOVQ DECODED(R15), DX

q40Row:
	VBROADCASTI32X4 2(AX), Z16
	VBROADCASTI32X4 38(AX), Z17
	VBROADCASTI32X4 20(AX), K4, Z16
	VBROADCASTI32X4 56(AX), K4, Z17
	PREFETCHT0 (R8)
	PREFETCHT0 64(R8)
	VPSRLVW Z25, Z16, Z16
	VPSRLVW Z25, Z17, Z17
	VPANDD Z24, Z16, Z16
	VPANDD Z24, Z17, Z17
	VPSUBB Z29, Z16, Z16
	VPSUBB Z29, Z17, Z17
	VMOVDQU32 Z16, (DI)
	VMOVDQU32 Z17, 64(DI)
	ADDQ BX, AX
	ADDQ BX, R8
	ADDQ DX, DI
	DECQ CX
	JNZ  q40Row
	JMP  decoded

q4k:
	CMPQ half-96(SP), $0
	JNE  q4kRows
	// Scales and minima of 8 sub-blocks: Z18 d, Z19 -dmin, Z20, Z21, Z22 the
	// three dwords of 6-bit numbers.
	MOVQ wout-40(SP), DX
	MOVQ biasout-56(SP), R14
	SCALES4K
	MOVQ OUTS(R15), CX
	ADDQ $512, DX
	ADDQ $512, R14
	MOVQ DX, wout-40(SP)
	MOVQ R14, biasout-56(SP)

q4kRows:
	MOVQ half-96(SP), DX
	SHLQ $6, DX
	LEAQ 16(AX)(DX*1), AX
	MOVQ DECODED(R15), DX

	LEAQ (BX)(BX*2), R14
	CMPQ CX, $16
	JNE  q4kRow

q4kRows4:
	SPLIT4((AX), 32(AX), (DI), 64(DI))
	PREFETCHT0 (R8)
	PREFETCHT0 64(R8)
	ADDQ DX, DI
	SPLIT4((AX)(BX*1), 32(AX)(BX*1), (DI), 64(DI))
	PREFETCHT0 (R8)(BX*1)
	PREFETCHT0 64(R8)(BX*1)
	ADDQ DX, DI
	SPLIT4((AX)(BX*2), 32(AX)(BX*2), (DI), 64(DI))
	PREFETCHT0 (R8)(BX*2)
	PREFETCHT0 64(R8)(BX*2)
	ADDQ DX, DI
	SPLIT4((AX)(R14*1), 32(AX)(R14*1), (DI), 64(DI))
	PREFETCHT0 (R8)(R14*1)
	PREFETCHT0 64(R8)(R14*1)
	ADDQ DX, DI
	LEAQ (AX)(BX*4), AX
	LEAQ (R8)(BX*4), R8
	SUBQ $4, CX
	JNZ  q4kRows4
	JMP  halved

q4kRow:
	SPLIT4((AX), 32(AX), (DI), 64(DI))
	ADDQ BX, AX
	ADDQ DX, DI
	DECQ CX
	JNZ  q4kRow
	JMP  halved

q6k:
	CMPQ half-96(SP), $0
	JNE  q6kRows
	MOVQ wout-40(SP), DX
	SCALES6K
	ADDQ $1024, DX
	MOVQ DX, wout-40(SP)

q6kRows:
	// AX: low bits at 64*half; R14: high bits at 128 + 32*half.
	MOVQ half-96(SP), DX
	SHLQ $5, DX
	LEAQ 128(AX)(DX*1), R14
	LEAQ (AX)(DX*2), AX
	MOVQ DECODED(R15), DX

q6kRow:
	VMOVDQU32 (AX), Z16
	VBROADCASTI64X4 (R14), Z17
	PREFETCHT0 (R8)
	PREFETCHT0 64(R8)
	VPSRLW $4, Z16, Z18
	VPSLLVW Z26, Z17, Z19
	VPSRLVW Z25, Z17, Z20
	VPANDD Z27, Z19, Z19
	VPANDD Z27, Z20, Z20
	// (x & 0x0F) | y
	VPTERNLOGD $0xF8, Z24, Z16, Z19
	VPTERNLOGD $0xF8, Z24, Z18, Z20
	VPSUBB Z29, Z19, Z19
	VPSUBB Z29, Z20, Z20
	VMOVDQU32 Z19, (DI)
	VMOVDQU32 Z20, 64(DI)
	ADDQ BX, AX
	ADDQ BX, R14
	ADDQ BX, R8
	ADDQ DX, DI
	DECQ CX
	JNZ  q6kRow

halved:
	// A block of 256 is two steps.
	XORQ $1, half-96(SP)
	JNZ  decodedHere

decoded:
	MOVQ ASTEP(R15), AX
	ADDQ AX, pa-8(SP)

decodedHere:
	MOVQ PSTEP(R15), AX
	ADDQ AX, pp-24(SP)
	DECQ left-32(SP)
	JNZ  decodeOnly
	MOVQ nextblock-136(SP), AX
	MOVQ AX, pp-24(SP)

decodeOnly:
	CMPQ KIND(R15), $5
	JNE  toggle
	ADDQ $128, bufin-104(SP)
	JMP  next

toggle:
	XORQ $BUFHALF, bufin-104(SP)

tileStage:
	MOVQ step-88(SP), AX
	TESTQ AX, AX
	JZ   next
	CMPQ AX, STEPS(R15)
	JG   addStage
	MOVQ D(R15), R8
	ADDQ dout-128(SP), R8
	XORQ $DHALF, dout-128(SP)
	MOVQ aa-16(SP), AX
	CMPQ DIRECT(R15), $0
	JNE  tiles
	MOVQ BUF(R15), AX
	ADDQ bufout-112(SP), AX
	XORQ $BUFHALF, bufout-112(SP)

tiles:
	MOVQ KIND(R15), CX
	CMPQ CX, $1
	JB   tiles128
	JE   tiles64
	CMPQ CX, $3
	JB   tiles32
	JE   tiles32s

	// Kind 4: signed groups of 16.
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)
	GROUPS4(4, 6, 0)
	GROUPS4(5, 7, 1)
	GROUPS4(4, 6, 2)
	GROUPS4(5, 7, 3)
	STORED(0)
	STORED(1)
	STORED(2)
	STORED(3)
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)
	GROUPS4(4, 6, 0)
	GROUPS4(5, 7, 1)
	GROUPS4(4, 6, 2)
	GROUPS4(5, 7, 3)
	JMP stored4

tiles32s:
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)
	GROUPS4(4, 6, 0)
	GROUPS4(5, 7, 1)
	GROUPS4(4, 6, 2)
	GROUPS4(5, 7, 3)
	JMP stored4

tiles32:
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)
	GROUPU(4, 6, 0)
	GROUPU(5, 7, 1)
	GROUPU(4, 6, 2)
	GROUPU(5, 7, 3)

stored4:
	STORED(0)
	STORED(1)
	STORED(2)
	STORED(3)
	JMP tiled

tiles64:
	TILEZERO(0)
	TILEZERO(1)
	GROUPU(4, 6, 0)
	GROUPU(5, 7, 1)
	STORED(0)
	STORED(1)
	JMP tiled

tiles128:
	TILEZERO(0)
	GROUPU(4, 6, 0)
	TILELOADD(0, 12, 5)
	TILELOADD(10, 11, 7)
	TDPBUSD(7, 5, 0)
	ADDQ R13, AX
	ADDQ BGROUP(R15), R10
	STORED(0)

tiled:
	MOVQ AX, aa-16(SP)

addStage:
	CMPQ step-88(SP), $2
	JL   next
	MOVQ D(R15), R8
	ADDQ din-120(SP), R8
	XORQ $DHALF, din-120(SP)
	MOVQ sx-72(SP), AX
	MOVQ xs-80(SP), BX
	MOVQ win-48(SP), DX
	MOVQ biasin-64(SP), DI
	MOVQ GROUPS(R15), CX
	CMPQ ROWS(R15), $1
	JE   addAlone
	CMPQ KIND(R15), $3
	JAE  addPlain

addBias:
	VMOVUPS (AX), Z30
	VMOVUPS (BX), Z31
	ONEBIAS(0, Z0)
	ONEBIAS(1, Z1)
	ONEBIAS(2, Z2)
	ONEBIAS(3, Z3)
	ONEBIAS(4, Z4)
	ONEBIAS(5, Z5)
	ONEBIAS(6, Z6)
	ONEBIAS(7, Z7)
	ONEBIAS(8, Z8)
	ONEBIAS(9, Z9)
	ONEBIAS(10, Z10)
	ONEBIAS(11, Z11)
	ONEBIAS(12, Z12)
	ONEBIAS(13, Z13)
	ONEBIAS(14, Z14)
	ONEBIAS(15, Z15)
	ADDQ R9, R8
	ADDQ $64, DX
	ADDQ $64, DI
	ADDQ R11, AX
	ADDQ R11, BX
	DECQ CX
	JNZ  addBias
	JMP  added

addPlain:
	VMOVUPS (AX), Z30
	ONE(0, Z0)
	ONE(1, Z1)
	ONE(2, Z2)
	ONE(3, Z3)
	ONE(4, Z4)
	ONE(5, Z5)
	ONE(6, Z6)
	ONE(7, Z7)
	ONE(8, Z8)
	ONE(9, Z9)
	ONE(10, Z10)
	ONE(11, Z11)
	ONE(12, Z12)
	ONE(13, Z13)
	ONE(14, Z14)
	ONE(15, Z15)
	ADDQ R9, R8
	ADDQ $64, DX
	ADDQ R11, AX
	DECQ CX
	JNZ  addPlain
	JMP  added

addAlone:
	CMPQ KIND(R15), $3
	JAE  addAlonePlain

addAloneBias:
	VCVTDQ2PS (R8), Z16
	VMULPS.BCST (AX), Z16, Z16
	VFMADD231PS (DX), Z16, Z0
	VBROADCASTSS (BX), Z17
	VFMADD231PS (DI), Z17, Z0
	ADDQ $64, R8
	ADDQ $64, DX
	ADDQ $64, DI
	ADDQ $4, AX
	ADDQ $4, BX
	DECQ CX
	JNZ  addAloneBias
	JMP  added

addAlonePlain:
	VCVTDQ2PS (R8), Z16
	VMULPS.BCST (AX), Z16, Z16
	VFMADD231PS (DX), Z16, Z0
	ADDQ $64, R8
	ADDQ $64, DX
	ADDQ $4, AX
	DECQ CX
	JNZ  addAlonePlain

added:
	MOVQ AX, sx-72(SP)
	MOVQ BX, xs-80(SP)
	MOVQ DX, win-48(SP)
	MOVQ DI, biasin-64(SP)

next:
	INCQ step-88(SP)
	MOVQ step-88(SP), AX
	CMPQ KIND(R15), $5
	JNE  more
	CMPQ AX, STEPS(R15)
	JL   stages
	JMP  done

more:
	SUBQ STEPS(R15), AX
	CMPQ AX, $1
	JLE  stages

finish:
	MOVQ BLOCKS(R15), DI
	MOVQ BLOCKC(DI), DI
	MOVQ CSTRIDE(R15), SI
	MOVQ OUTS(R15), CX
	CMPQ ROWS(R15), $1
	JNE  keep
	VMOVUPS Z0, (DI)
	JMP  done

keep:
	KEEP(Z0)
	KEEP(Z1)
	KEEP(Z2)
	KEEP(Z3)
	KEEP(Z4)
	KEEP(Z5)
	KEEP(Z6)
	KEEP(Z7)
	KEEP(Z8)
	KEEP(Z9)
	KEEP(Z10)
	KEEP(Z11)
	KEEP(Z12)
	KEEP(Z13)
	KEEP(Z14)
	VMOVUPS Z15, (DI)

done:
	MOVQ WSTEP(R15), AX
	ADDQ AX, W(R15)
	ADDQ AX, BIAS(R15)
	MOVQ BUFSTEP(R15), AX
	ADDQ AX, BUF(R15)
	ADDQ $BLOCKSIZE, BLOCKS(R15)
	DECQ COUNT(R15)
	JNZ  blockStart
	VZEROUPPER
	CMPQ CFG(R15), $0
	JE   return
	TILERELEASE

return:
	RET

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
