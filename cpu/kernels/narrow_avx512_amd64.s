#include "textflag.h"
#include "attend_avx512_amd64.h"

// Attention of two queries over bf16 keys and values as they are stored: what
// a one-row step does for a group of two query heads. Widening in registers
// instead of by way of memory leaves the step bound by reading the cache.
// Sums have the order of avx512Scores1 and avx512Values1, bit for bit.

// KEY multiplies 16 elements of a key with both queries.
#define KEY(mem, a, b) \
	VPMOVZXWD   mem, Z18;      \
	VPSLLD      $16, Z18, Z18; \
	VFMADD231PS Z18, Z16, a;   \
	VFMADD231PS Z18, Z17, b

// func avx512Scores2BF16(s0, s1, q *float32, k *byte, nk, d int, next *byte, pages int)
//
// nk is a multiple of 8, d of 16. Each key asks for its line of each of the
// pages from next on, if there is a next.
TEXT ·avx512Scores2BF16(SB), NOSPLIT, $0-64
	MOVQ s0+0(FP), AX
	MOVQ s1+8(FP), BX
	MOVQ q+16(FP), SI
	MOVQ k+24(FP), DI
	MOVQ nk+32(FP), R12
	MOVQ d+40(FP), DX
	MOVQ next+48(FP), R14
	ADDQ DX, DX             // bytes of a key
	LEAQ (DX)(DX*2), R15

tile:
	TESTQ R14, R14
	JZ    begin
	MOVQ  $8, CX

line:
	MOVQ R14, R8
	MOVQ pages+56(FP), R9

page:
	PREFETCHT1 (R8)
	ADDQ       $4096, R8
	DECQ       R9
	JNZ        page
	ADDQ       $64, R14
	DECQ       CX
	JNZ        line

begin:
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	MOVQ SI, R8
	LEAQ (SI)(DX*2), R9     // the second query
	MOVQ DI, R10
	LEAQ (DI)(DX*4), R11    // key 4
	MOVQ DX, CX

loop:
	VMOVUPS (R8), Z16
	VMOVUPS (R9), Z17
	KEY((R10), Z0, Z8)
	KEY((R10)(DX*1), Z1, Z9)
	KEY((R10)(DX*2), Z2, Z10)
	KEY((R10)(R15*1), Z3, Z11)
	KEY((R11), Z4, Z12)
	KEY((R11)(DX*1), Z5, Z13)
	KEY((R11)(DX*2), Z6, Z14)
	KEY((R11)(R15*1), Z7, Z15)
	ADDQ $64, R8
	ADDQ $64, R9
	ADDQ $32, R10
	ADDQ $32, R11
	SUBQ $32, CX
	JG   loop

	REDUCE16
	VMOVUPS       Y0, (AX)
	VEXTRACTF64X4 $1, Z0, (BX)
	ADDQ $32, AX
	ADDQ $32, BX
	LEAQ (DI)(DX*8), DI
	SUBQ $8, R12
	JG   tile
	VZEROUPPER
	RET

// VALUE adds 16 columns of a value, weighted for both queries.
#define VALUE(off, a, b) \
	VPMOVZXWD   off(R11), Z18; \
	VPSLLD      $16, Z18, Z18; \
	VFMADD231PS Z18, Z16, a;   \
	VFMADD231PS Z18, Z17, b

// func avx512Values2BF16(acc, p0, p1 *float32, v *byte, nk, d int)
//
// d is a multiple of 64.
TEXT ·avx512Values2BF16(SB), NOSPLIT, $0-48
	MOVQ acc+0(FP), DI
	MOVQ p0+8(FP), SI
	MOVQ p1+16(FP), R10
	MOVQ v+24(FP), BX
	MOVQ nk+32(FP), R12
	MOVQ d+40(FP), R13
	LEAQ (R13)(R13*1), DX   // bytes of a value
	LEAQ (DI)(DX*2), R9     // the second query's accumulator

block:
	VMOVUPS (DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	VMOVUPS (R9), Z4
	VMOVUPS 64(R9), Z5
	VMOVUPS 128(R9), Z6
	VMOVUPS 192(R9), Z7
	MOVQ    BX, R11
	XORQ    CX, CX

key:
	VBROADCASTSS (SI)(CX*4), Z16
	VBROADCASTSS (R10)(CX*4), Z17
	VALUE(0, Z0, Z4)
	VALUE(32, Z1, Z5)
	VALUE(64, Z2, Z6)
	VALUE(96, Z3, Z7)
	ADDQ DX, R11
	INCQ CX
	CMPQ CX, R12
	JL   key
	VMOVUPS Z0, (DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 128(DI)
	VMOVUPS Z3, 192(DI)
	VMOVUPS Z4, (R9)
	VMOVUPS Z5, 64(R9)
	VMOVUPS Z6, 128(R9)
	VMOVUPS Z7, 192(R9)
	ADDQ    $256, DI
	ADDQ    $256, R9
	ADDQ    $128, BX
	SUBQ    $64, R13
	JG      block
	VZEROUPPER
	RET
