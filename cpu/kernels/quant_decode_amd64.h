// What the decoding of a step is made of; quant_dots_amd64.h tells what V0..V15 and
// the other names stand for.

// TRANSPOSE turns 16 bytes of each row into 4 vectors, of 4 bytes of each row.
#define TRANSPOSE \
	VPUNPCKLDQ V1, V0, V4; \
	VPUNPCKHDQ V1, V0, V5; \
	VPUNPCKLDQ V3, V2, V6; \
	VPUNPCKHDQ V3, V2, V7; \
	VPUNPCKLQDQ V6, V4, V0; \
	VPUNPCKHQDQ V6, V4, V1; \
	VPUNPCKLQDQ V7, V5, V2; \
	VPUNPCKHQDQ V7, V5, V3

#define CONSTANT(bits, x, v) \
	MOVL $bits, CX; \
	VMOVD CX, x; \
	VPBROADCASTD x, v

// NIBBLES stores the low halves of the bytes of v as vector low of the buffer,
// the high ones as vector high. V15: 0x0F.
#define NIBBLES(v, low, high) \
	AND V15, v, V4; \
	VPSRLW $4, v, v; \
	MOVU V4, (low*LANEBYTES)(DX); \
	AND V15, v, v; \
	MOVU v, (high*LANEBYTES)(DX)

#define NIBBLES4(low, high) \
	NIBBLES(V0, (low+0), (high+0)); \
	NIBBLES(V1, (low+1), (high+1)); \
	NIBBLES(V2, (low+2), (high+2)); \
	NIBBLES(V3, (low+3), (high+3))

// PAIRS4 stores those of V0..V3 one behind the other.
#define PAIRS4(at) \
	NIBBLES(V0, (at+0), (at+1)); \
	NIBBLES(V1, (at+2), (at+3)); \
	NIBBLES(V2, (at+4), (at+5)); \
	NIBBLES(V3, (at+6), (at+7))

#define STORE4(at) \
	MOVU V0, ((at+0)*LANEBYTES)(DX); \
	MOVU V1, ((at+1)*LANEBYTES)(DX); \
	MOVU V2, ((at+2)*LANEBYTES)(DX); \
	MOVU V3, ((at+3)*LANEBYTES)(DX)

// RAISED stores v with the sign of its bytes turned: 128 more, as unsigned ones.
#define RAISED(v, at) \
	XOR V15, v, v; \
	MOVU v, (at*LANEBYTES)(DX)
#define RAISED4(at) \
	RAISED(V0, (at+0)); \
	RAISED(V1, (at+1)); \
	RAISED(V2, (at+2)); \
	RAISED(V3, (at+3))

// SCALED stores whole numbers times a factor.
#define SCALED(v, factor, to) \
	VCVTDQ2PS v, v; \
	VMULPS v, factor, v; \
	VMOVUPS v, to

// PAIR4K takes scale and minimum of sub-block k and of k + 4 from the low bytes
// of V1, V2 and V3. V4: d, V5: -dmin, V12: 0x3F, V13: 0x0F, V14: 0x30.
#define PAIR4K(k) \
	AND V12, V1, V6; \
	SCALED(V6, V4, (k*LANEBYTES)(DI)); \
	AND V12, V2, V6; \
	SCALED(V6, V5, (k*LANEBYTES)(R13)); \
	VPSRLD $2, V1, V6; \
	AND V14, V6, V6; \
	AND V13, V3, V7; \
	OR  V7, V6, V6; \
	SCALED(V6, V4, ((k+4)*LANEBYTES)(DI)); \
	VPSRLD $2, V2, V6; \
	AND V14, V6, V6; \
	VPSRLD $4, V3, V7; \
	AND V13, V7, V7; \
	OR  V7, V6, V6; \
	SCALED(V6, V5, ((k+4)*LANEBYTES)(R13)); \
	VPSRLD $8, V1, V1; \
	VPSRLD $8, V2, V2; \
	VPSRLD $8, V3, V3

// SCALES6K stores four scales, the bytes of v, times d in V8.
#define SCALE6K(left, v, at) \
	VPSLLD $left, v, V4; \
	VPSRAD $24, V4, V4; \
	SCALED(V4, V8, (at*LANEBYTES)(DI))
#define SCALES6K(v, at) \
	SCALE6K(24, v, at); \
	SCALE6K(16, v, (at+1)); \
	SCALE6K(8, v, (at+2)); \
	SCALE6K(0, v, (at+3))

// SIX joins low and high bits: halves of the bytes of v with the two bits of
// high that the shifts bring to 0x30. V12: 0x30.
#define SIXLOW(v, high, left, at) \
	VPSLLW $left, high, V4; \
	AND V12, V4, V4; \
	AND V15, v, V5; \
	OR  V5, V4, V4; \
	MOVU V4, (at*LANEBYTES)(DX)
#define SIXHIGH(v, high, right, at) \
	VPSRLW $right, high, V4; \
	AND V12, V4, V4; \
	VPSRLW $4, v, V5; \
	AND V15, V5, V5; \
	OR  V5, V4, V4; \
	MOVU V4, (at*LANEBYTES)(DX)
#define SIX(v, high, left, right, at, j) \
	SIXLOW(v, high, left, (at+j)); \
	SIXHIGH(v, high, right, (at+16+j))
#define SIX4(left, right, at) \
	SIX(V0, V8, left, right, at, 0); \
	SIX(V1, V9, left, right, at, 1); \
	SIX(V2, V10, left, right, at, 2); \
	SIX(V3, V11, left, right, at, 3)

// QUARTER6K decodes 16 bytes of high bits with the two times 16 bytes of low
// ones that they go with.
#define QUARTER6K(high, low, at, ahead) \
	LOAD(high) \
	AHEAD0(ahead) \
	TRANSPOSE; \
	MOVU V0, V8; \
	MOVU V1, V9; \
	MOVU V2, V10; \
	MOVU V3, V11; \
	LOAD(low) \
	AHEAD1(ahead) \
	TRANSPOSE; \
	SIX4(4, 0, at); \
	LOAD((low+32)) \
	AHEAD2(ahead) \
	AHEAD3(ahead) \
	TRANSPOSE; \
	SIX4(2, 2, (at+8))

// FIVE joins halves of the bytes of v with the fifth bits in h, which the shifts
// bring to 0x10, and stores the low ones as vector low of the buffer, the high
// ones as vector high. V12: 0x10.
#define FIVE(v, h, SHIFTLOW, nlow, SHIFTHIGH, nhigh, low, high) \
	SHIFTLOW $nlow, h, V4; \
	SHIFTHIGH $nhigh, h, V5; \
	AND V12, V4, V4; \
	AND V12, V5, V5; \
	AND V15, v, V6; \
	VPSRLW $4, v, v; \
	AND V15, v, v; \
	OR  V6, V4, V4; \
	OR  v, V5, V5; \
	MOVU V4, (low*LANEBYTES)(DX); \
	MOVU V5, (high*LANEBYTES)(DX)
#define FIVES4(SHIFTLOW, nlow, SHIFTHIGH, nhigh, at) \
	FIVE(V0, V8, SHIFTLOW, nlow, SHIFTHIGH, nhigh, (at+0), (at+8)); \
	FIVE(V1, V9, SHIFTLOW, nlow, SHIFTHIGH, nhigh, (at+1), (at+9)); \
	FIVE(V2, V10, SHIFTLOW, nlow, SHIFTHIGH, nhigh, (at+2), (at+10)); \
	FIVE(V3, V11, SHIFTLOW, nlow, SHIFTHIGH, nhigh, (at+3), (at+11))

// HALF5K decodes 16 elements of each sub-block: their fifth bits are at fifth, the
// halves of two sub-blocks at low and every 32 bytes from there.
#define HALF5K(fifth, low, at, ahead) \
	LOAD(fifth) \
	AHEAD0(ahead) \
	TRANSPOSE; \
	MOVU V0, V8; \
	MOVU V1, V9; \
	MOVU V2, V10; \
	MOVU V3, V11; \
	LOAD(low) \
	AHEAD1(ahead) \
	TRANSPOSE; \
	FIVES4(VPSLLW, 4, VPSLLW, 3, at); \
	LOAD((low+32)) \
	AHEAD2(ahead) \
	TRANSPOSE; \
	FIVES4(VPSLLW, 2, VPSLLW, 1, (at+16)); \
	LOAD((low+64)) \
	AHEAD3(ahead) \
	TRANSPOSE; \
	FIVES4(VPSLLW, 0, VPSRLW, 1, (at+32)); \
	LOAD((low+96)) \
	AHEAD0((ahead+64)) \
	AHEAD1((ahead+64)) \
	TRANSPOSE; \
	FIVES4(VPSRLW, 2, VPSRLW, 3, (at+48))

// SCALES4K unpacks the scales and minima of Q4_K and Q5_K, from the first 16 bytes
// of the rows.
#define SCALES4K \
	CONSTANT(0x3F, X12, V12); \
	CONSTANT(0x0F, X13, V13); \
	CONSTANT(0x30, X14, V14); \
	LOAD(0); \
	TRANSPOSE; \
	HALVES(V0, V4, V5); \
	XORSELF(V6); \
	VSUBPS V5, V6, V5; \
	MOVQ BIAS(R15), R13; \
	ADDQ PART(R15), R13; \
	PAIR4K(0); \
	PAIR4K(1); \
	PAIR4K(2); \
	PAIR4K(3)
