// Vectors of 256 bits for quant_dots_amd64.h: 8 outputs at a time, rows 0 to 3 from
// AX and 4 to 7 from R14.

#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define V5 Y5
#define V6 Y6
#define V7 Y7
#define V8 Y8
#define V9 Y9
#define V10 Y10
#define V11 Y11
#define V12 Y12
#define V13 Y13
#define V14 Y14
#define V15 Y15

#define VECTORBYTES 32
#define TILEROWS 4

#define MOVU VMOVDQU
#define AND VPAND
#define OR VPOR
#define XOR VPXOR
#define XORSELF(v) VPXOR v, v, v

#define POINTERS LEAQ (AX)(BX*4), R14

#define PREFETCHES LEAQ (R8)(BX*4), R12

#define ADVANCE(n) \
	ADDQ $n, AX; \
	ADDQ $n, R14; \
	ADDQ $n, R8; \
	ADDQ $n, R12

// Rows 0 and 4, 1 and 5, and so on.
#define AHEAD0(off) \
	PREFETCHT0 off(R8); \
	PREFETCHT0 off(R12)
#define AHEAD1(off) \
	PREFETCHT0 off(R8)(BX*1); \
	PREFETCHT0 off(R12)(BX*1)
#define AHEAD2(off) \
	PREFETCHT0 off(R8)(BX*2); \
	PREFETCHT0 off(R12)(BX*2)
#define AHEAD3(off) \
	PREFETCHT0 off(R8)(R9*1); \
	PREFETCHT0 off(R12)(R9*1)

#define LOAD(off) \
	VMOVDQU off(AX), X0; \
	VMOVDQU off(AX)(BX*1), X1; \
	VMOVDQU off(AX)(BX*2), X2; \
	VMOVDQU off(AX)(R9*1), X3; \
	VINSERTI128 $1, off(R14), Y0, Y0; \
	VINSERTI128 $1, off(R14)(BX*1), Y1, Y1; \
	VINSERTI128 $1, off(R14)(BX*2), Y2, Y2; \
	VINSERTI128 $1, off(R14)(R9*1), Y3, Y3

// HALFSCALES goes by way of X8.
#define HALFSCALES(off, dst) \
	VPXOR X8, X8, X8; \
	VPINSRW $0, off(AX), X8, X8; \
	VPINSRW $1, off(AX)(BX*1), X8, X8; \
	VPINSRW $2, off(AX)(BX*2), X8, X8; \
	VPINSRW $3, off(AX)(R9*1), X8, X8; \
	VPINSRW $4, off(R14), X8, X8; \
	VPINSRW $5, off(R14)(BX*1), X8, X8; \
	VPINSRW $6, off(R14)(BX*2), X8, X8; \
	VPINSRW $7, off(R14)(R9*1), X8, X8; \
	VCVTPH2PS X8, dst

// HALVES goes by way of X6.
#define HALVES(src, low, high) \
	VPSHUFB halvesApart<>(SB), src, V6; \
	VPERMQ $0xD8, V6, V6; \
	VCVTPH2PS X6, low; \
	VEXTRACTI128 $1, V6, X6; \
	VCVTPH2PS X6, high

DATA halvesApart<>+0(SB)/8, $0x0D0C090805040100
DATA halvesApart<>+8(SB)/8, $0x0F0E0B0A07060302
DATA halvesApart<>+16(SB)/8, $0x0D0C090805040100
DATA halvesApart<>+24(SB)/8, $0x0F0E0B0A07060302
GLOBL halvesApart<>(SB), RODATA|NOPTR, $32
