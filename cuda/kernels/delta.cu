// Gated DeltaNet (backend.Delta) in three kernels: what a row needs by itself and of the
// rows just before it; the recurrence, with the state in registers over all rows of a
// span; the gated norm, and the log of rows that may still be taken back.
//
// Every sum has one order, however rows are cut into forwards and whoever is beside
// them; products are rounded where it is written, and multiply-adds are fma.
#include "gpu.cuh"

// States are where a span's states are read (null: there are none yet) and written:
// those of all layers, in f32. Rows from index settle on are logged.
struct States {
  const float *from;
  float *to;
  u32 settle, log; // log: rows that it holds
};

// RecurrentStep is the step block as far as recurrent layers read it.
struct RecurrentStep : Step {
  const States *states; // [spans]
  const u32 *folded;    // [recurrent layers, spans]: indices that a state in from covers
};

static constexpr u32 COLUMNS = 16; // of a block of the recurrence
static constexpr u32 WARPS = 8;    // of a block of the others
static constexpr u32 HELD = 4;     // elements of a lane: heads of at most 128
static constexpr u32 MOST_CONV = 8;

// Shape is that of a layer. Keys are lines of lines elements, zeros past key_dim, and
// values lines of a multiple of COLUMNS.
struct Shape {
  u32 key_heads, value_heads, key_dim, value_dim, conv, lines;
  METHOD u32 group() const { return value_heads / key_heads; }
  METHOD u32 channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  METHOD u32 columns() const { return (value_dim + COLUMNS - 1) / COLUMNS * COLUMNS; }
  METHOD u64 key_line() const { return (u64)key_heads * lines; }
  METHOD u64 value_line() const { return (u64)value_heads * columns(); }
  METHOD u64 raw_line() const { return (channels() + 3) / 4 * 4; }
};

// Of a sequence's states a layer has, from fixed + by_log · log on: S [value heads,
// columns, lines]; the log's keys [log, key heads, lines], deltas [log, value heads,
// columns] and gates [log, value heads, 4]; rows before the convolution [log + conv - 1,
// channels]. Rows of the last two kinds are found by index, modulo how many there are.
struct Place { u64 keys, deltas, gates, raw; };
DEV Place place_of(const Shape &s, u64 base, u64 log) {
  Place p;
  p.keys = base + s.value_line() * s.lines;
  p.deltas = p.keys + log * s.key_line();
  p.gates = p.deltas + log * s.value_line();
  p.raw = p.gates + log * s.value_heads * 4;
  return p;
}

DEV float sigmoid(float x) { return 1 / (1 + exp_precise(-x)); }
DEV float silu(float x) { return x / (1 + exp_precise(-x)); }

// softplus: ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), the logarithm by its series in
// s = e / (2 + e) ≤ 1/3: 2·(s + s³/3 + s⁵/5 + …), 1e-8 at most left out.
DEV float softplus(float x) {
  const float e = exp_precise(x < 0 ? x : -x), s = e / (2 + e), q = s * s;
  float sum = 1.0f / 15;
  sum = fma(sum, q, 1.0f / 13);
  sum = fma(sum, q, 1.0f / 11);
  sum = fma(sum, q, 1.0f / 9);
  sum = fma(sum, q, 1.0f / 7);
  sum = fma(sum, q, 1.0f / 5);
  sum = fma(sum, q, 1.0f / 3);
  return fma(2 * s * q, sum, 2 * s) + (x > 0 ? x : 0);
}

// Raw is a projection: the part of a key head begins at head · stride.
struct Raw { const float *x; u32 width, stride; };

// A warp makes one head's queries, keys or values of each rows in turn: convolution, silu, and
// of queries and keys the L2 norm; with values also the decay and β of the head. Results are
// q and k [rows, key heads, lines], v [rows, value heads, columns], gates [rows, value
// heads]: decay, β. Grid: 8 warps a block.
KERNEL(WARPS * 32) void delta_rows(float *q_to, float *k_to, float *v_to, f32x4 *gates, const float *q, u32 q_width, u32 q_stride, const float *k, u32 k_width,
                                   u32 k_stride, const float *v, u32 v_width, u32 v_stride, const float *b, u32 b_width, u32 b_stride, const float *a, u32 a_width,
                                   u32 a_stride, const float *taps, const float *log_decay, const float *time_step, const RecurrentStep *step, u32 fixed, u32 by_log,
                                   u32 key_heads, u32 value_heads, u32 key_dim, u32 value_dim, u32 conv, u32 lines, u32 each) {
  launch_dependents();
  const Shape shape = {key_heads, value_heads, key_dim, value_dim, conv, lines};
  const u32 lane = tid() % 32, group = shape.group(), parts = 2 * key_heads + value_heads;
  const u32 item = bid() * WARPS + tid() / 32, part = item % parts, first = item / parts * each;
  const bool value = part >= 2 * key_heads;
  const u32 head = value ? part - 2 * key_heads : part % key_heads; // of keys or of values
  const u32 dim = value ? value_dim : key_dim, channel = value ? 2 * key_heads * key_dim + head * value_dim : part * key_dim;
  Raw raw = {v + (u64)(head / group) * v_stride + head % group * value_dim, v_width, 0};
  if (!value) raw = part < key_heads ? Raw{q + (u64)head * q_stride, q_width, 0} : Raw{k + (u64)head * k_stride, k_width, 0};
  float weight[HELD][MOST_CONV] = {};
  UNROLL for (u32 j = 0; j < HELD; j++)
    UNROLL for (u32 t = 0; t < MOST_CONV; t++)
      if (lane + 32 * j < dim && t < conv) weight[j][t] = taps[(u64)(channel + lane + 32 * j) * conv + t];
  const u64 width = shape.raw_line();

  const u32 end = first + each < step->rows ? first + each : step->rows;
  for (u32 row = first; row < end; row++) {
    const u32 at = step->span_of[row];
    const Span span = step->span[at];
    const States states = step->states[at];
    const u64 ring = place_of(shape, fixed + (u64)by_log * states.log, states.log).raw;
    const u32 index = span.base + row - span.first, held = states.log + conv - 1;
    // What another forward brought is there before the kernel ahead has ended. Before the
    // sequence's beginning all is 0.
    float x[MOST_CONV][HELD] = {}, c[HELD] = {}, sum = 0;
    UNROLL for (u32 t = 0; t < MOST_CONV; t++) {
      const u32 back = conv - 1 - t;
      if (t >= conv || index < back || index - back >= span.base) continue;
      const float *from = states.from + ring + (index - back) % held * width + channel;
      UNROLL for (u32 j = 0; j < HELD; j++)
        if (lane + 32 * j < dim) x[t][j] = from[lane + 32 * j];
    }
    dependency_wait();
    UNROLL for (u32 t = 0; t < MOST_CONV; t++) {
      const u32 back = conv - 1 - t;
      if (t >= conv || index < back || index - back < span.base) continue;
      const float *from = raw.x + (u64)(row - back) * raw.width;
      UNROLL for (u32 j = 0; j < HELD; j++)
        if (lane + 32 * j < dim) x[t][j] = from[lane + 32 * j];
    }
    float *kept = index + conv > states.settle ? states.to + ring + index % held * width + channel : 0;
    UNROLL for (u32 j = 0; j < HELD; j++) {
      UNROLL for (u32 t = 0; t < MOST_CONV; t++) {
        c[j] = fma(x[t][j], weight[j][t], c[j]);
        if (t + 1 == conv && kept && lane + 32 * j < dim) kept[lane + 32 * j] = x[t][j];
      }
      c[j] = silu(c[j]); // 0 past dim
      sum = fma(c[j], c[j], sum);
    }
    // Of the rows before, those that this forward does not bring, to where it writes.
    if (row == span.first && states.from && states.from != states.to) {
      for (u32 i = states.settle + 1 > conv ? states.settle + 1 - conv : 0; i < span.base; i++)
        for (u32 e = lane; e < dim; e += 32) states.to[ring + i % held * width + channel + e] = states.from[ring + i % held * width + channel + e];
    }
    if (value) {
      UNROLL for (u32 j = 0; j < HELD; j++)
        if (lane + 32 * j < dim) v_to[(u64)row * shape.value_line() + head * shape.columns() + lane + 32 * j] = c[j];
      if (lane == 0) {
        const float rate = exp_precise(log_decay[head]), time = a[(u64)row * a_width + head / group * a_stride + head % group] + time_step[head];
        gates[(u64)row * value_heads + head] = {exp_precise(-rate * softplus(time)), sigmoid(b[(u64)row * b_width + head / group * b_stride + head % group]), 0, 0};
      }
      continue;
    }
    float scale = 1 / sqrt_exact(warp_sum(sum) + 1e-6f);
    if (part < key_heads) scale *= 1 / sqrt_exact((float)key_dim);
    float *to = (part < key_heads ? q_to : k_to) + (u64)row * shape.key_line() + head * lines;
    UNROLL for (u32 j = 0; j < HELD; j++)
      if (lane + 32 * j < lines) to[lane + 32 * j] = c[j] * scale;
  }
}
REGISTER(delta_rows)

// The recurrence. A block has COLUMNS value columns of a head of a span, a warp 8 of
// them; 4 lanes share a column, of which each holds N runs of 4 elements, 16 apart. A
// sum over a column is 16 chains, in ascending order: those of a lane are added
// (0 + 1) + (2 + 3), then those of the lanes likewise.
//
// Rows come through a ring of chunks in shared memory: first those that were logged and
// are to stay, then the forward's.
static constexpr u32 CHUNK = 4, STAGES = 3;

// Line is a row in the ring: key, query, values, gates.
template <u32 DIM> static constexpr u32 LINE = 2 * DIM + COLUMNS + 4;

template <u32 DIM>
DEV void delta_columns(float *ring, float *out, const float *q, const float *k, const float *v, const f32x4 *gates, const RecurrentStep *step, u32 layer, u64 fixed,
                       u64 by_log, u32 key_heads, u32 value_heads, u32 value_dim, u32 tiled) {
  constexpr u32 N = DIM / 16;
  launch_dependents();
  if (bid_y() >= step->spans) return;
  const Shape shape = {key_heads, value_heads, 0, value_dim, 0, DIM};
  const Span span = step->span[bid_y()];
  const States states = step->states[bid_y()];
  const u64 base = fixed + by_log * states.log;
  const Place place = place_of(shape, base, states.log);
  const u32 blocks = shape.columns() / COLUMNS, head = bid() / blocks, first = bid() % blocks * COLUMNS;
  const u32 key_head = tiled ? head % key_heads : head / shape.group();
  const u32 slice = tid() % 4, column = tid() / 32 * 8 + tid() % 32 / 4;
  const u32 folded = states.from ? step->folded[layer * step->spans + bid_y()] : 0, folds = span.base - folded, items = folds + span.rows;
  const u64 state = base + ((u64)head * shape.columns() + first + column) * DIM + slice * 4;
  const u64 mine = (u64)head * shape.columns() + first; // of a row of values

  // copy starts the copy of a row into the ring: a vector of keys and queries a thread, the
  // first ones also have values and gates.
  const u32 t = tid();
  auto copy = [&](u32 item) {
    const bool fold = item < folds;
    const u64 row = fold ? (folded + item) % states.log : span.first + item - folds;
    float *line = ring + item % (STAGES * CHUNK) * LINE<DIM>;
    if (t < (fold ? DIM / 4 : DIM / 2))
      copy_async(line + t * 4, (fold ? states.from + place.keys : t < DIM / 4 ? k : q) + row * shape.key_line() + key_head * DIM + t % (DIM / 4) * 4);
    if (t < COLUMNS / 4) copy_async(line + 2 * DIM + t * 4, (fold ? states.from + place.deltas : v) + row * shape.value_line() + mine + t * 4);
    else if (t == COLUMNS / 4) copy_async(line + 2 * DIM + COLUMNS, (fold ? (const f32x4 *)(states.from + place.gates) : gates) + row * value_heads + head);
  };
  auto start = [&](u32 chunk) {
    for (u32 i = chunk * CHUNK; i < (chunk + 1) * CHUNK && i < items; i++) copy(i);
    copy_commit();
  };

  f32x4 s[N];
  UNROLL for (u32 j = 0; j < N; j++) s[j] = {0, 0, 0, 0};
  if (states.from) UNROLL for (u32 j = 0; j < N; j++) s[j] = *(const f32x4 *)(states.from + state + j * 16);
  const bool kept = states.from == states.to && folded == states.settle; // the state is there as it is to be
  dependency_wait();
  UNROLL for (u32 i = 0; i + 1 < STAGES; i++) start(i);
  // What a row gives, its query times the state behind it, is summed up beside the next
  // row's key times the same state: two sums whose steps do not wait for each other.
  f32x4 asked[N]; // the query of the row before
  UNROLL for (u32 j = 0; j < N; j++) asked[j] = {0, 0, 0, 0};
  auto dot = [&](const f32x4 *x) {
    f32x4 sum = {0, 0, 0, 0};
    UNROLL for (u32 j = 0; j < N; j++) sum = {fma(s[j].x, x[j].x, sum.x), fma(s[j].y, x[j].y, sum.y), fma(s[j].z, x[j].z, sum.z), fma(s[j].w, x[j].w, sum.w)};
    return (sum.x + sum.y) + (sum.z + sum.w);
  };
  float *given = out + (u64)span.first * shape.value_line() + mine + column; // of the row before
  for (u32 item = 0; item < items; item++) {
    if (item % CHUNK == 0) {
      copy_wait<STAGES - 2>();
      sync(); // the chunk is there, and nobody reads the one before
      start(item / CHUNK + STAGES - 1);
    }
    const float *line = ring + item % (STAGES * CHUNK) * LINE<DIM>;
    f32x4 key[N];
    UNROLL for (u32 j = 0; j < N; j++) key[j] = ((const f32x4 *)line)[slice + j * 4];
    const float decay = line[2 * DIM + COLUMNS], beta = line[2 * DIM + COLUMNS + 1];
    float delta = line[2 * DIM + column];
    if (item >= folds) {
      const u32 index = folded + item;
      if (index == states.settle && !kept) UNROLL for (u32 j = 0; j < N; j++) *(f32x4 *)(states.to + state + j * 16) = s[j];
      float kv = dot(key), o = dot(asked);
      UNROLL for (u32 j = 0; j < N; j++) asked[j] = ((const f32x4 *)(line + DIM))[slice + j * 4];
      kv += shfl_xor(kv, 1), o += shfl_xor(o, 1);
      kv += shfl_xor(kv, 2), o += shfl_xor(o, 2);
      delta = beta * fma(-decay, kv, delta);
      if (slice == 0) {
        if (item > folds) *given = o, given += shape.value_line();
        if (index >= states.settle) states.to[place.deltas + index % states.log * shape.value_line() + mine + column] = delta;
      }
    }
    UNROLL for (u32 j = 0; j < N; j++) {
      const f32x4 x = key[j];
      s[j] = {fma(x.x, delta, decay * s[j].x), fma(x.y, delta, decay * s[j].y), fma(x.z, delta, decay * s[j].z), fma(x.w, delta, decay * s[j].w)};
    }
  }
  float o = dot(asked);
  o += shfl_xor(o, 1);
  o += shfl_xor(o, 2);
  if (slice == 0) *given = o;
}

// out, v [rows, value heads, columns]; q, k [rows, key heads, DIM]. layer is the layer's
// number among those with a state. Grid: columns / 16 of all value heads, spans.
#define DELTA_COLUMNS(name, dim)                                                                                                                                  \
  KERNEL(64) void name(float *out, const float *q, const float *k, const float *v, const f32x4 *gates, const RecurrentStep *step, u32 layer, u32 fixed, u32 by_log, \
                       u32 key_heads, u32 value_heads, u32 value_dim, u32 tiled) {                                                                                \
    alignas(16) SHARED(name) float ring[STAGES * CHUNK * LINE<dim>];                                                                                              \
    delta_columns<dim>(ring, out, q, k, v, gates, step, layer, fixed, by_log, key_heads, value_heads, value_dim, tiled);                                          \
  }                                                                                                                                                               \
  REGISTER(name)
DELTA_COLUMNS(delta_columns_32, 32)
DELTA_COLUMNS(delta_columns_64, 64)
DELTA_COLUMNS(delta_columns_128, 128)

// A warp norms one head of a row, x [rows, value heads, columns], times silu(z), into f32 and bf16
// (null: not wanted) [rows, value heads · value_dim]. It logs keys and gates of rows that
// may be taken back, once all columns have folded in those that were logged before.
KERNEL(WARPS * 32) void delta_norm(float *out32, u16 *out16, const float *x, const float *z, u32 z_width, u32 z_stride, const float *norm, float eps, const float *k,
                                   const f32x4 *gates, const RecurrentStep *step, u32 fixed, u32 by_log, u32 key_heads, u32 value_heads, u32 value_dim, u32 lines) {
  launch_dependents();
  const Shape shape = {key_heads, value_heads, 0, value_dim, 0, lines};
  const u32 lane = tid() % 32, item = bid() * WARPS + tid() / 32, row = item / value_heads, head = item % value_heads, group = shape.group();
  float weight[HELD] = {};
  UNROLL for (u32 j = 0; j < HELD; j++)
    if (lane + 32 * j < value_dim) weight[j] = norm[lane + 32 * j];
  if (row >= step->rows) return;
  const u32 at = step->span_of[row];
  const Span span = step->span[at];
  const States states = step->states[at];
  dependency_wait();
  x += (u64)row * shape.value_line() + head * shape.columns();
  z += (u64)row * z_width + (u64)(head / group) * z_stride + head % group * value_dim;
  float y[HELD], gate[HELD], sum = 0;
  UNROLL for (u32 j = 0; j < HELD; j++) {
    const bool there = lane + 32 * j < value_dim;
    y[j] = there ? x[lane + 32 * j] : 0;
    gate[j] = there ? z[lane + 32 * j] : 0;
    sum = fma(y[j], y[j], sum);
  }
  const float scale = 1 / sqrt_exact(warp_sum(sum) / (float)value_dim + eps);
  const u64 to = (u64)item * value_dim;
  UNROLL for (u32 j = 0; j < HELD; j++) {
    const u32 e = lane + 32 * j;
    if (e >= value_dim) continue;
    const float r = y[j] * scale * weight[j] * silu(gate[j]);
    if (out32) out32[to + e] = r;
    if (out16) out16[to + e] = (u16)pack_bf16(r, 0);
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
