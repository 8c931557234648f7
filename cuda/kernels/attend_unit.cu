// Decode attention of few rows at short contexts, over bf16 keys and values: what
// rotate_store and attend_ do, with their bits, in one launch.
//
// A block has one unit of one KV head of one span, and 1, 2 or 4 teams for 16 query
// vectors each. It norms and rotates its queries, and the keys of those rows of this
// step whose slots lie in the unit; of the blocks that share a unit the first stores
// keys and values. attend_merge_units_ joins what the units come to.
//
// The kernel ahead holds all registers of a multiprocessor, so that blocks begin when it
// leaves: from there on each load that waits for another is in the way. The launcher says
// where the arrays of the step block lie, and where the angles of the first positions do;
// the first span's page and positions wait for no load.
#include "attend.cuh"
#include "rotate.cuh"

// A head is shared by LANES lanes: each has what SHARE lanes of a warp of rotate_store
// have, and adds up their squares first, as that warp's sum does.
static constexpr u32 SHARE = 4, LANES = 32 / SHARE;

// settle has an address made where it stands, not where it is first used.
#ifdef __NVPTX__
DEV void settle(const float *&p) { asm volatile("" : "+l"(p)); }
#else
DEV void settle(const float *&) {}
#endif

// Divisor is a number below 1024 that others below 4096 are divided by; shared is 2^20 / by + 1.
struct Divisor { u32 by, shared; };
DEV u32 over(u32 n, const Divisor &d) { return n * d.shared >> 20; }

// In is what a launch reads.
struct In {
  const float *q, *k, *v, *q_norm, *k_norm; // as of rotate_store
  float eps;
  const Span *spans;
  const u32 *positions;
  const u64 *pages;  // as many as there are parts at least
  const float *near; // angles of the first nearest positions
  u32 nearest;
  const u64 *angles;             // of all, as of rotate_store
  u32 stride, kv_heads, longest; // heads of q lie stride apart; a span has up to longest rows
  Divisor group, blocks;         // query heads of a KV head; blocks that share those of a span
};

// Fresh is which rows of this step have their slots in a unit: a lane has the slot of
// each of the span's rows, here those that are in it, lines their lines there.
struct Fresh {
  u32 slot, here;
  u64 lines;
};
DEV Fresh fresh_of(const Span &s, const Work &w) {
  const u32 lane = tid() % 32;
  Fresh f;
  f.slot = s.base + lane;
  if (s.window == 0) { // they are the newest, and lie behind each other
    const u32 begin = w.unit * UNIT, from = s.base > begin ? s.base - begin : 0, skip = begin > s.base ? begin - s.base : 0;
    const u32 left = skip < s.rows ? s.rows - skip : 0, room = from < UNIT ? UNIT - from : 0, many = left < room ? left : room;
    f.here = many ? 0xffffffff >> (32 - many) << skip : 0;
    f.lines = many ? ~0ull >> (64 - many) << from : 0;
  } else {
    f.slot = slot_of(s, f.slot);
    const u32 line = 1u << f.slot % 32;
    const bool mine = lane < s.rows && f.slot / UNIT == w.unit, upper = f.slot / 32 % 2;
    f.here = ballot(mine);
    f.lines = (u64)reduce_or(mine && upper ? line : 0) << 32 | reduce_or(mine && !upper ? line : 0);
  }
  sync_warp();
  return f;
}

// PAIRS pairs of a head are rotated.
template <u32 DIM, u32 PAIRS, u32 TEAMS> struct Unit {
  using L = Layout<DIM, BF16>;
  static constexpr u32 BLOCK = TEAMS * THREADS, HEADS = BLOCK / LANES; // heads at a time: the block's queries
  static constexpr u32 ANGLES = PAIRS * 8;                             // bytes of a row's
  // Behind the tiles: the teams', the norms' weights, and the rows' angles.
  static constexpr u32 TEAM = 2 * L::STAGE, NORMS = TEAM + TEAMS * L::BYTES, TURNS = NORMS + 2 * DIM * 4;

  METHOD static u8 *tile(u8 *shared, bool values) { return shared + (values ? L::STAGE : 0); }

  // fetch brings the unit's keys and values to L2.
  METHOD static void fetch(const Work &w, u64 page) {
    for (u32 i = tid(); i < 2 * L::TILE / 128; i += BLOCK) prefetch_l2((const u8 *)page + (i < L::TILE / 128 ? w.keys : w.values - L::TILE) + i * 128);
  }

  // copy starts the copies of the unit's keys and values, but for some lines.
  METHOD static void copy(u8 *shared, const Work &w, u64 page, u64 but) {
    constexpr u32 PIECES = L::VECTOR / 16, LINES = BLOCK / PIECES; // at a time
    const u32 line0 = tid() / PIECES, piece = tid() % PIECES * 16, lines = w.view.held - w.unit * UNIT;
    u8 *to = shared + line0 * L::LINE + piece;
    const u8 *from = (const u8 *)page + w.keys + line0 * L::VECTOR + piece;
    const u64 values = w.values - w.keys;
    but >>= line0;
#pragma unroll 4
    for (u32 i = 0; i < UNIT / LINES; i++, to += LINES * L::LINE, from += LINES * L::VECTOR, but >>= LINES % 64)
      if (!(but & 1)) {
        const u32 bytes = line0 + i * LINES < lines ? 16 : 0;
        copy_async(to, from, bytes);
        copy_async(to + L::STAGE, from + values, bytes);
      }
    copy_commit();
  }

  // turn starts the copies of the angles of rows from first on, a lane having the position of each.
  METHOD static void turn(u8 *shared, const In &in, u32 position, u32 first, u32 rows) {
    constexpr u32 PIECES = ANGLES / 16, AT = 32 / PIECES; // of 16 bytes of a row; rows of a warp at a time
    const u32 lane = tid() % 32;
    const float *table = in.near + position * 2 * PAIRS;
    if (lane < rows && position >= in.nearest) table = (const float *)in.angles[position / POSITIONS] + position % POSITIONS * 2 * PAIRS;
    sync_warp();
    const u64 at = (u64)table;
#pragma unroll 1
    for (first += tid() / 32 * AT; first < rows; first += BLOCK / 32 * AT) {
      const u32 row = first + lane / PIECES;
      const u64 from = shfl((u32)at, (int)row) | (u64)shfl((u32)(at >> 32), (int)row) << 32;
      if (row < rows) copy_async(shared + TURNS + row * ANGLES + lane % PIECES * 16, (const u8 *)from + lane % PIECES * 16);
      sync_warp();
    }
  }

  // Item is a query vector or a key that a thread has a part of.
  struct Item {
    u32 n, row; // of the span
    bool query, there;
  };

  // Value is 8 elements of a fresh value.
  struct Value {
    u32 row;
    bool there;
    f32x4 x[2];
  };
  static constexpr u32 VALUES = BLOCK / (DIM / 8); // rows at a time

  METHOD static Value value_of(const In &in, const Work &w, u32 here, u32 row) {
    Value v = {row, row < 32 && here >> row & 1, {}};
    if (v.there) {
      const f32x4 *from = (const f32x4 *)(in.v + ((u64)(w.row + row) * in.kv_heads + bid()) * DIM) + tid() % (DIM / 8) * 2;
      UNROLL for (u32 i = 0; i < 2; i++) v.x[i] = from[i];
    }
    return v;
  }

  METHOD static void put(u8 *shared, const Work &w, u64 page, u32 own, const Value &v) {
    if (!v.there) return;
    const u32x4 x = {pack_bf16(v.x[0].x, v.x[0].y), pack_bf16(v.x[0].z, v.x[0].w), pack_bf16(v.x[1].x, v.x[1].y), pack_bf16(v.x[1].z, v.x[1].w)};
    const u32 column = tid() % (DIM / 8) * 16;
    *(u32x4 *)(tile(shared, true) + own * L::LINE + column) = x;
    if (w.first == 0) *(u32x4 *)((u8 *)page + w.values + own * L::VECTOR + column) = x;
  }

  // make starts the copies of old keys and values, fills the teams' places of queries, and
  // makes the keys and values of fresh rows, which it stores if it keeps them.
  METHOD static void make(u8 *shared, const In &in, const Work &w, u64 page, const Fresh &fresh) {
    const u32 here = fresh.here;
    const u32 lane = tid() % LANES, at = tid() / LANES;
    const u32 from = here ? __builtin_ctz(here) : 0, items = w.count + (here ? 32 - __builtin_clz(here) - from : 0);
    Head<2> x[SHARE], next[SHARE];
    UNROLL for (u32 i = 0; i < SHARE; i++) {
      x[i].half = next[i].half = DIM / 2;
      x[i].pairs = next[i].pairs = PAIRS;
      x[i].lane = next[i].lane = lane + i * LANES;
    }
    auto item_of = [&](u32 i) INLINE -> Item {
      const bool there = i < items;
      if (!there) i = 0; // nobody keeps what comes of it
      if (i < w.count) return {w.first + i, over(w.first + i, in.group), true, there};
      return {0, from + i - w.count, false, true};
    };
    auto source = [&](const Item &y) INLINE {
      const u32 index = w.row + y.row;
      return y.query ? in.q + ((u64)index * w.q_heads + w.head + y.n - y.row * w.group) * in.stride : in.k + ((u64)index * in.kv_heads + bid()) * DIM;
    };
    Item item = item_of(at), after = item;
    const float *rows = source(item);
    settle(rows);
    dependency_wait();
    UNROLL for (u32 i = 0; i < SHARE; i++) load(x[i], rows);
    Value value = {};
    if (here) value = value_of(in, w, here, from + tid() / (DIM / 8));
    sync_warp();
    copy(shared, w, page, fresh.lines); // behind what is needed first: L2 gives so many bytes a cycle
    copy_wait<1>();
    sync();
#pragma unroll 1
    for (u32 first = HEADS;; first += HEADS) {
      const bool last = first >= items;
      if (!last) {
        after = item_of(first + at);
        rows = source(after);
        UNROLL for (u32 i = 0; i < SHARE; i++) load(next[i], rows);
      }
      sync_warp();
      const float *const cos = (const float *)(shared + TURNS + item.row * ANGLES);
      Turn<2> turn[SHARE];
      UNROLL for (u32 i = 0; i < SHARE; i++) load(turn[i], x[i], cos, cos + PAIRS);
      if (in.q_norm) {
        Head<2> weight[SHARE];
        UNROLL for (u32 i = 0; i < SHARE; i++) {
          weight[i].half = DIM / 2;
          weight[i].pairs = PAIRS;
          weight[i].lane = lane + i * LANES;
          load(weight[i], (const float *)(shared + NORMS) + (item.query ? 0 : DIM));
        }
        static_assert(SHARE == 4);
        float sum = (squares(x[0]) + squares(x[2])) + (squares(x[1]) + squares(x[3])); // as warp_sum
        UNROLL for (int m = LANES / 2; m; m >>= 1) sum += shfl_xor(sum, m);
        const float inverse = norm_scale(sum, DIM, in.eps);
        UNROLL for (u32 i = 0; i < SHARE; i++) scale(x[i], inverse, weight[i]);
      }
      UNROLL for (u32 i = 0; i < SHARE; i++) rotate(x[i], turn[i]);
      const u32 own = shfl(fresh.slot, (int)item.row) % UNIT;
      const bool mine = item.there && (item.query || here >> item.row & 1), keeps = mine && !item.query && w.first == 0;
      const u32 seat = first - HEADS + at; // of a query
      u16 *const line = (u16 *)(item.query ? shared + TEAM + seat / QUERIES * L::BYTES + seat % QUERIES * L::QLINE : tile(shared, false) + own * L::LINE);
      u16 *const kept = (u16 *)(page + w.keys) + own * DIM;
      if (mine)
        UNROLL for (u32 i = 0; i < SHARE; i++) store_bf16(x[i], line);
      if (keeps)
        UNROLL for (u32 i = 0; i < SHARE; i++) store_bf16(x[i], kept);
      sync_warp();
      if (last) break;
      UNROLL for (u32 i = 0; i < SHARE; i++) x[i] = next[i];
      item = after;
    }
    if (here) {
#pragma unroll 1
      for (u32 row = from; row < 32; row += VALUES) {
        if (row != from) value = value_of(in, w, here, row + tid() / (DIM / 8));
        sync_warp();
        put(shared, w, page, shfl(fresh.slot, (int)(value.row % 32)) % UNIT, value);
        sync_warp();
      }
    }
  }

  // The products of scores and weigh (attend.cuh), for which all that comes from shared
  // memory is on its way before it is used: values while probabilities are made.
  METHOD static void multiply_keys(float (&s)[2][4], const u8 *shared, const u8 *team) {
    constexpr u32 STEPS = DIM / 16, AT_ONCE = STEPS < 8 ? STEPS : 8;
    const u32 lane = tid() % 32;
    const Shared a_at = shared_at(team) + lane % 16 * L::QLINE + lane / 16 * 16;
    const Shared b_at = shared_at(shared) + (warp_of() * 16 + lane / 16 * 8 + lane % 8) * L::LINE + lane / 8 % 2 * 16;
    UNROLL for (u32 k = 0; k < STEPS; k += AT_ONCE) {
      u32 a[AT_ONCE][4], b[AT_ONCE][4];
      UNROLL for (u32 i = 0; i < AT_ONCE; i++) {
        load_matrix_at(b[i], b_at + (k + i) * 32);
        load_matrix_at(a[i], a_at + (k + i) * 32);
      }
      UNROLL for (u32 i = 0; i < AT_ONCE; i++) {
        mma_bf16(s[0], a[i], {b[i][0], b[i][1]});
        mma_bf16(s[1], a[i], {b[i][2], b[i][3]});
      }
    }
  }
  METHOD static void load_values(u32 (&values)[UNIT / 16][L::PAIRS][4], u8 *shared) {
    const u32 lane = tid() % 32;
    const Shared at = shared_at(tile(shared, true)) + lane % 16 * L::LINE + warp_of() * L::PAIRS * 32 + lane / 16 * 16;
    UNROLL for (u32 k = 0; k < UNIT / 16; k++)
      UNROLL for (u32 n = 0; n < L::PAIRS; n++) load_matrix_transposed_at(values[k][n], at + k * 16 * L::LINE + n * 32);
  }
  METHOD static void multiply_values(float (&o)[2 * L::PAIRS][4], const u32 (&values)[UNIT / 16][L::PAIRS][4], const u8 *team) {
    const u32 lane = tid() % 32;
    const Shared at = shared_at(team + L::P) + lane % 16 * L::PLINE + lane / 16 * 16;
    u32 a[UNIT / 16][4];
    UNROLL for (u32 k = 0; k < UNIT / 16; k++) load_matrix_at(a[k], at + k * 32);
    UNROLL for (u32 k = 0; k < UNIT / 16; k++)
      UNROLL for (u32 n = 0; n < L::PAIRS; n++) {
        mma_bf16(o[2 * n], a[k], {values[k][n][0], values[k][n][1]});
        mma_bf16(o[2 * n + 1], a[k], {values[k][n][2], values[k][n][3]});
      }
  }

  METHOD static void attend(u8 *shared, const In &in, const Step *step, u32 layer, u32 q_heads, float scale, float *to, f32x2 *marks, u32 parts) {
    launch_dependents();
    const u32 lane = tid() % 32, warp = warp_of(), turned = over(bid_y(), in.blocks), shared_by = bid_y() - turned * in.blocks.by;
    u64 page = 0;
    u32 position = 0;
    if (bid_z() == 0) {
      page = load_now(in.pages + (turned < 2 ? 0 : turned - 2));
      if (lane < in.longest) position = load_now(in.positions + lane);
    }
    if (in.q_norm && tid() < DIM / 2) copy_async(shared + NORMS + tid() * 16, (tid() < DIM / 4 ? in.q_norm : in.k_norm) + tid() % (DIM / 4) * 4);
    sync_warp();
    const Span s = in.spans[bid_z()];
    if (bid_z() >= step->spans) return;
    // The newest unit comes first, as the first blocks find room before the others do: its
    // blocks have keys and values to make. Where there are more parts than units, twice as
    // many blocks have it, with half of the queries each.
    const u32 end = s.base + s.rows, newest = ((end < s.slots ? end : s.slots) - 1) / UNIT, first = newest + 1 < parts ? 2 : 1;
    const u32 part = turned < first ? newest : turned - first < newest ? turned - first : turned;
    const u32 block = turned < first ? turned * in.blocks.by + shared_by : shared_by, most = turned < first ? TEAMS * QUERIES / first : TEAMS * QUERIES;
    Work w;
    w.group = in.group.by;
    if (!work_of<L::TILE>(w, s, in.pages, layer, q_heads, in.kv_heads, part, 1, block, most)) return;
    if (bid_z() != 0 || turned < first || first != 2) page = load_now(w.pages);
    if (bid_z() != 0 && lane < s.rows) position = load_now(in.positions + s.first + lane);
    sync_warp();
    fetch(w, page);

    const Fresh fresh = fresh_of(s, w);
    const bool all = fresh.here != 0; // of all rows, or of the block's queries
    turn(shared, in, position, all ? 0 : over(w.first, in.group), all ? s.rows : over(w.first + w.count - 1, in.group) + 1);
    copy_commit();
    for (u32 t = w.count / QUERIES; t < TEAMS; t++) allow_unwritten(shared + TEAM + t * L::BYTES, QUERIES * L::QLINE); // sums that nobody stores
    make(shared, in, w, page, fresh);
    copy_wait<0>();
    sync();
    take_team(w);
    u8 *const team = shared + TEAM + team_of() * L::BYTES;
    float *const peaks = (float *)(team + L::PEAKS), *const sums = (float *)(team + L::SUMS);
    u32 index[2];
    UNROLL for (int h = 0; h < 2; h++) {
      const u32 n = h * 8 + lane / 4;
      index[h] = w.base + over(w.first + (n < w.count ? n : 0), in.group);
    }
    float p[2][4] = {};
    multiply_keys(p, shared, team);
    u32 values[UNIT / 16][L::PAIRS][4];
    load_values(values, shared);
    auto mask = [&](auto column) INLINE {
      UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int j = 0; j < 2; j++) {
          const Column c = column(w.unit * UNIT + warp * 16 + lane % 4 * 2 + n * 8 + j);
          UNROLL for (int h = 0; h < 2; h++)
            if (!sees(index[h], c)) p[n][2 * h + j] = NONE;
        }
      sync_warp();
    };
    if (w.view.window != 0) mask([&](u32 slot) INLINE { return column_of(w.view, slot); });
    else mask([](u32 slot) INLINE { return plain_column(slot); });
    UNROLL for (int h = 0; h < 2; h++) {
      float peak = __builtin_fmaxf(__builtin_fmaxf(p[0][2 * h], p[0][2 * h + 1]), __builtin_fmaxf(p[1][2 * h], p[1][2 * h + 1]));
      peak = __builtin_fmaxf(peak, shfl_xor(peak, 1));
      peak = __builtin_fmaxf(peak, shfl_xor(peak, 2));
      if (lane % 4 == 0) peaks[warp * QUERIES + h * 8 + lane / 4] = peak;
    }
    sync();
    float top[2], peak[2], weight[2]; // both halves at once, as all of it is one chain of latencies
    UNROLL for (int h = 0; h < 2; h++) {
      const float *const of = peaks + h * 8 + lane / 4;
      float by_warp[WARPS];
      UNROLL for (u32 o = 0; o < WARPS; o++) by_warp[o] = of[o * QUERIES];
      peak[h] = __builtin_fmaxf(__builtin_fmaxf(by_warp[0], by_warp[1]), __builtin_fmaxf(by_warp[2], by_warp[3]));
    }
    u32 pair[2][2];
    UNROLL for (int h = 0; h < 2; h++) {
      top[h] = peak[h] * scale;
      const float base = peak[h] == NONE ? 0 : top[h];
      weight[h] = 0;
      UNROLL for (int n = 0; n < 2; n++) { // the weight is the sum of what the values are multiplied by
        pair[h][n] = pack_bf16(ex2(fma(p[n][2 * h], scale, -base)), ex2(fma(p[n][2 * h + 1], scale, -base)));
        weight[h] += low_bf16(pair[h][n]) + high_bf16(pair[h][n]);
      }
    }
    UNROLL for (int m = 1; m < 4; m *= 2)
      UNROLL for (int h = 0; h < 2; h++) weight[h] += shfl_xor(weight[h], m);
    UNROLL for (int h = 0; h < 2; h++) {
      const u32 row = h * 8 + lane / 4;
      UNROLL for (int n = 0; n < 2; n++) *(u32 *)(team + L::P + row * L::PLINE + (warp * 16 + n * 8 + lane % 4 * 2) * 2) = pair[h][n];
      if (lane % 4 == 0) sums[warp * QUERIES + row] = weight[h];
    }
    sync();
    float o[2 * L::PAIRS][4] = {};
    multiply_values(o, values, team);
    each(w, index, [&](int h, u32 vector) {
      const u64 part = (u64)vector * parts + w.part;
      float *const sum = to + part * DIM;
      columns<DIM, BF16>(h, [&](u32 column, u32 n, u32 j, u32 n2, u32 j2) { *(f32x2 *)(sum + column) = {o[n][j], o[n2][j2]}; });
      const u32 row = h * 8 + lane / 4;
      if (warp == 0 && lane % 4 == 0) marks[part] = {top[h], (sums[row] + sums[QUERIES + row]) + (sums[2 * QUERIES + row] + sums[3 * QUERIES + row])};
    });
  }
};

// attend_unit_DIM_TEAMS: q, k and v are those of rotate_store, which stay; norms are both
// there or both not; gated tells that behind each head of q lies as much of a gate. spans,
// positions and pages are the step block's; near are the angles of the first nearest
// positions. A row has parts parts of one unit each, in sums [rows, query heads, parts,
// dim] and marks [rows, query heads, parts] (maximum, weight). scale is as of attend.cu.
// blocks blocks share the query vectors of a KV head, group for each row; their shares are
// those of Divisor. Grid: KV heads, parts · blocks, spans.
#ifdef __NVPTX__
#define KERNEL_OF(teams, dim) extern "C" __attribute__((global, launch_bounds(teams *THREADS, dim == 256 ? 1 : 4 / teams)))
#else
#define KERNEL_OF(teams, dim) KERNEL(teams *THREADS)
#endif
#define ATTEND_UNIT(name, dim, pairs, teams)                                                                                                                       \
  KERNEL_OF(teams, dim) void name(const float *q, const float *k, const float *v, u32 gated, float *sums, f32x2 *marks, const float *q_norm, const float *k_norm,  \
                             float eps, const Step *step, const Span *spans, const u32 *positions, const u64 *pages, const float *near, u32 nearest,               \
                             const u64 *angles, u32 layer, u32 group, u32 kv_heads, float scale, u32 longest, u32 parts, u32 blocks, u32 group_share,            \
                             u32 blocks_share) {                                                                                                                   \
    DYNAMIC_SHARED(name, shared);                                                                                                                                  \
    const In in{q, k, v, q_norm, k_norm, eps, spans, positions, pages, near, nearest, angles, gated ? 2u * dim : dim, kv_heads, longest,                           \
                {group, group_share}, {blocks, blocks_share}};                                                                                                     \
    Unit<dim, pairs, teams>::attend(shared, in, step, layer, group * kv_heads, scale, sums, marks, parts);                                                                  \
  }                                                                                                                                                                \
  REGISTER(name)
ATTEND_UNIT(attend_unit_64_1, 64, 32, 1)
ATTEND_UNIT(attend_unit_64_2, 64, 32, 2)
ATTEND_UNIT(attend_unit_64_4, 64, 32, 4)
ATTEND_UNIT(attend_unit_128_1, 128, 64, 1)
ATTEND_UNIT(attend_unit_128_2, 128, 64, 2)
ATTEND_UNIT(attend_unit_128_4, 128, 64, 4)
ATTEND_UNIT(attend_unit_256_1, 256, 32, 1)
ATTEND_UNIT(attend_unit_256_2, 256, 32, 2)
