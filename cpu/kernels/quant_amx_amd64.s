#include "textflag.h"
#include "tiles_amx_amd64.h"
#include "quant_amd64.h"

// Half of the buffer of decoded bytes.
#define BUFHALF 2048

#include "quant_mix_amx_amd64.h"

// KEEP stores one of CX sums to DI, BX apart.
#define KEEP(o, acc) \
	VMOVUPS acc, (DI); \
	ADDQ BX, DI; \
	DECQ CX; \
	JZ   done

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
	EACHSUM(ZERO)
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

#include "quant_decode_amx_amd64.h"

tileStage:
	MOVQ step-88(SP), CX
	TESTQ CX, CX
	JZ   next
	CMPQ CX, $2
	JL   multiplied
	MOVQ D(R15), R9
	ADDQ din-120(SP), R9
	XORQ $DHALF, din-120(SP)
	MOVQ sx-72(SP), R14
	MOVQ xs-80(SP), BX
	MOVQ win-48(SP), DX
	MOVQ biasin-64(SP), DI
	CMPQ CX, STEPS(R15)
	JG   lastJoin

multiplied:
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
	CMPQ CX, $2
	JGE  both
	CALL multiply<>(SB)
	MOVQ AX, aa-16(SP)
	JMP  next

both:
	CALL mix<>(SB)
	MOVQ AX, aa-16(SP)
	JMP  joined

lastJoin:
	CALL join<>(SB)

joined:
	MOVQ R14, sx-72(SP)
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
	MOVQ CSTRIDE(R15), BX
	MOVQ OUTS(R15), CX
	EACHSUM(KEEP)

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
