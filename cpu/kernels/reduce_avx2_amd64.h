// FOLD adds two vectors' lanes pairwise, as in the 512-bit kernels. Y14 and Y15 are used.
#define FOLD(op, lo, hi, a, b, dst) \
	op     $lo, b, a, Y14;  \
	op     $hi, b, a, Y15;  \
	VADDPS Y15, Y14, dst

// FOLD4, FOLD2 and FOLD1 add lanes i and i+4, i+2, i+1 of two sums, which leaves four lanes of
// each, two, one.
#define FOLD4(a, b) FOLD(VPERM2F128, 0x20, 0x31, a, b, a)
#define FOLD2(a, b) FOLD(VSHUFPS, 0x44, 0xee, a, b, a)
#define FOLD1(a, b) FOLD(VSHUFPS, 0x88, 0xdd, a, b, a)

// REDUCE8 sums each of Y0..Y7 into lane 0..7 of Y0: lanes i and i+4, i+2, i+1.
#define REDUCE8 \
	FOLD4(Y0, Y4); \
	FOLD4(Y1, Y5); \
	FOLD4(Y2, Y6); \
	FOLD4(Y3, Y7); \
	FOLD2(Y0, Y1); \
	FOLD2(Y2, Y3); \
	FOLD1(Y0, Y2)
