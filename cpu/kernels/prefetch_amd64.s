#include "textflag.h"

// func prefetchLines(p *byte, pages, lines int)
TEXT ·prefetchLines(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), SI
	MOVQ pages+8(FP), R8
	MOVQ lines+16(FP), CX

line:
	MOVQ SI, BX
	MOVQ R8, DX

page:
	PREFETCHT1 (BX)
	ADDQ       $4096, BX
	DECQ       DX
	JNZ        page
	ADDQ       $64, SI
	DECQ       CX
	JNZ        line
	RET
