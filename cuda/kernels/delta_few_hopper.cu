// Few rows of a layer of gated DeltaNet in one launch, on compute capability 9.0, with the bits of
// delta.cu's three, each of which costs more to begin than it has to do.
//
// A cluster has a value head of a span, each of its blocks 16 columns. Queries and keys of up to ALONE
// rows each block makes by itself; of more a block makes every eighth row's, and gives them to the
// others. Then its columns go through the rows, and give what they made to the blocks that norm them, a
// row a warp. One warp more, the keeper, has the block's values, and logs: keys, which all value heads
// of a key head fold in, are logged by the last of their clusters to have done so.
//
// What blocks give each other completes its bytes at a barrier: a fence for the cluster would wait for
// all that was stored, states and logs.
#include "delta.cuh"
#include "hopper.cuh"

static constexpr u32 DIM = 128, CONV = 4, BLOCKS = 8, MOST = 32, ALONE = 4; // of a head; blocks of a cluster; rows; rows of which nothing is shared
using Few = Columns<DIM, 16, 2, 4>;                               // as delta_columns_128: sums have its order
static constexpr u32 TEAM = Few::THREADS, WARPS = TEAM / 32;
static constexpr u32 COUNT = Few::COUNT, LINE = Few::LINE;
static constexpr u32 FOLDS = 16, FOLD = DIM + COUNT + 4; // logged rows at a time: key, deltas, gates
// Bytes of shared memory: rows, logged rows, what the columns gave, rows to norm, their z and the norm's weights, barriers.
static constexpr u32 FOLDED = MOST * LINE * 4, GIVEN = FOLDED + FOLDS * FOLD * 4, NORMED = GIVEN + MOST * COUNT * 4, GATES = NORMED + WARPS * DIM * 4, BARRIERS = GATES + WARPS * 2 * DIM * 4;
static_assert(BLOCKS * COUNT == DIM && BLOCKS * WARPS == MOST && BARRIERS + 32 == 53024); // ../launch/delta.go

// FewRows is where a block's rows are from and go to.
struct FewRows {
  const Shape &shape;
  const Span &span;
  const States &states;
  const Place &place;
  u32 lane;

  METHOD u64 slot(u32 index) const { return (u64)(index % (states.log + CONV - 1)) * shape.raw_line(); }
  // before is a row before the span's first, as it was before the convolution: zeros before the
  // sequence's beginning. Other forwards have brought it.
  METHOD f32x4 before(u32 back, u32 channel) const {
    if (span.base < back) return {0, 0, 0, 0};
    return *(const f32x4 *)(states.from + place.raw + slot(span.base - back) + channel);
  }
  // kept reports whether a row is to be kept as it was before the convolution.
  METHOD bool kept(u32 row) const { return span.base + row + CONV > states.settle; }
  METHOD void keep(u32 row, u32 channel, f32x4 v) const { *(f32x4 *)(states.to + place.raw + slot(span.base + row) + channel) = v; }
  // carry copies a row before the span's first to where it is read from now on; there are CONV - 1 at most.
  METHOD void carry(u32 back, u32 channel) const {
    if (!states.from || states.from == states.to || back > span.base || span.base - back + CONV <= states.settle) return;
    *(f32x4 *)(states.to + place.raw + slot(span.base - back) + channel) = before(back, channel);
  }
};

DEV f32x4 mix(const f32x4 (&x)[CONV], const f32x4 (&weight)[CONV]) {
  f32x4 c = {0, 0, 0, 0};
  UNROLL for (u32 t = 0; t < CONV; t++) c = fma4(x[t], weight[t], c);
  return silu4(c);
}

// weights_of are the taps of four channels, of the oldest row first.
DEV void weights_of(f32x4 (&weight)[CONV], const float *taps, u32 channel) {
  const f32x4 *of = (const f32x4 *)taps + channel;
  const f32x4 a = of[0], b = of[1], c = of[2], d = of[3];
  weight[0] = {a.x, b.x, c.x, d.x};
  weight[1] = {a.y, b.y, c.y, d.y};
  weight[2] = {a.z, b.z, c.z, d.z};
  weight[3] = {a.w, b.w, c.w, d.w};
}

// out32 and out16 (null: not wanted) [rows, value heads · DIM]; folding [spans, key heads, 8], zeros, counts
// clusters. Grid: 8 blocks a value head, spans; all rows are MOST at most.
KERNEL(TEAM + 32, 4) void delta_few_c8(float *out32, u16 *out16, const float *q, u32 q_width, u32 q_stride, const float *k, u32 k_width, u32 k_stride, const float *v,
                                       u32 v_width, u32 v_stride, const float *z, u32 z_width, u32 z_stride, const float *b, u32 b_width, u32 b_stride, const float *a,
                                       u32 a_width, u32 a_stride, const float *taps, const float *log_decay, const float *time_step, const float *norm, float eps,
                                       const RecurrentStep *step, u32 layer, u32 fixed, u32 by_log, u32 key_heads, u32 value_heads, u32 tiled, u32 *folding) {
  DYNAMIC_SHARED(delta_few_c8, shared);
  float *lines = (float *)shared, *logged = (float *)(shared + FOLDED), *given = (float *)(shared + GIVEN), *whole = (float *)(shared + NORMED), *gates = (float *)(shared + GATES);
  launch_dependents();
  const RecurrentStep begin = head_of(step);
  if (bid_y() >= begin.spans) return;
  const Span span = span_at(step, begin, bid_y());
  const States states = *(bid_y() == 0 ? &step->firstStates : begin.states + bid_y());
  const u32 covered = begin.folded[layer * begin.spans + bid_y()];
  sync_warp();
  // Barriers: the team has folded in; others' queries and keys are there; so are rows to norm.
  const u32 folded_in = shared_address(shared + BARRIERS), taken = folded_in + 8, there = folded_in + 16;
  if (tid() == TEAM) {
    barrier_init(folded_in, WARPS);
    barrier_init(taken, 1);
    barrier_init(there, 1);
    barriers_made();
  }
  sync_warp();
  cluster_arrive();
  const Shape shape = {key_heads, value_heads, DIM, DIM, CONV, DIM};
  const u64 base = fixed + (u64)by_log * states.log;
  const Place place = place_of(shape, base, states.log);
  const u32 rank = cluster_rank(), head = bid() / BLOCKS, group = shape.group(), key_head = tiled ? head % key_heads : head / group;
  const u32 t = tid(), lane = t % 32, warp = t / 32, rows = span.rows;
  const u32 part = head / group, within = head % group; // of projections by key heads
  const u32 mine = head * DIM + rank * COUNT;           // the block's first column of a row of values
  const u64 value_line = shape.value_line(), key_line = shape.key_line();
  const FewRows r{shape, span, states, place, lane};

  if (warp == WARPS) { // the keeper
    const u32 quad = lane % 4 * 4, channel = 2 * key_heads * DIM + mine + quad;
    f32x4 weight[CONV], x[CONV] = {};
    weights_of(weight, taps, channel);
    const float decay = log_decay[head], shift = time_step[head];
    UNROLL for (u32 i = 0; i + 1 < CONV; i++) // lanes of the first rows
      if (lane / 4 + i + 1 < CONV) x[i] = r.before(CONV - 1 - i - lane / 4, channel);
    if (lane / 4 < CONV - 1) r.carry(lane / 4 + 1, channel);
    dependency_wait();
    const float *from = v + (u64)span.first * v_width + (u64)part * v_stride + within * DIM + rank * COUNT + quad;
    float time = 0, beta = 0;
    if (lane < rows) {
      time = a[(u64)(span.first + lane) * a_width + part * a_stride + within];
      beta = b[(u64)(span.first + lane) * b_width + part * b_stride + within];
    }
    auto make = [&](u32 row, const f32x4(&x)[CONV]) INLINE {
      if (row >= rows) return;
      if (r.kept(row)) r.keep(row, channel, x[CONV - 1]);
      *(f32x4 *)(lines + row * LINE + 2 * DIM + quad) = mix(x, weight);
    };
    _Pragma("nounroll") for (u32 pass = 0; pass < rows; pass += 16) { // two rows a lane, all on their way at once
      const u32 row = pass + lane / 4;
      f32x4 y[CONV] = {};
      UNROLL for (u32 i = 0; i < CONV; i++) {
        if (row < rows && row + i + 1 >= CONV) x[i] = *(const f32x4 *)(from + (u64)(row + i + 1 - CONV) * v_width);
        if (row + 8 < rows) y[i] = *(const f32x4 *)(from + (u64)(row + 8 + i + 1 - CONV) * v_width);
      }
      sync_warp(); // what was there is read before others come to its place
      make(row, x);
      make(row + 8, y);
    }
    const f32x4 both = gates_of(decay, shift, time, beta);
    if (lane < rows) *(f32x4 *)(lines + lane * LINE + 2 * DIM + COUNT) = both;
    // Of what is logged of the key head a block has every eighth row.
    static_assert(MOST / BLOCKS == 4);
    auto raw = [&](const float *from, u32 width, u32 stride, u32 i) INLINE {
      const u64 row = span.first + (rank + i * BLOCKS < rows ? rank + i * BLOCKS : 0);
      return *(const f32x4 *)(from + row * width + (u64)key_head * stride + lane * 4);
    };
    const f32x4 q0 = raw(q, q_width, q_stride, 0), q1 = raw(q, q_width, q_stride, 1), q2 = raw(q, q_width, q_stride, 2), q3 = raw(q, q_width, q_stride, 3);
    const f32x4 k0 = raw(k, k_width, k_stride, 0), k1 = raw(k, k_width, k_stride, 1), k2 = raw(k, k_width, k_stride, 2), k3 = raw(k, k_width, k_stride, 3);
    cluster_wait();
    sync();
    wait_phase(folded_in, 0);
    cluster_arrive_with(); // for the team, whose reads that orders: it would wait for a fence
    cluster_wait();        // the cluster has folded in
    if (rank == 0 && lane < rows && span.base + lane >= states.settle) ((f32x4 *)(states.to + place.gates))[(span.base + lane) % states.log * value_heads + head] = both;
    u32 last = 1;
    if (group > 1) {
      if (lane == 0) {
        u32 *count = folding + (bid_y() * key_heads + key_head) * BLOCKS + rank;
        fence();
        last = atomic_add(count, 1) == group - 1;
        fence();
        if (last) *count = 0;
      }
      last = shfl(last, 0);
      sync_warp(); // what lane 0 has seen all lanes have
    }
    if (last) {
      const u32 query = key_head * DIM + lane * 4, key = query + key_heads * DIM;
      if (rank + 1 < CONV) r.carry(rank + 1, query), r.carry(rank + 1, key);
      auto log = [&](u32 i, f32x4 own_query, f32x4 own_key) INLINE {
        const u32 row = rank + i * BLOCKS;
        if (row < rows && r.kept(row)) r.keep(row, query, own_query), r.keep(row, key, own_key);
        if (row < rows && span.base + row >= states.settle) *(f32x4 *)(states.to + place.keys + (span.base + row) % states.log * key_line + query) = *(const f32x4 *)(lines + row * LINE + lane * 4);
      };
      log(0, q0, k0);
      log(1, q1, k1);
      log(2, q2, k2);
      log(3, q3, k3);
    }
    return;
  }

  const u32 folded = states.from ? covered : 0, folds = span.base - folded;
  const u64 state = base + (u64)mine * DIM;
  Few::Running y(t);
  y.begin(states.from ? states.from + state : nullptr);
  y.given = given + y.own, y.apart = COUNT;
  y.log = states.log, y.line = value_line;
  const bool kept = states.from == states.to && folded == states.settle; // the state is there as it is to be
  // load_logged starts copies of logged rows, those of the fold from first on.
  auto load_logged = [&](u32 first) INLINE {
    constexpr u32 vectors = FOLD / 4;
    const u32 n = folds - first < FOLDS ? folds - first : FOLDS;
    for (u32 i = t; i < n * vectors; i += TEAM) {
      const u32 row = i / vectors, e = i % vectors * 4;
      const u64 at = (folded + first + row) % states.log;
      const float *from = e < DIM           ? states.from + place.keys + at * key_line + key_head * DIM + e
                          : e < DIM + COUNT ? states.from + place.deltas + at * value_line + mine + (e - DIM)
                                            : states.from + place.gates + (at * value_heads + head) * 4;
      copy_async(logged + row * FOLD + e, from);
    }
    copy_commit();
  };
  load_logged(0);

  // Queries are made by two warps, keys by the other two, a half of the rows each: of all, or of the block's.
  const bool query = warp < WARPS / 2, alone = rows <= ALONE;
  const u32 half = (rows + 1) / 2, from_row = alone ? warp % 2 * half : warp % 2 * BLOCKS + rank, to_row = alone && from_row + half < rows ? from_row + half : rows;
  const u32 next = alone ? 1 : 2 * BLOCKS;
  const u32 channel = ((query ? 0 : key_heads) + key_head) * DIM + lane * 4, width = query ? q_width : k_width;
  f32x4 weight[CONV], x[CONV] = {};
  weights_of(weight, taps, channel);
  UNROLL for (u32 i = 1; i < CONV; i++)
    if (from_row + i < CONV) x[i] = r.before(CONV - i - from_row, channel);
  dependency_wait();
  const float *from = (query ? q : k) + (u64)span.first * width + (u64)key_head * (query ? q_stride : k_stride) + lane * 4;
  UNROLL for (u32 i = 1; i < CONV; i++)
    if (from_row + i >= CONV && from_row < to_row) x[i] = *(const f32x4 *)(from + (u64)(from_row + i - CONV) * width);
  float *line = lines + (query ? DIM : 0) + lane * 4; // a lane's own, until the block waits
  for (u32 row = from_row; row < to_row; row += next) copy_async(line + row * LINE, from + (u64)row * width);
  const u32 own = rank + warp * BLOCKS; // the row that the warp norms
  float *gate = gates + (warp * 2 * DIM + lane * 4);
  if (own < rows) {
    copy_async(gate, z + (u64)(span.first + own) * z_width + (u64)part * z_stride + within * DIM + lane * 4);
    copy_async(gate + DIM, norm + lane * 4);
  }
  copy_commit();
  sync_warp(); // all are on their way at once
  const u32 owned = rank < rows ? (rows - rank + BLOCKS - 1) / BLOCKS : 0; // rows of the block
  cluster_wait(); // all blocks have begun
  if (!alone && t == 0) expect(taken, (rows - owned) * 2 * DIM * 4);
  copy_wait<0>();
  _Pragma("nounroll") for (u32 row = from_row; row < to_row; row += next) {
    if (!alone && row != from_row)
      UNROLL for (u32 i = 1; i < CONV; i++) x[i] = *(const f32x4 *)(from + (u64)(row + i - CONV) * width);
    UNROLL for (u32 j = 0; j + 1 < CONV; j++) x[j] = x[j + 1];
    x[CONV - 1] = *(const f32x4 *)(line + row * LINE);
    const f32x4 c = mix(x, weight);
    const float s = unit_scale(c, DIM, query), v[4] = {c.x * s, c.y * s, c.z * s, c.w * s};
    const u32 to = shared_address(line + row * LINE);
    put_at(to, v);
    if (!alone)
      _Pragma("nounroll") for (u32 i = 1; i < BLOCKS; i++) give(in_block(to, (rank + i) % BLOCKS), v, in_block(taken, (rank + i) % BLOCKS));
  }
  sync();
  if (!alone) wait_with(taken, 0);

  _Pragma("nounroll") for (u32 first = 0; first < folds; first += FOLDS) {
    if (first > 0) {
      sync_group(1, TEAM);
      load_logged(first);
      copy_wait<0>();
      sync_group(1, TEAM);
    }
    _Pragma("nounroll") for (u32 i = 0; i < FOLDS && first + i < folds; i++) {
      const float *line = logged + i * FOLD;
      y.fold(line, line + DIM, *(const f32x2 *)(line + DIM + COUNT));
    }
  }
  sync_warp();
  arrive(folded_in, lane == 0);
  cluster_arrive();
  const u32 plain = states.settle - span.base; // rows that stay
  y.rows(lines, plain, false);
  if (!kept) y.store(states.to + state);
  y.keep(states.to + place.deltas + mine, states.settle);
  y.rows(lines + plain * LINE, rows - plain, true);
  y.give_last();
  sync_group(1, TEAM);
  cluster_wait();
  if (t == 0 && owned > 0) expect(there, owned * (DIM - COUNT) * 4);
  if (t / 4 < rows) {
    float vector[4];
    get(vector, shared_address(given + t * 4));
    const u32 to = shared_address(whole + t / 4 / BLOCKS * DIM + rank * COUNT + t % 4 * 4), block = t / 4 % BLOCKS;
    if (block == rank) put_at(to, vector); // what st.async does to the block that executes it is undefined (PTX ISA)
    else give(in_block(to, block), vector, in_block(there, block));
  }
  sync_warp(); // the block's own columns of a row are written by the warp that norms it
  if (own >= rows) return;
  wait_with(there, 0);
  const f32x4 made = gated_norm(*(const f32x4 *)(whole + warp * DIM + lane * 4), *(const f32x4 *)gate, *(const f32x4 *)(gate + DIM), DIM, eps);
  const u64 to = ((u64)(span.first + own) * value_heads + head) * DIM + lane * 4;
  if (out32) *(f32x4 *)(out32 + to) = made;
  if (out16) *(u32x2 *)(out16 + to) = {pack_bf16(made.x, made.y), pack_bf16(made.z, made.w)};
}
REGISTER(delta_few_c8)
