// Products of a warpgroup (compute capability 9.0): 64 outputs by 48, 64 or 128
// rows, weights from registers, x from shared memory. A warp's results lie as
// those of mma_bf16 do.
#pragma once
#include "project_multiply.cuh"
#ifdef __NVPTX__

#define R4(c, j) "=f"(c[j][0]), "=f"(c[j][1]), "=f"(c[j][2]), "=f"(c[j][3])
#define R16(c, j) R4(c, j), R4(c, j + 1), R4(c, j + 2), R4(c, j + 3)
#define D10(d) "%" #d "0, %" #d "1, %" #d "2, %" #d "3, %" #d "4, %" #d "5, %" #d "6, %" #d "7, %" #d "8, %" #d "9, "
#define D24 D10() D10(1) "%20, %21, %22, %23"
#define D32 D10() D10(1) D10(2) "%30, %31"
#define D64 D10() D10(1) D10(2) D10(3) D10(4) D10(5) "%60, %61, %62, %63"
#define W4(w, s) "r"(w[s][0]), "r"(w[s][1]), "r"(w[s][2]), "r"(w[s][3])

// One step of 16 inputs; p is false in the first, which starts the sums at zero.
#define STEP(n, list, weights, x, p) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" list "}, {" weights "}, " x ", " p ", 1, 1, 0;\n\t"
#define BEGIN "{\n\t.reg .pred p, q;\n\t.reg .b32 zero;\n\t.reg .b64 x1, x2, x3;\n\tmov.b32 zero, 0;\n\tsetp.ne.b32 p, zero, 0;\n\tsetp.eq.b32 q, zero, 0;\n\twgmma.fence.sync.aligned;\n\t"
#define END "wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;\n\t}"
// Steps are 32 bytes apart in the lines of 128.
#define STEPS1(n, list, a, x) BEGIN STEP(n, list, a, x, "p") END
#define STEPS2(n, list, a, b, x) BEGIN "add.s64 x1, " x ", 2;\n\t" STEP(n, list, a, x, "p") STEP(n, list, b, "x1", "q") END
#define STEPS4(n, list, a, b, c, d, x)                                                                                         \
  BEGIN "add.s64 x1, " x ", 2;\n\tadd.s64 x2, " x ", 4;\n\tadd.s64 x3, " x ", 6;\n\t" STEP(n, list, a, x, "p") STEP(n, list, b, "x1", "q") \
      STEP(n, list, c, "x2", "q") STEP(n, list, d, "x3", "q") END

// 128-byte lines, permuted in groups of 8 (1024 bytes).
DEV u64 line_descriptor(const void *p) { return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)1 << 16 | (shared_address(p) & 0x3ffff) >> 4; }

#define WIDE(tiles, n, list, sums, r0, r1, r2, r3, r4, r8, r16)                                                                              \
  template <u32 steps> struct Wide<tiles, steps> {                                                                                          \
    /* fence lets the instruction see what copies and threads have written. */                                                              \
    static METHOD void fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }                                              \
    static METHOD void multiply(float (&c)[tiles][4], const u32 (*w)[4], const u8 *x) {                                                      \
      u64 at = line_descriptor(x);                                                                                                          \
      if constexpr (steps == 4) asm volatile(STEPS4(n, list, r0, r1, r2, r3, r16) : sums : W4(w, 0), W4(w, 1), W4(w, 2), W4(w, 3), "l"(at) : "memory"); \
      if constexpr (steps == 2) asm volatile(STEPS2(n, list, r0, r1, r8) : sums : W4(w, 0), W4(w, 1), "l"(at) : "memory");                   \
      if constexpr (steps == 1) asm volatile(STEPS1(n, list, r0, r4) : sums : W4(w, 0), "l"(at) : "memory");                                 \
    }                                                                                                                                       \
  };

#define SUMS6(c) R4(c, 0), R4(c, 1), R4(c, 2), R4(c, 3), R4(c, 4), R4(c, 5)
#define SUMS8(c) R16(c, 0), R16(c, 4)
#define SUMS16(c) R16(c, 0), R16(c, 4), R16(c, 8), R16(c, 12)
WIDE(6, 48, D24, SUMS6(c), "%24, %25, %26, %27", "%28, %29, %30, %31", "%32, %33, %34, %35", "%36, %37, %38, %39", "%28", "%32", "%40")
WIDE(8, 64, D32, SUMS8(c), "%32, %33, %34, %35", "%36, %37, %38, %39", "%40, %41, %42, %43", "%44, %45, %46, %47", "%36", "%40", "%48")
WIDE(16, 128, D64, SUMS16(c), "%64, %65, %66, %67", "%68, %69, %70, %71", "%72, %73, %74, %75", "%76, %77, %78, %79", "%68", "%72", "%80")
#endif
