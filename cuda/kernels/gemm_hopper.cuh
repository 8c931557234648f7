// What gemm_hopper.cu and sliced_hopper.cu share: a stage's products by wgmma, of
// activations and of weights in shared memory, and which tile is whose.
#pragma once
#include "gemm.cuh"
#include "hopper.cuh"

#ifdef __NVPTX__
// One stage: c[64, n] += a[64, 64] · b[n, 64]ᵀ, four k16 steps whose
// descriptors are 32 bytes apart in the swizzled lines.
#define WGMMA(n, list, da, db) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" list "}, " da ", " db ", 1, 1, 1, 0, 0;\n\t"
#define STAGE(n, list, da, db)                                                                                                        \
  "{\n\t.reg .b64 a1, a2, a3, b1, b2, b3;\n\t"                                                                                       \
  "add.s64 a1, " da ", 2;\n\tadd.s64 a2, " da ", 4;\n\tadd.s64 a3, " da ", 6;\n\t"                                                     \
  "add.s64 b1, " db ", 2;\n\tadd.s64 b2, " db ", 4;\n\tadd.s64 b3, " db ", 6;\n\t"                                                     \
  "wgmma.fence.sync.aligned;\n\t"                                                                                                     \
  WGMMA(n, list, da, db) WGMMA(n, list, "a1", "b1") WGMMA(n, list, "a2", "b2") WGMMA(n, list, "a3", "b3")                              \
  "wgmma.commit_group.sync.aligned;\n\t}"

// multiply starts a stage.
DEV void multiply(float (&c)[32][4], u64 a, u64 b) { asm volatile(STAGE(256, N128, "%128", "%129") : SUMS32(c) : "l"(a), "l"(b) : "memory"); }
DEV void multiply(float (&c)[16][4], u64 a, u64 b) { asm volatile(STAGE(128, N64, "%64", "%65") : SUMS16(c) : "l"(a), "l"(b) : "memory"); }
DEV void multiply(float (&c)[8][4], u64 a, u64 b) { asm volatile(STAGE(64, N32, "%32", "%33") : SUMS8(c) : "l"(a), "l"(b) : "memory"); }
DEV void multiply(float (&c)[4][4], u64 a, u64 b) { asm volatile(STAGE(32, N10() "%10, %11, %12, %13, %14, %15", "%16", "%17") : SUMS4(c) : "l"(a), "l"(b) : "memory"); }
#else
template <int n> DEV void multiply(float (&c)[n][4], u64 a, u64 b) {
  products_fence();
  for (u32 k = 0; k < 4; k++) product(c, a + k * 2, b + k * 2, true);
  products_commit();
}
#endif

// Work is a launch: up to three weights that share x, or gate and up.
struct Work {
  const void *x, *w[3]; // tensor maps: boxes of up to 128 rows by 64 k
  Output d[3];
  const float *gate_bias, *up_bias;
  u32 out[3], rows, in;
};

// Place is a block's tile.
struct Place {
  const void *w;
  Output d;
  u32 out, row, col;
};

// Way is how the blocks of a launch share work: ALONE; ROWS: two take
// neighbouring rows, and load half of one tile of weights each for both; COLS:
// two take neighbouring outputs, and load half of one tile of x each for both;
// SPLIT: two take halves of k of one tile.
enum Way { ALONE, ROWS, COLS, SPLIT };

// locate finds tile number t of a block of a cluster; false past the last. A
// tile has rows rows and cols outputs.
template <u32 outputs, Way way> DEV bool locate(const Work &k, u32 t, u32 rank, Place &p, u32 rows = 128) {
  constexpr u32 tall = way == ROWS ? 2 : 1, broad = way == COLS ? 2 : 1, cols = outputs * broad;
  const u32 c0 = (k.out[0] + cols - 1) / cols, c1 = (k.out[1] + cols - 1) / cols, c2 = (k.out[2] + cols - 1) / cols, columns = c0 + c1 + c2;
  const u32 tiles = (k.rows + rows * tall - 1) / (rows * tall);
  if (t >= tiles * columns) return false;
  u32 r, c;
  place<16 / tall>(t, tiles, columns, r, c);
  p.row = (r * tall + rank % tall) * rows;
  p.w = k.w[0], p.d = k.d[0], p.out = k.out[0];
  if (c >= c0 + c1) c -= c0 + c1, p.w = k.w[2], p.d = k.d[2], p.out = k.out[2];
  else if (c >= c0) c -= c0, p.w = k.w[1], p.d = k.d[1], p.out = k.out[1];
  p.col = c * cols + rank % broad * outputs;
  return true;
}
