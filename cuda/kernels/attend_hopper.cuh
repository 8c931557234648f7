// What the attention kernels of compute capability 9.0 share: tiles of lines of 128
// numbers in bf16, as wgmma reads them.
#pragma once
#include "attend.cuh"
#include "hopper.cuh"

#ifdef __NVPTX__
#define R4(a, j) "r"(a[j][0]), "r"(a[j][1]), "r"(a[j][2]), "r"(a[j][3])
#define WGMMA(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 "

// start_scores starts s = queries[64, 128] · keys[n, 128]ᵀ: 8 steps of 16
// dimensions, 32 bytes apart in the swizzled lines, in halves of 64 dimensions, h0 apart
// in tiles of n lines. Descriptors count 16 bytes.
#define STEP(n, list, at, p) "add.s64 a, %[q], " #at ";\n\tadd.s64 b, %[k], " #at ";\n\t" WGMMA(n) "{" list "}, a, b, " #p ", 1, 1, 0, 0;\n\t"
#define SCORES(n, tiles, list, sums, h0, h1, h2, h3)                                                                                                                        \
  DEV void start_scores(float (&s)[tiles][4], u64 q, u64 k) {                                                                                                               \
    asm volatile("{\n\t.reg .pred no, yes;\n\t.reg .b64 a, b;\n\tsetp.ne.b64 no, %[k], %[k];\n\tsetp.eq.b64 yes, %[k], %[k];\n\twgmma.fence.sync.aligned;\n\t" STEP(n, list, 0, no) \
                     STEP(n, list, 2, yes) STEP(n, list, 4, yes) STEP(n, list, 6, yes) STEP(n, list, h0, yes) STEP(n, list, h1, yes) STEP(n, list, h2, yes)                  \
                         STEP(n, list, h3, yes) "wgmma.commit_group.sync.aligned;\n\t}"                                                                                     \
                 : sums(s)                                                                                                                                                  \
                 : [q] "l"(q), [k] "l"(k)                                                                                                                                   \
                 : "memory");                                                                                                                                               \
  }
SCORES(64, 8, N32, SUMS8, 512, 514, 516, 518)
SCORES(128, 16, N64, SUMS16, 1024, 1026, 1028, 1030)
#undef SCORES
// start_scores_256 is that of queries[64, 256] by keys[64, 256].
DEV void start_scores_256(float (&s)[8][4], u64 q, u64 k) {
#define FOUR(a, b, c, d, p) STEP(64, N32, a, p) STEP(64, N32, b, yes) STEP(64, N32, c, yes) STEP(64, N32, d, yes)
  asm volatile("{\n\t.reg .pred no, yes;\n\t.reg .b64 a, b;\n\tsetp.ne.b64 no, %[k], %[k];\n\tsetp.eq.b64 yes, %[k], %[k];\n\twgmma.fence.sync.aligned;\n\t" FOUR(0, 2, 4, 6, no)
                   FOUR(512, 514, 516, 518, yes) FOUR(1024, 1026, 1028, 1030, yes) FOUR(1536, 1538, 1540, 1542, yes) "wgmma.commit_group.sync.aligned;\n\t}"
               : SUMS8(s)
               : [q] "l"(q), [k] "l"(k)
               : "memory");
#undef FOUR
}
#undef STEP
#else
template <int tiles, u32 steps = 8> DEV void start_scores(float (&s)[tiles][4], u64 q, u64 k) {
  products_fence();
  for (u32 i = 0; i < steps; i++) product(s, q + i / 4 * tiles * 64 + i % 4 * 2, k + i / 4 * tiles * 64 + i % 4 * 2, i > 0);
  products_commit();
}
DEV void start_scores_256(float (&s)[8][4], u64 q, u64 k) { start_scores<8, 16>(s, q, k); }
#endif

// copy_piece copies 16 bytes, a piece of a line, to its place in the swizzle: lines of
// 128 bytes, of 64 elements, the next 64 of all lines HALF bytes behind, pieces turned by
// the line's number.
template <u32 HALF> DEV void copy_piece(u32 to, u32 line, u32 piece, const void *from, bool there) {
  copy_to(to + piece / 8 * HALF + line * 128 + (piece % 8 ^ line % 8) * 16, from, there);
}
// written shows what this thread's copies wrote to wgmma of others, once the
// barrier is passed.
DEV void written(u32 barrier) {
  proxy_fence();
  arrive(barrier, true);
}

// hide masks the scores of the tile that starts at slot: the rows are those of
// two indices. The warp is whole again behind it.
template <int TILES> DEV void hide(float (&x)[TILES][4], const View &view, u32 slot, const u32 (&index)[2]) {
  if (view.window == 0) { // slots are indices
    const u32 first = slot + tid() % 4 * 2;
    UNROLL for (int n = 0; n < TILES; n++)
      UNROLL for (int j = 0; j < 2; j++) {
        x[n][j] = first + n * 8 + j > index[0] ? NONE : x[n][j];
        x[n][2 + j] = first + n * 8 + j > index[1] ? NONE : x[n][2 + j];
      }
    return;
  }
  // Bits of what is hidden: a loop, as unrolled it was half of the kernel.
  u32 hidden[2] = {0, 0};
#pragma unroll 1
  for (u32 i = 0; i < 2 * TILES; i++) {
    const Column c = column_of(view, slot + i / 2 * 8 + tid() % 4 * 2 + i % 2);
    UNROLL for (int h = 0; h < 2; h++) hidden[h] |= (sees(index[h], c) ? 0u : 1u) << i;
  }
  UNROLL for (int n = 0; n < TILES; n++)
    UNROLL for (int j = 0; j < 2; j++)
      UNROLL for (int h = 0; h < 2; h++)
        if (hidden[h] >> (2 * n + j) & 1) x[n][2 * h + j] = NONE;
  sync_warp();
}
