// The code of a routine whose TEXT this is included in, see quant_dots_vnni_amd64.h.

	MOVQ t+0(FP), R15
#include "quant_dots_amd64.h"

	// Results of four rows wait in memory; of fewer, whose groups follow one
	// another sooner, in registers.
four:
	BEGIN4
	MOVQ GROUP(R15), AX

four16:
	SIXTEEN(UNITS4, four16)
	SUMBITS
	JOIN4(fourZeroPoint, fourOn, four)
	MOVQ $4, R9
	JMP  partDone

two:
	RESULTS(0, Y4, Y5)
	RESULTS(1, Y6, Y7)

two1:
	BEGIN2
	MOVQ GROUP(R15), AX

two16:
	SIXTEEN(UNITS2, two16)
	SUMBITS
	SCALES
	CMPQ ZEROPOINT(R15), $0
	JNE  twoZeroPoint
	ADD(0, Y0, Y1, Y4, Y5)
	ADD(1, Y2, Y3, Y6, Y7)
	ADDBIAS(0, Y4, Y5)
	ADDBIAS(1, Y6, Y7)
	JMP  twoOn

twoZeroPoint:
	TAKEZEROPOINT(0, Y0, Y1)
	TAKEZEROPOINT(1, Y2, Y3)
	ADD(0, Y0, Y1, Y4, Y5)
	ADD(1, Y2, Y3, Y6, Y7)

twoOn:
	GROUPON(two1)
	KEEP(0, Y4, Y5)
	KEEP(1, Y6, Y7)
	MOVQ $2, R9
	JMP  partDone

one:
	RESULTS(0, Y4, Y5)

one1:
	BEGIN1
	MOVQ GROUP(R15), AX

one16:
	SIXTEEN(UNITS1, one16)
	SUMBITS
	SCALES
	CMPQ ZEROPOINT(R15), $0
	JNE  oneZeroPoint
	ADD(0, Y0, Y1, Y4, Y5)
	ADDBIAS(0, Y4, Y5)
	JMP  oneOn

oneZeroPoint:
	TAKEZEROPOINT(0, Y0, Y1)
	ADD(0, Y0, Y1, Y4, Y5)

oneOn:
	GROUPON(one1)
	KEEP(0, Y4, Y5)
	MOVQ $1, R9
	JMP  partDone
