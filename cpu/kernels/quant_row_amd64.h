// Decoders of a row of a quantised weight to f32, with the bits of package quant.
// It is included by files that name the functions and define what depends on the
// length of vectors (V0..V15 are the registers):
//
//	UNSIGNED(x)  16 unsigned bytes of x times V14 plus V15, to (DI), which moves
//	SIGNED(x)    16 signed bytes of x times V14, likewise
//	SCALES4K     8 bytes at 0(SP) times V12, 8 at 8(SP) times V13, to 16(SP), 48(SP)
//	SCALES6K     16 signed bytes at 192(SI) times V12, to 0(SP)
//
// both of which may change V0 to V3. Products and sums are two operations: a
// product is exact in f32 unless it overflows, where a fused one would not.

// BF16(m, x, v): the bf16 in memory to all lanes of v.
#define BF16(m, x, v) \
	MOVWLZX m, AX; \
	SHLL $16, AX; \
	VMOVD AX, x; \
	VBROADCASTSS x, v

// F16(m, x, v): the f16 in memory.
#define F16(m, x, v) \
	MOVWLZX m, AX; \
	VMOVD AX, x; \
	VCVTPH2PS x, x; \
	VBROADCASTSS x, v

#define BYTES(bits, x) \
	MOVL $bits, AX; \
	VMOVD AX, x; \
	VPBROADCASTD x, x

// NIBBLES16 splits 16 bytes of X8: low halves to X9, high ones to X8. X10: 0x0F.
#define NIBBLES16 \
	VPAND X10, X8, X9; \
	VPSRLW $4, X8, X8; \
	VPAND X10, X8, X8

// func rowAffine8(dst *float32, src, scales, biases *byte, groups, group int)
TEXT ROWAFFINE8(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ scales+16(FP), R8
	MOVQ biases+24(FP), R9
	MOVQ groups+32(FP), R10
	MOVQ group+40(FP), R11

affine8:
	BF16((R8), X14, V14)
	BF16((R9), X15, V15)
	MOVQ R11, CX

affine8Bytes:
	VMOVDQU (SI), X8
	UNSIGNED(X8)
	ADDQ $16, SI
	SUBQ $16, CX
	JNZ  affine8Bytes
	ADDQ $2, R8
	ADDQ $2, R9
	DECQ R10
	JNZ  affine8
	VZEROUPPER
	RET

// func rowAffine4(dst *float32, src, scales, biases *byte, groups, group int)
TEXT ROWAFFINE4(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ scales+16(FP), R8
	MOVQ biases+24(FP), R9
	MOVQ groups+32(FP), R10
	MOVQ group+40(FP), R11
	BYTES(0x0F0F0F0F, X10)

affine4:
	BF16((R8), X14, V14)
	BF16((R9), X15, V15)
	MOVQ R11, CX

affine4Bytes:
	VMOVDQU (SI), X8
	NIBBLES16
	VPUNPCKLBW X8, X9, X11
	VPUNPCKHBW X8, X9, X8
	UNSIGNED(X11)
	UNSIGNED(X8)
	ADDQ $16, SI
	SUBQ $32, CX
	JNZ  affine4Bytes
	ADDQ $2, R8
	ADDQ $2, R9
	DECQ R10
	JNZ  affine4
	VZEROUPPER
	RET

// func rowQ80(dst *float32, src *byte, blocks int)
TEXT ROWQ80(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX

q80:
	F16((SI), X14, V14)
	VMOVDQU 2(SI), X8
	SIGNED(X8)
	VMOVDQU 18(SI), X8
	SIGNED(X8)
	ADDQ $34, SI
	DECQ CX
	JNZ  q80
	VZEROUPPER
	RET

// func rowQ40(dst *float32, src *byte, blocks int)
TEXT ROWQ40(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX
	BYTES(0x0F0F0F0F, X10)
	BYTES(0x08080808, X11)

q40:
	F16((SI), X14, V14)
	VMOVDQU 2(SI), X8
	NIBBLES16
	VPSUBB X11, X9, X9
	VPSUBB X11, X8, X8
	SIGNED(X9)
	SIGNED(X8)
	ADDQ $18, SI
	DECQ CX
	JNZ  q40
	VZEROUPPER
	RET

// QUARTER4K decodes 32 bytes at off, sub-blocks i and i + 1.
#define LOW4K(off) \
	VMOVDQU off(SI), X8; \
	VPAND X10, X8, X8; \
	UNSIGNED(X8)
#define HIGH4K(off) \
	VMOVDQU off(SI), X8; \
	VPSRLW $4, X8, X8; \
	VPAND X10, X8, X8; \
	UNSIGNED(X8)
#define QUARTER4K(off, i) \
	VBROADCASTSS (16+4*i)(SP), V14; \
	VBROADCASTSS (48+4*i)(SP), V15; \
	LOW4K(off); \
	LOW4K((off+16)); \
	VBROADCASTSS (20+4*i)(SP), V14; \
	VBROADCASTSS (52+4*i)(SP), V15; \
	HIGH4K(off); \
	HIGH4K((off+16))

// func rowQ4K(dst *float32, src *byte, blocks int)
TEXT ROWQ4K(SB), NOSPLIT, $80-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX
	BYTES(0x0F0F0F0F, X10)

q4k:
	F16((SI), X12, V12)
	MOVWLZX 2(SI), AX
	XORL $0x8000, AX
	VMOVD AX, X13
	VCVTPH2PS X13, X13
	VBROADCASTSS X13, V13
	MOVL 4(SI), AX
	MOVL 8(SI), BX
	MOVL 12(SI), DX
	MOVL AX, R8
	ANDL $0x3F3F3F3F, R8
	MOVL R8, 0(SP)
	SHRL $2, AX
	ANDL $0x30303030, AX
	MOVL DX, R8
	ANDL $0x0F0F0F0F, R8
	ORL  R8, AX
	MOVL AX, 4(SP)
	MOVL BX, R8
	ANDL $0x3F3F3F3F, R8
	MOVL R8, 8(SP)
	SHRL $2, BX
	ANDL $0x30303030, BX
	SHRL $4, DX
	ANDL $0x0F0F0F0F, DX
	ORL  DX, BX
	MOVL BX, 12(SP)
	SCALES4K
	QUARTER4K(16, 0)
	QUARTER4K(48, 2)
	QUARTER4K(80, 4)
	QUARTER4K(112, 6)
	ADDQ $144, SI
	DECQ CX
	JNZ  q4k
	VZEROUPPER
	RET

// SIX decodes 16 elements of group i: low bits in x, high ones in high, which
// the shift brings to 0x30. X10: 0x0F, X11: 0x20, X13: 0x30.
#define SIX(SHIFT, bits, high, x, i) \
	SHIFT $bits, high, X7; \
	VPAND X13, X7, X7; \
	VPOR x, X7, X7; \
	VPSUBB X11, X7, X7; \
	VBROADCASTSS (4*i)(SP), V14; \
	SIGNED(X7)

// HALF6K decodes elements 0 to 127 behind the groups from i on: low bits at low,
// high ones at high. X4, X5: high bits, X8, X9: low ones.
#define HALF6K(low, high, i) \
	VMOVDQU high(SI), X4; \
	VMOVDQU (high+16)(SI), X5; \
	VMOVDQU low(SI), X6; \
	VPAND X10, X6, X6; \
	SIX(VPSLLW, 4, X4, X6, (i)); \
	VMOVDQU (low+16)(SI), X6; \
	VPAND X10, X6, X6; \
	SIX(VPSLLW, 4, X5, X6, (i+1)); \
	VMOVDQU (low+32)(SI), X6; \
	VPAND X10, X6, X6; \
	SIX(VPSLLW, 2, X4, X6, (i+2)); \
	VMOVDQU (low+48)(SI), X6; \
	VPAND X10, X6, X6; \
	SIX(VPSLLW, 2, X5, X6, (i+3)); \
	VMOVDQU low(SI), X6; \
	VPSRLW $4, X6, X6; \
	VPAND X10, X6, X6; \
	SIX(VPSRLW, 0, X4, X6, (i+4)); \
	VMOVDQU (low+16)(SI), X6; \
	VPSRLW $4, X6, X6; \
	VPAND X10, X6, X6; \
	SIX(VPSRLW, 0, X5, X6, (i+5)); \
	VMOVDQU (low+32)(SI), X6; \
	VPSRLW $4, X6, X6; \
	VPAND X10, X6, X6; \
	SIX(VPSRLW, 2, X4, X6, (i+6)); \
	VMOVDQU (low+48)(SI), X6; \
	VPSRLW $4, X6, X6; \
	VPAND X10, X6, X6; \
	SIX(VPSRLW, 2, X5, X6, (i+7))

// func rowQ6K(dst *float32, src *byte, blocks int)
TEXT ROWQ6K(SB), NOSPLIT, $64-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX
	BYTES(0x0F0F0F0F, X10)
	BYTES(0x20202020, X11)
	BYTES(0x30303030, X13)

q6k:
	F16(208(SI), X12, V12)
	SCALES6K
	HALF6K(0, 128, 0)
	HALF6K(64, 160, 8)
	ADDQ $210, SI
	DECQ CX
	JNZ  q6k
	VZEROUPPER
	RET
