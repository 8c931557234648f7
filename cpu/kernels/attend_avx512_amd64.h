// FOLD adds two vectors' lanes pairwise: op $lo and op $hi pick the two halves
// of each, dst gets the sums of a in the first half and of b in the second.
#define FOLD(op, lo, hi, a, b, dst) \
	op     $lo, b, a, Z30;   \
	op     $hi, b, a, Z31;   \
	VADDPS Z31, Z30, dst

// REDUCE16 sums each of Z0..Z15 into lane 0..15 of Z0. The tree is the same for
// all of them, lanes i with i+8, i+4, i+2, i+1, and the adds commute, so a
// sum's bits do not depend on its place. It costs 45 operations for 16 sums,
// against 128 FMAs of a tile at d = 128.
#define REDUCE16 \
	FOLD(VSHUFF32X4, 0x44, 0xee, Z0, Z4, Z0);   \
	FOLD(VSHUFF32X4, 0x44, 0xee, Z1, Z5, Z1);   \
	FOLD(VSHUFF32X4, 0x44, 0xee, Z2, Z6, Z2);   \
	FOLD(VSHUFF32X4, 0x44, 0xee, Z3, Z7, Z3);   \
	FOLD(VSHUFF32X4, 0x44, 0xee, Z8, Z12, Z8);  \
	FOLD(VSHUFF32X4, 0x44, 0xee, Z9, Z13, Z9);  \
	FOLD(VSHUFF32X4, 0x44, 0xee, Z10, Z14, Z10); \
	FOLD(VSHUFF32X4, 0x44, 0xee, Z11, Z15, Z11); \
	FOLD(VSHUFF32X4, 0x88, 0xdd, Z0, Z8, Z0);   \
	FOLD(VSHUFF32X4, 0x88, 0xdd, Z1, Z9, Z1);   \
	FOLD(VSHUFF32X4, 0x88, 0xdd, Z2, Z10, Z2);  \
	FOLD(VSHUFF32X4, 0x88, 0xdd, Z3, Z11, Z3);  \
	FOLD(VSHUFPS, 0x44, 0xee, Z0, Z1, Z0);      \
	FOLD(VSHUFPS, 0x44, 0xee, Z2, Z3, Z2);      \
	FOLD(VSHUFPS, 0x88, 0xdd, Z0, Z2, Z0)

#define ZERO4(a, b, c, d) \
	VXORPS a, a, a; \
	VXORPS b, b, b; \
	VXORPS c, c, c; \
	VXORPS d, d, d
