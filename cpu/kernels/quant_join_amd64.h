// The joining of groups of 16 outputs: sums of row i are in Y(2i) and Y(2i+1). FLOATS(a)
// is the including file's: it makes floats of the sums in a.

#define ZERO2(a, b) \
	VPXOR a, a, a; \
	VPXOR b, b, b

// SCALES loads those of the weights to Y12 and Y13.
#define SCALES \
	VMOVUPS (DI), Y12; \
	VMOVUPS 32(DI), Y13

// ADD adds the sums a and b of row i to its results r and s, ADDBIAS the biases;
// TAKEZEROPOINT takes from the sums what the numbers were raised by. Y11 is lost.
#define ADD(i, a, b, r, s) \
	VBROADCASTSS (4*i)(R12), Y11; \
	FLOATS(a); \
	FLOATS(b); \
	VMULPS Y11, a, a; \
	VMULPS Y11, b, b; \
	VFMADD231PS Y12, a, r; \
	VFMADD231PS Y13, b, s
#define ADDBIAS(i, r, s) \
	VBROADCASTSS (4*i)(R13), Y11; \
	VFMADD231PS (R8), Y11, r; \
	VFMADD231PS 32(R8), Y11, s
#define TAKEZEROPOINT(i, a, b) \
	VPBROADCASTD (4*i)(R13), Y11; \
	VPSUBD Y11, a, a; \
	VPSUBD Y11, b, b

// Results of row i from memory and back.
#define RESULTS(i, r, s) \
	VMOVUPS (64*i)(R14), r; \
	VMOVUPS (64*i+32)(R14), s
#define KEEP(i, r, s) \
	VMOVUPS r, (64*i)(R14); \
	VMOVUPS s, (64*i+32)(R14)

// JOINED is ADD and ADDBIAS on results in memory, ZEROPOINTED TAKEZEROPOINT and ADD.
#define JOINED(i, a, b) \
	RESULTS(i, Y14, Y15); \
	ADD(i, a, b, Y14, Y15); \
	ADDBIAS(i, Y14, Y15); \
	KEEP(i, Y14, Y15)
#define ZEROPOINTED(i, a, b) \
	TAKEZEROPOINT(i, a, b); \
	RESULTS(i, Y14, Y15); \
	ADD(i, a, b, Y14, Y15); \
	KEEP(i, Y14, Y15)

#define GROUPON(loop) \
	ADDQ BX, R12; \
	ADDQ BX, R13; \
	ADDQ $64, DI; \
	ADDQ $64, R8; \
	DECQ CX; \
	JNZ  loop

// JOIN1, 2 and 4 end a group of as many rows, whose results wait in memory. The labels are
// the caller's: for the zero point, for going on, and the next group.
#define JOIN1(zeroPoint, on, loop) \
	SCALES \
	CMPQ ZEROPOINT(R15), $0 \
	JNE  zeroPoint \
	JOINED(0, Y0, Y1) \
	JMP  on \
zeroPoint: \
	ZEROPOINTED(0, Y0, Y1) \
on: \
	GROUPON(loop)

#define JOIN2(zeroPoint, on, loop) \
	SCALES \
	CMPQ ZEROPOINT(R15), $0 \
	JNE  zeroPoint \
	JOINED(0, Y0, Y1) \
	JOINED(1, Y2, Y3) \
	JMP  on \
zeroPoint: \
	ZEROPOINTED(0, Y0, Y1) \
	ZEROPOINTED(1, Y2, Y3) \
on: \
	GROUPON(loop)

#define JOIN4(zeroPoint, on, loop) \
	SCALES \
	CMPQ ZEROPOINT(R15), $0 \
	JNE  zeroPoint \
	JOINED(0, Y0, Y1) \
	JOINED(1, Y2, Y3) \
	JOINED(2, Y4, Y5) \
	JOINED(3, Y6, Y7) \
	JMP  on \
zeroPoint: \
	ZEROPOINTED(0, Y0, Y1) \
	ZEROPOINTED(1, Y2, Y3) \
	ZEROPOINTED(2, Y4, Y5) \
	ZEROPOINTED(3, Y6, Y7) \
on: \
	GROUPON(loop)

// PLAINED is ADD on results in memory; PLAIN1, 2 and 4 end a group of as many rows whose
// weights are scaled and no more.
#define PLAINED(i, a, b) \
	RESULTS(i, Y14, Y15); \
	ADD(i, a, b, Y14, Y15); \
	KEEP(i, Y14, Y15)
#define PLAIN1(loop) \
	SCALES \
	PLAINED(0, Y0, Y1) \
	GROUPON(loop)
#define PLAIN2(loop) \
	SCALES \
	PLAINED(0, Y0, Y1) \
	PLAINED(1, Y2, Y3) \
	GROUPON(loop)
#define PLAIN4(loop) \
	SCALES \
	PLAINED(0, Y0, Y1) \
	PLAINED(1, Y2, Y3) \
	PLAINED(2, Y4, Y5) \
	PLAINED(3, Y6, Y7) \
	GROUPON(loop)
