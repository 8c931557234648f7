// What quantAloneAVX2 is made of: products of 16 bytes of each of 8 rows, of which rows i
// and i + 4 lie in the lanes of Y0 to Y3, with one row of activations; trees that add the
// lanes of a row; and the joining of groups. Sums are of whole numbers and so exact: the
// bits are those of dotsAVX2.

// TWICE brings 16 activations to both lanes.
#define TWICE(at, y) VBROADCASTI128 at(SI), y

// SIGNED multiplies signed bytes with x and adds four products each, to dst: a number's
// amount is unsigned, and its sign goes to the activation. Two products of at most
// 128 · 127 fit 16 bits. Y4 and Y5 are lost.
#define SIGNED(w, x, dst) \
	VPABSB w, Y4; \
	VPSIGNB w, x, Y5; \
	VPMADDUBSW Y5, Y4, Y4; \
	VPMADDWD pairOnes<>(SB), Y4, dst

#define SIGNEDADD(w, x, acc) \
	SIGNED(w, x, Y4); \
	VPADDD Y4, acc, acc

// NIBBLESSET multiplies the low halves of the bytes of v with Y12, to low, the high ones
// with Y13, to high: sums of two, in 16 bits. v is lost.
#define NIBBLESSET(v, low, high) \
	VPAND halfMask<>(SB), v, low; \
	VPSRLW $4, v, v; \
	VPAND halfMask<>(SB), v, v; \
	VPMADDUBSW Y12, low, low; \
	VPMADDUBSW Y13, v, high

// NIBBLESADD adds them to low and high. Y14 is lost.
#define NIBBLESADD(v, low, high) \
	NIBBLESSET(v, Y14, v); \
	VPADDW Y14, low, low; \
	VPADDW v, high, high

// NIBBLESJOIN leaves the sum of both in v. Y7: 0x0F.
#define NIBBLESJOIN(v) \
	VPAND Y7, v, Y14; \
	VPSRLW $4, v, v; \
	VPAND Y7, v, v; \
	VPMADDUBSW Y12, Y14, Y14; \
	VPMADDUBSW Y13, v, v; \
	VPADDW Y14, v, v

// SIX multiplies numbers of 6 bits with Y14, to dst: low halves of the bytes of v, or
// high ones, with two bits of high that the shift brings to 0x30. Y12, Y13 are lost.
#define LOWSIX(v, high, left, dst) \
	VPSLLW $left, high, Y12; \
	VPAND halfMask<>(SB), v, Y13; \
	VPAND sixMask<>(SB), Y12, Y12; \
	VPOR Y13, Y12, Y12; \
	VPMADDUBSW Y14, Y12, dst
#define HIGHSIX(v, high, right, dst) \
	VPSRLW $right, high, Y12; \
	VPSRLW $4, v, Y13; \
	VPAND sixMask<>(SB), Y12, Y12; \
	VPAND halfMask<>(SB), Y13, Y13; \
	VPOR Y13, Y12, Y12; \
	VPMADDUBSW Y14, Y12, dst
#define FOURSIX(SIXOF, shift) \
	SIXOF(Y0, Y8, shift, Y4); \
	SIXOF(Y1, Y9, shift, Y5); \
	SIXOF(Y2, Y10, shift, Y6); \
	SIXOF(Y3, Y11, shift, Y7)

// TREE adds the lanes of each row: dwords of a row in each half of a, b, c, d. dst has a
// sum in each dword, rows in order.
#define TREE(a, b, c, d, dst) \
	VPHADDD b, a, a; \
	VPHADDD d, c, c; \
	VPHADDD c, a, dst

// SMALLTREE is TREE for words of at most 8191.
#define SMALLTREE(a, b, c, d, dst) \
	VPHADDW b, a, a; \
	VPHADDW d, c, c; \
	VPHADDW c, a, a; \
	VPMADDWD pairOnes<>(SB), a, dst

// TREESIX is TREE for words of at most 16383.
#define TREESIX(a, b, c, d, dst) \
	VPHADDW b, a, a; \
	VPHADDW d, c, c; \
	VPMADDWD pairOnes<>(SB), a, a; \
	VPMADDWD pairOnes<>(SB), c, c; \
	VPHADDD c, a, dst

// JOIN adds the sum of group i from here to the results, Y15; JOINBIAS, and its bias;
// JOINZEROPOINT takes from it what its numbers were raised by. Y14 is lost.
#define JOIN(i, sum, scales) \
	VBROADCASTSS (4*i)(R10), Y14; \
	VCVTDQ2PS sum, sum; \
	VMULPS Y14, sum, sum; \
	VFMADD231PS scales, sum, Y15
#define JOINBIAS(i, sum, scales, biases) \
	JOIN(i, sum, scales); \
	VBROADCASTSS (4*i)(R11), Y14; \
	VFMADD231PS biases, Y14, Y15
#define JOINZEROPOINT(i, sum, scales) \
	VPBROADCASTD (4*i)(R11), Y14; \
	VPSUBD Y14, sum, sum; \
	JOIN(i, sum, scales)

// GROUPSON moves on by n groups, whose scales lie in the call's memory for whole rows.
#define GROUPSON(n) \
	ADDQ $(4*n), R10; \
	ADDQ $(4*n), R11

// evenDwords and oddDwords choose the activations of low and of high halves.
DATA evenDwords<>+0(SB)/8, $0x0000000200000000
DATA evenDwords<>+8(SB)/8, $0x0000000600000004
DATA evenDwords<>+16(SB)/8, $0x0000000200000000
DATA evenDwords<>+24(SB)/8, $0x0000000600000004
GLOBL evenDwords<>(SB), RODATA|NOPTR, $32
DATA oddDwords<>+0(SB)/8, $0x0000000300000001
DATA oddDwords<>+8(SB)/8, $0x0000000700000005
DATA oddDwords<>+16(SB)/8, $0x0000000300000001
DATA oddDwords<>+24(SB)/8, $0x0000000700000005
GLOBL oddDwords<>(SB), RODATA|NOPTR, $32

DATA sixMask<>+0(SB)/8, $0x3030303030303030
DATA sixMask<>+8(SB)/8, $0x3030303030303030
DATA sixMask<>+16(SB)/8, $0x3030303030303030
DATA sixMask<>+24(SB)/8, $0x3030303030303030
GLOBL sixMask<>(SB), RODATA|NOPTR, $32
DATA signBits<>+0(SB)/8, $0x8080808080808080
DATA signBits<>+8(SB)/8, $0x8080808080808080
DATA signBits<>+16(SB)/8, $0x8080808080808080
DATA signBits<>+24(SB)/8, $0x8080808080808080
GLOBL signBits<>(SB), RODATA|NOPTR, $32
