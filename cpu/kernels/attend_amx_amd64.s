#include "textflag.h"
#include "tiles_amx_amd64.h"
#include "exp_avx512_amd64.h"

// Offsets in tileAttention.
#define CFG    0
#define PAGES  8
#define COUNT  16
#define KROW   24
#define VALUES 32
#define Q      40
#define QROW   48
#define QSTEP  56
#define STEPS  64
#define ACC    72
#define PEAK   80
#define SUM    88
#define SEEN   96
#define S      104
#define P      112
#define GROUPS 120
#define QGROUP 128
#define AGROUP 136

// Words of two registers of 32 bf16, in turn: element i of the first half, then
// of the second.
DATA pairTable<>+0(SB)/8, $0x0011000100100000
DATA pairTable<>+8(SB)/8, $0x0013000300120002
DATA pairTable<>+16(SB)/8, $0x0015000500140004
DATA pairTable<>+24(SB)/8, $0x0017000700160006
DATA pairTable<>+32(SB)/8, $0x0019000900180008
DATA pairTable<>+40(SB)/8, $0x001b000b001a000a
DATA pairTable<>+48(SB)/8, $0x001d000d001c000c
DATA pairTable<>+56(SB)/8, $0x001f000f001e000e
GLOBL pairTable<>(SB), RODATA|NOPTR, $64

// FETCH fetches two lines of each 4 KB of the next page's 32 (at a head dimension
// of 128), where R14 is not 0: eight streams, since one reads half of what memory
// gives. T0 would drive this page from L1.
#define FETCH(past) \
	TESTQ R14, R14; \
	JZ    past; \
	PREFETCHT1 0(R14); \
	PREFETCHT1 4096(R14); \
	PREFETCHT1 8192(R14); \
	PREFETCHT1 12288(R14); \
	PREFETCHT1 16384(R14); \
	PREFETCHT1 20480(R14); \
	PREFETCHT1 24576(R14); \
	PREFETCHT1 28672(R14); \
	PREFETCHT1 64(R14); \
	PREFETCHT1 4160(R14); \
	PREFETCHT1 8256(R14); \
	PREFETCHT1 12352(R14); \
	PREFETCHT1 16448(R14); \
	PREFETCHT1 20544(R14); \
	PREFETCHT1 24640(R14); \
	PREFETCHT1 28736(R14); \
	ADDQ  $128, R14; \
past:

// SHRINK8 multiplies eight rows of sums at SI by Z3.
#define SHRINK8(at) \
	VMULPS  (at+0)(SI), Z3, Z4; \
	VMULPS  (at+64)(SI), Z3, Z5; \
	VMULPS  (at+128)(SI), Z3, Z6; \
	VMULPS  (at+192)(SI), Z3, Z7; \
	VMULPS  (at+256)(SI), Z3, Z8; \
	VMULPS  (at+320)(SI), Z3, Z9; \
	VMULPS  (at+384)(SI), Z3, Z10; \
	VMULPS  (at+448)(SI), Z3, Z11; \
	VMOVUPS Z4, (at+0)(SI); \
	VMOVUPS Z5, (at+64)(SI); \
	VMOVUPS Z6, (at+128)(SI); \
	VMOVUPS Z7, (at+192)(SI); \
	VMOVUPS Z8, (at+256)(SI); \
	VMOVUPS Z9, (at+320)(SI); \
	VMOVUPS Z10, (at+384)(SI); \
	VMOVUPS Z11, (at+448)(SI)

// TWOKEYS weighs two keys: their sums go to s0 and s1, the pair to (DI).
#define TWOKEYS(at, s0, s1) \
	VMOVUPS   (at)(SI), Z1; \
	VMOVUPS   (at+64)(SI), Z5; \
	VSUBPS    Z30, Z1, Z1; \
	VSUBPS    Z30, Z5, Z5; \
	CLAMP(Z1); \
	CLAMP(Z5); \
	EXP(Z1, Z2, Z3); \
	EXP(Z5, Z6, Z7); \
	VADDPS    Z3, s0, s0; \
	VADDPS    Z7, s1, s1; \
	VCVTNE2PS2BF16(3, 7, 1); \
	VPERMW    Z1, Z31, Z1; \
	VMOVUPS   Z1, (at/2)(DI)

// func tileAttend(t *tileAttention)
//
// For each page of 64 keys and each group of up to 16 queries: scores [64, 16],
// keys by queries, so that a lane is a query; its running maximum, its weights,
// which become the B operand pair by pair, and its sum; and the values' part of
// acc [head dim, 16]. Four tiles are in use at a time (see tilesMany).
TEXT ·tileAttend(SB), NOSPLIT, $40-8
	MOVQ t+0(FP), R15
	MOVQ CFG(R15), AX
	LDTILECFG_AX
	EXPCONSTANTS
	VMOVUPS pairTable<>(SB), Z31
	MOVQ $0, page-8(SP)

attendPage:
	MOVQ $0, group-16(SP)

attendGroup:
	// Scores: R8 keys, R12 their step; R10 queries, R11 their step; DI sums.
	MOVQ  PAGES(R15), AX
	MOVQ  page-8(SP), CX
	MOVQ  (AX)(CX*8), R8
	MOVQ  R8, keys-24(SP)

	// Few queries wait for memory: they fetch the next page, spread over the
	// work on this one. More meet pages in L2, where that costs time.
	XORQ  R14, R14
	INCQ  CX
	CMPQ  CX, COUNT(R15)
	JGE   attendScores
	CMPQ  GROUPS(R15), $1
	JNE   attendScores
	MOVQ  (AX)(CX*8), R14

attendScores:
	MOVQ  KROW(R15), R12
	MOVQ  QROW(R15), R11
	MOVQ  Q(R15), R9
	MOVQ  QGROUP(R15), AX
	IMULQ group-16(SP), AX
	ADDQ  AX, R9
	MOVQ  QSTEP(R15), R13
	MOVQ  S(R15), DI
	MOVQ  $64, DX
	MOVQ  $2, BX

attendKeys:
	MOVQ R8, AX
	MOVQ R12, CX
	SHLQ $4, CX
	ADDQ AX, CX
	MOVQ R9, R10
	MOVQ STEPS(R15), SI
	TILEZERO(0)
	TILEZERO(1)

attendStep:
	TILELOADD(10, 11, 2)
	TILELOADD(0, 12, 3)
	TDPBF16PS(2, 3, 0)
	FETCH(attendHalf)
	TILELOADD(1, 12, 3)
	TDPBF16PS(2, 3, 1)
	FETCH(attendStepped)
	ADDQ $64, AX
	ADDQ $64, CX
	ADDQ R13, R10
	DECQ SI
	JNZ  attendStep
	TILESTORED(0, 7, 2)
	ADDQ $1024, DI
	TILESTORED(1, 7, 2)
	ADDQ $1024, DI
	MOVQ R12, CX
	SHLQ $5, CX
	ADDQ CX, R8
	DECQ BX
	JNZ  attendKeys

	// Keys that a query does not see: Z29 is how many of the page's it sees.
	MOVQ         group-16(SP), AX
	SHLQ         $6, AX
	MOVQ         SEEN(R15), CX
	VMOVDQU32    (CX)(AX*1), Z29
	MOVQ         page-8(SP), CX
	SHLQ         $6, CX
	VPBROADCASTD CX, Z0
	VPSUBD       Z0, Z29, Z29
	MOVL         $64, CX
	VPBROADCASTD CX, Z0
	VPCMPD       $1, Z0, Z29, K1
	KORTESTW     K1, K1
	JZ           attendPeak
	MOVL         $0xff800000, CX
	VPBROADCASTD CX, Z1
	MOVL         $1, CX
	VPBROADCASTD CX, Z2
	VPXORD       Z0, Z0, Z0
	MOVQ         S(R15), SI
	MOVL         $64, CX

attendMask:
	VPCMPD  $2, Z0, Z29, K1
	VMOVUPS Z1, K1, (SI)
	VPADDD  Z2, Z0, Z0
	ADDQ    $64, SI
	DECQ    CX
	JNZ     attendMask

attendPeak:
	MOVQ    S(R15), SI
	MOVQ    PEAK(R15), R8
	ADDQ    AX, R8
	VMOVUPS (R8), Z28
	VMOVAPS Z28, Z0
	VMOVAPS Z28, Z1
	VMOVAPS Z28, Z2
	VMOVAPS Z28, Z3
	MOVL    $16, CX

attendMost:
	VMAXPS (SI), Z0, Z0
	VMAXPS 64(SI), Z1, Z1
	VMAXPS 128(SI), Z2, Z2
	VMAXPS 192(SI), Z3, Z3
	ADDQ   $256, SI
	DECQ   CX
	JNZ    attendMost
	VMAXPS Z1, Z0, Z0
	VMAXPS Z3, Z2, Z2
	VMAXPS Z2, Z0, Z30
	VMOVUPS Z30, (R8)

	// What came before shrinks by e^(old-new).
	MOVQ   SUM(R15), R9
	ADDQ   AX, R9
	VMOVUPS (R9), Z0
	MOVQ   ACC(R15), R8
	MOVQ   AGROUP(R15), AX
	IMULQ  group-16(SP), AX
	ADDQ   AX, R8
	VCMPPS $4, Z28, Z30, K1
	KORTESTW K1, K1
	JZ     attendWeigh
	VSUBPS Z30, Z28, Z1
	CLAMP(Z1)
	EXP(Z1, Z2, Z3)
	VMULPS Z3, Z0, Z0
	MOVQ   R8, SI
	MOVQ   STEPS(R15), CX

attendShrink:
	SHRINK8(0)
	SHRINK8(512)
	SHRINK8(1024)
	SHRINK8(1536)
	ADDQ   $2048, SI
	DECQ   CX
	JNZ    attendShrink

attendWeigh:
	MOVQ S(R15), SI
	MOVQ P(R15), DI
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	MOVL $8, CX

attendPairs:
	FETCH(attendFetched)
	TWOKEYS(0, Z8, Z9)
	TWOKEYS(128, Z10, Z11)
	TWOKEYS(256, Z8, Z9)
	TWOKEYS(384, Z10, Z11)
	ADDQ $512, SI
	ADDQ $256, DI
	DECQ CX
	JNZ  attendPairs
	VADDPS Z9, Z8, Z8
	VADDPS Z11, Z10, Z10
	VADDPS Z10, Z8, Z8
	VADDPS Z8, Z0, Z0
	VMOVUPS Z0, (R9)

	// Values: AX, CX rows of 64 keys of 16 dimensions each, 128 apart; R8, DI sums.
	MOVQ keys-24(SP), AX
	ADDQ VALUES(R15), AX
	MOVQ $64, DX
	MOVQ $128, BX
	MOVQ P(R15), R10
	LEAQ 1024(R10), R11
	MOVQ STEPS(R15), SI

attendValues:
	LEAQ 1024(R8), DI
	LEAQ 2048(AX), CX
	TILELOADD(8, 2, 0)
	TILELOADD(7, 2, 1)
	TILELOADD(10, 2, 2)
	TILELOADD(0, 3, 3)
	TDPBF16PS(2, 3, 0)
	TILELOADD(1, 3, 3)
	TDPBF16PS(2, 3, 1)
	ADDQ $64, AX
	ADDQ $64, CX
	FETCH(valuesHalf)
	TILELOADD(11, 2, 2)
	TILELOADD(0, 3, 3)
	TDPBF16PS(2, 3, 0)
	FETCH(valuesStepped)
	TILELOADD(1, 3, 3)
	TDPBF16PS(2, 3, 1)
	TILESTORED(0, 8, 2)
	TILESTORED(1, 7, 2)
	ADDQ $(4096-64), AX
	ADDQ $2048, R8
	DECQ SI
	JNZ  attendValues

	MOVQ group-16(SP), AX
	INCQ AX
	MOVQ AX, group-16(SP)
	CMPQ AX, GROUPS(R15)
	JLT  attendGroup
	MOVQ page-8(SP), AX
	INCQ AX
	MOVQ AX, page-8(SP)
	CMPQ AX, COUNT(R15)
	JLT  attendPage
	TILERELEASE
	VZEROUPPER
	RET
