#include "textflag.h"

#define LANEBYTES 64
#include "quant_dots_ymm_amd64.h"

#define ROW(u, row, low, high) \
	VPBROADCASTD (4*u)row, Y10; \
	VPDPBUSD Y10, Y8, low; \
	VPDPBUSD Y10, Y9, high
#define ROW01(u, row) ROW(u, row, Y0, Y1)
#define ROW23(u, row) ROW(u, row, Y2, Y3)
#define ROW45(u, row) ROW(u, row, Y4, Y5)
#define ROW67(u, row) ROW(u, row, Y6, Y7)

#include "quant_dots_vnni_amd64.h"

// func dotsHalfAVX512(t *dotsCall)
//
// dotsAVXVNNI in the encoding of AVX-512.
TEXT ·dotsHalfAVX512(SB), NOSPLIT, $0-8
#include "quant_dots_vnni_code_amd64.h"
