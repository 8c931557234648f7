#include "textflag.h"

#define V12 Z12
#define V13 Z13
#define V14 Z14
#define V15 Z15

#define UNSIGNED(x) \
	VPMOVZXBD x, Z0; \
	VCVTDQ2PS Z0, Z0; \
	VMULPS V14, Z0, Z0; \
	VADDPS V15, Z0, Z0; \
	VMOVUPS Z0, (DI); \
	ADDQ $64, DI

#define SIGNED(x) \
	VPMOVSXBD x, Z0; \
	VCVTDQ2PS Z0, Z0; \
	VMULPS V14, Z0, Z0; \
	VMOVUPS Z0, (DI); \
	ADDQ $64, DI

#define SCALES4K \
	VPMOVZXBD 0(SP), Y0; \
	VPMOVZXBD 8(SP), Y1; \
	VCVTDQ2PS Y0, Y0; \
	VCVTDQ2PS Y1, Y1; \
	VMULPS Y12, Y0, Y0; \
	VMULPS Y13, Y1, Y1; \
	VMOVUPS Y0, 16(SP); \
	VMOVUPS Y1, 48(SP)

#define SCALES6K \
	VPMOVSXBD 192(SI), Z0; \
	VCVTDQ2PS Z0, Z0; \
	VMULPS V12, Z0, Z0; \
	VMOVUPS Z0, 0(SP)

#define ROWAFFINE8 ·rowAffine8AVX512
#define ROWAFFINE4 ·rowAffine4AVX512
#define ROWQ80 ·rowQ80AVX512
#define ROWQ40 ·rowQ40AVX512
#define ROWQ4K ·rowQ4KAVX512
#define ROWQ6K ·rowQ6KAVX512
#include "quant_row_amd64.h"
