// Gated DeltaNet (backend.Delta) in three kernels: what a row needs by itself and of the
// rows just before it; the recurrence, with the state in registers over all rows of a
// span; the gated norm, and the log of rows that may still be taken back.
#include "delta.cuh"

static constexpr u32 WARPS = 8; // of a block that takes a head of a row a warp
static constexpr u32 MOST_CONV = 8;

// RowsOf makes rows of a head in a warp. Those that a convolution reaches, CONV at most, stay in registers
// from row to row, and the next AHEAD are on their way.
template <u32 CONV, u32 AHEAD> struct RowsOf {
  const Shape &shape;
  u64 fixed, by_log;
  const RecurrentStep *step;
  const RecurrentStep &begin;
  u32 lane, dim, channel, first, end;
  bool value, query; // else a key
  Raw raw;
  float *to; // of the head, in a row of to_line
  u64 to_line;
  const f32x4 (&weight)[CONV];

  template <bool FOURS> METHOD f32x4 row_of(u32 row) const { return load_quad(raw.x + (u64)row * raw.width, lane, dim, FOURS); }

  // make makes all rows. FOURS: quads lie whole. meet is called with the row where a span's begin, once what other
  // forwards brought of it is on its way.
  template <bool FOURS, class Meet> METHOD void make(Meet meet) const {
    _Pragma("nounroll") for (u32 row = first; row < end;) row = run<FOURS>(row, meet);
  }

  // run makes rows from row on, of one span, and returns the row behind them.
  template <bool FOURS, class Meet> METHOD u32 run(u32 row, Meet meet) const {
    const u32 conv = shape.conv, at = begin.spans == 1 ? 0 : begin.span_of[row];
    const Span span = span_at(step, begin, at);
    const States states = *(at == 0 ? &step->firstStates : begin.states + at);
    const u64 ring = place_of(shape, fixed + by_log * states.log, states.log).raw + channel, width = shape.raw_line();
    const u32 held = states.log + conv - 1, last = span.first + span.rows < end ? span.first + span.rows : end;
    u32 index = span.base + row - span.first;
    f32x4 x[CONV] = {}, next[AHEAD] = {}; // of the row, and those before; those behind it
    // What another forward brought is there before the kernel ahead has ended. Before the
    // sequence's beginning all is 0.
    UNROLL for (u32 t = 1; t < CONV; t++) {
      const u32 back = CONV - t;
      if (back >= conv || index < back || index - back >= span.base) continue;
      x[t] = load_quad(states.from + ring + (index - back) % held * width, lane, dim, FOURS);
    }
    meet(row);
    UNROLL for (u32 t = 1; t < CONV; t++) {
      const u32 back = CONV - t;
      if (back >= conv || index < back || index - back < span.base) continue;
      x[t] = row_of<FOURS>(row - back);
    }
    UNROLL for (u32 i = 0; i < AHEAD; i++)
      if (row + i < last) next[i] = row_of<FOURS>(row + i);
    // Of the rows before, those that this forward does not bring, to where it writes.
    if (row == span.first && states.from && states.from != states.to) {
      for (u32 i = states.settle + 1 > conv ? states.settle + 1 - conv : 0; i < span.base; i++)
        for (u32 e = lane; e < dim; e += 32) states.to[ring + i % held * width + e] = states.from[ring + i % held * width + e];
    }
    _Pragma("nounroll") for (; row < last; row += AHEAD)
      UNROLL for (u32 a = 0; a < AHEAD; a++) {
        if (row + a >= last) break;
        UNROLL for (u32 t = 0; t + 1 < CONV; t++) x[t] = x[t + 1];
        x[CONV - 1] = next[a];
        if (row + a + AHEAD < last) next[a] = row_of<FOURS>(row + a + AHEAD);
        f32x4 c = {0, 0, 0, 0};
        UNROLL for (u32 t = 0; t < CONV; t++)
          if (CONV == 4 || t + conv >= CONV) c = fma4(x[t], weight[t], c);
        if (index + conv > states.settle) store_quad(states.to + ring + index % held * width, x[CONV - 1], lane, dim, FOURS);
        index++;
        c = silu4(c); // 0 past dim
        if (!value) {
          const float scale = unit_scale(c, dim, query);
          c = {c.x * scale, c.y * scale, c.z * scale, c.w * scale};
        }
        store_quad(to + (u64)(row + a) * to_line, c, lane, value ? shape.columns() : shape.lines, true);
      }
    return last;
  }
};

// A warp makes one head's queries, keys or values of `each` rows in turn: convolution, silu, and
// of queries and keys the L2 norm; with values also the decay and β of the head. Results are
// q and k [rows, key heads, lines], v [rows, value heads, columns], gates [rows, value
// heads]: decay, β. Grid: 8 warps a block.
template <u32 CONV, u32 AHEAD>
DEV void delta_rows(float *q_to, float *k_to, float *v_to, f32x4 *gates, Raw of_q, Raw of_k, Raw of_v, Raw of_b, Raw of_a, const float *taps, const float *log_decay,
                    const float *time_step, const RecurrentStep *step, u64 fixed, u64 by_log, const Shape &shape, u32 each) {
  launch_dependents();
  const RecurrentStep begin = head_of(step);
  const u32 key_heads = shape.key_heads, value_heads = shape.value_heads, conv = shape.conv;
  const u32 lane = tid() % 32, group = shape.group(), parts = 2 * key_heads + value_heads;
  const u32 item = bid() * WARPS + tid() / 32, part = item % parts, first = item / parts * each;
  const bool value = part >= 2 * key_heads, query = part < key_heads;
  const u32 head = value ? part - 2 * key_heads : part % key_heads; // of keys or of values
  const u32 dim = value ? shape.value_dim : shape.key_dim, channel = value ? 2 * key_heads * shape.key_dim + head * dim : part * dim;
  Raw raw = {of_v.x + (u64)(head / group) * of_v.stride + head % group * dim, of_v.width, 0};
  if (!value) raw = query ? Raw{of_q.x + (u64)head * of_q.stride, of_q.width, 0} : Raw{of_k.x + (u64)head * of_k.stride, of_k.width, 0};
  f32x4 weight[CONV]; // of the oldest row first; 0 before those of shorter kernels
  UNROLL for (u32 t = 0; t < CONV; t++) {
    const bool there = t + conv >= CONV;
    const float *from = taps + (u64)channel * conv + (t + conv - CONV);
    auto tap = [&](u32 e) { return there && e < dim ? from[(u64)e * conv] : 0; };
    weight[t] = {tap(lane * 4), tap(lane * 4 + 1), tap(lane * 4 + 2), tap(lane * 4 + 3)};
  }
  const float decay = value ? log_decay[head] : 0, shift = value ? time_step[head] : 0;
  sync_warp();

  const u32 end = first + each < begin.rows ? first + each : begin.rows;
  float *const to = value ? v_to + head * shape.columns() : (query ? q_to : k_to) + head * shape.lines;
  const u64 to_line = value ? shape.value_line() : shape.key_line();
  const RowsOf<CONV, AHEAD> of{shape, fixed, by_log, step, begin, lane, dim, channel, first, end, value, query, raw, to, to_line, weight};
  auto meet = [&](u32 row) INLINE {
    dependency_wait();
    if (!value || row != first || lane >= end - first) return;
    // Gates of all rows, one a lane.
    const u32 r = first + lane, at = head / group, within = head % group;
    gates[(u64)r * value_heads + head] = gates_of(decay, shift, of_a.x[(u64)r * of_a.width + at * of_a.stride + within], of_b.x[(u64)r * of_b.width + at * of_b.stride + within]);
  };
  if (quads(raw.x, raw.width, dim) && quads(0, channel, dim)) of.template make<true>(meet);
  else of.template make<false>(meet);
}

#define DELTA_ROWS(name, most, ahead)                                                                                                                                         \
  KERNEL(WARPS * 32, 2) void name(float *q_to, float *k_to, float *v_to, f32x4 *gates, const float *q, u32 q_width, u32 q_stride, const float *k, u32 k_width,        \
                               u32 k_stride, const float *v, u32 v_width, u32 v_stride, const float *b, u32 b_width, u32 b_stride, const float *a, u32 a_width,    \
                               u32 a_stride, const float *taps, const float *log_decay, const float *time_step, const RecurrentStep *step, u32 fixed, u32 by_log, \
                               u32 key_heads, u32 value_heads, u32 key_dim, u32 value_dim, u32 conv, u32 lines, u32 each) {                                       \
    delta_rows<most, ahead>(q_to, k_to, v_to, gates, {q, q_width, q_stride}, {k, k_width, k_stride}, {v, v_width, v_stride}, {b, b_width, b_stride},                     \
                     {a, a_width, a_stride}, taps, log_decay, time_step, step, fixed, by_log, {key_heads, value_heads, key_dim, value_dim, conv, lines}, each);   \
  }                                                                                                                                                               \
  REGISTER(name)
DELTA_ROWS(delta_rows_4, 4, 4) // kernels of 4 rows, as all published models have
DELTA_ROWS(delta_rows_8, MOST_CONV, 1)

// Rows come through a ring of chunks in shared memory.
template <u32 DIM, u32 L, u32 C, u32 W, u32 CHUNK, u32 STAGES>
DEV void delta_columns(float *ring, float *out, const float *q, const float *k, const float *v, const f32x4 *gates, const RecurrentStep *step, u32 layer, u64 fixed,
                       u64 by_log, u32 key_heads, u32 value_heads, u32 value_dim, u32 tiled) {
  using Form = Columns<DIM, L, C, W>;
  constexpr u32 COUNT = Form::COUNT, THREADS = Form::THREADS, LINE = Form::LINE;
  launch_dependents();
  if (bid_y() >= step->spans) return;
  const Shape shape = {key_heads, value_heads, 0, value_dim, 0, DIM};
  const Span span = step->span[bid_y()];
  const States states = step->states[bid_y()];
  const u64 base = fixed + by_log * states.log;
  const Place place = place_of(shape, base, states.log);
  const u32 blocks = shape.columns() / COUNT, head = bid() / blocks, first = bid() % blocks * COUNT;
  const u32 key_head = tiled ? head % key_heads : head / shape.group();
  const u32 t = tid();
  // Items are rows that are folded in, and then the forward's; from item settled on they
  // may be taken back.
  const u32 folded = states.from ? step->folded[layer * step->spans + bid_y()] : 0, folds = span.base - folded, items = folds + span.rows;
  const u32 settled = states.settle - folded;
  const u64 mine = (u64)head * shape.columns() + first, state = base + mine * DIM, value_line = shape.value_line(), key_line = shape.key_line(); // of a row of values

  // copy starts the copy of a row into the ring: a vector of keys and queries a thread, the
  // first ones also have values and gates.
  auto copy = [&](u32 item, float *line) INLINE {
    const bool fold = item < folds;
    const u64 row = fold ? (folded + item) % states.log : span.first + item - folds;
    for (u32 i = t; i < (fold ? DIM / 4 : DIM / 2); i += THREADS)
      copy_async(line + i * 4, (fold ? states.from + place.keys : i < DIM / 4 ? k : q) + row * key_line + key_head * DIM + i % (DIM / 4) * 4);
    if (t < COUNT / 4) copy_async(line + 2 * DIM + t * 4, (fold ? states.from + place.deltas : v) + row * value_line + mine + t * 4);
    else if (t == COUNT / 4) copy_async(line + 2 * DIM + COUNT, (fold ? (const f32x4 *)(states.from + place.gates) : gates) + row * value_heads + head);
  };
  // What a thread copies of a chunk that is all rows of the forward: of every PASS-th row the same four elements of
  // its key or query, of one row values, of one its gates.
  constexpr u32 PASS = THREADS / (DIM / 2), QUADS = COUNT / 4;
  static_assert(PASS > 0 && CHUNK % PASS == 0 && CHUNK * QUADS <= THREADS);
  const u32 element = t % (DIM / 2), own = t / (DIM / 2);
  const float *side = (element < DIM / 4 ? k : q) + (u64)own * key_line + key_head * DIM + element % (DIM / 4) * 4, *values = v + (u64)(t / QUADS) * value_line + mine + t % QUADS * 4;
  const u32 last = t - (THREADS - CHUNK); // of threads that copy gates the row's number
  auto start = [&](u32 chunk) INLINE {
    float *lines = ring + chunk % STAGES * CHUNK * LINE;
    const u32 item = chunk * CHUNK;
    if (item >= folds && item + CHUNK <= items) {
      const u64 row = span.first + item - folds;
      const float *from = side + row * key_line;
      UNROLL for (u32 i = 0; i < CHUNK / PASS; i++) copy_async(lines + (own + i * PASS) * LINE + element * 4, from + (u64)(i * PASS) * key_line);
      if (t < CHUNK * QUADS) copy_async(lines + t / QUADS * LINE + 2 * DIM + t % QUADS * 4, values + row * value_line);
      if (last < CHUNK) copy_async(lines + last * LINE + 2 * DIM + COUNT, gates + (row + last) * value_heads + head);
    } else {
      for (u32 r = 0; r < CHUNK && item + r < items; r++) copy(item + r, lines + r * LINE);
    }
    copy_commit();
  };

  typename Form::Running r(t);
  r.begin(states.from ? states.from + state : nullptr);
  const bool kept = states.from == states.to && folded == states.settle; // the state is there as it is to be
  dependency_wait();
  UNROLL for (u32 i = 0; i + 1 < STAGES; i++) start(i);
  r.given = out + (u64)span.first * value_line + mine + r.own;
  r.apart = r.line = value_line;
  r.log = states.log;
  // rows takes those of a chunk from item from on, up to item to.
  auto rows = [&](const float *lines, u32 from, u32 to, bool log) INLINE {
    if (from >= to) return;
    if (log) r.keep(states.to + place.deltas + mine, folded + from);
    r.rows(lines + from % CHUNK * LINE, to - from, log);
  };
  _Pragma("nounroll") for (u32 chunk = 0; chunk * CHUNK < items; chunk++) {
    copy_wait<STAGES - 2>();
    if constexpr (W > 1) sync(); // the chunk is there, and nobody reads the one before
    else sync_warp();
    start(chunk + STAGES - 1);
    const float *lines = ring + chunk % STAGES * CHUNK * LINE;
    u32 item = chunk * CHUNK;
    const u32 end = item + CHUNK < items ? item + CHUNK : items;
    for (; item < end && item < folds; item++) {
      const float *line = lines + item % CHUNK * LINE;
      r.fold(line, line + 2 * DIM, *(const f32x2 *)(line + 2 * DIM + COUNT));
    }
    const u32 plain = end < settled ? end : settled;
    if (item < plain) rows(lines, item, plain, false), item = plain;
    if (item == settled && item < end && !kept) r.store(states.to + state);
    rows(lines, item, end, true);
  }
  r.give_last();
}

// out, v [rows, value heads, columns]; q, k [rows, key heads, DIM]. layer is the layer's
// number among those with a state. Grid: columns / (32/L·C·W) of all value heads, spans. 384 threads a
// multiprocessor leave each 168 registers, as many as four columns a thread take.
#define DELTA_COLUMNS(name, dim, l, c, w, chunk, stages)                                                                                                          \
  KERNEL(32 * w, 384 / (32 * w)) void name(float *out, const float *q, const float *k, const float *v, const f32x4 *gates, const RecurrentStep *step, u32 layer, u32 fixed, u32 by_log, \
                       u32 key_heads, u32 value_heads, u32 value_dim, u32 tiled) {                                                                                \
    alignas(16) SHARED(name) float ring[chunk * stages * Columns<dim, l, c, w>::LINE];                                                                           \
    delta_columns<dim, l, c, w, chunk, stages>(ring, out, q, k, v, gates, step, layer, fixed, by_log, key_heads, value_heads, value_dim, tiled);                 \
  }                                                                                                                                                              \
  REGISTER(name)
DELTA_COLUMNS(delta_columns_32, 32, 8, 2, 2, 8, 3)
DELTA_COLUMNS(delta_columns_64, 64, 8, 2, 2, 8, 3)
DELTA_COLUMNS(delta_columns_128, 128, 16, 2, 4, 16, 2)
DELTA_COLUMNS(delta_columns_128_wide, 128, 16, 4, 4, 16, 2)

// A warp norms one head of a row, x [rows, value heads, columns], times silu(z), into f32 and bf16
// (null: not wanted) [rows, value heads · value_dim]. It logs keys and gates of rows that
// may be taken back, once all columns have folded in those that were logged before.
KERNEL(WARPS * 32) void delta_norm(float *out32, u16 *out16, const float *x, const float *z, u32 z_width, u32 z_stride, const float *norm, float eps, const float *k,
                                   const f32x4 *gates, const RecurrentStep *step, u32 fixed, u32 by_log, u32 key_heads, u32 value_heads, u32 value_dim, u32 lines) {
  launch_dependents();
  const Shape shape = {key_heads, value_heads, 0, value_dim, 0, lines};
  const u32 lane = tid() % 32, item = bid() * WARPS + tid() / 32, row = item / value_heads, head = item % value_heads, group = shape.group();
  const f32x4 weight = load_quad(norm, lane, value_dim, quads(norm, 0, value_dim));
  if (row >= step->rows) return;
  const u32 at = step->span_of[row];
  const Span span = step->span[at];
  const States states = step->states[at];
  dependency_wait();
  z += (u64)row * z_width + (u64)(head / group) * z_stride + head % group * value_dim;
  const f32x4 y = load_quad(x + (u64)row * shape.value_line() + head * shape.columns(), lane, value_dim, value_dim % 4 == 0);
  const f32x4 gate = load_quad(z, lane, value_dim, quads(z, 0, value_dim));
  const f32x4 r = gated_norm(y, gate, weight, value_dim, eps);
  const u64 to = (u64)item * value_dim;
  if (out32) store_quad(out32 + to, r, lane, value_dim, value_dim % 4 == 0);
  if (out16) {
    const u32 e = lane * 4;
    const u32x2 packed = {pack_bf16(r.x, r.y), pack_bf16(r.z, r.w)};
    if (value_dim % 4 == 0) {
      if (e < value_dim) *(u32x2 *)(out16 + to + e) = packed;
    } else {
      if (e < value_dim) out16[to + e] = (u16)packed.x;
      if (e + 1 < value_dim) out16[to + e + 1] = (u16)(packed.x >> 16);
      if (e + 2 < value_dim) out16[to + e + 2] = (u16)packed.y;
      if (e + 3 < value_dim) out16[to + e + 3] = (u16)(packed.y >> 16);
    }
  }
  const u32 index = span.base + row - span.first;
  if (index < states.settle) return;
  const Place place = place_of(shape, fixed + (u64)by_log * states.log, states.log);
  const u64 slot = index % states.log;
  if (lane == 0) ((f32x4 *)(states.to + place.gates))[slot * value_heads + head] = gates[(u64)row * value_heads + head];
  if (head >= key_heads) return;
  const float *from = k + (u64)row * shape.key_line() + head * lines;
  float *line = states.to + place.keys + slot * shape.key_line() + head * lines;
  for (u32 e = lane; e < lines; e += 32) line[e] = from[e];
}
REGISTER(delta_norm)
