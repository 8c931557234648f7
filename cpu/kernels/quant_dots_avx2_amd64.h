// What dotsAVX2 is made of.

// Products of unsigned and signed bytes are added in pairs to 16 bits, which
// saturate: 2 * 255 * 127 does not fit. So numbers of 4 bits are summed over 32
// elements (8 pairs of at most 3,810), of 5 bits over 16, of 6 bits over 8 (two pairs of at most
// 16,002), and bytes are multiplied as two halves of 4 bits.

// PAIRS(row, u, w, x): products of the activations of a row with w, to x.
#define PAIRS(row, u, w, x) \
	VPBROADCASTD (4*u)row, x; \
	VPMADDUBSW x, w, x

// ROWADD adds those of unit u, whose numbers are in Y12, to acc.
#define ROWADD(row, u, acc) \
	PAIRS(row, u, Y12, Y14); \
	VPADDW Y14, acc, acc

#define ADD1(u) \
	VMOVDQU (32*u)(DX), Y12; \
	ROWADD((SI), u, Y0)
#define ADD2(u) \
	ADD1(u); \
	ROWADD((SI)(R10*1), u, Y1)
#define ADD4(u) \
	ADD2(u); \
	ROWADD((SI)(R10*2), u, Y2); \
	ROWADD((SI)(R11*1), u, Y3)

// SET is ADD to nothing.
#define SET1(u) \
	VMOVDQU (32*u)(DX), Y12; \
	PAIRS((SI), u, Y12, Y0)
#define SET2(u) \
	SET1(u); \
	PAIRS((SI)(R10*1), u, Y12, Y1)
#define SET4(u) \
	SET2(u); \
	PAIRS((SI)(R10*2), u, Y12, Y2); \
	PAIRS((SI)(R11*1), u, Y12, Y3)

// WIDEN adds pairs of the 16-bit sums to sum. Y13: ones.
#define WIDEN(small, sum) \
	VPMADDWD Y13, small, small; \
	VPADDD small, sum, sum
#define WIDEN1 WIDEN(Y0, Y4)
#define WIDEN2 WIDEN1; WIDEN(Y1, Y5)
#define WIDEN4 WIDEN2; WIDEN(Y2, Y6); WIDEN(Y3, Y7)

// FOUR32 multiplies 32 numbers of 4 bits, SIX16 16 of 6 bits.
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

// FIVE32 multiplies 32 numbers of 5 bits: 4 pairs of at most 7,874.
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

// HALFADD adds the products of a row with the low halves of the numbers, Y12, and
// the high ones, Y13.
#define HALFADD(row, u, low, high) \
	VPBROADCASTD (4*u)row, Y14; \
	VPMADDUBSW Y14, Y12, Y15; \
	VPMADDUBSW Y14, Y13, Y14; \
	VPADDW Y15, low, low; \
	VPADDW Y14, high, high

#define HALVES1(u) \
	VMOVDQU (32*u)(DX), Y12; \
	VPSRLW $4, Y12, Y13; \
	VPAND halfMask<>(SB), Y12, Y12; \
	VPAND halfMask<>(SB), Y13, Y13; \
	HALFADD((SI), u, Y0, Y4)
#define HALVES2(u) \
	HALVES1(u); \
	HALFADD((SI)(R10*1), u, Y1, Y5)
#define HALVES4(u) \
	HALVES2(u); \
	HALFADD((SI)(R10*2), u, Y2, Y6); \
	HALFADD((SI)(R11*1), u, Y3, Y7)

// HALVESWIDEN adds the 16-bit sums of both halves to sum.
#define HALVESWIDEN(low, high, sum) \
	VPMADDWD pairOnes<>(SB), high, high; \
	VPMADDWD pairOnes<>(SB), low, low; \
	VPSLLD $4, high, high; \
	VPADDD low, sum, sum; \
	VPADDD high, sum, sum
#define HALVESWIDEN1 HALVESWIDEN(Y0, Y4, Y8)
#define HALVESWIDEN2 HALVESWIDEN1; HALVESWIDEN(Y1, Y5, Y9)
#define HALVESWIDEN4 HALVESWIDEN2; HALVESWIDEN(Y2, Y6, Y10); HALVESWIDEN(Y3, Y7, Y11)

#define EIGHT32(HALVESOF, WIDENED) \
	HALVESOF(0) \
	HALVESOF(1) \
	HALVESOF(2) \
	HALVESOF(3) \
	HALVESOF(4) \
	HALVESOF(5) \
	HALVESOF(6) \
	HALVESOF(7) \
	WIDENED

// NEXT32 goes on with the next 32 elements of a group.
#define NEXT32(loop) \
	ADDQ $256, DX \
	ADDQ $32, SI \
	SUBQ $32, AX \
	JNZ  loop

#define NEXT16 \
	ADDQ $128, DX \
	ADDQ $16, SI

DATA halfMask<>+0(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+8(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+16(SB)/8, $0x0F0F0F0F0F0F0F0F
DATA halfMask<>+24(SB)/8, $0x0F0F0F0F0F0F0F0F
GLOBL halfMask<>(SB), RODATA|NOPTR, $32
DATA pairOnes<>+0(SB)/8, $0x0001000100010001
DATA pairOnes<>+8(SB)/8, $0x0001000100010001
DATA pairOnes<>+16(SB)/8, $0x0001000100010001
DATA pairOnes<>+24(SB)/8, $0x0001000100010001
GLOBL pairOnes<>(SB), RODATA|NOPTR, $32

// ADD adds the sums of row i to its result; ADDBIAS the bias, and TAKEZEROPOINT takes
// from the sums what the numbers were raised by. Y15 is lost.
#define ADD(i, sum, result) \
	VBROADCASTSS (4*i)(R12), Y15; \
	VCVTDQ2PS sum, sum; \
	VMULPS Y15, sum, sum; \
	VFMADD231PS (DI), sum, result

#define ADDBIAS(i, result) \
	VBROADCASTSS (4*i)(R13), Y15; \
	VFMADD231PS (R8), Y15, result

#define TAKEZEROPOINT(i, sum) \
	VPBROADCASTD (4*i)(R13), Y15; \
	VPSUBD Y15, sum, sum

// GROUPON moves on to the next group, and goes to loop if there is one.
#define GROUPON(loop) \
	ADDQ BX, R12; \
	ADDQ BX, R13; \
	ADDQ $LANEBYTES, DI; \
	ADDQ $LANEBYTES, R8; \
	DECQ CX; \
	JNZ  loop

// JOIN1, 2 and 4 end a group of as many rows: its sums, then the results. The
// labels are the caller's: for the zero point, for going on, and the next group.
#define JOIN1(s0, r0, zeroPoint, on, loop) \
	CMPQ ZEROPOINT(R15), $0 \
	JNE  zeroPoint \
	ADD(0, s0, r0) \
	ADDBIAS(0, r0) \
	JMP  on \
zeroPoint: \
	TAKEZEROPOINT(0, s0) \
	ADD(0, s0, r0) \
on: \
	GROUPON(loop)

#define JOIN2(s0, s1, r0, r1, zeroPoint, on, loop) \
	CMPQ ZEROPOINT(R15), $0 \
	JNE  zeroPoint \
	ADD(0, s0, r0) \
	ADD(1, s1, r1) \
	ADDBIAS(0, r0) \
	ADDBIAS(1, r1) \
	JMP  on \
zeroPoint: \
	TAKEZEROPOINT(0, s0) \
	TAKEZEROPOINT(1, s1) \
	ADD(0, s0, r0) \
	ADD(1, s1, r1) \
on: \
	GROUPON(loop)

#define JOIN4(s0, s1, s2, s3, r0, r1, r2, r3, zeroPoint, on, loop) \
	CMPQ ZEROPOINT(R15), $0 \
	JNE  zeroPoint \
	ADD(0, s0, r0) \
	ADD(1, s1, r1) \
	ADD(2, s2, r2) \
	ADD(3, s3, r3) \
	ADDBIAS(0, r0) \
	ADDBIAS(1, r1) \
	ADDBIAS(2, r2) \
	ADDBIAS(3, r3) \
	JMP  on \
zeroPoint: \
	TAKEZEROPOINT(0, s0) \
	TAKEZEROPOINT(1, s1) \
	TAKEZEROPOINT(2, s2) \
	TAKEZEROPOINT(3, s3) \
	ADD(0, s0, r0) \
	ADD(1, s1, r1) \
	ADD(2, s2, r2) \
	ADD(3, s3, r3) \
on: \
	GROUPON(loop)

// Results of rows in memory to registers and back.
#define RESULTS1(r0) \
	VMOVUPS (R14), r0
#define RESULTS2(r0, r1) \
	VMOVUPS (R14), r0; \
	VMOVUPS 32(R14), r1
#define RESULTS4(r0, r1, r2, r3) \
	RESULTS2(r0, r1); \
	VMOVUPS 64(R14), r2; \
	VMOVUPS 96(R14), r3

#define KEEP1(r0) \
	VMOVUPS r0, (R14); \
	MOVQ $1, R9
#define KEEP2(r0, r1) \
	VMOVUPS r0, (R14); \
	VMOVUPS r1, 32(R14); \
	MOVQ $2, R9
#define KEEP4(r0, r1, r2, r3) \
	KEEP2(r0, r1); \
	VMOVUPS r2, 64(R14); \
	VMOVUPS r3, 96(R14); \
	MOVQ $4, R9

#define ZERO1(r0) \
	VPXOR r0, r0, r0
#define ZERO2(r0, r1) \
	VPXOR r0, r0, r0; \
	VPXOR r1, r1, r1
#define ZERO4(r0, r1, r2, r3) \
	ZERO2(r0, r1); \
	ZERO2(r2, r3)
