#include "textflag.h"

#define V12 Y12
#define V13 Y13
#define V14 Y14
#define V15 Y15

#define UNSIGNED(x) \
	VPMOVZXBD x, Y0; \
	VPSRLDQ $8, x, X1; \
	VPMOVZXBD X1, Y1; \
	VCVTDQ2PS Y0, Y0; \
	VCVTDQ2PS Y1, Y1; \
	VMULPS V14, Y0, Y0; \
	VMULPS V14, Y1, Y1; \
	VADDPS V15, Y0, Y0; \
	VADDPS V15, Y1, Y1; \
	VMOVUPS Y0, (DI); \
	VMOVUPS Y1, 32(DI); \
	ADDQ $64, DI

#define SIGNED(x) \
	VPMOVSXBD x, Y0; \
	VPSRLDQ $8, x, X1; \
	VPMOVSXBD X1, Y1; \
	VCVTDQ2PS Y0, Y0; \
	VCVTDQ2PS Y1, Y1; \
	VMULPS V14, Y0, Y0; \
	VMULPS V14, Y1, Y1; \
	VMOVUPS Y0, (DI); \
	VMOVUPS Y1, 32(DI); \
	ADDQ $64, DI

#define EIGHT(EXTEND, from, factor, to) \
	EXTEND from, Y0; \
	VCVTDQ2PS Y0, Y0; \
	VMULPS factor, Y0, Y0; \
	VMOVUPS Y0, to

#define SCALES4K \
	EIGHT(VPMOVZXBD, 0(SP), V12, 16(SP)); \
	EIGHT(VPMOVZXBD, 8(SP), V13, 48(SP))

#define SCALES6K \
	EIGHT(VPMOVSXBD, 192(SI), V12, 0(SP)); \
	EIGHT(VPMOVSXBD, 200(SI), V12, 32(SP))

#define ROWAFFINE8 ·rowAffine8AVX2
#define ROWAFFINE4 ·rowAffine4AVX2
#define ROWQ80 ·rowQ80AVX2
#define ROWQ40 ·rowQ40AVX2
#define ROWQ4K ·rowQ4KAVX2
#define ROWQ6K ·rowQ6KAVX2
#include "quant_row_amd64.h"
