// Decoding of a step of 8 outputs to signed bytes, two rows of weights at a time,
// 16 elements of both as one EMIT. It is included by files that define EMIT, the
// distance PAIR of the pairs in the buffer, and the names of the functions:
//
//	func decodeX(buf *int8, scales, biases *float32, src *byte, stride, elements int)
//
// buf takes 128 bytes for 16 elements; scales and biases, of the formats whose
// blocks hold them, are [groups, 8]. EMIT(v, f, w, g, u) writes 16 elements of
// the first row, in v (f its name as a scalar), and of the second, in w (g), as
// those of unit u behind R2. It may use V28 and V29.

// ROWS sets R0, R1: a pair of rows; R2: its place in the buffer; R3, R4: its
// scales and biases; R6: the elements; R7: from pair to pair; R8: pairs.
#define ROWS \
	MOVD src+24(FP), R0 \
	MOVD stride+32(FP), R7 \
	ADD  R7, R0, R1 \
	LSL  $1, R7, R7 \
	MOVD buf+0(FP), R10 \
	MOVD scales+8(FP), R11 \
	MOVD biases+16(FP), R12 \
	MOVD $4, R8

#define PAIRSTART \
	MOVD R0, R14 \
	MOVD R1, R15 \
	MOVD R10, R2 \
	MOVD R11, R3 \
	MOVD R12, R4 \
	MOVD elements+40(FP), R6

#define PAIREND(loop) \
	ADD  R7, R14, R0 \
	ADD  R7, R15, R1 \
	ADD  $PAIR, R10, R10 \
	ADD  $8, R11, R11 \
	ADD  $8, R12, R12 \
	SUBS $1, R8, R8 \
	BNE  loop

// AHEAD prefetches both rows.
#define AHEAD \
	PRFM 512(R0), PLDL1KEEP \
	PRFM 512(R1), PLDL1KEEP

// SCALE widens the f16 at (row) to offset off of the scales.
#define SCALE(row, off) \
	MOVHU (row), R9 \
	FMOVS R9, F16 \
	FCVTHS F16, F16 \
	FMOVS F16, off(R3)

TEXT DECODEBYTES(SB), NOSPLIT, $0-48
	ROWS
	VMOVI $0x80, V30.B16

bytesPair:
	PAIRSTART

bytes:
	AHEAD
	VLD1.P 64(R0), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R1), [V4.B16, V5.B16, V6.B16, V7.B16]
	VEOR V30.B16, V0.B16, V0.B16
	VEOR V30.B16, V1.B16, V1.B16
	VEOR V30.B16, V2.B16, V2.B16
	VEOR V30.B16, V3.B16, V3.B16
	VEOR V30.B16, V4.B16, V4.B16
	VEOR V30.B16, V5.B16, V5.B16
	VEOR V30.B16, V6.B16, V6.B16
	VEOR V30.B16, V7.B16, V7.B16
	EMIT(V0, F0, V4, F4, 0)
	EMIT(V1, F1, V5, F5, 1)
	EMIT(V2, F2, V6, F6, 2)
	EMIT(V3, F3, V7, F7, 3)
	ADD  $512, R2, R2
	SUBS $64, R6, R6
	BNE  bytes
	PAIREND(bytesPair)
	RET

// HALVES unpacks bytes of two rows: the low halves as unit low, the high ones
// as unit high. V30: 0x0F.
#define HALVES(v, w, low, high) \
	VAND  V30.B16, v.B16, V16.B16 \
	VAND  V30.B16, w.B16, V17.B16 \
	VUSHR $4, v.B16, V18.B16 \
	VUSHR $4, w.B16, V19.B16 \
	EMIT(V16, F16, V17, F17, low) \
	EMIT(V18, F18, V19, F19, high)

TEXT DECODEAFFINE4(SB), NOSPLIT, $0-48
	ROWS
	VMOVI $0x0F, V30.B16

affine4Pair:
	PAIRSTART

affine4:
	AHEAD
	VLD1.P 32(R0), [V0.B16, V1.B16]
	VLD1.P 32(R1), [V2.B16, V3.B16]
	HALVES(V0, V2, 0, 1)
	HALVES(V1, V3, 2, 3)
	ADD  $512, R2, R2
	SUBS $64, R6, R6
	BNE  affine4
	PAIREND(affine4Pair)
	RET

TEXT DECODEQ80(SB), NOSPLIT, $0-48
	ROWS

q80Pair:
	PAIRSTART

q80:
	AHEAD
	SCALE(R0, 0)
	SCALE(R1, 4)
	ADD  $2, R0, R0
	ADD  $2, R1, R1
	VLD1.P 32(R0), [V0.B16, V1.B16]
	VLD1.P 32(R1), [V2.B16, V3.B16]
	EMIT(V0, F0, V2, F2, 0)
	EMIT(V1, F1, V3, F3, 1)
	ADD  $256, R2, R2
	ADD  $32, R3, R3
	SUBS $32, R6, R6
	BNE  q80
	PAIREND(q80Pair)
	RET

TEXT DECODEQ40(SB), NOSPLIT, $0-48
	ROWS
	VMOVI $0x0F, V30.B16
	VMOVI $0x08, V31.B16

q40Pair:
	PAIRSTART

q40:
	AHEAD
	SCALE(R0, 0)
	SCALE(R1, 4)
	ADD  $2, R0, R0
	ADD  $2, R1, R1
	VLD1.P 16(R0), [V0.B16]
	VLD1.P 16(R1), [V1.B16]
	VAND  V30.B16, V0.B16, V16.B16
	VAND  V30.B16, V1.B16, V17.B16
	VUSHR $4, V0.B16, V18.B16
	VUSHR $4, V1.B16, V19.B16
	VSUB  V31.B16, V16.B16, V16.B16
	VSUB  V31.B16, V17.B16, V17.B16
	VSUB  V31.B16, V18.B16, V18.B16
	VSUB  V31.B16, V19.B16, V19.B16
	EMIT(V16, F16, V17, F17, 0)
	EMIT(V18, F18, V19, F19, 1)
	ADD  $256, R2, R2
	ADD  $32, R3, R3
	SUBS $32, R6, R6
	BNE  q40
	PAIREND(q40Pair)
	RET

// LANES stores the lanes of v to every eighth float from to on, which moves.
#define LANES(v, to) \
	VST1 v.S[0], (to) \
	ADD  $32, to, to \
	VST1 v.S[1], (to) \
	ADD  $32, to, to \
	VST1 v.S[2], (to) \
	ADD  $32, to, to \
	VST1 v.S[3], (to) \
	ADD  $32, to, to

// SIX4K turns 4 and 4 numbers of 6 bits, the bytes of low and high, times the
// factor (register number) to 8 floats from to on. R13 is changed.
#define SIX4K(low, high, factor, to) \
	ORR  high<<32, low, low \
	FMOVD low, F16 \
	VUXTL V16.B8, V16.H8 \
	VUXTL2 V16.H8, V17.S4 \
	VUXTL V16.H4, V16.S4 \
	UCVTF4S(16, 16) \
	UCVTF4S(17, 17) \
	FMULE0(factor, 16, 16) \
	FMULE0(factor, 17, 17) \
	MOVD to, R13 \
	LANES(V16, R13) \
	LANES(V17, R13)

// SCALES4K unpacks scales and minima of 8 sub-blocks of the block at row: bytes
// 0..3 and 4..7 hold those of sub-blocks 0..3 in 6 bits and the top two bits of
// those of 4..7, bytes 8..11 the low four bits of these.
#define SCALES4K(row, off) \
	MOVHU (row), R9 \
	FMOVS R9, F20 \
	FCVTHS F20, F20 \
	MOVHU 2(row), R9 \
	FMOVS R9, F21 \
	FCVTHS F21, F21 \
	FMOVS ZR, F22 \
	FSUBS F21, F22, F21 \
	MOVWU 4(row), R16 \
	MOVWU 8(row), R17 \
	MOVWU 12(row), R19 \
	AND  $0x3F3F3F3F, R16, R20 \
	AND  $0x0F0F0F0F, R19, R21 \
	LSR  $2, R16, R16 \
	AND  $0x30303030, R16, R16 \
	ORR  R16, R21, R21 \
	ADD  $off, R3, R22 \
	SIX4K(R20, R21, 20, R22) \
	AND  $0x3F3F3F3F, R17, R20 \
	LSR  $4, R19, R19 \
	AND  $0x0F0F0F0F, R19, R21 \
	LSR  $2, R17, R17 \
	AND  $0x30303030, R17, R17 \
	ORR  R17, R21, R21 \
	ADD  $off, R4, R22 \
	SIX4K(R20, R21, 21, R22)

TEXT DECODEQ4K(SB), NOSPLIT, $0-48
	ROWS
	VMOVI $0x0F, V30.B16

q4kPair:
	PAIRSTART
	SCALES4K(R0, 0)
	SCALES4K(R1, 4)
	ADD  $16, R0, R0
	ADD  $16, R1, R1

q4k:
	AHEAD
	VLD1.P 32(R0), [V0.B16, V1.B16]
	VLD1.P 32(R1), [V2.B16, V3.B16]
	HALVES(V0, V2, 0, 2)
	HALVES(V1, V3, 1, 3)
	ADD  $512, R2, R2
	SUBS $64, R6, R6
	BNE  q4k
	PAIREND(q4kPair)
	RET

// SCALES6K turns the 16 scales of the block at row, times its factor, to floats.
#define SCALES6K(row, off) \
	MOVHU 208(row), R9 \
	FMOVS R9, F20 \
	FCVTHS F20, F20 \
	ADD  $192, row, R9 \
	VLD1 (R9), [V16.B16] \
	SXTL28H(16, 18) \
	SXTL8H(16, 16) \
	SXTL24S(16, 17) \
	SXTL4S(16, 16) \
	SXTL24S(18, 19) \
	SXTL4S(18, 18) \
	SCVTF4S(16, 16) \
	SCVTF4S(17, 17) \
	SCVTF4S(18, 18) \
	SCVTF4S(19, 19) \
	FMULE0(20, 16, 16) \
	FMULE0(20, 17, 17) \
	FMULE0(20, 18, 18) \
	FMULE0(20, 19, 19) \
	ADD  $off, R3, R13 \
	LANES(V16, R13) \
	LANES(V17, R13) \
	LANES(V18, R13) \
	LANES(V19, R13)

// SIXBITS joins the low four bits in v and w with the two bits of high and
// highw that the shift has brought to 0x30, takes 32 off, and emits them. V23:
// 0x30, V31: 32.
#define SIXBITS(v, w, high, highw, u) \
	VAND V23.B16, high.B16, V16.B16 \
	VAND V23.B16, highw.B16, V17.B16 \
	VORR v.B16, V16.B16, V16.B16 \
	VORR w.B16, V17.B16, V17.B16 \
	VSUB V31.B16, V16.B16, V16.B16 \
	VSUB V31.B16, V17.B16, V17.B16 \
	EMIT(V16, F16, V17, F17, u)

// HALF6K is 16 times 4 elements: high bits in V4 and V5, low ones of elements
// 0..15 and 64..79 of the half-block in V0 and V2, of 32.. and 96.. in V1 and
// V3, for both rows.
#define HALF6K(u) \
	VSHL  $4, V4.B16, V24.B16 \
	VSHL  $4, V5.B16, V25.B16 \
	VAND  V30.B16, V0.B16, V26.B16 \
	VAND  V30.B16, V2.B16, V27.B16 \
	SIXBITS(V26, V27, V24, V25, (u)) \
	VSHL  $2, V4.B16, V24.B16 \
	VSHL  $2, V5.B16, V25.B16 \
	VAND  V30.B16, V1.B16, V26.B16 \
	VAND  V30.B16, V3.B16, V27.B16 \
	SIXBITS(V26, V27, V24, V25, (u+2)) \
	VUSHR $4, V0.B16, V26.B16 \
	VUSHR $4, V2.B16, V27.B16 \
	SIXBITS(V26, V27, V4, V5, (u+4)) \
	VUSHR $2, V4.B16, V24.B16 \
	VUSHR $2, V5.B16, V25.B16 \
	VUSHR $4, V1.B16, V26.B16 \
	VUSHR $4, V3.B16, V27.B16 \
	SIXBITS(V26, V27, V24, V25, (u+6))

// QUARTER6K loads them: low ones at low, high ones at high of the block.
#define QUARTER6K(low, high, u) \
	ADD  $low, R0, R16 \
	ADD  $low, R1, R17 \
	VLD1 (R16), [V0.B16] \
	VLD1 (R17), [V2.B16] \
	ADD  $32, R16, R16 \
	ADD  $32, R17, R17 \
	VLD1 (R16), [V1.B16] \
	VLD1 (R17), [V3.B16] \
	ADD  $high, R0, R16 \
	ADD  $high, R1, R17 \
	VLD1 (R16), [V4.B16] \
	VLD1 (R17), [V5.B16] \
	HALF6K(u)

TEXT DECODEQ6K(SB), NOSPLIT, $0-48
	ROWS
	VMOVI $0x0F, V30.B16
	VMOVI $0x20, V31.B16
	VMOVI $0x30, V23.B16

q6kPair:
	PAIRSTART
	AHEAD
	PRFM 576(R0), PLDL1KEEP
	PRFM 576(R1), PLDL1KEEP
	PRFM 640(R0), PLDL1KEEP
	PRFM 640(R1), PLDL1KEEP
	SCALES6K(R0, 0)
	SCALES6K(R1, 4)
	QUARTER6K(0, 128, 0)
	QUARTER6K(16, 144, 1)
	ADD  $1024, R2, R2
	QUARTER6K(64, 160, 0)
	QUARTER6K(80, 176, 1)
	PAIREND(q6kPair)
	RET

// FIVES unpacks bytes of two rows as HALVES does, with the fifth bits of the low
// halves in bit 0 of h and g, of the high ones in bit 1, and moves on by two bits.
// V31: 0x10.
#define FIVES(v, w, h, g, low, high) \
	VSHL  $4, h.B16, V16.B16 \
	VSHL  $4, g.B16, V17.B16 \
	VAND  V31.B16, V16.B16, V16.B16 \
	VAND  V31.B16, V17.B16, V17.B16 \
	VAND  V30.B16, v.B16, V18.B16 \
	VAND  V30.B16, w.B16, V19.B16 \
	VORR  V18.B16, V16.B16, V16.B16 \
	VORR  V19.B16, V17.B16, V17.B16 \
	EMIT(V16, F16, V17, F17, low) \
	VSHL  $3, h.B16, V16.B16 \
	VSHL  $3, g.B16, V17.B16 \
	VAND  V31.B16, V16.B16, V16.B16 \
	VAND  V31.B16, V17.B16, V17.B16 \
	VUSHR $4, v.B16, V18.B16 \
	VUSHR $4, w.B16, V19.B16 \
	VORR  V18.B16, V16.B16, V16.B16 \
	VORR  V19.B16, V17.B16, V17.B16 \
	EMIT(V16, F16, V17, F17, high) \
	VUSHR $2, h.B16, h.B16 \
	VUSHR $2, g.B16, g.B16

TEXT DECODEQ5K(SB), NOSPLIT, $0-48
	ROWS
	VMOVI $0x0F, V30.B16
	VMOVI $0x10, V31.B16

q5kPair:
	PAIRSTART
	SCALES4K(R0, 0)
	SCALES4K(R1, 4)
	ADD  $16, R0, R0
	ADD  $16, R1, R1
	VLD1.P 32(R0), [V24.B16, V25.B16]
	VLD1.P 32(R1), [V26.B16, V27.B16]

q5k:
	AHEAD
	VLD1.P 32(R0), [V0.B16, V1.B16]
	VLD1.P 32(R1), [V2.B16, V3.B16]
	FIVES(V0, V2, V24, V26, 0, 2)
	FIVES(V1, V3, V25, V27, 1, 3)
	ADD  $512, R2, R2
	SUBS $64, R6, R6
	BNE  q5k
	PAIREND(q5kPair)
	RET
