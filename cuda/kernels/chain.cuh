// Products of 64 inputs by weights in registers on compute capability 9.0: what tiled.cuh
// and wide.cuh do with weights that are rounded to bf16.
#pragma once
#include "hopper.cuh"

#ifdef __NVPTX__
#define N4 "%0, %1, %2, %3"
#define N8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define N16 N10() "%10, %11, %12, %13, %14, %15"

// chain starts c[64, n] += a[64, 64] · b[n, 64]ᵀ: four steps, whose descriptors are
// 32 bytes apart in the swizzled lines.
#define A4(k) [a##k##0] "r"(a[k][0]), [a##k##1] "r"(a[k][1]), [a##k##2] "r"(a[k][2]), [a##k##3] "r"(a[k][3])
#define STEP(n, list, k, b) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" list "}, {%[a" #k "0], %[a" #k "1], %[a" #k "2], %[a" #k "3]}, " b ", p, 1, 1, 0;\n\t"
#define CHAIN(n, tiles, list, sums)                                                                                                          \
  DEV void chain(float (&c)[tiles][4], const u32 (&a)[4][4], u64 b) {                                                                        \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b1, b2, b3;\n\tsetp.ne.b32 p, %[one], 0;\n\t"                                                      \
                 "add.s64 b1, %[b], 2;\n\tadd.s64 b2, %[b], 4;\n\tadd.s64 b3, %[b], 6;\n\t"                                                  \
                 "wgmma.fence.sync.aligned;\n\t" STEP(n, list, 0, "%[b]") STEP(n, list, 1, "b1") STEP(n, list, 2, "b2")                       \
                 STEP(n, list, 3, "b3") "wgmma.commit_group.sync.aligned;\n\t}"                                                         \
                 : sums(c)                                                                                                                   \
                 : A4(0), A4(1), A4(2), A4(3), [b] "l"(b), [one] "r"(1)                                                                      \
                 : "memory");                                                                                                                \
  }
CHAIN(8, 1, N4, SUMS1)
CHAIN(16, 2, N8, SUMS2)
CHAIN(32, 4, N16, SUMS4)
CHAIN(48, 6, N24, SUMS6)
CHAIN(64, 8, N32, SUMS8)
CHAIN(72, 9, N36, SUMS9)
CHAIN(128, 16, N64, SUMS16)
CHAIN(256, 32, N128, SUMS32)
// product starts c[64, n] (+)= a[64, 16] · b[n, 16]ᵀ, a in registers; c starts at
// zero where add is 0.
#define PRODUCT(n, tiles, list, sums, a0, a1, a2, a3, b, p)                                                                                 \
  DEV void product(float (&c)[tiles][4], const u32 (&a)[4], u64 b_, u32 add) {                                                             \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " p ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" list "}, {" \
                 a0 ", " a1 ", " a2 ", " a3 "}, " b ", p, 1, 1, 0;\n\t}"                                                                    \
                 : sums(c)                                                                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_), "r"(add)                                                           \
                 : "memory");                                                                                                              \
  }
PRODUCT(8, 1, N4, SUMS1, "%4", "%5", "%6", "%7", "%8", "%9")
PRODUCT(16, 2, N8, SUMS2, "%8", "%9", "%10", "%11", "%12", "%13")
PRODUCT(32, 4, N16, SUMS4, "%16", "%17", "%18", "%19", "%20", "%21")
PRODUCT(64, 8, N32, SUMS8, "%32", "%33", "%34", "%35", "%36", "%37")
#undef PRODUCT
#undef CHAIN
#undef STEP
#undef A4
#else
template <int tiles> DEV void chain(float (&c)[tiles][4], const u32 (&a)[4][4], u64 b) {
  products_fence();
  for (u32 k = 0; k < 4; k++) product(c, a[k], b + k * 2, true);
  products_commit();
}
#endif

// zero takes weights out of a chain.
DEV void zero(u32 (&a)[4][4]) {
  UNROLL for (u32 i = 0; i < 16; i++) a[i / 4][i % 4] = 0;
}
