// Decode attention: spans of at most 32 rows over bf16 or int8 keys and values.
//
// A unit is the 64 slots of a KV page. A block takes 1, 4 or 16 consecutive
// units of one KV head of one span, for up to 64 query vectors (rows × query
// heads of the KV head). Its 4 warps share each product by columns: 16 slots
// each of the scores, a quarter of the head dimension each of the output.
//
// Batch invariance: an element of a product is one chain of mma over k, whatever
// else is in the tile and whichever warp has it. The parts of a row are joined
// in fixed groups: 4 units from left to right, then 4 of those groups, then all
// of these, wherever a join happens to run (in a block or in attend_merge). To
// join nothing changes no bit.
#include "attend.cuh"

// Target is where results go: to the rows, or, where a row has several parts,
// to a part's unnormalised sum with its maximum and weight.
struct Target {
  float *out32;
  u16 *out16;
  float *sums;  // [rows, query heads, parts, DIM]
  f32x2 *marks; // [rows, query heads, parts]: maximum, weight
  u32 parts;
  bool deep;    // a block has more than one group of FANOUT units
};

// Work is what a block has to do.
struct Work {
  const u64 *pages; // of the block's first unit
  u64 keys, values; // offsets of the tiles in a page
  u32 unit, units;  // first unit, and how many
  u32 first, count, group, head, q_heads; // query vectors of the block; query heads of a KV head; the first of them
  u32 row, part;    // packed row of the span's first
  u32 base, written; // slots below written hold what no kernel of this step writes
  View view;
};

// each calls f(tile, half, number of the query vector among all rows') for the
// lane's queries; index is that of their rows.
template <int TILES, class F> DEV void each(const Work &w, const u32 (&index)[TILES][2], F f) {
  UNROLL for (int i = 0; i < TILES; i++)
    UNROLL for (int h = 0; h < 2; h++) {
      const u32 n = i * 16 + h * 8 + tid() % 32 / 4, row = index[i][h] - w.base;
      if (n < w.count) f(i, h, (w.row + row) * w.q_heads + w.head + w.first + n - row * w.group);
    }
}

// columns calls f(pair, column, output tile, element, output tile, element) for
// the neighbouring columns that a lane has of row half h.
template <u32 DIM, int KV, class F> DEV void columns(int h, F f) {
  using L = Layout<DIM, KV>;
  const u32 t = tid() % 4, pair = tid() / 32 * L::PAIRS;
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

template <u32 DIM, int KV, int TILES> DEV void decode(u8 *shared, const Work &w, const Target &to, const u16 *q, float scale) {
  using L = Layout<DIM, KV>;
  constexpr u32 N = 2 * L::PAIRS;
  const u32 lane = tid() % 32, warp = tid() / 32;
  float *peaks = (float *)(shared + L::PEAKS), *sums = (float *)(shared + L::SUMS);
  // A block keeps 3 tiles in flight: the keys of units u and u + 1, and the values of u.
  auto start = [&](u64 page, u32 u, bool values) {
    if (u < w.units) copy_tile<DIM, KV>(shared + (values ? L::VALUES : L::KEYS) + u % 2 * L::STAGE, page + (values ? w.values : w.keys), w.view.held - (w.unit + u) * UNIT);
    copy_commit();
  };
  auto page_of = [&](u32 u) { return w.pages[u < w.units ? u : 0]; };
  u64 next = page_of(0), after = page_of(1);
  // Old keys and values are fetched before the kernel ahead has ended.
  const bool old = (w.unit + (w.units < 2 ? w.units : 2)) * UNIT <= w.written;
  if (!old) dependency_wait();
  start(next, 0, false);
  start(next, 0, true);
  start(after, 1, false);
  next = after;
  after = page_of(2);
  if (old) dependency_wait();
  load_queries<DIM, KV>(shared + L::QUERY, q + ((u64)w.row * w.q_heads + w.head) * DIM, w.first, w.count, TILES, w.group, w.q_heads * DIM);

  u32 index[TILES][2];
  float m[TILES][2], l[TILES][2], o[TILES][N][4];        // the group of FANOUT units
  float m_all[TILES][2], l_all[TILES][2];                // of groups before; their sums lie in to.sums
  UNROLL for (int i = 0; i < TILES; i++)
    UNROLL for (int h = 0; h < 2; h++) {
      const u32 n = i * 16 + h * 8 + lane / 4;
      index[i][h] = w.base + (w.first + (n < w.count ? n : 0)) / w.group;
      m_all[i][h] = NONE;
      l_all[i][h] = 0;
    }

  for (u32 u = 0; u < w.units; u++) {
    if (u % FANOUT == 0) {
      UNROLL for (int i = 0; i < TILES; i++) {
        UNROLL for (int h = 0; h < 2; h++) m[i][h] = NONE, l[i][h] = 0;
        UNROLL for (u32 n = 0; n < N; n++)
          UNROLL for (int j = 0; j < 4; j++) o[i][n][j] = 0;
      }
    }
    copy_wait<2>();
    sync();
    float s[TILES][2][4];
    scores<DIM, KV>(s, shared + L::KEYS + u % 2 * L::STAGE, shared + L::QUERY);
    const u32 slot = (w.unit + u) * UNIT + warp * 16 + lane % 4 * 2;
    const bool all = w.view.window == 0 && (w.unit + u + 1) * UNIT <= w.base + 1;
    Column column[2][2] = {};
    if (!all) {
      UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int j = 0; j < 2; j++) column[n][j] = column_of(w.view, slot + n * 8 + j);
    }
    UNROLL for (int i = 0; i < TILES; i++)
      UNROLL for (int h = 0; h < 2; h++) {
        float peak = NONE;
        UNROLL for (int n = 0; n < 2; n++)
          UNROLL for (int j = 0; j < 2; j++) {
            float &x = s[i][n][2 * h + j];
            if (!all && !sees(index[i][h], column[n][j])) x = NONE;
            peak = __builtin_fmaxf(peak, x);
          }
        peak = __builtin_fmaxf(peak, shfl_xor(peak, 1));
        peak = __builtin_fmaxf(peak, shfl_xor(peak, 2));
        if (lane % 4 == 0) peaks[warp * QUERIES + i * 16 + h * 8 + lane / 4] = peak;
      }
    sync(); // the peaks are there; these keys, and the values before, are done with
    start(next, u + 1, true);
    start(after, u + 2, false);
    next = after;
    after = page_of(u + 3);

    float of[L::COPIES][2][2]; // scales of the values of this lane's slots
    copy_wait<3>();
    if (KV == INT8) {
      sync();
      const float *scales = (const float *)(shared + L::VALUES + u % 2 * L::STAGE + L::SCALES);
      UNROLL for (u32 g = 0; g < L::COPIES; g++)
        UNROLL for (int n = 0; n < 2; n++)
          UNROLL for (int j = 0; j < 2; j++) of[g][n][j] = scales[(warp * 16 + lane % 4 * 2 + n * 8 + j) * L::GROUPS + g];
    }
    float top[TILES][2];
    UNROLL for (int i = 0; i < TILES; i++)
      UNROLL for (int h = 0; h < 2; h++) {
        const u32 row = i * 16 + h * 8 + lane / 4;
        float peak = peaks[row];
        UNROLL for (u32 v = 1; v < WARPS; v++) peak = __builtin_fmaxf(peak, peaks[v * QUERIES + row]);
        top[i][h] = peak * scale;
        const float base = peak == NONE ? 0 : top[i][h];
        float sum = 0;
        UNROLL for (int n = 0; n < 2; n++) {
          float e[2];
          UNROLL for (int j = 0; j < 2; j++) e[j] = ex2(fma(s[i][n][2 * h + j], scale, -base));
          u8 *at = shared + L::P + row * L::PLINE + (warp * 16 + n * 8 + lane % 4 * 2) * 2;
          if (KV == BF16) { // the weight is the sum of what the values are multiplied by
            const u32 pair = pack_bf16(e[0], e[1]);
            *(u32 *)at = pair;
            sum += low_bf16(pair) + high_bf16(pair);
          } else {
            UNROLL for (u32 g = 0; g < L::COPIES; g++) // the scale of a slot that was never written may be no number
              *(u32 *)(at + g * QUERIES * L::PLINE) = pack_bf16(e[0] == 0 ? 0 : e[0] * of[g][n][0], e[1] == 0 ? 0 : e[1] * of[g][n][1]);
            sum += e[0] + e[1];
          }
        }
        sum += shfl_xor(sum, 1);
        sum += shfl_xor(sum, 2);
        if (lane % 4 == 0) sums[warp * QUERIES + row] = sum;
      }
    sync();
    float part[TILES][N][4];
    weigh<DIM, KV>(part, shared + L::VALUES + u % 2 * L::STAGE, shared + L::P);
    UNROLL for (int i = 0; i < TILES; i++)
      UNROLL for (int h = 0; h < 2; h++) {
        const u32 row = i * 16 + h * 8 + lane / 4;
        const float weight = (sums[row] + sums[QUERIES + row]) + (sums[2 * QUERIES + row] + sums[3 * QUERIES + row]);
        float a, b;
        fold(m[i][h], top[i][h], a, b);
        l[i][h] = join(l[i][h], a, weight, b);
        UNROLL for (u32 n = 0; n < N; n++)
          UNROLL for (int j = 2 * h; j < 2 * h + 2; j++) o[i][n][j] = join(o[i][n][j], a, part[i][n][j], b);
      }
    if (!to.deep || (u % FANOUT != FANOUT - 1 && u + 1 != w.units)) continue;
    // The end of a group of a block that has several: join the groups before.
    each<TILES>(w, index, [&](int i, int h, u32 at) {
      float a, b;
      fold(m_all[i][h], m[i][h], a, b);
      l_all[i][h] = join(l_all[i][h], a, l[i][h], b);
      m[i][h] = m_all[i][h];
      l[i][h] = l_all[i][h];
      float *before = to.sums + ((u64)at * to.parts + w.part) * DIM;
      columns<DIM, KV>(h, [&](u32 column, u32 n, u32 j, u32 n2, u32 j2) {
        f32x2 x = u < FANOUT ? f32x2{0, 0} : *(const f32x2 *)(before + column);
        x = {join(x.x, a, o[i][n][j], b), join(x.y, a, o[i][n2][j2], b)};
        o[i][n][j] = x.x;
        o[i][n2][j2] = x.y;
        if (u + 1 != w.units) *(f32x2 *)(before + column) = x;
      });
    });
    sync_warp();
  }
  each<TILES>(w, index, [&](int i, int h, u32 at) {
    if (to.parts > 1) {
      float *sum = to.sums + ((u64)at * to.parts + w.part) * DIM;
      columns<DIM, KV>(h, [&](u32 column, u32 n, u32 j, u32 n2, u32 j2) { *(f32x2 *)(sum + column) = {o[i][n][j], o[i][n2][j2]}; });
      if (tid() / 32 == 0 && tid() % 4 == 0) to.marks[(u64)at * to.parts + w.part] = {m[i][h], l[i][h]};
      return;
    }
    const float inverse = 1 / l[i][h];
    columns<DIM, KV>(h, [&](u32 column, u32 n, u32 j, u32 n2, u32 j2) {
      const f32x2 x = {o[i][n][j] * inverse, o[i][n2][j2] * inverse};
      if (to.out32) *(f32x2 *)(to.out32 + (u64)at * DIM + column) = x;
      if (to.out16) *(u32 *)(to.out16 + (u64)at * DIM + column) = pack_bf16(x.x, x.y);
    });
  });
}

template <u32 DIM, int KV>
DEV void attend_decode(float *out32, u16 *out16, const u16 *q, float *sums, f32x2 *marks, const Step *step, u32 layer, u32 q_heads, u32 kv_heads, float scale,
                       u32 units, u32 parts, u32 blocks, u32 queries, u8 *shared) {
  using L = Layout<DIM, KV>;
  launch_dependents();
  if (bid_z() >= step->spans) return;
  const Span s = step->span[bid_z()];
  Work w;
  Target to = {out32, out16, sums, marks, parts, units > FANOUT};
  w.part = bid() / blocks;
  w.unit = w.part * units;
  w.view = {s.base + s.rows - 1, 0, s.window, s.keep, s.slots - s.keep};
  w.view.held = w.view.last + 1 < s.slots ? w.view.last + 1 : s.slots;
  w.group = q_heads / kv_heads;
  w.first = bid() % blocks * queries;
  if (w.unit * UNIT >= w.view.held || w.first >= s.rows * w.group) return;
  const u32 left = (w.view.held + UNIT - 1) / UNIT - w.unit, rest = s.rows * w.group - w.first;
  w.units = left < units ? left : units;
  w.count = rest < queries ? rest : queries;
  w.pages = step->pages + s.pages + w.unit;
  w.keys = (u64)(layer * 2 * kv_heads + bid_y()) * L::TILE;
  w.values = w.keys + (u64)kv_heads * L::TILE;
  w.head = bid_y() * w.group;
  w.q_heads = q_heads;
  w.row = s.first;
  w.base = s.base;
  w.written = s.window ? 0 : s.base;
  if (w.count <= 16) decode<DIM, KV, 1>(shared, w, to, q, scale);
  else if (w.count <= 32) decode<DIM, KV, 2>(shared, w, to, q, scale);
  else decode<DIM, KV, 4>(shared, w, to, q, scale);
}

// q: bf16 [rows, q_heads·dim]; out32 and out16 (null: not wanted) as q. scale
// is that of the scores times log2(e). A block takes units units (1, 4 or 16); a
// row has parts parts. blocks blocks of queries (at most 64) query vectors each
// share a KV head. Grid: parts · blocks, KV heads, spans.
#define ATTEND(name, dim, kv)                                                                                                                          \
  KERNEL(THREADS) void name(float *out32, u16 *out16, const u16 *q, float *sums, f32x2 *marks, const Step *step, u32 layer, u32 q_heads, u32 kv_heads, \
                            float scale, u32 units, u32 parts, u32 blocks, u32 queries) {                                                              \
    DYNAMIC_SHARED(name, shared);                                                                                                                      \
    attend_decode<dim, kv>(out32, out16, q, sums, marks, step, layer, q_heads, kv_heads, scale, units, parts, blocks, queries, shared);                \
  }                                                                                                                                                    \
  REGISTER(name)
ATTEND(attend_bf16_64, 64, BF16)
ATTEND(attend_bf16_128, 128, BF16)
ATTEND(attend_int8_64, 64, INT8)
ATTEND(attend_int8_128, 128, INT8)

// attend_merge joins the parts of each row. A thread has 4 columns of one query
// head; levels is how many folds lie above a part: 3, 2 or 1 for parts of 1, 4
// or 16 units. total is rows · query heads · dim / 4.
static constexpr u32 MERGE = 128;
KERNEL(MERGE) void attend_merge(float *out32, u16 *out16, const float *sums, const f32x2 *marks, const Step *step, u32 q_heads, u32 dim, u32 units, u32 parts, u32 total) {
  launch_dependents();
  const u32 item = bid() * MERGE + tid(), lanes = dim / 4, vector = item / lanes, column = item % lanes * 4, row = vector / q_heads;
  if (item >= total || row >= step->rows) return;
  const Span s = step->span[step->span_of[row]];
  const u32 end = s.base + s.rows, held = end < s.slots ? end : s.slots, live = ((held + UNIT - 1) / UNIT + units - 1) / units;
  dependency_wait();
  const f32x4 *sum = (const f32x4 *)(sums + (u64)vector * parts * dim + column);
  const f32x2 *mark = marks + (u64)vector * parts;
  Joined all, group, part;
  clear(all);
  clear(group);
  for (u32 p = 0; p < live; p += FANOUT) {
    f32x4 x[FANOUT];
    f32x2 mark_of[FANOUT];
    UNROLL for (u32 i = 0; i < FANOUT; i++) {
      const bool in = p + i < live;
      x[i] = in ? sum[(u64)(p + i) * lanes] : f32x4{0, 0, 0, 0};
      mark_of[i] = in ? mark[p + i] : f32x2{NONE, 0};
    }
    clear(part);
    Joined &into = units == 16 ? all : part;
    UNROLL for (u32 i = 0; i < FANOUT; i++) add(into, {mark_of[i].x, mark_of[i].y, {x[i].x, x[i].y, x[i].z, x[i].w}});
    if (units == 16) continue;
    if (units == FANOUT) {
      add(all, part);
      continue;
    }
    add(group, part);
    if (p / FANOUT % FANOUT == FANOUT - 1 || p + FANOUT >= live) {
      add(all, group);
      clear(group);
    }
  }
  const float inverse = 1 / all.l;
  const u64 at = (u64)vector * dim + column;
  if (out32) *(f32x4 *)(out32 + at) = {all.o[0] * inverse, all.o[1] * inverse, all.o[2] * inverse, all.o[3] * inverse};
  if (out16) *(u32x2 *)(out16 + at) = {pack_bf16(all.o[0] * inverse, all.o[1] * inverse), pack_bf16(all.o[2] * inverse, all.o[3] * inverse)};
}
REGISTER(attend_merge)
