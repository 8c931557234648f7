// Flash attention of prefill passes on compute capability 9.0: what
// attend_prefill.cu does, by wgmma. A block takes 128 query vectors: rows of one
// query head, or, for spans of few rows, rows of all query heads of a KV head.
// One warpgroup copies tiles of keys, and of their values, into swizzled shared
// memory: 128 of them, of heads of 256 numbers 64. Two others have 64 rows each, and
// take the scores of a tile while the values of the tile before are multiplied. They
// start products in turns, so that those of one run while the other takes exponentials.
#pragma once
#include "attend_hopper.cuh"

#ifdef __NVPTX__
// start_values starts o += p[64, slots] · values[slots, dimensions]: steps of 16 slots.
#define STEP(n, at, list, a) "add.s64 b, %[v], " #at ";\n\t" WGMMA(n) "{" list "}, " a ", b, yes, 1, 1, 1;\n\t"
#define BEGIN "{\n\t.reg .pred yes;\n\t.reg .b64 b;\n\tsetp.eq.b64 yes, %[v], %[v];\n\twgmma.fence.sync.aligned;\n\t"
DEV void start_values(float (&o)[16][4], const u32 (&p)[8][4], u64 v) {
  asm volatile(BEGIN STEP(128, 0, N64, "{%64, %65, %66, %67}") STEP(128, 128, N64, "{%68, %69, %70, %71}") STEP(128, 256, N64, "{%72, %73, %74, %75}")
                   STEP(128, 384, N64, "{%76, %77, %78, %79}") STEP(128, 512, N64, "{%80, %81, %82, %83}") STEP(128, 640, N64, "{%84, %85, %86, %87}")
                       STEP(128, 768, N64, "{%88, %89, %90, %91}") STEP(128, 896, N64, "{%92, %93, %94, %95}") "wgmma.commit_group.sync.aligned;\n\t}"
               : SUMS16(o)
               : R4(p, 0), R4(p, 1), R4(p, 2), R4(p, 3), R4(p, 4), R4(p, 5), R4(p, 6), R4(p, 7), [v] "l"(v)
               : "memory");
}
DEV void start_values(float (&o)[32][4], const u32 (&p)[4][4], u64 v) {
  asm volatile(BEGIN STEP(256, 0, N128, "{%128, %129, %130, %131}") STEP(256, 128, N128, "{%132, %133, %134, %135}") STEP(256, 256, N128, "{%136, %137, %138, %139}")
                   STEP(256, 384, N128, "{%140, %141, %142, %143}") "wgmma.commit_group.sync.aligned;\n\t}"
               : SUMS32(o)
               : R4(p, 0), R4(p, 1), R4(p, 2), R4(p, 3), [v] "l"(v)
               : "memory");
}
#undef BEGIN
#undef STEP
#else
template <int tiles, int steps> DEV void start_values(float (&o)[tiles][4], const u32 (&p)[steps][4], u64 v) {
  products_fence();
  for (u32 i = 0; i < steps; i++) product(o, p[i], v + i * 128, true, true);
  products_commit();
}
#endif

// FlashShape is that of a block: by the length of heads.
template <u32 DIM, u32 STAGES> struct FlashShape {
  static constexpr u32 ROWS = 128, TILE = DIM > 128 ? 64 : 128; // query vectors; keys of a tile
  static constexpr u32 PARTS = DIM / 64, PART = TILE * 128;     // of 64 numbers, bytes of TILE lines of one
  static constexpr u32 QUERIES = ROWS * DIM * 2, STAGE = TILE * DIM * 2; // queries lie in parts of TILE lines, too
  static constexpr u32 PIECES = DIM / 8, PASS = 128 / PIECES;   // of a line, 16 bytes each; lines that a warpgroup copies at once
  static METHOD u32 line(u32 i) { return i / TILE * PARTS * PART + i % TILE * 128; } // of queries
};

// soften turns a lane's scores of a tile, in rows r and r + 8, into
// probabilities, and sets the factors by which what was summed before shrinks.
// m are the maxima and l the sums so far.
template <int TILES> DEV void soften(float (&x)[TILES][4], float (&m)[2], float (&l)[2], float (&shrink)[2], float scale) {
  UNROLL for (int h = 0; h < 2; h++) {
    float top = __builtin_fmaxf(x[0][2 * h], x[0][2 * h + 1]);
    UNROLL for (int n = 1; n < TILES; n++) top = __builtin_fmaxf(top, __builtin_fmaxf(x[n][2 * h], x[n][2 * h + 1]));
    top = __builtin_fmaxf(top, shfl_xor(top, 1));
    top = __builtin_fmaxf(top, shfl_xor(top, 2)) * scale;
    const float before = m[h];
    m[h] = __builtin_fmaxf(before, top);
    const float base = m[h] == NONE ? 0 : m[h];
    shrink[h] = ex2(before - base);
    float sum = l[h] * shrink[h];
    UNROLL for (int n = 0; n < TILES; n++)
      UNROLL for (int j = 2 * h; j < 2 * h + 2; j++) {
        x[n][j] = ex2(fma(x[n][j], scale, -base));
        sum += x[n][j];
      }
    l[h] = sum;
  }
}

// pack makes the operand of the second product of a tile.
template <int STEPS> DEV void pack(u32 (&p)[STEPS][4], const float (&x)[2 * STEPS][4]) {
  UNROLL for (int k = 0; k < STEPS; k++)
    UNROLL for (int j = 0; j < 4; j++) p[k][j] = pack_bf16(x[2 * k + j / 2][j % 2 * 2], x[2 * k + j / 2][j % 2 * 2 + 1]);
}

// Vectors are the query vectors of a block, from the first one of a span on; heads
// of them, neighbours, share a row.
struct Vectors {
  u32 first, count, heads, all; // all: query heads of a row
  u64 origin;                   // number of the span's first among those of all rows
  METHOD u32 row(u32 i) const { return (first + i) / heads; }
  METHOD u64 number(u32 i) const { return origin + (u64)row(i) * all + (first + i) % heads; }
};

// Part is what a block works on.
struct Part {
  const u64 *pages;
  u64 keys, values; // offsets in a page
  u32 tiles, held;
};

// copy_part is the copying warpgroup: queries, stride apart, then keys 0, keys 1,
// values 0, keys 2, values 1 and so on. A copy is announced when two more are on their
// way. It has few registers, so its loops are short.
template <u32 DIM, u32 STAGES> DEV void copy_part(const Part &w, u32 shared, u32 full_q, u32 full, u32 empty, const u16 *q, u32 stride, const Vectors &v) {
  using S = FlashShape<DIM, STAGES>;
  const u32 t = tid() % 128, line0 = t / S::PIECES, piece = t % S::PIECES;
#pragma unroll 1
  for (u32 i = 0; i * S::PASS < v.count; i++) {
    const u32 line = i * S::PASS + line0;
    copy_piece<S::PART>(shared + line / S::TILE * S::PARTS * S::PART, line % S::TILE, piece, q + v.number(line < v.count ? line : 0) * stride + piece * 8, true);
  }
  // Lines that nobody writes make sums that nobody stores.
  const u32 lines = (v.count + S::PASS - 1) / S::PASS * S::PASS;
  for (u32 part = 0; part < S::PARTS; part++)
    for (u32 from = lines, to; from < S::ROWS; from = to) {
      to = (from / S::TILE + 1) * S::TILE;
      allow_unwritten(shared + S::line(from) + part * S::PART, (to - from) * 128);
    }
  copy_commit();
  // Item 2u is the keys of tile u, item 2u + 3 its values, and item 1 does not
  // exist; the stages of the keys come before those of the values in the lists
  // of barriers.
  auto item_of = [&](u32 n) { return n ? n + 1 : 0; };
  auto tile_of = [&](u32 item) { return item & 1 ? (item - 3) / 2 : item / 2; };
  auto stage_of = [&](u32 item) { return (item & 1) * STAGES + tile_of(item) % STAGES; };
#pragma unroll 1
  for (u32 n = 0; n < 2 * w.tiles + 3; n++) {
    const u32 item = item_of(n), u = tile_of(item), stage = stage_of(item);
    if (u < w.tiles) {
      wait_phase(empty + stage * 8, u / STAGES % 2 ^ 1);
      const u64 offset = (item & 1 ? w.values : w.keys) + t * 16;
      const u32 lines = w.held - u * S::TILE;
#pragma unroll 1
      for (u32 half = 0; half < S::TILE / UNIT; half++) { // a page each
        const u32 line = half * UNIT + line0;
        const u8 *from = (const u8 *)w.pages[S::TILE / UNIT * u + (lines > UNIT ? half : 0)] + offset;
        UNROLL for (u32 i = 0; i < UNIT / S::PASS; i++)
          copy_piece<S::PART>(shared + S::QUERIES + stage * S::STAGE, line + i * S::PASS, piece, from + i * 2048, line + i * S::PASS < lines);
      }
    }
    copy_commit();
    if (n == 0) continue;
    copy_wait<2>();
    if (n == 1) {
      written(full_q);
      continue;
    }
    const u32 before = item_of(n - 2);
    if (tile_of(before) < w.tiles) written(full + stage_of(before) * 8);
  }
}

template <u32 DIM, u32 STAGES, bool GROUPED>
DEV void flash(float *out32, u16 *out16, const u16 *q, const float *gates, const Step *step, u32 layer, u32 q_heads, u32 kv_heads, float scale, u8 *dynamic) {
  using S = FlashShape<DIM, STAGES>;
  launch_dependents();
  if (bid_z() >= step->spans) return;
  const Span s = step->span[bid_z()];
  const u32 heads = GROUPED ? q_heads / kv_heads : 1, head = bid() * heads;
  const u32 first = (gdim_y() - 1 - bid_y()) * S::ROWS, vectors = s.rows * heads; // the longest contexts start first
  if (first >= vectors) return;
  const Vectors qs = {first, vectors - first < S::ROWS ? vectors - first : S::ROWS, heads, q_heads, (u64)s.first * q_heads + head};
  // The swizzle wants tiles on 1024 bytes.
  const u32 shared = (shared_address(dynamic) + 1023) / 1024 * 1024, full_q = shared + S::QUERIES + STAGES * 2 * S::STAGE, full = full_q + 8, empty = full + 2 * STAGES * 8;
  const u32 turn = empty + 2 * STAGES * 8; // of either warpgroup that multiplies: the other one has started its products
  const bool alone = GROUPED && qs.count <= 64;
  if (tid() == 0) {
    barrier_init(full_q, 128);
    for (u32 i = 0; i < 2 * STAGES; i++) {
      barrier_init(full + i * 8, 128);
      barrier_init(empty + i * 8, alone ? 4 : 8); // the warps that multiply
    }
    for (u32 i = 0; i < 2; i++) barrier_init(turn + i * 8, 4);
    barriers_made();
  }
  sync();
  const u32 group = tid() / 128;
  View view = {s.base + s.rows - 1, 0, s.window, s.keep, s.slots - s.keep};
  view.held = view.last + 1 < s.slots ? view.last + 1 : s.slots;
  const u32 end = s.window ? view.held : s.base + qs.row(qs.count - 1) + 1;
  Part w = {step->pages + s.pages, (u64)(layer * 2 * kv_heads + head / (q_heads / kv_heads)) * UNIT * DIM * 2, 0, (end + S::TILE - 1) / S::TILE, view.held};
  w.values = w.keys + (u64)kv_heads * UNIT * DIM * 2;
  dependency_wait();
  if (group == 2) {
    fewer_registers<56>();
    copy_part<DIM, STAGES>(w, shared, full_q, full, empty, q, gates ? 2 * DIM : DIM, qs);
    return;
  }
  if (alone && group == 1) return;
  more_registers<224>();
  const u32 lane = tid() % 32, row = group * 64 + tid() / 32 % 4 * 16 + lane / 4; // and row + 8
  const u32 index[2] = {s.base + qs.row(row), s.base + qs.row(row + 8)}, least = s.base + qs.row(group * 64);
  const u64 queries = descriptor(shared + S::line(group * 64), 16);
  float x[S::TILE / 8][4], o[DIM / 8][4], m[2] = {NONE, NONE}, l[2] = {0, 0}, shrink[2];
  u32 p[S::TILE / 16][4];
  UNROLL for (u32 n = 0; n < DIM / 8; n++)
    UNROLL for (int j = 0; j < 4; j++) o[n][j] = 0;

  auto keys_at = [&](u32 u) { return descriptor(shared + S::QUERIES + u % STAGES * S::STAGE, 16); };
  auto values_at = [&](u32 u) { return descriptor(shared + S::QUERIES + (STAGES + u % STAGES) * S::STAGE, S::PART); };

  // The first tile, which has no values before it, is in the loop too: by itself
  // it was a third of the kernel, which a first start waits for to be translated.
  UNROLL for (u32 i = 0; i < S::TILE / 16; i++)
    UNROLL for (int j = 0; j < 4; j++) p[i][j] = 0;
  wait_phase(full_q, 0);
  for (u32 u = 0; u < w.tiles; u++) {
    const u32 k = u % STAGES * 8, v = (STAGES + (u - 1) % STAGES) * 8;
    wait_phase(full + k, u / STAGES % 2);
    if (!alone && group + u > 0) wait_phase(turn + group * 8, (u + group - 1) % 2);
    if constexpr (DIM > 128) start_scores_256(x, queries, keys_at(u));
    else start_scores(x, queries, keys_at(u));
    if (u) {
      wait_phase(full + v, (u - 1) / STAGES % 2);
      start_values(o, p, values_at(u - 1));
    } else products_commit();
    if (!alone) arrive(turn + (group ^ 1) * 8, lane == 0);
    products_wait<1>(x);
    arrive(empty + k, lane == 0);
    if (s.window != 0 || (u + 1) * S::TILE > least + 1) hide(x, view, u * S::TILE, index);
    soften(x, m, l, shrink, scale);
    products_wait<0>(o);
    if (u) arrive(empty + v, lane == 0);
    if (ballot(shrink[0] != 1 || shrink[1] != 1)) // no row of most tiles has a new maximum: times 1 changes no bit
      UNROLL for (u32 n = 0; n < DIM / 8; n++)
        UNROLL for (int j = 0; j < 4; j++) o[n][j] *= shrink[j / 2];
    pack(p, x);
  }
  const u32 u = w.tiles - 1;
  wait_phase(full + (STAGES + u % STAGES) * 8, u / STAGES % 2);
  start_values(o, p, values_at(u));
  products_wait<0>(o);

  UNROLL for (int h = 0; h < 2; h++) {
    float sum = l[h];
    sum += shfl_xor(sum, 1);
    sum += shfl_xor(sum, 2);
    if (row + 8 * h >= qs.count) continue;
    const float inverse = reciprocal(sum);
    const u64 number = qs.number(row + 8 * h), at = number * DIM + lane % 4 * 2;
    UNROLL for (u32 n = 0; n < DIM / 8; n++)
      UNROLL for (int j = 2 * h; j < 2 * h + 2; j++) o[n][j] *= inverse;
    if (gates)
      UNROLL for (u32 n = 0; n < DIM / 8; n++) {
        const f32x2 gate = gate_of_pair(gates, number, DIM, lane % 4 * 2 + n * 8);
        o[n][2 * h] *= gate.x, o[n][2 * h + 1] *= gate.y;
      }
    UNROLL for (u32 n = 0; n < DIM / 8; n++) {
      const f32x2 y = {o[n][2 * h], o[n][2 * h + 1]};
      if (out32) *(f32x2 *)(out32 + at + n * 8) = y;
      if (out16) *(u32 *)(out16 + at + n * 8) = pack_bf16(y.x, y.y);
    }
  }
}

// Arguments and grid as of attend_prefill.cu; of a grouped kernel: KV heads, tiles of rows · query
// heads of one, spans.
#define FLASH(name, dim, stages, grouped)                                                                                                                                    \
  HOPPER_KERNEL(384) void name(float *out32, u16 *out16, const u16 *q, const float *gates, const Step *step, u32 layer, u32 q_heads, u32 kv_heads, float scale) { \
    DYNAMIC_SHARED(name, shared);                                                                                                                                           \
    flash<dim, stages, grouped>(out32, out16, q, gates, step, layer, q_heads, kv_heads, scale, shared);                                                                       \
  }                                                                                                                                                                          \
  REGISTER(name)
