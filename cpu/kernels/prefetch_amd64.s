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

// func prefetchRows(p *byte, stride, rows, size int)
TEXT ·prefetchRows(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), SI
	MOVQ stride+8(FP), R8
	MOVQ rows+16(FP), DX
	MOVQ size+24(FP), R9

row:
	MOVQ SI, BX
	MOVQ R9, CX

rowLine:
	PREFETCHT0 (BX)
	ADDQ       $64, BX
	SUBQ       $64, CX
	JG         rowLine
	ADDQ       R8, SI
	DECQ       DX
	JNZ        row
	RET
