// The pieces of decode attention (attend.cu): shared memory, what a row sees,
// the joining of parts, and the two products of a unit of 64 slots.
#pragma once
#include "gpu.cuh"

static constexpr u32 UNIT = 64, WARPS = 4, THREADS = WARPS * 32; // threads of a team
static constexpr u32 QUERIES = 16;               // query vectors of a team
static constexpr u32 FANOUT = 4;                // parts that are joined at a time
static constexpr float NONE = -__builtin_inff(); // the maximum of nothing
enum { BF16 = 2, INT8 = 3 };                    // backend.KVType

// Layout is what lies in shared memory, in bytes. Lines are 16 bytes longer
// than their contents: 8 lines of one column then lie in different banks.
template <u32 DIM, int KV> struct Layout {
  static constexpr u32 VECTOR = KV == BF16 ? 2 * DIM : DIM; // of a key or value in a page, without scales
  static constexpr u32 GROUPS = (DIM + 63) / 64;            // int8 scales a vector
  static constexpr u32 TILE = UNIT * (KV == BF16 ? 2 * DIM : DIM + 4 * GROUPS);
  static constexpr u32 LINE = VECTOR + 16, SCALES = UNIT * LINE;
  static constexpr u32 STAGE = SCALES + (KV == BF16 ? 0 : UNIT * GROUPS * 4);
  static constexpr u32 QLINE = 2 * DIM + 16, PLINE = 2 * UNIT + 16;
  // Probabilities lie once, and for int8 once for each group of the head
  // dimension, times the scales of the values.
  static constexpr u32 COPIES = KV == BF16 ? 1 : GROUPS;
  static constexpr u32 KEYS = 0, VALUES = 2 * STAGE, TEAM = 4 * STAGE;
  // Of each team, from TEAM on: queries, probabilities, the maxima and sums of its warps.
  static constexpr u32 P = QUERIES * QLINE, PEAKS = P + COPIES * QUERIES * PLINE, SUMS = PEAKS + WARPS * QUERIES * 4, BYTES = SUMS + WARPS * QUERIES * 4;
  static constexpr u32 PAIRS = (DIM / 16 + WARPS - 1) / WARPS; // 16 columns of the output each, of a warp
};

// The team of a thread, and its warp there.
DEV u32 team_of() { return tid() / THREADS; }
DEV u32 warp_of() { return tid() / 32 % WARPS; }

// fold sets the factors that join a state of maximum m with a part of maximum
// n, and m to the maximum of both. Maxima are in log2.
DEV void fold(float &m, float n, float &a, float &b) {
  const float top = __builtin_fmaxf(m, n), base = top == NONE ? 0 : top;
  a = ex2(m - base);
  b = ex2(n - base);
  m = top;
}
DEV float join(float x, float a, float y, float b) { return fma(x, a, y * b); }

// Joined is a part of a row: maximum, weight, and 4 columns of its sum.
struct Joined { float m, l, o[4]; };
DEV void clear(Joined &x) { x = {NONE, 0, {0, 0, 0, 0}}; }
DEV void add(Joined &x, const Joined &y) {
  float a, b;
  fold(x.m, y.m, a, b);
  x.l = join(x.l, a, y.l, b);
  UNROLL for (int i = 0; i < 4; i++) x.o[i] = join(x.o[i], a, y.o[i], b);
}

// View says what the rows of a span see of its slots.
struct View { u32 last, held, window, keep, ring; }; // last index; slots written; slots that rotate

// Target is where results go: to the rows, or, where a row has several parts,
// to a part's unnormalised sum with its maximum and weight.
struct Target {
  float *out32;
  u16 *out16;
  float *sums;  // [rows, query heads, parts, DIM]
  f32x2 *marks; // [rows, query heads, parts]: maximum, weight
  u32 parts;
  const float *gates; // [rows, query heads, 2, DIM]: queries and gates; null: none
};

// Work is what a block has to do.
struct Work {
  const u64 *pages; // of the block's first unit
  u64 keys, values; // offsets of the tiles in a page
  u32 unit, units;  // first unit, and how many
  u32 first, count, group, head, q_heads; // query vectors of the block, or the team; query heads of a KV head; the first of them
  u32 row, part;    // packed row of the span's first
  u32 base, written; // slots below written hold what no kernel of this step writes
  View view;
};

// work_of sets what a block has to do, but for w.group, which is set: the block of that number among
// those that share the query vectors of a KV head takes up to most of them, and units units, those of
// a part; false: nothing. TILE is the bytes of a page's keys.
template <u32 TILE> DEV bool work_of(Work &w, const Span &s, const u64 *pages, u32 layer, u32 q_heads, u32 kv_heads, u32 part, u32 units, u32 block, u32 most) {
  w.part = part;
  w.unit = w.part * units;
  w.view = {s.base + s.rows - 1, 0, s.window, s.keep, s.slots - s.keep};
  w.view.held = w.view.last + 1 < s.slots ? w.view.last + 1 : s.slots;
  w.first = block * most;
  const u32 end = s.rows * w.group;
  if (w.unit * UNIT >= w.view.held || w.first >= end) return false;
  const u32 left = (w.view.held + UNIT - 1) / UNIT - w.unit;
  w.units = left < units ? left : units;
  w.count = end - w.first < most ? end - w.first : most;
  w.pages = pages + s.pages + w.unit;
  w.keys = (u64)(layer * 2 * kv_heads + bid()) * TILE;
  w.values = w.keys + (u64)kv_heads * TILE;
  w.head = bid() * w.group;
  w.q_heads = q_heads;
  w.row = s.first;
  w.base = s.base;
  w.written = s.window ? 0 : s.base;
  return true;
}
// Of blocks that share the query vectors of a KV head, bid_y() says which one this is, and which part.
template <u32 TILE> DEV bool work_of(Work &w, const Span &s, const u64 *pages, u32 layer, u32 q_heads, u32 kv_heads, u32 units, u32 blocks, u32 most) {
  w.group = q_heads / kv_heads;
  return work_of<TILE>(w, s, pages, layer, q_heads, kv_heads, bid_y() / blocks, units, bid_y() % blocks, most);
}

// take_team leaves a block's team its own vectors.
DEV void take_team(Work &w) {
  const u32 skip = team_of() * QUERIES, left = w.count < skip ? 0 : w.count - skip;
  w.first += skip;
  w.count = left < QUERIES ? left : QUERIES;
}

// Column is a slot as a mask takes it: a row sees it if its own index lies in
// [from, from + many).
struct Column { u32 from, many; };
DEV Column plain_column(u32 slot) { return {slot, 0xffffffff - slot}; }
DEV Column column_of(const View &v, u32 slot) {
  if (v.window == 0 || slot < v.keep) return plain_column(slot);
  if (slot >= v.held) return {0, 0};
  return {v.last - (v.last - slot) % v.ring, v.window - v.keep}; // from the newest index of the slot
}
DEV bool sees(u32 index, const Column &c) { return index - c.from < c.many; }

// copy_tile starts the copy of a tile of a page. Lines of slots that were never
// written are zeroed: what lies there may not even be numbers. Lines of the mask but
// are left to others. All teams take part.
template <u32 DIM, int KV, u32 TEAMS = 1> DEV void copy_tile(u8 *to, u64 from, u32 lines, u64 but = 0) {
  using L = Layout<DIM, KV>;
  constexpr u32 PIECES = L::VECTOR / 16;
  const u8 *tile = (const u8 *)from;
  constexpr u32 ALL = UNIT * PIECES, AT_ONCE = TEAMS * THREADS;
  UNROLL for (u32 i = 0; i < (ALL + AT_ONCE - 1) / AT_ONCE; i++) {
    const u32 c = i * AT_ONCE + tid(), line = c / PIECES;
    if (ALL % AT_ONCE != 0 && c >= ALL) break;
    if (but >> line & 1) continue;
    copy_async(to + line * L::LINE + c % PIECES * 16, tile + c * 16, line < lines ? 16 : 0);
  }
  if (KV == INT8 && tid() < UNIT * L::GROUPS / 4) copy_async(to + L::SCALES + tid() * 16, tile + UNIT * DIM + tid() * 16);
}

// The low, or the high, 16 bits of two words.
DEV u32 low_halves(u32 a, u32 b) { return (a & 0xffff) | b << 16; }
DEV u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); }

// widen makes bf16 pairs of four int8, exactly: of bytes 0 and 2, and of bytes
// 1 and 3. 2^23 + 128 + x is a float whose low byte is x with its top bit
// flipped.
DEV void widen(u32 x, u32 &even, u32 &odd) {
  x ^= 0x80808080;
  u32 f[4];
  UNROLL for (int i = 0; i < 4; i++) f[i] = __builtin_bit_cast(u32, __builtin_bit_cast(float, 0x4b000000 | (x >> 8 * i & 0xff)) - 8388736.0f);
  even = high_halves(f[0], f[2]);
  odd = high_halves(f[1], f[3]);
}

DEV u32x4 words(const f32x4 &x) {
  return {__builtin_bit_cast(u32, x.x), __builtin_bit_cast(u32, x.y), __builtin_bit_cast(u32, x.z), __builtin_bit_cast(u32, x.w)};
}

// sigmoid of a gate; without gates 1.
DEV f32x4 gate_of(const float *gates, u64 head, u32 dim, u32 column) {
  if (!gates) return {1, 1, 1, 1};
  const f32x4 g = *(const f32x4 *)(gates + (2 * head + 1) * dim + column);
  return {sigmoid(g.x), sigmoid(g.y), sigmoid(g.z), sigmoid(g.w)};
}
DEV f32x2 gate_of_pair(const float *gates, u64 head, u32 dim, u32 column) {
  if (!gates) return {1, 1};
  const f32x2 g = *(const f32x2 *)(gates + (2 * head + 1) * dim + column);
  return {sigmoid(g.x), sigmoid(g.y)};
}

// load_queries fills the query tile of a team: query i of a span is row
// i / group, head i % group; q is its row 0, head 0, whose heads lie stride apart. Places past count take the
// first query's. With int8 keys, dimensions 4t, 4t+2, 4t+1, 4t+3 of each 16 take
// places 2t, 2t+1, 2t+8, 2t+9, where widen puts those of the keys.
template <u32 DIM, int KV> DEV void load_queries(u8 *to, const u16 *q, u32 first, u32 count, u32 group, u32 width, u32 stride) {
  using L = Layout<DIM, KV>;
  UNROLL for (u32 c = tid() % THREADS; c < DIM; c += THREADS) { // of 16 queries · DIM / 16 blocks
    const u32 i = c / (DIM / 16), block = c % (DIM / 16), n = first + (i < count ? i : 0);
    const float *from = (const float *)(q + (u64)(n / group) * width + n % group * stride + block * 16);
    const u32x4 x = words(load_l2_x4(from)), y = words(load_l2_x4(from + 4));
    u32x4 *at = (u32x4 *)(to + i * L::QLINE + block * 32);
    if (KV == BF16) {
      at[0] = x;
      at[1] = y;
    } else {
      at[0] = {low_halves(x.x, x.y), low_halves(x.z, x.w), low_halves(y.x, y.y), low_halves(y.z, y.w)};
      at[1] = {high_halves(x.x, x.y), high_halves(x.z, x.w), high_halves(y.x, y.y), high_halves(y.z, y.w)};
    }
  }
}

// scores: queries · keysᵀ of this warp's 16 slots.
template <u32 DIM, int KV> DEV void scores(float (&s)[2][4], const u8 *keys, const u8 *query) {
  using L = Layout<DIM, KV>;
  const u32 lane = tid() % 32, slot = warp_of() * 16;
  const u8 *a_at = query + (lane % 16) * L::QLINE + lane / 16 * 16;
  UNROLL for (int n = 0; n < 2; n++)
    UNROLL for (int j = 0; j < 4; j++) s[n][j] = 0;
  if constexpr (KV == BF16) {
    const u8 *b_at = keys + (slot + lane / 16 * 8 + lane % 8) * L::LINE + lane / 8 % 2 * 16;
    UNROLL for (u32 k = 0; k < DIM / 16; k++) {
      u32 a[4], b[4];
      load_matrix(b, b_at + k * 32);
      load_matrix(a, a_at + k * 32);
      mma_bf16(s[0], a, {b[0], b[1]});
      mma_bf16(s[1], a, {b[2], b[3]});
    }
  } else {
    const u8 *b_at = keys + (slot + lane / 4) * L::LINE + lane % 4 * 4;
    const float *scale = (const float *)(keys + L::SCALES) + (slot + lane % 4 * 2) * L::GROUPS;
    UNROLL for (u32 g = 0; g < L::GROUPS; g++) {
      float sum[2][4] = {};
      UNROLL for (u32 k = 4 * g; k < (4 * g + 4 < DIM / 16 ? 4 * g + 4 : DIM / 16); k++) {
        u32 a[4], b[2][2];
        UNROLL for (int n = 0; n < 2; n++) widen(*(const u32 *)(b_at + n * 8 * L::LINE + k * 16), b[n][0], b[n][1]);
        load_matrix(a, a_at + k * 32);
        mma_bf16(sum[0], a, b[0]);
        mma_bf16(sum[1], a, b[1]);
      }
      UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int j = 0; j < 4; j++) s[n][j] = fma(sum[n][j], scale[(n * 8 + j % 2) * L::GROUPS + g], s[n][j]);
    }
  }
}

// weigh: probabilities · values of this warp's columns.
template <u32 DIM, int KV, int N> DEV void weigh(float (&o)[N][4], const u8 *values, const u8 *p) {
  using L = Layout<DIM, KV>;
  const u32 lane = tid() % 32, pair = warp_of() * L::PAIRS;
  UNROLL for (int n = 0; n < N; n++)
    UNROLL for (int j = 0; j < 4; j++) o[n][j] = 0;
  const u8 *a_at = p + (KV == INT8 ? pair / 4 * QUERIES * L::PLINE : 0) + (lane % 16) * L::PLINE + lane / 16 * 16;
  if constexpr (KV == BF16) {
    const u8 *b_at = values + (lane % 16) * L::LINE + pair * 32 + lane / 16 * 16;
    UNROLL for (u32 k = 0; k < UNIT / 16; k++) {
      u32 a[4];
      load_matrix(a, a_at + k * 32);
      UNROLL for (u32 n = 0; n < L::PAIRS; n++) {
        if (DIM % (16 * WARPS) != 0 && pair + n >= DIM / 16) break;
        u32 b[4];
        load_matrix_transposed(b, b_at + k * 16 * L::LINE + n * 32);
        mma_bf16(o[2 * n], a, {b[0], b[1]});
        mma_bf16(o[2 * n + 1], a, {b[2], b[3]});
      }
    }
  } else { // pairs of bytes are transposed together: the even columns make one tile, the odd ones the other
    const u8 *b_at = values + lane * L::LINE + pair * 16;
    UNROLL for (u32 k = 0; k < UNIT / 16; k += 2) {
      u32 a[2][4];
      UNROLL for (int h = 0; h < 2; h++) load_matrix(a[h], a_at + (k + h) * 32);
      UNROLL for (u32 n = 0; n < L::PAIRS; n++) {
        if (DIM % (16 * WARPS) != 0 && pair + n >= DIM / 16) break;
        u32 x[4];
        load_matrix_transposed(x, b_at + k * 16 * L::LINE + n * 16);
        UNROLL for (int h = 0; h < 2; h++) {
          u32 even[2], odd[2];
          widen(x[2 * h], even[0], odd[0]);
          widen(x[2 * h + 1], even[1], odd[1]);
          mma_bf16(o[2 * n], a[h], even);
          mma_bf16(o[2 * n + 1], a[h], odd);
        }
      }
    }
  }
}

// each calls f(half, number of the query vector among all rows') for the lane's
// queries; index is that of their rows.
template <class F> DEV void each(const Work &w, const u32 (&index)[2], F f) {
  UNROLL for (int h = 0; h < 2; h++) {
    const u32 n = h * 8 + tid() % 32 / 4, row = index[h] - w.base;
    if (n < w.count) f(h, (w.row + row) * w.q_heads + w.head + w.first + n - row * w.group);
  }
}

// columns calls f(column, output tile, element, output tile, element) for the
// neighbouring columns that a lane has of row half h.
template <u32 DIM, int KV, class F> DEV void columns(int h, F f) {
  using L = Layout<DIM, KV>;
  const u32 t = tid() % 4, pair = warp_of() * L::PAIRS;
  UNROLL for (u32 n = 0; n < L::PAIRS; n++) {
    if (DIM % (16 * WARPS) != 0 && pair + n >= DIM / 16) break;
    const u32 at = (pair + n) * 16;
    if (KV == BF16) {
      f(at + 2 * t, 2 * n, 2 * h, 2 * n, 2 * h + 1);
      f(at + 8 + 2 * t, 2 * n + 1, 2 * h, 2 * n + 1, 2 * h + 1);
    } else {
      f(at + 4 * t, 2 * n, 2 * h, 2 * n + 1, 2 * h);
      f(at + 4 * t + 2, 2 * n, 2 * h + 1, 2 * n + 1, 2 * h + 1);
    }
  }
}
