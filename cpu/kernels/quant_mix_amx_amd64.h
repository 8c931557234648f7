// What quantBlocks and quantMany are made of: groups of a step are multiplied,
// and their sums, of 16 outs by 16 rows, joined to Z0 to Z15 a step behind.

// Between the sums of a step and of the one before.
#define DHALF 8192

#define EACHSUM(M) \
	M(0, Z0); \
	M(1, Z1); \
	M(2, Z2); \
	M(3, Z3); \
	M(4, Z4); \
	M(5, Z5); \
	M(6, Z6); \
	M(7, Z7); \
	M(8, Z8); \
	M(9, Z9); \
	M(10, Z10); \
	M(11, Z11); \
	M(12, Z12); \
	M(13, Z13); \
	M(14, Z14); \
	M(15, Z15)
#define ZERO(o, acc) VPXORD acc, acc, acc

// MIXONE and MIXBIAS join the sums of a group and one out, of 16 rows, to acc.
#define MIXONE(o, acc) \
	VCVTDQ2PS (64*o)(R9), Z16; \
	VMULPS Z30, Z16, Z16; \
	VFMADD231PS.BCST (4*o)(DX), Z16, acc
#define MIXBIAS(o, acc) \
	MIXONE(o, acc); \
	VFMADD231PS.BCST (4*o)(DI), Z31, acc
#define MIXSCALE VMOVUPS.Z (R14), K7, Z30
#define MIXSCALES \
	VMOVUPS.Z (R14), K7, Z30; \
	VMOVUPS.Z (BX), K7, Z31

// ROWMASK sets K7 to the rows that there are: others are scaled by zero, since
// what lies behind their scales may be denormal, which is slow.
#define ROWMASK \
	MOVQ ROWS(R15), CX; \
	MOVQ $1, AX; \
	SHLQ CX, AX; \
	DECQ AX; \
	KMOVW AX, K7
#define MIXNEXT \
	ADDQ $1024, R9; \
	ADDQ $64, DX; \
	ADDQ R11, R14
#define MIXNEXTBIAS \
	MIXNEXT; \
	ADDQ $64, DI; \
	ADDQ R11, BX
#define MIXTDP(TDP, c) \
	TDP(6, 4, c) \
	ADDQ R13, AX; \
	ADDQ BGROUP(R15), R10
#define MIXSTORE(c) \
	TILESTORED(c, 8, 6) \
	ADDQ $1024, R8

// MIXPAIR is two groups of each.
#define MIXPAIR(TDP, M, SCALES, NEXT) \
	SCALES; \
	TILEZERO(0) \
	M(0, Z0); \
	M(1, Z1); \
	M(2, Z2); \
	TILEZERO(1) \
	M(3, Z3); \
	M(4, Z4); \
	M(5, Z5); \
	M(6, Z6); \
	TILELOADD(0, 12, 4) \
	M(7, Z7); \
	M(8, Z8); \
	M(9, Z9); \
	TILELOADD(10, 11, 6) \
	M(10, Z10); \
	M(11, Z11); \
	M(12, Z12); \
	M(13, Z13); \
	MIXTDP(TDP, 0); \
	M(14, Z14); \
	M(15, Z15); \
	NEXT; \
	SCALES; \
	TILELOADD(0, 12, 4) \
	M(0, Z0); \
	M(1, Z1); \
	M(2, Z2); \
	TILELOADD(10, 11, 6) \
	M(3, Z3); \
	M(4, Z4); \
	M(5, Z5); \
	M(6, Z6); \
	MIXTDP(TDP, 1); \
	M(7, Z7); \
	M(8, Z8); \
	M(9, Z9); \
	MIXSTORE(0); \
	M(10, Z10); \
	M(11, Z11); \
	M(12, Z12); \
	M(13, Z13); \
	MIXSTORE(1); \
	M(14, Z14); \
	M(15, Z15); \
	NEXT

// mix multiplies the groups of a step and joins those of the step before, by
// turns: the units for tiles and for vectors work together only where their
// instructions stand close by each other (see performance.md).
//
// AX: A, R12 its stride, R13 from group to group; R10: B, R11 its stride; R8:
// where the sums go, SI their stride. R9: the sums to join; R14 and BX: scales
// and sums of their activations, R11 from group to group; DX and DI: scales and
// biases of their weights; Z0 to Z15: what they are joined to. All that it uses
// goes on to the next step's, but A.
TEXT mix<>(SB), NOSPLIT, $0-0
	MOVQ KIND(R15), CX
	CMPQ CX, $1
	JB   mix128
	JE   mix64
	CMPQ CX, $3
	JB   mix32
	JE   mix32s
	MIXPAIR(TDPBSSD, MIXONE, MIXSCALE, MIXNEXT)
	MIXPAIR(TDPBSSD, MIXONE, MIXSCALE, MIXNEXT)

mix32s:
	MIXPAIR(TDPBSSD, MIXONE, MIXSCALE, MIXNEXT)
	MIXPAIR(TDPBSSD, MIXONE, MIXSCALE, MIXNEXT)
	RET

mix32:
	MIXPAIR(TDPBUSD, MIXBIAS, MIXSCALES, MIXNEXTBIAS)

mix64:
	MIXPAIR(TDPBUSD, MIXBIAS, MIXSCALES, MIXNEXTBIAS)
	RET

mix128:
	MIXSCALES
	TILEZERO(0)
	TILELOADD(0, 12, 4)
	MIXBIAS(0, Z0)
	MIXBIAS(1, Z1)
	TILELOADD(10, 11, 6)
	MIXBIAS(2, Z2)
	MIXBIAS(3, Z3)
	MIXTDP(TDPBUSD, 0)
	MIXBIAS(4, Z4)
	MIXBIAS(5, Z5)
	TILELOADD(0, 12, 4)
	MIXBIAS(6, Z6)
	MIXBIAS(7, Z7)
	TILELOADD(10, 11, 6)
	MIXBIAS(8, Z8)
	MIXBIAS(9, Z9)
	MIXTDP(TDPBUSD, 0)
	MIXBIAS(10, Z10)
	MIXBIAS(11, Z11)
	MIXBIAS(12, Z12)
	MIXBIAS(13, Z13)
	MIXBIAS(14, Z14)
	MIXBIAS(15, Z15)
	MIXSTORE(0)
	MIXNEXTBIAS
	RET

// multiply is mix without what is joined.
TEXT multiply<>(SB), NOSPLIT, $0-0
	MOVQ GROUPS(R15), CX
	CMPQ KIND(R15), $0
	JE   multiply128
	CMPQ KIND(R15), $3
	JAE  multiplySigned

multiplyUnsigned:
	TILEZERO(0)
	TILELOADD(0, 12, 4)
	TILELOADD(10, 11, 6)
	MIXTDP(TDPBUSD, 0)
	MIXSTORE(0)
	DECQ CX
	JNZ  multiplyUnsigned
	RET

multiplySigned:
	TILEZERO(0)
	TILELOADD(0, 12, 4)
	TILELOADD(10, 11, 6)
	MIXTDP(TDPBSSD, 0)
	MIXSTORE(0)
	DECQ CX
	JNZ  multiplySigned
	RET

multiply128:
	TILEZERO(0)
	TILELOADD(0, 12, 4)
	TILELOADD(10, 11, 6)
	MIXTDP(TDPBUSD, 0)
	TILELOADD(0, 12, 4)
	TILELOADD(10, 11, 6)
	MIXTDP(TDPBUSD, 0)
	MIXSTORE(0)
	RET

// join is mix without what is multiplied.
TEXT join<>(SB), NOSPLIT, $0-0
	MOVQ GROUPS(R15), CX
	CMPQ KIND(R15), $3
	JAE  joinPlain

joinBias:
	MIXSCALES
	EACHSUM(MIXBIAS)
	MIXNEXTBIAS
	DECQ CX
	JNZ  joinBias
	RET

joinPlain:
	MIXSCALE
	EACHSUM(MIXONE)
	MIXNEXT
	DECQ CX
	JNZ  joinPlain
	RET
