#include "textflag.h"

#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define V5 Z5
#define V6 Z6
#define V7 Z7
#define V8 Z8
#define V9 Z9
#define V10 Z10
#define V12 Z12
#define V13 Z13

#define WIDTH 64
#define ZERO(r) VPXORD r, r, r

#define STEP4 ·avx512DeltaStep64
#define FOLD4 ·avx512DeltaFold64
#define STEP1 ·avx512DeltaStep16
#define FOLD1 ·avx512DeltaFold16
#define TAPS ·avx512Taps
#define TAPSROWS ·avx512TapsRows
#define FOLDROWS ·avx512FoldRows
#define EXPS ·avx512Exps

#define H3 Y3
#define TOINT(r) VCVTPD2DQ r, H3

#define COLUMNS(op) op(0, Z0); op(WIDTH, Z1)

#include "delta_amd64.h"
