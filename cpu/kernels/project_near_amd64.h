// Blocks of four outputs that all rows meet, in parts of up to six rows. It is included by
// files that name the function, NEAR, and go on behind it with what is done for parts of two
// to six rows, near2 to near6: each has its rows' activations from (DX) on, its weights in BX,
// CX, SI and DI and its results from R14 on, keeps these but R14, which it moves on to the
// next row, and jumps back to nearPart. NEARBEGIN is done before the first part, NEAREND behind
// the last one; two words of the frame, from -56(SP) on, are theirs.

// Offsets in nearCall.
#define NEARSTRIDE 8
#define NEARAHEAD  16
#define NEARLINES  24
#define NEARY      32
#define NEARLDY    40
#define NEARSTEPS  48
#define NEARBLOCKS 56
#define NEARPARTS  64
#define NEARX      104

// func near(d *nearCall)
TEXT NEAR(SB), NOSPLIT, $56-8
	MOVQ d+0(FP), R15
	MOVQ 0(R15), BX
	MOVQ NEARBLOCKS(R15), AX
	MOVQ AX, blocks-8(SP)
	MOVQ NEARY(R15), R14
	MOVQ R14, y-16(SP)
	NEARBEGIN

nearBlock:
	// BX, CX, SI, DI are the rows of weights.
	MOVQ NEARSTRIDE(R15), AX
	LEAQ (BX)(AX*1), CX
	LEAQ (BX)(AX*2), SI
	LEAQ (CX)(AX*2), DI
	MOVQ BX, DX
	ADDQ NEARAHEAD(R15), DX
	MOVQ DX, ahead-24(SP)
	LEAQ NEARX(R15), DX
	MOVQ DX, rows-40(SP)
	LEAQ NEARPARTS(R15), DX
	MOVQ DX, parts-32(SP)
	MOVQ y-16(SP), R14

nearPart:
	MOVQ parts-32(SP), DX
	MOVQ (DX), AX
	ADDQ $8, DX
	MOVQ DX, parts-32(SP)
	MOVQ ahead-24(SP), DX
	MOVQ NEARLINES(R15), R9
	TESTQ R9, R9
	JZ    nearAsked

nearAsk:
	PREFETCHT0 (DX)
	PREFETCHT0 64(DX)
	PREFETCHT0 128(DX)
	PREFETCHT0 192(DX)
	ADDQ $256, DX
	DECQ R9
	JNZ  nearAsk

nearAsked:
	MOVQ DX, ahead-24(SP)
	MOVQ rows-40(SP), DX
	LEAQ (DX)(AX*8), R9
	MOVQ R9, rows-40(SP)
	CMPQ AX, $5
	JGT  near6
	JEQ  near5
	CMPQ AX, $3
	JGT  near4
	JEQ  near3
	TESTQ AX, AX
	JNZ  near2

	// No part is left.
	MOVQ NEARSTRIDE(R15), AX
	LEAQ (BX)(AX*4), BX
	ADDQ $16, y-16(SP)
	DECQ blocks-8(SP)
	JNZ  nearBlock
	NEAREND

nearDone:
	VZEROUPPER
	RET
