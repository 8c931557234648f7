// Decode attention of few rows over a short context on compute capability 9.0, in one launch: what
// rotate_store, attend_decode and attend_merge do, with their bits, over bf16 keys and values.
//
// A cluster has up to 64 query vectors of a KV head of a span, and each of its blocks every
// eighth unit of the context. A block norms and rotates the queries and, where it has their slots,
// the keys of the span's rows, which the first cluster stores with the values. What a unit
// comes to goes into the shared memory of the block that joins it: each has every eighth vector.
#include "attend_decode.cuh"
#include "hopper.cuh"
#include "rotate.cuh"

static constexpr u32 BLOCKS = 8; // of a cluster

// Rows makes queries, keys and values of a span's rows from what the projections left.
template <u32 DIM, u32 TEAMS> struct Rows {
  using L = Layout<DIM, BF16>;
  static constexpr u32 ALL = TEAMS * WARPS;

  const float *q, *k, *v; // of the span's first row; of q the first head that uses the key head
  u32 q_width, q_stride, kv_width;
  const float *q_norm, *k_norm;
  float eps;
  const u64 *angles;
  const u32 *positions;
  u32 pairs;
  const Span &span;
  u32 first, count; // of the block's query vectors
  bool stores;
  u8 *kept;             // keys and values as bf16, [rows, 2, DIM]
  float *norms, *turns; // [2, DIM]; [rows, 2, pairs]

  METHOD u32 slot(u32 row) const { return slot_of(span, span.base + row); }
  METHOD u8 *staged(u32 row, bool value) const { return kept + (2 * row + value) * DIM * 2; }

  // lines are those of a unit that the rows take.
  METHOD u64 lines(u32 unit) const {
    u64 mask = 0;
    if (span.window == 0) {
      const u32 begin = unit * UNIT, from = span.base > begin ? span.base - begin : 0, end = span.base + span.rows - begin;
      if (from >= UNIT || span.base + span.rows <= begin) return 0;
      mask = ~0ull << from;
      return end < UNIT ? mask & ~(~0ull << end) : mask;
    }
    for (u32 row = 0; row < span.rows; row++)
      if (slot(row) / UNIT == unit) mask |= 1ull << slot(row) % UNIT;
    return mask;
  }

  // place puts the rows' lines of a unit into its tile.
  METHOD void place(u8 *, u8 *tile, u32 unit, bool value) const {
    constexpr u32 pieces = DIM / 8;
    if (lines(unit) == 0) return;
    for (u32 i = tid(); i < span.rows * pieces; i += TEAMS * THREADS) {
      const u32 at = slot(i / pieces);
      if (at / UNIT == unit) *(u32x4 *)(tile + at % UNIT * L::LINE + i % pieces * 16) = *(const u32x4 *)(staged(i / pieces, value) + i % pieces * 16);
    }
  }

  // prepare brings what no kernel of this step makes, and clears the team's places of queries.
  METHOD void prepare(u8 *, u8 *team) const {
    if (q_norm)
      for (u32 i = tid(); i < DIM; i += TEAMS * THREADS) norms[i] = q_norm[i];
    if (k_norm)
      for (u32 i = tid(); i < DIM; i += TEAMS * THREADS) norms[DIM + i] = k_norm[i];
    for (u32 i = tid(); i < span.rows * pairs / 2; i += TEAMS * THREADS) { // four at a time
      const u32 row = i / (pairs / 2), position = positions[row];
      ((f32x4 *)turns)[i] = ((const f32x4 *)((const float *)angles[position / POSITIONS] + position % POSITIONS * 2 * pairs))[i % (pairs / 2)];
    }
    for (u32 i = tid() % THREADS; i < QUERIES * L::QLINE / 16; i += THREADS) ((u32x4 *)team)[i] = {0, 0, 0, 0};
    sync();
  }

  // make fills the teams' places of queries and, where the block has their slots, makes the rows'
  // keys and values. A warp has two heads on their way.
  METHOD void make(u8 *shared, u8 *, const Work &w) const {
    const u32 warp = tid() / 32, heads = 2 * span.rows;
    auto query = [&](u32 i) INLINE { return q + (u64)((first + i) / w.group) * q_width + (first + i) % w.group * q_stride; };
    auto has = [&](u32 row) INLINE {
      const u32 unit = slot(row) / UNIT;
      return unit >= w.unit && (unit - w.unit) % w.step == 0 && (unit - w.unit) / w.step < w.units;
    };
    auto after = [&](u32 i) INLINE { // the warp's next head of keys or values
      while (i < heads && !has(i / 2)) i += ALL;
      return i;
    };
    auto head = [&](u32 i) INLINE { return (i % 2 ? v : k) + (u64)(i / 2) * kv_width; };
    Head<2> x, next, y;
    x.half = next.half = y.half = DIM / 2;
    x.pairs = next.pairs = y.pairs = pairs;
    x.lane = next.lane = y.lane = tid() % 32;
    u32 other = after(warp);
    if (warp < count) load(x, query(warp));
    if (other < heads) load(y, head(other));
    for (u32 i = warp; i < count; i += ALL, x = next) {
      if (i + ALL < count) load(next, query(i + ALL));
      const float *turn = turns + (first + i) / w.group * 2 * pairs;
      if (q_norm) norm(x, norms, eps);
      rotate(x, turn, turn + pairs);
      store_bf16(x, (u16 *)(shared + L::TEAM + i / QUERIES * L::BYTES + i % QUERIES * L::QLINE));
    }
    for (u32 i = other; i < heads; i = other, y = next) {
      other = after(i + ALL);
      if (other < heads) load(next, head(other));
      const u32 row = i / 2, value = i % 2, at = slot(row);
      if (!value) {
        const float *turn = turns + row * 2 * pairs;
        if (k_norm) norm(y, norms + DIM, eps);
        rotate(y, turn, turn + pairs);
      }
      store_bf16(y, (u16 *)staged(row, value));
      if (stores) store_bf16(y, (u16 *)(w.pages[at / UNIT - w.unit] + (value ? w.values : w.keys)) + at % UNIT * DIM);
    }
    sync();
  }
};

template <u32 DIM, u32 TEAMS>
DEV void attend_few(float *out32, u16 *out16, const float *q, const float *k, const float *v, u32 gated, const float *q_norm, const float *k_norm, float eps, const Step *step,
                    const u64 *angles, u32 pairs, u32 layer, u32 q_heads, u32 kv_heads, float scale, u32 rows, u32 units, u8 *shared) {
  using L = Layout<DIM, BF16>;
  constexpr u32 VECTORS = TEAMS * QUERIES, OWN = VECTORS / BLOCKS, QUADS = DIM / 4;
  launch_dependents();
  const Step begin = head_of(step);
  if (bid_z() >= begin.spans) return;
  const Span s = span_at(step, begin, bid_z());
  const u32 rank = cluster_rank(), stride = gated ? 2 * DIM : DIM;
  Work w;
  if (!work_of<L::TILE>(w, s, begin.pages, layer, q_heads, kv_heads, units, bid_y(), 0, bid() / BLOCKS, VECTORS)) return;
  cluster_arrive();
  const u32 first = w.first, count = w.count, all = w.units;
  u8 *kept = shared + L::TEAM + TEAMS * L::BYTES;
  float *norms = (float *)(kept + rows * 4 * DIM), *turns = norms + 2 * DIM;
  float *sums = turns + rows * 2 * pairs; // [units, OWN, DIM]
  f32x2 *marks = (f32x2 *)(sums + units * OWN * DIM);
  const u64 key = (u64)w.row * kv_heads + bid_y();
  q += ((u64)w.row * q_heads + w.head) * stride;
  w.unit = rank, w.step = BLOCKS, w.pages += rank;
  w.units = all > rank ? (all - rank + BLOCKS - 1) / BLOCKS : 0;
  take_team(w);
  if (w.units) {
    const Rows<DIM, TEAMS> made{q, k + key * DIM, v + key * DIM, q_heads * stride, stride, kv_heads * DIM, q_norm, k_norm, eps, angles, begin.positions + w.row, pairs, s, first, count, bid() < BLOCKS, kept, norms, turns};
    bool waited = false;
    decode<DIM, BF16, TEAMS>(shared, w, made, scale, [&](u32 u, const float (&top)[2], const float (&weight)[2], const float (&part)[2 * L::PAIRS][4]) INLINE {
      if (!waited) cluster_wait(), waited = true; // all blocks have begun
      UNROLL for (int h = 0; h < 2; h++) {
        const u32 n = h * 8 + tid() % 32 / 4;
        if (n >= w.count) continue;
        float m = NONE, a, b;
        fold(m, top[h], a, b);
        const u32 at = w.at(u) * OWN + (team_of() * QUERIES + n) / BLOCKS, to = n % BLOCKS;
        const u32 sum = in_block(shared_address(sums + at * DIM), to);
        columns<DIM, BF16>(h, [&](u32 column, u32 t, u32 j, u32 t2, u32 j2) INLINE { put_pair(sum + column * 4, join(0, a, part[t][j], b), join(0, a, part[t2][j2], b)); });
        if (warp_of() == 0 && tid() % 4 == 0) put_pair(in_block(shared_address(marks + at), to), m, join(0, a, weight[h], b));
      }
    });
    if (!waited) cluster_wait();
  } else {
    dependency_wait();
    cluster_wait();
  }
  const u32 quad = tid() % QUADS, place = tid() / QUADS, n = first + place * BLOCKS + rank;
  const bool joins = place < OWN && place * BLOCKS + rank < count;
  const u64 vector = (u64)(w.row + n / w.group) * q_heads + w.head + n % w.group;
  const f32x4 gate = gate_of(joins && gated ? q - ((u64)w.row * q_heads + w.head) * stride : nullptr, vector, DIM, quad * 4);
  cluster_sync();
  if (!joins) return;
  // As attend_merge: FANOUT units, FANOUT of these groups, all of those.
  Joined total, several, group;
  clear(total);
  clear(several);
  for (u32 u = 0; u < all; u += FANOUT) {
    clear(group);
    UNROLL for (u32 i = 0; i < FANOUT; i++)
      if (u + i < all) {
        const u32 at = (u + i) * OWN + place;
        const f32x4 o = ((const f32x4 *)sums)[at * QUADS + quad];
        const f32x2 mark = marks[at];
        add(group, {mark.x, mark.y, {o.x, o.y, o.z, o.w}});
      }
    add(several, group);
    if (u / FANOUT % FANOUT == FANOUT - 1 || u + FANOUT >= all) {
      add(total, several);
      clear(several);
    }
  }
  const float inverse = 1 / total.l;
  const f32x4 y = {total.o[0] * inverse * gate.x, total.o[1] * inverse * gate.y, total.o[2] * inverse * gate.z, total.o[3] * inverse * gate.w};
  const u64 to = vector * DIM + quad * 4;
  if (out32) *(f32x4 *)(out32 + to) = y;
  if (out16) *(u32x2 *)(out16 + to) = {pack_bf16(y.x, y.y), pack_bf16(y.z, y.w)};
}

// q, k and v are those of rotate_store, which stay; gated: behind each head of q lies as much of a
// gate. No span has more than rows rows, nor a context of more than units units. The name's
// second number is that of teams, which have 16 query vectors each. Grid: 8 blocks for as many
// query vectors, KV heads, spans.
#define ATTEND_FEW(name, dim, teams)                                                                                                                        \
  HOPPER_KERNEL(teams *THREADS) void name(float *out32, u16 *out16, const float *q, const float *k, const float *v, u32 gated, const float *q_norm,         \
                                          const float *k_norm, float eps, const Step *step, const u64 *angles, u32 pairs, u32 layer, u32 q_heads,           \
                                          u32 kv_heads, float scale, u32 rows, u32 units) {                                                                 \
    DYNAMIC_SHARED(name, shared);                                                                                                                           \
    attend_few<dim, teams>(out32, out16, q, k, v, gated, q_norm, k_norm, eps, step, angles, pairs, layer, q_heads, kv_heads, scale, rows, units, shared);   \
  }                                                                                                                                                         \
  REGISTER(name)
ATTEND_FEW(attend_few_64_1_c8, 64, 1)
ATTEND_FEW(attend_few_64_2_c8, 64, 2)
ATTEND_FEW(attend_few_64_4_c8, 64, 4)
ATTEND_FEW(attend_few_128_1_c8, 128, 1)
ATTEND_FEW(attend_few_128_2_c8, 128, 2)
ATTEND_FEW(attend_few_128_4_c8, 128, 4)
ATTEND_FEW(attend_few_256_1_c8, 256, 1)
