// What the kernels of quantised weights share: a step of 8 outputs, decoded to
// signed bytes, with up to 4 rows of activations. Offsets in dotsCall:
#define C       0
#define BUF     8
#define W       16
#define BIAS    24
#define X       32
#define XSTRIDE 40
#define SX      48
#define XS      56
#define XC      64
#define SSTRIDE 72
#define GROUPS  80
#define UNITS   88
#define KIND    96

// ARGUMENTS: R1 activations, R2 their stride; R5 buffer; R6, R7 scales and
// biases of the weights; R8, R9, R10 scales, sums and corrections of the
// activations, R11 from group to group; R12 groups; R14 results; R15 kind.
#define ARGUMENTS \
	MOVD t+0(FP), R0 \
	MOVD C(R0), R14 \
	MOVD BUF(R0), R5 \
	MOVD W(R0), R6 \
	MOVD BIAS(R0), R7 \
	MOVD X(R0), R1 \
	MOVD XSTRIDE(R0), R2 \
	MOVD SX(R0), R8 \
	MOVD XS(R0), R9 \
	MOVD XC(R0), R10 \
	MOVD SSTRIDE(R0), R11 \
	MOVD GROUPS(R0), R12 \
	MOVD KIND(R0), R15

// SCALES loads scales, sums and corrections of a group of up to 4 rows: V16, V17,
// V18. What lies behind those of fewer rows is loaded, too, and not used.
#define SCALES(uncorrected) \
	VLD1 (R8), [V16.S4] \
	VLD1 (R9), [V17.S4] \
	TBZ  $1, R15, uncorrected \
	VLD1 (R10), [V18.S4]

#define GROUPON(loop) \
	ADD  R11, R8, R8 \
	ADD  R11, R9, R9 \
	ADD  R11, R10, R10 \
	ADD  $32, R6, R6 \
	ADD  $32, R7, R7 \
	SUBS $1, R12, R12 \
	BNE  loop

// JOIN adds the sums of row i (register number sum) with 4 outputs to acc:
// scales in V19, biases in V20. FMUL, FMLA: FMULEi, FMLAi.
#define JOIN(FMUL, sum, acc) \
	SCVTF4S(sum, sum) \
	FMUL(16, sum, sum) \
	FMLA4S(19, sum, acc)

// CORRECT takes row i's correction from its sums.
#define CORRECT(i, sum) \
	VDUP V18.S[i], V21.S4 \
	VSUB V21.S4, sum.S4, sum.S4
