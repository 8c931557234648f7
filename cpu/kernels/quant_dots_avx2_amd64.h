// What dotsAVX2 is made of.

// Products of unsigned and signed bytes are added in pairs to 16 bits, which
// saturate: 2 * 255 * 127 does not fit. So numbers of 4 bits are summed over 32
// elements (8 pairs of at most 3,810), of 5 bits over 16, of 6 bits over 8 (two pairs of at most
// 16,002), and bytes are widened to words, once for all rows.

// PAIRS multiplies unit u, 4 elements, of a row with the 8 outputs in Y8 and the 8 in Y9.
#define PAIRS(row, u, low, high) \
	VPBROADCASTD (4*u)row, Y10; \
	VPMADDUBSW Y10, Y8, low; \
	VPMADDUBSW Y10, Y9, high

#define ROWADD(row, u, low, high) \
	PAIRS(row, u, Y11, Y10); \
	VPADDW Y11, low, low; \
	VPADDW Y10, high, high

#define NUMBERS(u) \
	VMOVDQU (64*u)(DX), Y8; \
	VMOVDQU (64*u+32)(DX), Y9

// ADD1 and 2 add the products of one row or two to the 16-bit sums of each, Y4 and Y5, Y6
// and Y7.
#define ADD1(u) \
	NUMBERS(u); \
	ROWADD((SI), u, Y4, Y5)
#define ADD2(u) \
	ADD1(u); \
	ROWADD((SI)(R10*1), u, Y6, Y7)

#define ADD4(u) \
	NUMBERS(u); \
	ROWADD((SI), u, Y0, Y1); \
	ROWADD((SI)(R10*1), u, Y2, Y3); \
	ROWADD((SI)(R10*2), u, Y4, Y5); \
	ROWADD((SI)(R11*1), u, Y6, Y7)

// SET is ADD to nothing.
#define SET1(u) \
	NUMBERS(u); \
	PAIRS((SI), u, Y4, Y5)
#define SET2(u) \
	SET1(u); \
	PAIRS((SI)(R10*1), u, Y6, Y7)

#define SET4(u) \
	NUMBERS(u); \
	PAIRS((SI), u, Y0, Y1); \
	PAIRS((SI)(R10*1), u, Y2, Y3); \
	PAIRS((SI)(R10*2), u, Y4, Y5); \
	PAIRS((SI)(R11*1), u, Y6, Y7)

// WIDEN4 makes 32-bit sums of the 16-bit ones of four rows, in their place.
#define WIDENED(sums) VPMADDWD pairOnes<>(SB), sums, sums
#define WIDEN4 \
	WIDENED(Y0); \
	WIDENED(Y1); \
	WIDENED(Y2); \
	WIDENED(Y3); \
	WIDENED(Y4); \
	WIDENED(Y5); \
	WIDENED(Y6); \
	WIDENED(Y7)

// SPILL keeps the sums of four rows at R9, UNSPILL adds those that are there.
#define SPILL \
	VMOVDQU Y0, (R9); \
	VMOVDQU Y1, 32(R9); \
	VMOVDQU Y2, 64(R9); \
	VMOVDQU Y3, 96(R9); \
	VMOVDQU Y4, 128(R9); \
	VMOVDQU Y5, 160(R9); \
	VMOVDQU Y6, 192(R9); \
	VMOVDQU Y7, 224(R9)
#define UNSPILL \
	VPADDD (R9), Y0, Y0; \
	VPADDD 32(R9), Y1, Y1; \
	VPADDD 64(R9), Y2, Y2; \
	VPADDD 96(R9), Y3, Y3; \
	VPADDD 128(R9), Y4, Y4; \
	VPADDD 160(R9), Y5, Y5; \
	VPADDD 192(R9), Y6, Y6; \
	VPADDD 224(R9), Y7, Y7

// WIDEN adds pairs of the 16-bit sums to sum.
#define WIDEN(small, sum) \
	VPMADDWD pairOnes<>(SB), small, small; \
	VPADDD small, sum, sum
#define WIDEN1 WIDEN(Y4, Y0); WIDEN(Y5, Y1)
#define WIDEN2 WIDEN1; WIDEN(Y6, Y2); WIDEN(Y7, Y3)

// FOUR32 multiplies 32 numbers of 4 bits, FIVE32 32 of 5 bits, 4 pairs of at most 7,874 at
// a time, SIX16 16 of 6 bits.
#define FOUR32(SET, ADDTO, WIDENED) \
	SET(0) \
	ADDTO(1) \
	ADDTO(2) \
	ADDTO(3) \
	ADDTO(4) \
	ADDTO(5) \
	ADDTO(6) \
	ADDTO(7) \
	WIDENED

#define FIVE32(SET, ADDTO, WIDENED) \
	SET(0) \
	ADDTO(1) \
	ADDTO(2) \
	ADDTO(3) \
	WIDENED \
	SET(4) \
	ADDTO(5) \
	ADDTO(6) \
	ADDTO(7) \
	WIDENED

#define SIX16(SET, ADDTO, WIDENED) \
	SET(0) \
	ADDTO(1) \
	WIDENED \
	SET(2) \
	ADDTO(3) \
	WIDENED

// WORDADD adds the products of unit u of a row with words, of 8 and 8 outputs, to its
// sums: the even ones of 4 elements are in Y8 and Y9, the odd ones in Y10 and Y11, and
// activations are words, too, sorted likewise.
#define WORDADD(row, u, low, high) \
	VPBROADCASTD (8*u)row, Y12; \
	VPBROADCASTD (8*u+4)row, Y13; \
	VPMADDWD Y12, Y8, Y14; \
	VPMADDWD Y12, Y9, Y12; \
	VPMADDWD Y13, Y10, Y15; \
	VPMADDWD Y13, Y11, Y13; \
	VPADDD Y14, low, low; \
	VPADDD Y12, high, high; \
	VPADDD Y15, low, low; \
	VPADDD Y13, high, high

#define WORDS1(u) \
	VMOVDQU (128*u)(DX), Y8; \
	VMOVDQU (128*u+32)(DX), Y9; \
	VMOVDQU (128*u+64)(DX), Y10; \
	VMOVDQU (128*u+96)(DX), Y11; \
	WORDADD((SI), u, Y0, Y1)
#define WORDS2(u) \
	WORDS1(u); \
	WORDADD((SI)(R10*1), u, Y2, Y3)
#define WORDS4(u) \
	WORDS2(u); \
	WORDADD((SI)(R10*2), u, Y4, Y5); \
	WORDADD((SI)(R11*1), u, Y6, Y7)

// WORDSSET4 is WORDS4 to nothing, WORDSFIRST16 the first 16 elements of a group of four rows.
#define WORDSET(row, u, low, high) \
	VPBROADCASTD (8*u)row, Y12; \
	VPBROADCASTD (8*u+4)row, Y13; \
	VPMADDWD Y12, Y8, low; \
	VPMADDWD Y12, Y9, high; \
	VPMADDWD Y13, Y10, Y14; \
	VPMADDWD Y13, Y11, Y15; \
	VPADDD Y14, low, low; \
	VPADDD Y15, high, high
#define WORDSSET4 \
	VMOVDQU (DX), Y8; \
	VMOVDQU 32(DX), Y9; \
	VMOVDQU 64(DX), Y10; \
	VMOVDQU 96(DX), Y11; \
	WORDSET((SI), 0, Y0, Y1); \
	WORDSET((SI)(R10*1), 0, Y2, Y3); \
	WORDSET((SI)(R10*2), 0, Y4, Y5); \
	WORDSET((SI)(R11*1), 0, Y6, Y7)
#define WORDSFIRST16 \
	WORDSSET4 \
	WORDS4(1) \
	WORDS4(2) \
	WORDS4(3) \
	ADDQ $512, DX \
	ADDQ $32, SI \
	SUBQ $16, AX

// WORDS16 multiplies 16 elements of a group until AX of them are done.
#define WORDS16(WORDSOF, loop) \
	WORDSOF(0) \
	WORDSOF(1) \
	WORDSOF(2) \
	WORDSOF(3) \
	ADDQ $512, DX \
	ADDQ $32, SI \
	SUBQ $16, AX \
	JNZ  loop

// NEXT32 goes on with the next 32 elements of a group.
#define NEXT32(loop) \
	ADDQ $512, DX \
	ADDQ $32, SI \
	SUBQ $32, AX \
	JNZ  loop

#define NEXT16 \
	ADDQ $256, DX \
	ADDQ $16, SI
