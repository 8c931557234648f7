#include "textflag.h"
#include "reduce_avx2_amd64.h"

DATA lanes<>+0(SB)/8, $-1
DATA lanes<>+8(SB)/8, $-1
DATA lanes<>+16(SB)/8, $-1
DATA lanes<>+24(SB)/8, $-1
DATA lanes<>+32(SB)/8, $0
DATA lanes<>+40(SB)/8, $0
DATA lanes<>+48(SB)/8, $0
DATA lanes<>+56(SB)/8, $0
GLOBL lanes<>(SB), RODATA|NOPTR, $64

#define CLEAR(a, b, c, d) \
	VXORPS a, a, a; \
	VXORPS b, b, b; \
	VXORPS c, c, c; \
	VXORPS d, d, d

#define FMA4(x, a, b, c, d) \
	VFMADD231PS Y8, x, a;  \
	VFMADD231PS Y9, x, b;  \
	VFMADD231PS Y10, x, c; \
	VFMADD231PS Y11, x, d

// func avx2Scores2(s *float32, lds int, q, k *float32, nk, d int)
//
// 2 queries × 4 keys a tile: 6 loads for 8 FMAs. nk is a multiple of 4. BX
// points at the mask of a row's tail.
TEXT ·avx2Scores2(SB), NOSPLIT, $0-48
	MOVQ s+0(FP), R9
	MOVQ lds+8(FP), R8
	MOVQ q+16(FP), SI
	MOVQ k+24(FP), DI
	MOVQ nk+32(FP), R12
	MOVQ d+40(FP), DX
	SHLQ $2, R8
	MOVQ DX, R13
	ANDQ $~7, R13
	SHLQ $2, R13
	LEAQ lanes<>+32(SB), BX
	SHLQ $2, DX
	MOVQ DX, AX
	ANDQ $31, AX               // bytes of a row's tail
	SUBQ AX, BX
	LEAQ (DX)(DX*2), R15
tile:
	LEAQ (DI)(R15*1), R11
	CLEAR(Y0, Y1, Y2, Y3)
	CLEAR(Y4, Y5, Y6, Y7)
	MOVQ R13, CX
	SUBQ $32, CX
	JL   tail
loop:
	VMOVUPS (DI), Y8
	VMOVUPS (DI)(DX*1), Y9
	VMOVUPS (DI)(DX*2), Y10
	VMOVUPS (R11), Y11
	VMOVUPS (SI), Y12
	VMOVUPS (SI)(DX*1), Y13
	FMA4(Y12, Y0, Y1, Y2, Y3)
	FMA4(Y13, Y4, Y5, Y6, Y7)
	ADDQ    $32, DI
	ADDQ    $32, R11
	ADDQ    $32, SI
	SUBQ    $32, CX
	JGE     loop
tail:
	TESTQ      AX, AX
	JZ         reduce
	VMOVUPS    (BX), Y14
	VMASKMOVPS (DI), Y14, Y8
	VMASKMOVPS (DI)(DX*1), Y14, Y9
	VMASKMOVPS (DI)(DX*2), Y14, Y10
	VMASKMOVPS (R11), Y14, Y11
	VMASKMOVPS (SI), Y14, Y12
	VMASKMOVPS (SI)(DX*1), Y14, Y13
	FMA4(Y12, Y0, Y1, Y2, Y3)
	FMA4(Y13, Y4, Y5, Y6, Y7)
reduce:
	REDUCE8
	VMOVUPS      X0, (R9)
	VEXTRACTF128 $1, Y0, (R9)(R8*1)
	ADDQ         $16, R9
	SUBQ         R13, SI
	SUBQ         R13, DI
	LEAQ         (DI)(DX*4), DI
	SUBQ         $4, R12
	JG           tile
	VZEROUPPER
	RET

#define TAILKEY(mem, acc) \
	VMASKMOVPS  mem, Y14, Y9; \
	VFMADD231PS Y9, Y8, acc

// func avx2Scores1(s, q, k *float32, nk, d int)
//
// 1 query × 8 keys a tile, the last keys 4 at a time: a tile's rows past the
// last one read the last one again, and their sums are not stored.
TEXT ·avx2Scores1(SB), NOSPLIT, $0-40
	MOVQ s+0(FP), R8
	MOVQ q+8(FP), SI
	MOVQ k+16(FP), DI
	MOVQ nk+24(FP), R12
	MOVQ d+32(FP), DX
	MOVQ DX, R13
	ANDQ $~7, R13
	SHLQ $2, R13
	LEAQ lanes<>+32(SB), BX
	SHLQ $2, DX
	MOVQ DX, AX
	ANDQ $31, AX
	SUBQ AX, BX
	LEAQ (DX)(DX*2), R15
tile8:
	CMPQ R12, $8
	JL   tile4
	LEAQ (DI)(DX*4), R9
	CLEAR(Y0, Y1, Y2, Y3)
	CLEAR(Y4, Y5, Y6, Y7)
	MOVQ R13, CX
	SUBQ $32, CX
	JL   tail8
loop8:
	VMOVUPS     (SI), Y8
	VFMADD231PS (DI), Y8, Y0
	VFMADD231PS (DI)(DX*1), Y8, Y1
	VFMADD231PS (DI)(DX*2), Y8, Y2
	VFMADD231PS (DI)(R15*1), Y8, Y3
	VFMADD231PS (R9), Y8, Y4
	VFMADD231PS (R9)(DX*1), Y8, Y5
	VFMADD231PS (R9)(DX*2), Y8, Y6
	VFMADD231PS (R9)(R15*1), Y8, Y7
	ADDQ        $32, SI
	ADDQ        $32, DI
	ADDQ        $32, R9
	SUBQ        $32, CX
	JGE         loop8
tail8:
	TESTQ      AX, AX
	JZ         reduce8
	VMOVUPS    (BX), Y14
	VMASKMOVPS (SI), Y14, Y8
	TAILKEY((DI), Y0)
	TAILKEY((DI)(DX*1), Y1)
	TAILKEY((DI)(DX*2), Y2)
	TAILKEY((DI)(R15*1), Y3)
	TAILKEY((R9), Y4)
	TAILKEY((R9)(DX*1), Y5)
	TAILKEY((R9)(DX*2), Y6)
	TAILKEY((R9)(R15*1), Y7)
reduce8:
	REDUCE8
	VMOVUPS Y0, (R8)
	ADDQ    $32, R8
	SUBQ    R13, SI
	SUBQ    R13, DI
	LEAQ    (DI)(DX*8), DI
	SUBQ    $8, R12
	JMP     tile8

tile4:
	TESTQ R12, R12
	JZ    done
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
	CLEAR(Y0, Y1, Y2, Y3)
	MOVQ    R13, CX
	SUBQ    $32, CX
	JL      tail4
loop4:
	VMOVUPS     (SI), Y8
	VFMADD231PS (DI), Y8, Y0
	VFMADD231PS (R9), Y8, Y1
	VFMADD231PS (R10), Y8, Y2
	VFMADD231PS (R11), Y8, Y3
	ADDQ        $32, SI
	ADDQ        $32, DI
	ADDQ        $32, R9
	ADDQ        $32, R10
	ADDQ        $32, R11
	SUBQ        $32, CX
	JGE         loop4
tail4:
	TESTQ      AX, AX
	JZ         reduce4
	VMOVUPS    (BX), Y14
	VMASKMOVPS (SI), Y14, Y8
	TAILKEY((DI), Y0)
	TAILKEY((R9), Y1)
	TAILKEY((R10), Y2)
	TAILKEY((R11), Y3)
reduce4:
	FOLD(VPERM2F128, 0x20, 0x31, Y0, Y1, Y0)
	FOLD(VPERM2F128, 0x20, 0x31, Y2, Y3, Y2)
	VPERMILPS    $0x4e, Y0, Y1
	VPERMILPS    $0x4e, Y2, Y3
	VADDPS       Y1, Y0, Y0
	VADDPS       Y3, Y2, Y2
	VPERMILPS    $0xb1, Y0, Y1
	VPERMILPS    $0xb1, Y2, Y3
	VADDPS       Y1, Y0, Y0
	VADDPS       Y3, Y2, Y2
	VMOVSS       X0, (R8)
	CMPQ         R12, $2
	JL           done
	VEXTRACTF128 $1, Y0, X1
	VMOVSS       X1, 4(R8)
	JE           done
	VMOVSS       X2, 8(R8)
	CMPQ         R12, $4
	JL           done
	VEXTRACTF128 $1, Y2, X1
	VMOVSS       X1, 12(R8)
	ADDQ         $16, R8
	SUBQ         R13, SI
	SUBQ         R13, DI
	LEAQ         (DI)(DX*4), DI
	SUBQ         $4, R12
	JMP          tile4
done:
	VZEROUPPER
	RET

// func avx2Values4(acc, p *float32, ldp int, v *float32, nk, d int)
//
// 4 rows × 16 columns a tile: 6 loads for 8 FMAs. Columns past a multiple of 16
// go 8 at a time, masked.
TEXT ·avx2Values4(SB), NOSPLIT, $0-48
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
block16:
	CMPQ    R13, $16
	JL      block8
	LEAQ    (DI)(DX*2), R9
	ADDQ    DX, R9
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS (DI)(DX*1), Y2
	VMOVUPS 32(DI)(DX*1), Y3
	VMOVUPS (DI)(DX*2), Y4
	VMOVUPS 32(DI)(DX*2), Y5
	VMOVUPS (R9), Y6
	VMOVUPS 32(R9), Y7
	MOVQ    BX, R11
	MOVQ    nk+32(FP), CX
loop16:
	VMOVUPS      (R11), Y8
	VMOVUPS      32(R11), Y9
	VBROADCASTSS (SI), Y10
	VBROADCASTSS (SI)(R8*1), Y11
	VBROADCASTSS (SI)(R8*2), Y12
	VBROADCASTSS (R10), Y13
	VFMADD231PS  Y8, Y10, Y0
	VFMADD231PS  Y9, Y10, Y1
	VFMADD231PS  Y8, Y11, Y2
	VFMADD231PS  Y9, Y11, Y3
	VFMADD231PS  Y8, Y12, Y4
	VFMADD231PS  Y9, Y12, Y5
	VFMADD231PS  Y8, Y13, Y6
	VFMADD231PS  Y9, Y13, Y7
	ADDQ         $4, SI
	ADDQ         $4, R10
	ADDQ         DX, R11
	DECQ         CX
	JNZ          loop16
	VMOVUPS      Y0, (DI)
	VMOVUPS      Y1, 32(DI)
	VMOVUPS      Y2, (DI)(DX*1)
	VMOVUPS      Y3, 32(DI)(DX*1)
	VMOVUPS      Y4, (DI)(DX*2)
	VMOVUPS      Y5, 32(DI)(DX*2)
	VMOVUPS      Y6, (R9)
	VMOVUPS      Y7, 32(R9)
	MOVQ         nk+32(FP), CX
	SHLQ         $2, CX
	SUBQ         CX, SI
	SUBQ         CX, R10
	ADDQ         $64, DI
	ADDQ         $64, BX
	SUBQ         $16, R13
	JMP          block16
block8:
	TESTQ   R13, R13
	JLE     done
	MOVQ    $8, AX
	CMPQ    R13, AX
	CMOVQLT R13, AX
	SHLQ    $2, AX
	LEAQ    lanes<>+32(SB), R11
	SUBQ    AX, R11
	VMOVUPS (R11), Y14
	LEAQ    (DI)(DX*2), R9
	ADDQ    DX, R9
	VMASKMOVPS (DI), Y14, Y0
	VMASKMOVPS (DI)(DX*1), Y14, Y1
	VMASKMOVPS (DI)(DX*2), Y14, Y2
	VMASKMOVPS (R9), Y14, Y3
	MOVQ    BX, R11
	MOVQ    nk+32(FP), CX
loop8:
	VMASKMOVPS   (R11), Y14, Y8
	VBROADCASTSS (SI), Y10
	VBROADCASTSS (SI)(R8*1), Y11
	VBROADCASTSS (SI)(R8*2), Y12
	VBROADCASTSS (R10), Y13
	VFMADD231PS  Y8, Y10, Y0
	VFMADD231PS  Y8, Y11, Y1
	VFMADD231PS  Y8, Y12, Y2
	VFMADD231PS  Y8, Y13, Y3
	ADDQ         $4, SI
	ADDQ         $4, R10
	ADDQ         DX, R11
	DECQ         CX
	JNZ          loop8
	VMASKMOVPS   Y0, Y14, (DI)
	VMASKMOVPS   Y1, Y14, (DI)(DX*1)
	VMASKMOVPS   Y2, Y14, (DI)(DX*2)
	VMASKMOVPS   Y3, Y14, (R9)
	MOVQ         nk+32(FP), CX
	SHLQ         $2, CX
	SUBQ         CX, SI
	SUBQ         CX, R10
	ADDQ         $32, DI
	ADDQ         $32, BX
	SUBQ         $8, R13
	JMP          block8
done:
	VZEROUPPER
	RET

// func avx2Values1(acc, p, v *float32, nk, d int)
TEXT ·avx2Values1(SB), NOSPLIT, $0-40
	MOVQ acc+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ v+16(FP), BX
	MOVQ nk+24(FP), R12
	MOVQ d+32(FP), R13
	MOVQ R13, DX
	SHLQ $2, DX
block64:
	CMPQ    R13, $64
	JL      block8
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4
	VMOVUPS 160(DI), Y5
	VMOVUPS 192(DI), Y6
	VMOVUPS 224(DI), Y7
	MOVQ    BX, R11
	XORQ    CX, CX
loop64:
	VBROADCASTSS (SI)(CX*4), Y8
	VFMADD231PS  (R11), Y8, Y0
	VFMADD231PS  32(R11), Y8, Y1
	VFMADD231PS  64(R11), Y8, Y2
	VFMADD231PS  96(R11), Y8, Y3
	VFMADD231PS  128(R11), Y8, Y4
	VFMADD231PS  160(R11), Y8, Y5
	VFMADD231PS  192(R11), Y8, Y6
	VFMADD231PS  224(R11), Y8, Y7
	ADDQ         DX, R11
	INCQ         CX
	CMPQ         CX, R12
	JL           loop64
	VMOVUPS      Y0, (DI)
	VMOVUPS      Y1, 32(DI)
	VMOVUPS      Y2, 64(DI)
	VMOVUPS      Y3, 96(DI)
	VMOVUPS      Y4, 128(DI)
	VMOVUPS      Y5, 160(DI)
	VMOVUPS      Y6, 192(DI)
	VMOVUPS      Y7, 224(DI)
	ADDQ         $256, DI
	ADDQ         $256, BX
	SUBQ         $64, R13
	JMP          block64
block8:
	TESTQ      R13, R13
	JLE        done
	MOVQ       $8, AX
	CMPQ       R13, AX
	CMOVQLT    R13, AX
	SHLQ       $2, AX
	LEAQ       lanes<>+32(SB), R11
	SUBQ       AX, R11
	VMOVUPS    (R11), Y14
	VMASKMOVPS (DI), Y14, Y0
	MOVQ       BX, R11
	XORQ       CX, CX
loop8:
	VMASKMOVPS   (R11), Y14, Y8
	VBROADCASTSS (SI)(CX*4), Y9
	VFMADD231PS  Y8, Y9, Y0
	ADDQ         DX, R11
	INCQ         CX
	CMPQ         CX, R12
	JL           loop8
	VMASKMOVPS   Y0, Y14, (DI)
	ADDQ         $32, DI
	ADDQ         $32, BX
	SUBQ         $8, R13
	JMP          block8
done:
	VZEROUPPER
	RET
