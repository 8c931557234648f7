#include "textflag.h"
#include "amx_amd64.h"
#include "quant_amd64.h"

// Halves of the buffers that stages hand on.
#define BUFHALF 2048
#define DHALF   8192

// Sums are zeroed together, ahead of the loads: where another thread of the core
// runs, 18 ns a tile instead of 30. Four tiles are in use at a time, not eight,
// for the same reason (see tilesMany): 16 rows of Q4_0 take 0.88, of Q6_K 0.83.
//
// AX: A, R12 its stride; R10: B, R11 its stride; R8: D, SI its stride.
#define GROUP(TDP, c) \
	TILELOADD(0, 12, 4) \
	TILELOADD(10, 11, 6) \
	TDP(6, 4, c) \
	ADDQ R13, AX; \
	ADDQ BGROUP(R15), R10
#define STORED(c) \
	TILESTORED(c, 8, 6) \
	ADDQ R9, R8
#define PAIR(TDP) \
	TILEZERO(0) \
	TILEZERO(1) \
	GROUP(TDP, 0) \
	GROUP(TDP, 1) \
	STORED(0) \
	STORED(1)

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

#include "quant_mix_amd64.h"

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
	ROWMASK
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

#include "quant_amx_decode_amd64.h"

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
	CMPQ ROWS(R15), $1
	JE   tilesAlone
	CMPQ step-88(SP), $2
	JGE  mixed

tilesAlone:
	MOVQ KIND(R15), CX
	CMPQ CX, $1
	JB   tiles128
	JE   tiles64
	CMPQ CX, $3
	JB   tiles32
	JE   tiles32s

	// Kind 4: signed groups of 16.
	PAIR(TDPBSSD)
	PAIR(TDPBSSD)

tiles32s:
	PAIR(TDPBSSD)
	PAIR(TDPBSSD)
	JMP tiled

tiles32:
	PAIR(TDPBUSD)

tiles64:
	PAIR(TDPBUSD)
	JMP tiled

tiles128:
	TILEZERO(0)
	GROUP(TDPBUSD, 0)
	GROUP(TDPBUSD, 0)
	STORED(0)

tiled:
	MOVQ AX, aa-16(SP)
	JMP  addStage

mixed:
	MOVQ D(R15), R9
	ADDQ din-120(SP), R9
	XORQ $DHALF, din-120(SP)
	MOVQ sx-72(SP), R14
	MOVQ xs-80(SP), BX
	MOVQ win-48(SP), DX
	MOVQ biasin-64(SP), DI
	CALL mix<>(SB)
	MOVQ AX, aa-16(SP)
	MOVQ R14, AX
	MOVQ $1024, R9
	JMP  added

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
	VMOVUPS.Z (AX), K7, Z30
	VMOVUPS.Z (BX), K7, Z31
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
	VMOVUPS.Z (AX), K7, Z30
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
