// Decode attention: spans of at most 32 rows over bf16 or int8 keys and values.
//
// A unit is the 64 slots of a KV page. A block takes 1, 4 or 16 consecutive
// units of one KV head of one span, and 1, 2 or 4 teams share their keys and
// values, each for 16 query vectors (rows × query heads of the KV head). The 4
// warps of a team share each product by columns: 16 slots each of the scores, a
// quarter of the head dimension each of the output.
//
// Batch invariance: an element of a product is one chain of mma over k, whatever
// else is in the tile and whichever warp has it. The parts of a row are joined
// in fixed groups: 4 units from left to right, then 4 of those groups, then all
// of these, wherever a join happens to run (in a block or in attend_merge). To
// join nothing changes no bit.
//
// Of spans of one row a block also norms and rotates its queries and, where it has
// their slot, key and value (Fresh), which it stores: that saves a launch, with the
// bits of rotate_store.
#include "attend.cuh"
#include "rotate.cuh"

// Fresh is what rotate_store would make of the only row of a span, as the projections
// left it.
template <u32 DIM> struct Fresh {
  using L = Layout<DIM, BF16>;
  // Behind the team's: key and value as bf16, the norms' weights, cosines and sines.
  static constexpr u32 STAGED = L::TEAM + L::BYTES, NORMS = STAGED + 2 * DIM * 2, ANGLES = NORMS + 2 * DIM * 4;

  const float *q, *k, *v, *q_norm, *k_norm; // of the first head of q, which lie stride apart, and of the head of k and v
  float eps;
  const float *angles;
  u32 pairs, stride, slot;

  METHOD u8 *staged(u8 *shared, bool value) const { return shared + STAGED + value * DIM * 2; }

  // lines are those of a unit that the row takes.
  METHOD u64 lines(u32 unit) const { return slot / UNIT == unit ? 1ull << slot % UNIT : 0; }

  // place puts the row's line of a unit into its tile.
  METHOD void place(u8 *shared, u8 *tile, u32 unit, bool value) const {
    if (slot / UNIT == unit && tid() < DIM / 8)
      *(u32x4 *)(tile + slot % UNIT * L::LINE + tid() * 16) = *(const u32x4 *)(staged(shared, value) + tid() * 16);
  }

  // prepare brings what no kernel of this step makes, and clears the places of queries.
  METHOD void prepare(u8 *shared, u8 *team) const {
    float *norms = (float *)(shared + NORMS), *turn = (float *)(shared + ANGLES);
    if (q_norm)
      for (u32 i = tid(); i < DIM; i += THREADS) norms[i] = q_norm[i];
    if (k_norm)
      for (u32 i = tid(); i < DIM; i += THREADS) norms[DIM + i] = k_norm[i];
    for (u32 i = tid(); i < 2 * pairs; i += THREADS) turn[i] = angles[i];
    for (u32 i = tid(); i < QUERIES * L::QLINE / 16; i += THREADS) ((u32x4 *)team)[i] = {0, 0, 0, 0};
    sync();
  }

  // make fills the team's places of queries, and, where the block has their slot, makes
  // key and value, which go to their page too.
  METHOD void make(u8 *shared, u8 *team, const Work &w) const {
    const float *norms = (const float *)(shared + NORMS), *cos = (const float *)(shared + ANGLES), *sin = cos + pairs;
    const u32 unit = slot / UNIT - w.unit, items = unit < w.units ? w.group + 2 : w.group; // heads of queries, key, value
    auto fetch = [&](Head<2> &x, u32 item) { load(x, item < w.group ? q + item * stride : item == w.group ? k : v); };
    Head<2> x, next;
    x.half = next.half = DIM / 2;
    x.pairs = next.pairs = pairs;
    x.lane = next.lane = tid() % 32;
    if (warp_of() < items) fetch(x, warp_of());
    for (u32 item = warp_of(); item < items; item += WARPS, x = next) {
      if (item + WARPS < items) fetch(next, item + WARPS);
      const bool query = item < w.group, value = item > w.group;
      if (!value) {
        if (query ? q_norm : k_norm) norm(x, norms + (query ? 0 : DIM), eps);
        rotate(x, cos, sin);
      }
      if (query) {
        store_bf16(x, (u16 *)(team + item * L::QLINE));
        continue;
      }
      store_bf16(x, (u16 *)staged(shared, value));
      store_bf16(x, (u16 *)(w.pages[unit] + (value ? w.values : w.keys)) + slot % UNIT * DIM);
    }
    sync();
  }
};

// Stored is what decode takes where rotate_store has run.
struct Stored { const u16 *q; };
template <class S> static constexpr bool fresh = true;
template <> constexpr bool fresh<Stored> = false;

template <u32 DIM, int KV, u32 TEAMS, class S> DEV void decode(u8 *shared, const Work &w, const Target &to, const S &rows, float scale) {
  using L = Layout<DIM, KV>;
  constexpr u32 N = 2 * L::PAIRS;
  const u32 lane = tid() % 32, warp = warp_of();
  u8 *team = shared + L::TEAM + team_of() * L::BYTES;
  float *peaks = (float *)(team + L::PEAKS), *sums = (float *)(team + L::SUMS);
  // A block keeps 3 tiles in flight: the keys of units u and u + 1, and the values of u.
  auto tile_of = [&](u32 u, bool values) { return shared + (values ? L::VALUES : L::KEYS) + u % 2 * L::STAGE; };
  auto start = [&](u64 page, u32 u, bool values) {
    if (u < w.units) {
      u64 but = 0;
      if constexpr (fresh<S>) but = rows.lines(w.unit + u);
      copy_tile<DIM, KV, TEAMS>(tile_of(u, values), page + (values ? w.values : w.keys), w.view.held - (w.unit + u) * UNIT, but);
    }
    copy_commit();
  };
  auto place = [&](u32 u, bool values) {
    if constexpr (fresh<S>)
      if (u < w.units) rows.place(shared, tile_of(u, values), w.unit + u, values);
  };
  auto page_of = [&](u32 u) { return w.pages[u < w.units ? u : 0]; };
  u64 next = page_of(0), after = page_of(1);
  // Old keys and values are fetched before the kernel ahead has ended.
  const bool old = fresh<S> || (w.unit + (w.units < 2 ? w.units : 2)) * UNIT <= w.written;
  if (!old) dependency_wait();
  start(next, 0, false);
  start(next, 0, true);
  start(after, 1, false);
  next = after;
  after = page_of(2);
  if constexpr (fresh<S>) rows.prepare(shared, team);
  if (old) dependency_wait();
  // A team without queries copies and keeps the barriers.
  const bool busy = w.count != 0;
  const u32 stride = to.gates ? 2 * DIM : DIM;
  if constexpr (fresh<S>) {
    rows.make(shared, team, w);
    place(0, false);
    place(0, true);
    place(1, false);
  } else if (busy) {
    load_queries<DIM, KV>(team, rows.q + ((u64)w.row * w.q_heads + w.head) * stride, w.first, w.count, w.group, w.q_heads * stride, stride);
  }

  u32 index[2];
  float m[2], l[2], o[N][4];                                             // the group of FANOUT units
  float m_all[2] = {NONE, NONE}, l_all[2] = {0, 0}, all[N][4] = {};      // of groups before
  UNROLL for (int h = 0; h < 2; h++) {
    const u32 n = h * 8 + lane / 4;
    index[h] = w.base + (w.first + (n < w.count ? n : 0)) / w.group;
  }

#pragma unroll 1
  for (u32 u = 0; u < w.units; u++) {
    if (u % FANOUT == 0) {
      UNROLL for (int h = 0; h < 2; h++) m[h] = NONE, l[h] = 0;
      UNROLL for (u32 n = 0; n < N; n++)
        UNROLL for (int j = 0; j < 4; j++) o[n][j] = 0;
    }
    copy_wait<2>();
    sync();
    float s[2][4];
    if (busy) {
      scores<DIM, KV>(s, shared + L::KEYS + u % 2 * L::STAGE, team);
      const u32 slot = (w.unit + u) * UNIT + warp * 16 + lane % 4 * 2;
      if (w.view.window != 0 || (w.unit + u + 1) * UNIT > w.base + 1) {
        UNROLL for (int n = 0; n < 2; n++)
          UNROLL for (int j = 0; j < 2; j++) {
            const Column column = column_of(w.view, slot + n * 8 + j);
            UNROLL for (int h = 0; h < 2; h++)
              if (!sees(index[h], column)) s[n][2 * h + j] = NONE;
          }
        sync_warp();
      }
      UNROLL for (int h = 0; h < 2; h++) {
        float peak = __builtin_fmaxf(__builtin_fmaxf(s[0][2 * h], s[0][2 * h + 1]), __builtin_fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        peak = __builtin_fmaxf(peak, shfl_xor(peak, 1));
        peak = __builtin_fmaxf(peak, shfl_xor(peak, 2));
        if (lane % 4 == 0) peaks[warp * QUERIES + h * 8 + lane / 4] = peak;
      }
    }
    sync(); // the peaks are there; these keys, and the values before, are done with
    start(next, u + 1, true);
    place(u + 1, true);
    start(after, u + 2, false);
    place(u + 2, false);
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
    float top[2];
    if (busy) {
      UNROLL for (int h = 0; h < 2; h++) {
        const u32 row = h * 8 + lane / 4;
        float peak = peaks[row];
        UNROLL for (u32 v = 1; v < WARPS; v++) peak = __builtin_fmaxf(peak, peaks[v * QUERIES + row]);
        top[h] = peak * scale;
        const float base = peak == NONE ? 0 : top[h];
        float sum = 0;
        UNROLL for (int n = 0; n < 2; n++) {
          float e[2];
          UNROLL for (int j = 0; j < 2; j++) e[j] = ex2(fma(s[n][2 * h + j], scale, -base));
          u8 *at = team + L::P + row * L::PLINE + (warp * 16 + n * 8 + lane % 4 * 2) * 2;
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
    }
    sync();
    if (!busy) continue;
    float part[N][4];
    weigh<DIM, KV>(part, shared + L::VALUES + u % 2 * L::STAGE, team + L::P);
    UNROLL for (int h = 0; h < 2; h++) {
      const u32 row = h * 8 + lane / 4;
      const float weight = (sums[row] + sums[QUERIES + row]) + (sums[2 * QUERIES + row] + sums[3 * QUERIES + row]);
      float a, b;
      fold(m[h], top[h], a, b);
      l[h] = join(l[h], a, weight, b);
      UNROLL for (u32 n = 0; n < N; n++)
        UNROLL for (int j = 2 * h; j < 2 * h + 2; j++) o[n][j] = join(o[n][j], a, part[n][j], b);
    }
    if (u % FANOUT != FANOUT - 1 && u + 1 != w.units) continue;
    UNROLL for (int h = 0; h < 2; h++) {
      float a, b;
      fold(m_all[h], m[h], a, b);
      l_all[h] = join(l_all[h], a, l[h], b);
      UNROLL for (u32 n = 0; n < N; n++)
        UNROLL for (int j = 2 * h; j < 2 * h + 2; j++) all[n][j] = join(all[n][j], a, o[n][j], b);
    }
  }
  each(w, index, [&](int h, u32 at) {
    if (to.parts > 1) {
      float *sum = to.sums + ((u64)at * to.parts + w.part) * DIM;
      columns<DIM, KV>(h, [&](u32 column, u32 n, u32 j, u32 n2, u32 j2) { *(f32x2 *)(sum + column) = {all[n][j], all[n2][j2]}; });
      if (warp_of() == 0 && tid() % 4 == 0) to.marks[(u64)at * to.parts + w.part] = {m_all[h], l_all[h]};
      return;
    }
    const float inverse = reciprocal(l_all[h]);
    columns<DIM, KV>(h, [&](u32 column, u32 n, u32 j, u32 n2, u32 j2) {
      const f32x2 gate = gate_of_pair(to.gates, at, DIM, column);
      const f32x2 x = {all[n][j] * inverse * gate.x, all[n2][j2] * inverse * gate.y};
      if (to.out32) *(f32x2 *)(to.out32 + (u64)at * DIM + column) = x;
      if (to.out16) *(u32 *)(to.out16 + (u64)at * DIM + column) = pack_bf16(x.x, x.y);
    });
  });
}

template <u32 DIM, int KV, u32 TEAMS>
DEV void attend_decode(float *out32, u16 *out16, const u16 *q, const float *gates, float *sums, f32x2 *marks, const Step *step, u32 layer, u32 q_heads, u32 kv_heads, float scale,
                       u32 units, u32 parts, u32 blocks, u8 *shared) {
  using L = Layout<DIM, KV>;
  launch_dependents();
  const Step head = head_of(step);
  if (bid_z() >= head.spans) return;
  Work w;
  if (!work_of<L::TILE>(w, span_at(step, head, bid_z()), head.pages, layer, q_heads, kv_heads, units, blocks, TEAMS * QUERIES)) return;
  take_team(w);
  decode<DIM, KV, TEAMS>(shared, w, {out32, out16, sums, marks, parts, gates}, Stored{q}, scale);
}

template <u32 DIM>
DEV void attend_fresh(float *out32, u16 *out16, const float *q, const float *k, const float *v, u32 gated, float *sums, f32x2 *marks, const float *q_norm, const float *k_norm, float eps,
                      const Step *step, const u64 *angles, u32 pairs, u32 layer, u32 q_heads, u32 kv_heads, float scale, u32 units, u32 parts, u8 *shared) {
  launch_dependents();
  const Step begin = head_of(step);
  if (bid_z() >= begin.spans) return;
  const Span s = span_at(step, begin, bid_z());
  Work w;
  if (!work_of<Layout<DIM, BF16>::TILE>(w, s, begin.pages, layer, q_heads, kv_heads, units, 1, QUERIES)) return;
  take_team(w);
  const u32 position = w.row == 0 ? begin.position : begin.positions[w.row], stride = gated ? 2 * DIM : DIM;
  const u64 head = ((u64)w.row * kv_heads + bid()) * DIM;
  const Fresh<DIM> row{q + ((u64)w.row * q_heads + w.head) * stride, k + head, v + head, q_norm, k_norm, eps,
                       (const float *)angles[position / POSITIONS] + position % POSITIONS * 2 * pairs, pairs, stride, slot_of(s, s.base)};
  decode<DIM, BF16, 1>(shared, w, {out32, out16, sums, marks, parts, gated ? q : nullptr}, row, scale);
}

// q: bf16 [rows, q_heads·dim], and out32 and out16 (null: not wanted) of that shape; with
// gates, f32 [rows, q_heads, 2, dim], q is of their shape. scale
// is that of the scores times log2(e). A block takes units units (1, 4 or 16); a
// row has parts parts. blocks blocks share the query vectors of a KV head, the
// last digit of the name telling how many teams of 16 a block has. Grid: KV
// heads, parts · blocks (so that short last parts start last), spans.
#ifdef __NVPTX__
// 128 registers a thread; of heads of 256 255, as shared memory has room for one block.
#define KERNEL_OF(teams, dim) extern "C" __attribute__((global, launch_bounds(teams *THREADS, dim == 256 ? 1 : 4 / teams)))
#else
#define KERNEL_OF(teams, dim) KERNEL(teams *THREADS)
#endif
#define ATTEND(name, dim, kv, teams)                                                                                                                   \
  KERNEL_OF(teams, dim) void name(float *out32, u16 *out16, const u16 *q, const float *gates, float *sums, f32x2 *marks, const Step *step, u32 layer, u32 q_heads,              \
                             u32 kv_heads, float scale, u32 units, u32 parts, u32 blocks) {                                                            \
    DYNAMIC_SHARED(name, shared);                                                                                                                      \
    attend_decode<dim, kv, teams>(out32, out16, q, gates, sums, marks, step, layer, q_heads, kv_heads, scale, units, parts, blocks, shared);                  \
  }                                                                                                                                                    \
  REGISTER(name)
#define ATTEND_TEAMS(name, dim, kv) \
  ATTEND(name##_1, dim, kv, 1)      \
  ATTEND(name##_2, dim, kv, 2)      \
  ATTEND(name##_4, dim, kv, 4)
ATTEND_TEAMS(attend_bf16_64, 64, BF16)
ATTEND_TEAMS(attend_bf16_128, 128, BF16)
ATTEND_TEAMS(attend_int8_64, 64, INT8)
ATTEND_TEAMS(attend_int8_128, 128, INT8)
ATTEND(attend_bf16_256_1, 256, BF16, 1)
ATTEND(attend_bf16_256_2, 256, BF16, 2)
ATTEND(attend_int8_256_1, 256, INT8, 1)
ATTEND(attend_int8_256_2, 256, INT8, 2)

// attend_fresh_N: rotate_store and attend_ of spans of one row, with at most QUERIES
// query heads to a KV head, in one launch. q, k and v are those of rotate_store, which
// stay; keys and values are bf16; gated tells that behind each head of q lies as much
// of a gate. Grid: KV heads, parts, spans.
#ifdef __NVPTX__
#define FRESH_KERNEL(dim) extern "C" __attribute__((global, launch_bounds(THREADS, dim == 256 ? 1 : 2)))
#else
#define FRESH_KERNEL(dim) KERNEL(THREADS)
#endif
#define FRESH(name, dim)                                                                                                                                \
  FRESH_KERNEL(dim) void name(float *out32, u16 *out16, const float *q, const float *k, const float *v, u32 gated, float *sums, f32x2 *marks, \
                              const float *q_norm, const float *k_norm, float eps, const Step *step, const u64 *angles, u32 pairs, u32 layer, u32 q_heads,   \
                              u32 kv_heads, float scale, u32 units, u32 parts) {                                                                             \
    DYNAMIC_SHARED(name, shared);                                                                                                                            \
    attend_fresh<dim>(out32, out16, q, k, v, gated, sums, marks, q_norm, k_norm, eps, step, angles, pairs, layer, q_heads, kv_heads, scale, units,  \
                      parts, shared);                                                                                                                        \
  }                                                                                                                                                          \
  REGISTER(name)
FRESH(attend_fresh_64, 64)
FRESH(attend_fresh_128, 128)
FRESH(attend_fresh_256, 256)

// The merges join the parts of each row's query heads. A thread has 4 columns. vectors is
// rows · query heads; grid: as many blocks as that takes.
static constexpr u32 MERGE = 128;

// Merge is what a thread of a merge has to do.
struct Merge {
  const f32x4 *sum; // of its columns of the first part
  const f32x2 *mark;
  u32 lanes, live; // threads of a query head; parts

  METHOD Joined at(u32 part) const {
    Joined x;
    clear(x);
    if (part < live) {
      const f32x4 o = sum[part * lanes];
      const f32x2 ml = mark[part];
      x = {ml.x, ml.y, {o.x, o.y, o.z, o.w}};
    }
    return x;
  }
};

DEV Merge merge_of(const float *sums, const f32x2 *marks, const Step *step, u32 vector, u32 row, u32 lane, u32 dim, u32 units, u32 parts) {
  const Span s = step->span[step->span_of[row]];
  const u32 end = s.base + s.rows, held = end < s.slots ? end : s.slots;
  return {(const f32x4 *)(sums + (u64)vector * parts * dim) + lane, marks + (u64)vector * parts, dim / 4, ((held + UNIT - 1) / UNIT + units - 1) / units};
}

DEV void put(const Joined &all, float *out32, u16 *out16, const float *gates, u32 vector, u32 dim, u32 lane) {
  const float inverse = reciprocal(all.l);
  const u64 at = (u64)vector * dim + lane * 4;
  const f32x4 gate = gate_of(gates, vector, dim, lane * 4);
  const f32x4 y = {all.o[0] * inverse * gate.x, all.o[1] * inverse * gate.y, all.o[2] * inverse * gate.z, all.o[3] * inverse * gate.w};
  if (out32) *(f32x4 *)(out32 + at) = y;
  if (out16) *(u32x2 *)(out16 + at) = {pack_bf16(y.x, y.y), pack_bf16(y.z, y.w)};
}

// attend_merge joins parts of 4 or 16 units. Where a row has more than FANOUT parts, a block
// takes one query head: a thread joins FANOUT parts, all loaded at once, and the first threads
// what those have; otherwise a block takes as many heads as it has threads for.
KERNEL(MERGE) void attend_merge(float *out32, u16 *out16, const float *gates, const float *sums, const f32x2 *marks, const Step *step, u32 q_heads, u32 dim, u32 units, u32 parts, u32 vectors) {
  SHARED(attend_merge) Joined shared[FANOUT][MERGE];
  launch_dependents();
  const u32 lanes = dim / 4, slots = MERGE / lanes, lane = tid() % lanes, slot = tid() / lanes;
  const bool several = parts > FANOUT;
  const u32 vector = several ? bid() : bid() * slots + slot, row = vector / q_heads;
  if (vector >= vectors || row >= step->rows) return;
  const Merge m = merge_of(sums, marks, step, vector, row, lane, dim, units, parts);
  dependency_wait();
  // Parts of 16 units are joined one after another; of 4 units groups of FANOUT first.
  Joined all;
  clear(all);
  for (u32 p = 0; p < m.live; p += several ? slots * FANOUT : FANOUT) {
    const u32 first = p + (several ? slot * FANOUT : 0);
    Joined x[FANOUT];
    UNROLL for (u32 i = 0; i < FANOUT; i++) x[i] = m.at(first + i);
    const u32 count = units == 16 ? FANOUT : 1;
    if (count == 1) {
      Joined part;
      clear(part);
      UNROLL for (u32 i = 0; i < FANOUT; i++) add(part, x[i]);
      x[0] = part;
    }
    if (!several) {
      UNROLL for (u32 i = 0; i < FANOUT; i++)
        if (i < count) add(all, x[i]);
      continue;
    }
    if (p) sync(); // the first threads are done with what was there
    UNROLL for (u32 i = 0; i < FANOUT; i++)
      if (i < count) shared[i][tid()] = x[i];
    sync();
    if (slot != 0) continue;
    for (u32 n = 0; n < slots; n++)
      for (u32 i = 0; i < count; i++) add(all, shared[i][n * lanes + lane]);
  }
  if (several && slot != 0) return;
  put(all, out32, out16, gates, vector, dim, lane);
}
REGISTER(attend_merge)

// attend_merge_units_N joins parts of one unit: groups of FANOUT, then FANOUT of these, then
// all of those. A query head has two threads for 4 columns, with half of the groups each.
template <u32 DIM>
DEV void merge_units(float *out32, u16 *out16, const float *gates, const float *sums, const f32x2 *marks, const Step *step, u32 q_heads, u32 parts, u32 vectors, Joined (&shared)[FANOUT / 2][MERGE / 2]) {
  constexpr u32 LANES = DIM / 4, HALF = FANOUT / 2; // groups of a thread
  launch_dependents();
  const u32 lane = tid() % LANES, half = tid() / LANES % 2, own = tid() / (2 * LANES), vector = bid() * (MERGE / (2 * LANES)) + own, row = vector / q_heads;
  Merge m = {};
  if (vector < vectors && row < step->rows) m = merge_of(sums, marks, step, vector, row, lane, DIM, 1, parts);
  sync_warp();
  dependency_wait();
  Joined all;
  clear(all);
#pragma unroll 1
  for (u32 p = 0; p < parts; p += FANOUT * FANOUT) { // as often for all threads
    Joined group[HALF];
    UNROLL for (u32 g = 0; g < HALF; g++) clear(group[g]);
    const u32 first = p + half * HALF * FANOUT;
    if (first < m.live) {
      Joined x[HALF][FANOUT];
      UNROLL for (u32 g = 0; g < HALF; g++)
        UNROLL for (u32 i = 0; i < FANOUT; i++) x[g][i] = m.at(first + g * FANOUT + i);
      UNROLL for (u32 g = 0; g < HALF; g++)
        UNROLL for (u32 i = 0; i < FANOUT; i++) add(group[g], x[g][i]);
    }
    if (p) sync(); // the first half is done with what was there
    if (half)
      UNROLL for (u32 g = 0; g < HALF; g++) shared[g][own * LANES + lane] = group[g];
    sync();
    if (half) continue;
    Joined of;
    clear(of);
    UNROLL for (u32 g = 0; g < HALF; g++) add(of, group[g]);
    UNROLL for (u32 g = 0; g < HALF; g++) add(of, shared[g][own * LANES + lane]);
    add(all, of);
  }
  if (half || m.live == 0) return;
  put(all, out32, out16, gates, vector, DIM, lane);
}

#define MERGE_UNITS(name, dim)                                                                                                                                         \
  KERNEL(MERGE) void name(float *out32, u16 *out16, const float *gates, const float *sums, const f32x2 *marks, const Step *step, u32 q_heads, u32 parts, u32 vectors) { \
    SHARED(name) Joined shared[FANOUT / 2][MERGE / 2];                                                                                                                 \
    merge_units<dim>(out32, out16, gates, sums, marks, step, q_heads, parts, vectors, shared);                                                                         \
  }                                                                                                                                                                    \
  REGISTER(name)
MERGE_UNITS(attend_merge_units_64, 64)
MERGE_UNITS(attend_merge_units_128, 128)
MERGE_UNITS(attend_merge_units_256, 256)
