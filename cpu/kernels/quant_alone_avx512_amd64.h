// What quantAlone is made of: loads and products of 16 rows, trees that add their
// lanes, and the joining of groups.

// The rows of a block: 0 to 7 from AX, 8 to 15 from R14; BX is their distance,
// R9, R10, R11 are 3, 5 and 7 times it. Those of later steps, which are fetched
// between them (a burst of 16 fetches waits for itself: 0.93 of the time), are at
// R8 and CX.
#define EACHROW(M) \
	M((AX), (R8), Z0); \
	M((AX)(BX*1), (R8)(BX*1), Z1); \
	M((AX)(BX*2), (R8)(BX*2), Z2); \
	M((AX)(R9*1), (R8)(R9*1), Z3); \
	M((AX)(BX*4), (R8)(BX*4), Z4); \
	M((AX)(R10*1), (R8)(R10*1), Z5); \
	M((AX)(R9*2), (R8)(R9*2), Z6); \
	M((AX)(R11*1), (R8)(R11*1), Z7); \
	M((R14), (CX), Z8); \
	M((R14)(BX*1), (CX)(BX*1), Z9); \
	M((R14)(BX*2), (CX)(BX*2), Z10); \
	M((R14)(R9*1), (CX)(R9*1), Z11); \
	M((R14)(BX*4), (CX)(BX*4), Z12); \
	M((R14)(R10*1), (CX)(R10*1), Z13); \
	M((R14)(R9*2), (CX)(R9*2), Z14); \
	M((R14)(R11*1), (CX)(R11*1), Z15)

// AHEAD8 points CX at the second half of the rows ahead.
#define AHEAD8 LEAQ (R8)(BX*8), CX

// Dot products of 64 numbers of a row with the activations in Z23. DOT starts
// a sum, MORE adds to one.
#define DOT(w, acc) \
	VPXORD acc, acc, acc; \
	VPDPBUSD Z23, w, acc

// What EACHROW does with a row: its numbers at some offset, and a line ahead.
#define DOT8(row, ahead, acc) \
	VMOVDQU32 row, Z16; \
	PREFETCHT0 ahead; \
	DOT(Z16, acc)

#define MORE8(row, ahead, acc) \
	VMOVDQU32 64 row, Z16; \
	PREFETCHT0 64 ahead; \
	VPDPBUSD Z23, Z16, acc

// NIBBLES adds 128 products of the low and the high halves of Z16 with the
// activations in Z23 and Z22.
#define NIBBLES(acc) \
	VPSRLW $4, Z16, Z17; \
	VPANDD Z24, Z16, Z16; \
	VPANDD Z24, Z17, Z17; \
	DOT(Z16, acc); \
	VPDPBUSD Z22, Z17, acc

#define DOTNIBBLES(row, ahead, acc) \
	VMOVDQU32 row, Z16; \
	PREFETCHT0 ahead; \
	NIBBLES(acc)

// SUM4 adds the four dwords of each 128-bit lane of a, b, c, d, to dwords of a.
#define SUM4(a, b, c, d) \
	VPUNPCKLDQ b, a, Z16; \
	VPUNPCKHDQ b, a, Z17; \
	VPADDD Z17, Z16, Z16; \
	VPUNPCKLDQ d, c, Z18; \
	VPUNPCKHDQ d, c, Z19; \
	VPADDD Z19, Z18, Z18; \
	VPUNPCKLQDQ Z18, Z16, Z17; \
	VPUNPCKHQDQ Z18, Z16, Z19; \
	VPADDD Z19, Z17, a

#define SUMS \
	SUM4(Z0, Z1, Z2, Z3); \
	SUM4(Z4, Z5, Z6, Z7); \
	SUM4(Z8, Z9, Z10, Z11); \
	SUM4(Z12, Z13, Z14, Z15)

// SUM4SMALL is SUM4 for sums of 16 bits, which those of 8 products of 4 bits by
// 8 are, and those of 16: 16 * 15 * 127 < 2^15. Z30: pairs of ones.
#define SUM4SMALL(a, b, c, d) \
	VPACKSSDW b, a, Z16; \
	VPMADDWD  Z30, Z16, Z16; \
	VPACKSSDW d, c, Z17; \
	VPMADDWD  Z30, Z17, Z17; \
	VPACKSSDW Z17, Z16, Z16; \
	VPMADDWD  Z30, Z16, a

#define SMALLSUMS \
	SUM4SMALL(Z0, Z1, Z2, Z3); \
	SUM4SMALL(Z4, Z5, Z6, Z7); \
	SUM4SMALL(Z8, Z9, Z10, Z11); \
	SUM4SMALL(Z12, Z13, Z14, Z15)

// SUM64 leaves the sums of 16 outs in Z0.
#define SUM64 \
	VSHUFI32X4 $0x44, Z4, Z0, Z16; \
	VSHUFI32X4 $0xEE, Z4, Z0, Z17; \
	VPADDD Z17, Z16, Z16; \
	VSHUFI32X4 $0x44, Z12, Z8, Z18; \
	VSHUFI32X4 $0xEE, Z12, Z8, Z19; \
	VPADDD Z19, Z18, Z18; \
	VSHUFI32X4 $0x88, Z18, Z16, Z17; \
	VSHUFI32X4 $0xDD, Z18, Z16, Z19; \
	VPADDD Z19, Z17, Z0

// SUM32 leaves those of the first 32 elements in Z0, of the last in Z1.
#define SUM32 \
	VSHUFI32X4 $0x88, Z4, Z0, Z16; \
	VSHUFI32X4 $0xDD, Z4, Z0, Z17; \
	VPADDD Z17, Z16, Z16; \
	VSHUFI32X4 $0x88, Z12, Z8, Z18; \
	VSHUFI32X4 $0xDD, Z12, Z8, Z19; \
	VPADDD Z19, Z18, Z18; \
	VSHUFI32X4 $0x88, Z18, Z16, Z0; \
	VSHUFI32X4 $0xDD, Z18, Z16, Z1

// SUM16 leaves those of four times 16 elements in Z0..Z3.
#define SUM16 \
	VSHUFI32X4 $0x44, Z4, Z0, Z16; \
	VSHUFI32X4 $0xEE, Z4, Z0, Z17; \
	VSHUFI32X4 $0x44, Z12, Z8, Z18; \
	VSHUFI32X4 $0xEE, Z12, Z8, Z19; \
	VSHUFI32X4 $0x88, Z18, Z16, Z0; \
	VSHUFI32X4 $0xDD, Z18, Z16, Z1; \
	VSHUFI32X4 $0x88, Z19, Z17, Z2; \
	VSHUFI32X4 $0xDD, Z19, Z17, Z3

// ADD adds sum to Z31 for group i from here; ADDBIAS, and its bias; ADDZEROPOINT
// takes from the sum what its numbers were raised by, to be unsigned.
#define ADD(i, sum) \
	VCVTDQ2PS sum, sum; \
	VMULPS.BCST (4*i)(R12), sum, sum; \
	VFMADD231PS (64*i)(DX), sum, Z31

#define ADDBIAS(i, sum) \
	ADD(i, sum); \
	VBROADCASTSS (4*i)(R13), Z16; \
	VFMADD231PS (64*i)(DI), Z16, Z31

#define ADDZEROPOINT(i, sum) \
	VPSUBD.BCST (4*i)(R13), sum, sum; \
	ADD(i, sum)

// GROUPS moves the pointers to groups on by n.
#define GROUPSON(n) \
	ADDQ $(64*n), DX; \
	ADDQ $(64*n), DI; \
	ADDQ $(4*n), R12; \
	ADDQ $(4*n), R13

// NEXTSTEP moves on to the next bytes of the rows, elements of x.
#define NEXTSTEP(bytes, elements, loop) \
	ADDQ $bytes, AX; \
	ADDQ $bytes, R14; \
	ADDQ $bytes, R8; \
	ADDQ $elements, SI; \
	SUBQ $elements, left-8(SP); \
	JZ   finish; \
	SUBQ $bytes, ahead-16(SP); \
	JNE  loop; \
	MOVQ next-24(SP), R8; \
	JMP  loop
