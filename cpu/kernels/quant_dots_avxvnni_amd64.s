#include "textflag.h"

#define LANEBYTES 64
#include "quant_dots_ymm_amd64.h"

// VPDPBUSDY(x, w, acc): acc += w * x in the encoding of AVX-VNNI, unsigned bytes of
// w, signed ones of x. Go's assembler has only that of AVX-512. Registers are
// given by number.
#define VPDPBUSDY(x, w, acc) \
	BYTE $0xC4; BYTE $(0xE2 ^ (((acc) & 8) << 4) ^ (((x) & 8) << 2)); BYTE $(0x7D ^ ((w) << 3)); \
	BYTE $0x50; BYTE $(0xC0 | (((acc) & 7) << 3) | ((x) & 7))

// Products of unit u of a row with both vectors, to sums of these numbers.
#define ROW(u, row, low, high) \
	VPBROADCASTD (4*u)row, Y10; \
	VPDPBUSDY(10, 8, low); \
	VPDPBUSDY(10, 9, high)
#define ROW01(u, row) ROW(u, row, 0, 1)
#define ROW23(u, row) ROW(u, row, 2, 3)
#define ROW45(u, row) ROW(u, row, 4, 5)
#define ROW67(u, row) ROW(u, row, 6, 7)

#include "quant_dots_vnni_amd64.h"

// func dotsAVXVNNI(t *dotsCall)
TEXT ·dotsAVXVNNI(SB), NOSPLIT, $0-8
#include "quant_dots_vnni_code_amd64.h"
