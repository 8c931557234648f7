#include "textflag.h"

// func readLines64(p unsafe.Pointer, streams, stride, ahead int)
//
// SI walks the streams, DI is the first one's place, R8 where that one ends.
TEXT ·readLines64(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), DI
	MOVQ streams+8(FP), CX
	MOVQ stride+16(FP), BX
	MOVQ ahead+24(FP), DX
	LEAQ (DI)(BX*1), R8

place64:
	MOVQ DI, SI
	MOVQ CX, AX

stream64:
	PREFETCHT0 0(SI)(DX*1)
	PREFETCHT0 64(SI)(DX*1)
	PREFETCHT0 128(SI)(DX*1)
	PREFETCHT0 192(SI)(DX*1)
	VPXORQ 0(SI), Z0, Z0
	VPXORQ 64(SI), Z1, Z1
	VPXORQ 128(SI), Z2, Z2
	VPXORQ 192(SI), Z3, Z3
	ADDQ BX, SI
	DECQ AX
	JNZ  stream64
	ADDQ $256, DI
	CMPQ DI, R8
	JB   place64
	VZEROUPPER
	RET

// func readLines16(p unsafe.Pointer, streams, stride, ahead int)
//
// One load of 16 bytes brings a whole line.
TEXT ·readLines16(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), DI
	MOVQ streams+8(FP), CX
	MOVQ stride+16(FP), BX
	MOVQ ahead+24(FP), DX
	LEAQ (DI)(BX*1), R8

place16:
	MOVQ DI, SI
	MOVQ CX, AX

stream16:
	PREFETCHT0 0(SI)(DX*1)
	PREFETCHT0 64(SI)(DX*1)
	PREFETCHT0 128(SI)(DX*1)
	PREFETCHT0 192(SI)(DX*1)
	MOVOU 0(SI), X0
	MOVOU 64(SI), X1
	MOVOU 128(SI), X2
	MOVOU 192(SI), X3
	ADDQ BX, SI
	DECQ AX
	JNZ  stream16
	ADDQ $256, DI
	CMPQ DI, R8
	JB   place16
	RET
