#include "textflag.h"
#include "attend_avx512_amd64.h"

// One thread at 2.1 GHz, FMA peak 135 GFLOP/s, 64 keys in L1, d = 128 / 64:
//	scores  4 × 4 tile   104 / 91 GFLOP/s    1 × 16 tile   92 / 72
//	values  4 × 64 tile  134 / 134           1 × 128 tile 106, 1 × 64 74
// The scores' rest goes into the reduction; without it (d = 1,024) they run at
// 132.

#define FMA4(x, a, b, c, d) \
	VFMADD231PS Z16, x, a; \
	VFMADD231PS Z17, x, b; \
	VFMADD231PS Z18, x, c; \
	VFMADD231PS Z19, x, d

// func avx512Scores4(s *float32, lds int, q, k *float32, nk, d int)
//
// 4 queries × 4 keys a tile: 8 loads for 16 FMAs. nk is a multiple of 4.
TEXT ·avx512Scores4(SB), NOSPLIT, $0-48
	MOVQ  s+0(FP), BX
	MOVQ  lds+8(FP), R8
	MOVQ  q+16(FP), SI
	MOVQ  k+24(FP), DI
	MOVQ  nk+32(FP), R12
	MOVQ  d+40(FP), DX
	SHLQ  $2, R8
	LEAQ  (R8)(R8*2), R9
	MOVQ  DX, R13
	ANDQ  $~15, R13
	SHLQ  $2, R13              // bytes of a row in full vectors
	MOVQ  DX, CX
	ANDQ  $15, CX
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX
	KMOVW AX, K1               // the tail of a row, 0 if none
	SHLQ  $2, DX
	LEAQ  (DX)(DX*2), R15
tile:
	LEAQ (SI)(R15*1), R10
	LEAQ (DI)(R15*1), R11
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	MOVQ R13, CX
	SUBQ $64, CX
	JL   tail
loop:
	VMOVUPS (DI), Z16
	VMOVUPS (DI)(DX*1), Z17
	VMOVUPS (DI)(DX*2), Z18
	VMOVUPS (R11), Z19
	VMOVUPS (SI), Z20
	VMOVUPS (SI)(DX*1), Z21
	VMOVUPS (SI)(DX*2), Z22
	VMOVUPS (R10), Z23
	FMA4(Z20, Z0, Z1, Z2, Z3)
	FMA4(Z21, Z4, Z5, Z6, Z7)
	FMA4(Z22, Z8, Z9, Z10, Z11)
	FMA4(Z23, Z12, Z13, Z14, Z15)
	ADDQ    $64, DI
	ADDQ    $64, R11
	ADDQ    $64, SI
	ADDQ    $64, R10
	SUBQ    $64, CX
	JGE     loop
tail:
	KTESTW    K1, K1
	JZ        reduce
	VMOVUPS.Z (DI), K1, Z16
	VMOVUPS.Z (DI)(DX*1), K1, Z17
	VMOVUPS.Z (DI)(DX*2), K1, Z18
	VMOVUPS.Z (R11), K1, Z19
	VMOVUPS.Z (SI), K1, Z20
	VMOVUPS.Z (SI)(DX*1), K1, Z21
	VMOVUPS.Z (SI)(DX*2), K1, Z22
	VMOVUPS.Z (R10), K1, Z23
	FMA4(Z20, Z0, Z1, Z2, Z3)
	FMA4(Z21, Z4, Z5, Z6, Z7)
	FMA4(Z22, Z8, Z9, Z10, Z11)
	FMA4(Z23, Z12, Z13, Z14, Z15)
reduce:
	REDUCE16
	VMOVUPS       X0, (BX)
	VEXTRACTF32X4 $1, Z0, (BX)(R8*1)
	VEXTRACTF32X4 $2, Z0, (BX)(R8*2)
	VEXTRACTF32X4 $3, Z0, (BX)(R9*1)
	ADDQ          $16, BX
	SUBQ          R13, SI
	SUBQ          R13, DI
	LEAQ          (DI)(DX*4), DI
	SUBQ          $4, R12
	JG            tile
	VZEROUPPER
	RET

// func avx512Scores1(s, q, k *float32, nk, d int)
//
// 1 query × 16 keys a tile. At the end of the keys the tile's rows past the
// last one read the last one again, and their sums are not stored.
TEXT ·avx512Scores1(SB), NOSPLIT, $0-40
	MOVQ  s+0(FP), BX
	MOVQ  q+8(FP), SI
	MOVQ  k+16(FP), DI
	MOVQ  nk+24(FP), R12
	MOVQ  d+32(FP), DX
	MOVQ  DX, R13
	ANDQ  $~15, R13
	SHLQ  $2, R13
	MOVQ  DX, CX
	ANDQ  $15, CX
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX
	KMOVW AX, K1
	SHLQ  $2, DX
	LEAQ  (DX)(DX*2), R15
tile16:
	CMPQ R12, $16
	JL   tile4
	LEAQ (DI)(DX*4), R9
	LEAQ (DI)(DX*8), R10
	LEAQ (R9)(DX*8), R11
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	MOVQ R13, CX
	SUBQ $64, CX
	JL   tail16
loop16:
	VMOVUPS     (SI), Z16
	VFMADD231PS (DI), Z16, Z0
	VFMADD231PS (DI)(DX*1), Z16, Z1
	VFMADD231PS (DI)(DX*2), Z16, Z2
	VFMADD231PS (DI)(R15*1), Z16, Z3
	VFMADD231PS (R9), Z16, Z4
	VFMADD231PS (R9)(DX*1), Z16, Z5
	VFMADD231PS (R9)(DX*2), Z16, Z6
	VFMADD231PS (R9)(R15*1), Z16, Z7
	VFMADD231PS (R10), Z16, Z8
	VFMADD231PS (R10)(DX*1), Z16, Z9
	VFMADD231PS (R10)(DX*2), Z16, Z10
	VFMADD231PS (R10)(R15*1), Z16, Z11
	VFMADD231PS (R11), Z16, Z12
	VFMADD231PS (R11)(DX*1), Z16, Z13
	VFMADD231PS (R11)(DX*2), Z16, Z14
	VFMADD231PS (R11)(R15*1), Z16, Z15
	ADDQ        $64, SI
	ADDQ        $64, DI
	ADDQ        $64, R9
	ADDQ        $64, R10
	ADDQ        $64, R11
	SUBQ        $64, CX
	JGE         loop16
tail16:
	KTESTW K1, K1
	JZ     reduce16

#define TAILKEY(mem, acc) \
	VMOVUPS.Z   mem, K1, Z17; \
	VFMADD231PS Z17, Z16, acc

	VMOVUPS.Z (SI), K1, Z16
	TAILKEY((DI), Z0)
	TAILKEY((DI)(DX*1), Z1)
	TAILKEY((DI)(DX*2), Z2)
	TAILKEY((DI)(R15*1), Z3)
	TAILKEY((R9), Z4)
	TAILKEY((R9)(DX*1), Z5)
	TAILKEY((R9)(DX*2), Z6)
	TAILKEY((R9)(R15*1), Z7)
	TAILKEY((R10), Z8)
	TAILKEY((R10)(DX*1), Z9)
	TAILKEY((R10)(DX*2), Z10)
	TAILKEY((R10)(R15*1), Z11)
	TAILKEY((R11), Z12)
	TAILKEY((R11)(DX*1), Z13)
	TAILKEY((R11)(DX*2), Z14)
	TAILKEY((R11)(R15*1), Z15)
reduce16:
	REDUCE16
	VMOVUPS Z0, (BX)
	ADDQ    $64, BX
	SUBQ    R13, SI
	SUBQ    R13, DI
	LEAQ    (DI)(DX*8), DI
	LEAQ    (DI)(DX*8), DI
	SUBQ    $16, R12
	JG      tile16
	VZEROUPPER
	RET

tile4:
	TESTQ R12, R12
	JZ    done
	// Offsets of the tile's keys 1..3, not past the last key.
	MOVQ    DX, R9
	CMPQ    R12, $2
	MOVQ    $0, R10
	CMOVQLT R10, R9
	LEAQ    (DX)(DX*1), R10
	CMPQ    R12, $3
	CMOVQLT R9, R10
	MOVQ    R15, R11
	CMPQ    R12, $4
	CMOVQLT R10, R11
	ADDQ    DI, R9
	ADDQ    DI, R10
	ADDQ    DI, R11
	ZERO4(Z0, Z4, Z8, Z12)
	MOVQ    R13, CX
	SUBQ    $64, CX
	JL      tail4
loop4:
	VMOVUPS     (SI), Z16
	VFMADD231PS (DI), Z16, Z0
	VFMADD231PS (R9), Z16, Z4
	VFMADD231PS (R10), Z16, Z8
	VFMADD231PS (R11), Z16, Z12
	ADDQ        $64, SI
	ADDQ        $64, DI
	ADDQ        $64, R9
	ADDQ        $64, R10
	ADDQ        $64, R11
	SUBQ        $64, CX
	JGE         loop4
tail4:
	KTESTW K1, K1
	JZ     reduce4
	VMOVUPS.Z (SI), K1, Z16
	TAILKEY((DI), Z0)
	TAILKEY((R9), Z4)
	TAILKEY((R10), Z8)
	TAILKEY((R11), Z12)
reduce4:
	// REDUCE16's tree; the four sums end in the first lane of each quarter.
	FOLD(VSHUFF32X4, 0x44, 0xee, Z0, Z4, Z0)
	FOLD(VSHUFF32X4, 0x44, 0xee, Z8, Z12, Z8)
	FOLD(VSHUFF32X4, 0x88, 0xdd, Z0, Z8, Z0)
	VPERMILPS     $0x4e, Z0, Z1
	VADDPS        Z1, Z0, Z0
	VPERMILPS     $0xb1, Z0, Z1
	VADDPS        Z1, Z0, Z0
	VMOVSS        X0, (BX)
	CMPQ          R12, $2
	JL            done
	VEXTRACTF32X4 $1, Z0, X1
	VMOVSS        X1, 4(BX)
	JE            done
	VEXTRACTF32X4 $2, Z0, X1
	VMOVSS        X1, 8(BX)
	CMPQ          R12, $4
	JL            done
	VEXTRACTF32X4 $3, Z0, X1
	VMOVSS        X1, 12(BX)
	ADDQ          $16, BX
	SUBQ          R13, SI
	SUBQ          R13, DI
	LEAQ          (DI)(DX*4), DI
	SUBQ          $4, R12
	JMP           tile4
done:
	VZEROUPPER
	RET

// func avx512Values4(acc, p *float32, ldp int, v *float32, nk, d int)
//
// 4 rows × 64 columns a tile, the accumulators in registers over all keys:
// 8 loads for 16 FMAs. Columns past a multiple of 64 go 16 at a time, masked.
TEXT ·avx512Values4(SB), NOSPLIT, $0-48
	MOVQ acc+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ ldp+16(FP), R8
	MOVQ v+24(FP), BX
	MOVQ d+40(FP), R13
	MOVQ R13, DX
	SHLQ $2, DX
	SHLQ $2, R8
	LEAQ (SI)(R8*2), R10
	ADDQ R8, R10
block64:
	CMPQ    R13, $64
	JL      block16
	LEAQ    (DI)(DX*2), R9
	ADDQ    DX, R9
	VMOVUPS (DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	VMOVUPS (DI)(DX*1), Z4
	VMOVUPS 64(DI)(DX*1), Z5
	VMOVUPS 128(DI)(DX*1), Z6
	VMOVUPS 192(DI)(DX*1), Z7
	VMOVUPS (DI)(DX*2), Z8
	VMOVUPS 64(DI)(DX*2), Z9
	VMOVUPS 128(DI)(DX*2), Z10
	VMOVUPS 192(DI)(DX*2), Z11
	VMOVUPS (R9), Z12
	VMOVUPS 64(R9), Z13
	VMOVUPS 128(R9), Z14
	VMOVUPS 192(R9), Z15
	MOVQ    BX, R11
	MOVQ    nk+32(FP), CX
	XORQ    AX, AX
loop64:
	VMOVUPS      (R11), Z16
	VMOVUPS      64(R11), Z17
	VMOVUPS      128(R11), Z18
	VMOVUPS      192(R11), Z19
	VBROADCASTSS (SI), Z20
	VBROADCASTSS (SI)(R8*1), Z21
	VBROADCASTSS (SI)(R8*2), Z22
	VBROADCASTSS (R10), Z23
	FMA4(Z20, Z0, Z1, Z2, Z3)
	FMA4(Z21, Z4, Z5, Z6, Z7)
	FMA4(Z22, Z8, Z9, Z10, Z11)
	FMA4(Z23, Z12, Z13, Z14, Z15)
	ADDQ         $4, SI
	ADDQ         $4, R10
	ADDQ         DX, R11
	DECQ         CX
	JNZ          loop64
	VMOVUPS      Z0, (DI)
	VMOVUPS      Z1, 64(DI)
	VMOVUPS      Z2, 128(DI)
	VMOVUPS      Z3, 192(DI)
	VMOVUPS      Z4, (DI)(DX*1)
	VMOVUPS      Z5, 64(DI)(DX*1)
	VMOVUPS      Z6, 128(DI)(DX*1)
	VMOVUPS      Z7, 192(DI)(DX*1)
	VMOVUPS      Z8, (DI)(DX*2)
	VMOVUPS      Z9, 64(DI)(DX*2)
	VMOVUPS      Z10, 128(DI)(DX*2)
	VMOVUPS      Z11, 192(DI)(DX*2)
	VMOVUPS      Z12, (R9)
	VMOVUPS      Z13, 64(R9)
	VMOVUPS      Z14, 128(R9)
	VMOVUPS      Z15, 192(R9)
	MOVQ         nk+32(FP), CX
	SHLQ         $2, CX
	SUBQ         CX, SI
	SUBQ         CX, R10
	ADDQ         $256, DI
	ADDQ         $256, BX
	SUBQ         $64, R13
	JMP          block64
block16:
	TESTQ R13, R13
	JLE   done
	MOVL  $0xffff, AX
	CMPQ  R13, $16
	JGE   masked
	BZHIL R13, AX, AX
masked:
	KMOVW     AX, K1
	LEAQ      (DI)(DX*2), R9
	ADDQ      DX, R9
	VMOVUPS.Z (DI), K1, Z0
	VMOVUPS.Z (DI)(DX*1), K1, Z1
	VMOVUPS.Z (DI)(DX*2), K1, Z2
	VMOVUPS.Z (R9), K1, Z3
	MOVQ      BX, R11
	MOVQ      nk+32(FP), CX
loop16:
	VMOVUPS.Z        (R11), K1, Z16
	VFMADD231PS.BCST (SI), Z16, Z0
	VFMADD231PS.BCST (SI)(R8*1), Z16, Z1
	VFMADD231PS.BCST (SI)(R8*2), Z16, Z2
	VFMADD231PS.BCST (R10), Z16, Z3
	ADDQ             $4, SI
	ADDQ             $4, R10
	ADDQ             DX, R11
	DECQ             CX
	JNZ              loop16
	VMOVUPS          Z0, K1, (DI)
	VMOVUPS          Z1, K1, (DI)(DX*1)
	VMOVUPS          Z2, K1, (DI)(DX*2)
	VMOVUPS          Z3, K1, (R9)
	MOVQ             nk+32(FP), CX
	SHLQ             $2, CX
	SUBQ             CX, SI
	SUBQ             CX, R10
	ADDQ             $64, DI
	ADDQ             $64, BX
	SUBQ             $16, R13
	JMP              block16
done:
	VZEROUPPER
	RET

// func avx512Values1(acc, p, v *float32, nk, d int)
TEXT ·avx512Values1(SB), NOSPLIT, $0-40
	MOVQ acc+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ v+16(FP), BX
	MOVQ nk+24(FP), R12
	MOVQ d+32(FP), R13
	MOVQ R13, DX
	SHLQ $2, DX
block128:
	CMPQ    R13, $128
	JL      block64
	VMOVUPS (DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	VMOVUPS 256(DI), Z4
	VMOVUPS 320(DI), Z5
	VMOVUPS 384(DI), Z6
	VMOVUPS 448(DI), Z7
	MOVQ    BX, R11
	XORQ    CX, CX
loop128:
	VBROADCASTSS (SI)(CX*4), Z16
	VFMADD231PS  (R11), Z16, Z0
	VFMADD231PS  64(R11), Z16, Z1
	VFMADD231PS  128(R11), Z16, Z2
	VFMADD231PS  192(R11), Z16, Z3
	VFMADD231PS  256(R11), Z16, Z4
	VFMADD231PS  320(R11), Z16, Z5
	VFMADD231PS  384(R11), Z16, Z6
	VFMADD231PS  448(R11), Z16, Z7
	ADDQ         DX, R11
	INCQ         CX
	CMPQ         CX, R12
	JL           loop128
	VMOVUPS      Z0, (DI)
	VMOVUPS      Z1, 64(DI)
	VMOVUPS      Z2, 128(DI)
	VMOVUPS      Z3, 192(DI)
	VMOVUPS      Z4, 256(DI)
	VMOVUPS      Z5, 320(DI)
	VMOVUPS      Z6, 384(DI)
	VMOVUPS      Z7, 448(DI)
	ADDQ         $512, DI
	ADDQ         $512, BX
	SUBQ         $128, R13
	JMP          block128
block64:
	CMPQ    R13, $64
	JL      block16
	VMOVUPS (DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	MOVQ    BX, R11
	XORQ    CX, CX
loop64:
	VBROADCASTSS (SI)(CX*4), Z16
	VFMADD231PS  (R11), Z16, Z0
	VFMADD231PS  64(R11), Z16, Z1
	VFMADD231PS  128(R11), Z16, Z2
	VFMADD231PS  192(R11), Z16, Z3
	ADDQ         DX, R11
	INCQ         CX
	CMPQ         CX, R12
	JL           loop64
	VMOVUPS      Z0, (DI)
	VMOVUPS      Z1, 64(DI)
	VMOVUPS      Z2, 128(DI)
	VMOVUPS      Z3, 192(DI)
	ADDQ         $256, DI
	ADDQ         $256, BX
	SUBQ         $64, R13
block16:
	TESTQ R13, R13
	JLE   done
	MOVL  $0xffff, AX
	CMPQ  R13, $16
	JGE   masked
	BZHIL R13, AX, AX
masked:
	KMOVW     AX, K1
	VMOVUPS.Z (DI), K1, Z0
	MOVQ      BX, R11
	XORQ      CX, CX
loop16:
	VMOVUPS.Z        (R11), K1, Z16
	VFMADD231PS.BCST (SI)(CX*4), Z16, Z0
	ADDQ             DX, R11
	INCQ             CX
	CMPQ             CX, R12
	JL               loop16
	VMOVUPS          Z0, K1, (DI)
	ADDQ             $64, DI
	ADDQ             $64, BX
	SUBQ             $16, R13
	JMP              block16
done:
	VZEROUPPER
	RET
