// Tile instructions for Go's assembler, which does not know them. Tile and
// general registers are given as numbers: AX 0, CX 1, DX 2, BX 3, SI 6, DI 7,
// R8 8 and so on. A base register 5 or 13 is not encodable here.

#define LDTILECFG_AX   BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0x00
#define TILERELEASE    BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0xC0
#define TILEZERO(t)    BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x49; BYTE $(0xC0 | ((t) << 3))

// TILE(pp, base, index, t): rows of t at base + row * index.
#define TILE(pp, base, index, t) \
	BYTE $0xC4; BYTE $(0xE2 ^ (((index) & 8) << 3) ^ (((base) & 8) << 2)); BYTE $(pp); BYTE $0x4B; \
	BYTE $(0x04 | ((t) << 3)); BYTE $((((index) & 7) << 3) | ((base) & 7))
#define TILELOADD(base, index, t)   TILE(0x7B, base, index, t)
#define TILELOADDT1(base, index, t) TILE(0x79, base, index, t)
#define TILESTORED(t, base, index)  TILE(0x7A, base, index, t)

// TDPBF16PS(b, a, c): c += a * b.
#define TDPBF16PS(b, a, c) \
	BYTE $0xC4; BYTE $0xE2; BYTE $(0x7A ^ ((b) << 3)); BYTE $0x5C; BYTE $(0xC0 | ((c) << 3) | (a))

// EVEX3(pp, op, rm, v, reg): a three-register EVEX.512.0F38.W0 instruction.
#define EVEX3(pp, op, rm, v, reg) \
	BYTE $0x62; \
	BYTE $(0xF2 ^ (((reg) & 8) << 4) ^ (((rm) & 16) << 2) ^ (((rm) & 8) << 2) ^ ((reg) & 16)); \
	BYTE $((0x7C | (pp)) ^ (((v) & 15) << 3)); \
	BYTE $(0x48 ^ (((v) & 16) >> 1)); \
	BYTE $(op); \
	BYTE $(0xC0 | (((reg) & 7) << 3) | ((rm) & 7))

// VCVTNE2PS2BF16(low, high, dst): 2 x 16 floats to 32 bf16, low first.
#define VCVTNE2PS2BF16(low, high, dst) EVEX3(3, 0x72, low, high, dst)
// VDPBF16PS(b, a, c): c[i] += a[2i+1]*b[2i+1] + a[2i]*b[2i].
#define VDPBF16PS(b, a, c) EVEX3(2, 0x52, b, a, c)

#define UNPACK2(a, b, lo, hi) \
	VUNPCKLPS b, a, lo; \
	VUNPCKHPS b, a, hi

#define UNPACK4(a, b, c, d, p, q, r, s) \
	VUNPCKLPD c, a, p; \
	VUNPCKHPD c, a, q; \
	VUNPCKLPD d, b, r; \
	VUNPCKHPD d, b, s

// LANES(a, b, c, d, p, q, r, s): one column of 128-bit lanes of four registers,
// gathered in two steps through p, q, r, s; the results are in a, b, c, d.
#define LANES(a, b, c, d, p, q, r, s) \
	VSHUFF32X4 $0x88, b, a, p; \
	VSHUFF32X4 $0x88, d, c, q; \
	VSHUFF32X4 $0xDD, b, a, r; \
	VSHUFF32X4 $0xDD, d, c, s; \
	VSHUFF32X4 $0x88, q, p, a; \
	VSHUFF32X4 $0x88, s, r, b; \
	VSHUFF32X4 $0xDD, q, p, c; \
	VSHUFF32X4 $0xDD, s, r, d

// TRANSPOSE16 transposes 16x16 dwords: rows in Z0..Z15, columns c in
// Z0 Z4 Z8 Z12, Z1 Z5 Z9 Z13, ... order: see COLUMNS.
// After UNPACK4 register 4i+c holds columns c, 4+c, 8+c, 12+c of rows 4i..4i+3;
// LANES then leaves column 4l+c in register 4l+c.
#define TRANSPOSE16 \
	UNPACK2(Z0, Z1, Z16, Z17); UNPACK2(Z2, Z3, Z18, Z19); \
	UNPACK2(Z4, Z5, Z20, Z21); UNPACK2(Z6, Z7, Z22, Z23); \
	UNPACK2(Z8, Z9, Z24, Z25); UNPACK2(Z10, Z11, Z26, Z27); \
	UNPACK2(Z12, Z13, Z28, Z29); UNPACK2(Z14, Z15, Z30, Z31); \
	UNPACK4(Z16, Z17, Z18, Z19, Z0, Z1, Z2, Z3); \
	UNPACK4(Z20, Z21, Z22, Z23, Z4, Z5, Z6, Z7); \
	UNPACK4(Z24, Z25, Z26, Z27, Z8, Z9, Z10, Z11); \
	UNPACK4(Z28, Z29, Z30, Z31, Z12, Z13, Z14, Z15); \
	LANES(Z0, Z4, Z8, Z12, Z16, Z17, Z18, Z19); \
	LANES(Z1, Z5, Z9, Z13, Z20, Z21, Z22, Z23); \
	LANES(Z2, Z6, Z10, Z14, Z24, Z25, Z26, Z27); \
	LANES(Z3, Z7, Z11, Z15, Z28, Z29, Z30, Z31)
