#include "textflag.h"

#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define V5 Y5
#define V6 Y6
#define V7 Y7
#define V8 Y8
#define V9 Y9
#define V10 Y10
#define V12 Y12
#define V13 Y13

#define WIDTH 32
#define ZERO(r) VXORPS r, r, r

#define STEP4 ·avx2DeltaStep32
#define FOLD4 ·avx2DeltaFold32
#define STEP1 ·avx2DeltaStep8
#define FOLD1 ·avx2DeltaFold8
#define TAPS ·avx2Taps
#define TAPSROWS ·avx2TapsRows
#define FOLDROWS ·avx2FoldRows
#define EXPS ·avx2Exps

#define H3 X3
#define TOINT(r) VCVTPD2DQY r, H3

#define COLUMNS(op) op(0, Y0); op(WIDTH, Y1); op(2*WIDTH, Y2); op(3*WIDTH, Y3)

#include "delta_amd64.h"
