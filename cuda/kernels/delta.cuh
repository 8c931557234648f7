// What the kernels of gated DeltaNet (backend.Delta) share: where states lie, what a row needs by
// itself, a step of the recurrence, the gated norm.
//
// Every sum has one order, however rows are cut into forwards and whoever is beside
// them; products are rounded where it is written, and multiply-adds are fma.
#pragma once
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
  States firstStates;   // states[0]
  const States *states; // [spans]
  const u32 *folded;    // [recurrent layers, spans]: indices that a state in from covers
};

static constexpr u32 COLUMNS = 16; // of a block of the recurrence

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

// softplus: ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), the logarithm by its series in
// s = e / (2 + e) ≤ 1/3: 2·(s + s³/3 + s⁵/5 + …), 1e-8 at most left out.
DEV float softplus(float x) {
  const float e = exp_precise(x < 0 ? x : -x), s = e * reciprocal(2 + e), q = s * s;
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

// Quad is four channels of a lane: those of lane i begin at 4·i, of the first dim that
// there are. whole: they lie at multiples of 16 bytes, all four or none of them.
DEV f32x4 load_quad(const float *from, u32 lane, u32 dim, bool whole) {
  const u32 e = lane * 4;
  f32x4 v = {0, 0, 0, 0};
  if (whole) {
    if (e < dim) v = *(const f32x4 *)(from + e);
    return v;
  }
  if (e < dim) v.x = from[e];
  if (e + 1 < dim) v.y = from[e + 1];
  if (e + 2 < dim) v.z = from[e + 2];
  if (e + 3 < dim) v.w = from[e + 3];
  return v;
}
DEV void store_quad(float *to, f32x4 v, u32 lane, u32 dim, bool whole) {
  const u32 e = lane * 4;
  if (whole) {
    if (e < dim) *(f32x4 *)(to + e) = v;
    return;
  }
  if (e < dim) to[e] = v.x;
  if (e + 1 < dim) to[e + 1] = v.y;
  if (e + 2 < dim) to[e + 2] = v.z;
  if (e + 3 < dim) to[e + 3] = v.w;
}
DEV bool quads(const void *p, u64 step, u32 dim) { return (u64)p % 16 == 0 && step % 4 == 0 && dim % 4 == 0; }
DEV f32x4 fma4(f32x4 a, f32x4 b, f32x4 c) { return {fma(a.x, b.x, c.x), fma(a.y, b.y, c.y), fma(a.z, b.z, c.z), fma(a.w, b.w, c.w)}; }
// sum_squares adds a lane's four, and then the lanes.
DEV float sum_squares(f32x4 v) { return warp_sum(fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, v.x * v.x)))); }

DEV f32x4 silu4(f32x4 c) { return {silu_precise(c.x), silu_precise(c.y), silu_precise(c.z), silu_precise(c.w)}; }

// gates_of are decay and β of a row and value head, of what the projections made and the head's
// parameters.
DEV f32x4 gates_of(float log_decay, float time_step, float a, float b) {
  const float rate = exp_precise(log_decay);
  return {exp_precise(-rate * softplus(a + time_step)), sigmoid(b), 0, 0};
}

// unit_scale is what makes a head of queries or keys, four elements a lane, one of length 1; queries
// are divided by √dim, too.
DEV float unit_scale(f32x4 c, u32 dim, bool query) {
  const float length = sum_squares(c) + 1e-6f;
  return rsqrt(query ? length * (float)dim : length);
}

// gated_norm norms what the recurrence gave for a head, four elements a lane, times silu(z).
DEV f32x4 gated_norm(f32x4 y, f32x4 z, f32x4 weight, u32 dim, float eps) {
  const float scale = norm_scale(sum_squares(y), dim, eps);
  const f32x4 gate = silu4(z);
  return {y.x * scale * weight.x * gate.x, y.y * scale * weight.y * gate.y, y.z * scale * weight.z * gate.z, y.w * scale * weight.w * gate.w};
}

// The recurrence. A block has W warps of 32/L·C value columns of a head of a span; L lanes
// share C columns, two or four, of which each holds N runs of 4 elements, 4·L apart. A sum over a
// column is a chain of a lane's elements in ascending order, and then those of the lanes, (0 + 1) + (2 + 3).
//
// Each exchange between lanes halves what a lane has left to add: sums of half of the columns first, then of one of
// two kinds. So that nothing is chosen on the way, a lane has its columns in an order of its own: column j is j ^ its
// slice, and it keeps the first ones. In the end it has a sum of its own column, the first.
//
// Rows come through chunks in shared memory: first those that were logged and are to stay, then
// the forward's.
template <u32 DIM, u32 L, u32 C, u32 W> struct Columns {
  static constexpr u32 N = DIM / 4 / L, COUNT = 32 / L * C * W, THREADS = 32 * W;
  static constexpr u32 LINE = 2 * DIM + COUNT + 4; // a row in shared memory: key, query, values, gates
  static_assert((C == 2 || C == 4) && L >= 2 * C);

  // Held are the elements of a column, key or query that a lane has.
  struct Held { f32x4 v[N]; };
  // Item is what a row brings besides its query.
  struct Item {
    Held key;
    float value; // of the lane's own column
    f32x2 gates; // decay, β
  };

  static METHOD void take(Held &to, const float *line, u32 slice) {
    UNROLL for (u32 j = 0; j < N; j++) to.v[j] = ((const f32x4 *)line)[slice + j * L];
  }
  static METHOD void take(Item &to, const float *line, u32 slice, u32 own) {
    take(to.key, line, slice);
    to.gates = *(const f32x2 *)(line + 2 * DIM + COUNT);
    to.value = line[2 * DIM + own];
  }
  static METHOD float dot(const Held &s, const Held &x) {
    float sum = 0;
    UNROLL for (u32 j = 0; j < N; j++) sum = fma(s.v[j].w, x.v[j].w, fma(s.v[j].z, x.v[j].z, fma(s.v[j].y, x.v[j].y, fma(s.v[j].x, x.v[j].x, sum))));
    return sum;
  }
  static METHOD void update(Held &s, const Held &key, float delta, float decay) {
    UNROLL for (u32 j = 0; j < N; j++) {
      const f32x4 x = key.v[j];
      s.v[j] = {fma(x.x, delta, decay * s.v[j].x), fma(x.y, delta, decay * s.v[j].y), fma(x.z, delta, decay * s.v[j].z), fma(x.w, delta, decay * s.v[j].w)};
    }
  }
  // halve leaves a lane one sum, of its own column over C lanes.
  static METHOD float halve(const float (&sum)[C]) {
    float x[C];
    UNROLL for (u32 c = 0; c < C; c++) x[c] = sum[c];
    UNROLL for (u32 m = 1; m < C; m *= 2)
      UNROLL for (u32 c = 0; c < C; c += 2 * m) x[c] += shfl_xor(x[c + m], (int)m);
    return x[0];
  }
  // both adds up sums of two kinds: lanes of slices with the bit C have those of the second, the others those of the first.
  static METHOD float both(const float (&first)[C], const float (&second)[C], u32 slice) {
    const float a = halve(first), b = halve(second);
    float own = (slice & C ? b : a) + shfl_xor(slice & C ? a : b, (int)C);
    UNROLL for (u32 m = 2 * C; m < L; m *= 2) own += shfl_xor(own, (int)m);
    return own;
  }

  // Running is a lane's part of the recurrence. What a row gives, its query times the state behind
  // it, is summed up beside the next row's key times the same state.
  struct Running {
    u32 slice, column, own; // its own column
    float *given; // of the row before and the lane's own column; the next row's is apart floats on
    u64 apart;
    bool before = false;
    float *logged = 0; // where the next row's delta is kept: in slot of log, which are line floats apart
    u32 slot = 0, log = 0;
    u64 line = 0;
    Held s[C], asked; // the state; the query of the row before

    METHOD Running(u32 thread) : slice(thread % L), column(thread / L * C), own(column + slice % C) {}

    // arrange brings columns from their order to the lane's own, and back. In memory they are in their order, so that
    // lanes beside each other take what lies beside each other.
    METHOD void arrange() {
      UNROLL for (u32 m = 1; m < C; m *= 2)
        UNROLL for (u32 c = 0; c < C; c++)
          if ((c & m) == 0)
            UNROLL for (u32 j = 0; j < N; j++) {
              const f32x4 low = s[c].v[j], high = s[c + m].v[j];
              s[c].v[j] = slice & m ? high : low, s[c + m].v[j] = slice & m ? low : high;
            }
    }
    // begin takes the state from memory, where the block's columns begin at from; null: there is none yet.
    METHOD void begin(const float *from) {
      UNROLL for (u32 c = 0; c < C; c++)
        UNROLL for (u32 j = 0; j < N; j++) s[c].v[j] = {0, 0, 0, 0};
      if (from)
        UNROLL for (u32 c = 0; c < C; c++)
          UNROLL for (u32 j = 0; j < N; j++) s[c].v[j] = *(const f32x4 *)(from + ((column + c) * DIM + (slice + j * L) * 4));
      arrange();
      UNROLL for (u32 j = 0; j < N; j++) asked.v[j] = {0, 0, 0, 0};
    }
    METHOD void store(float *to) {
      arrange();
      UNROLL for (u32 c = 0; c < C; c++)
        UNROLL for (u32 j = 0; j < N; j++) *(f32x4 *)(to + ((column + c) * DIM + (slice + j * L) * 4)) = s[c].v[j];
      arrange();
    }
    // fold takes a row that was logged: its key and gates, and the deltas of the block's columns.
    METHOD void fold(const float *key, const float *deltas, f32x2 gates) {
      Held k;
      take(k, key, slice);
      UNROLL for (u32 c = 0; c < C; c++) update(s[c], k, deltas[own ^ c], gates.x);
    }
    // give gives the row before's.
    METHOD void give(float sum) const {
      if (slice / C == 1 && before) *given = sum;
    }
    METHOD void give_last() const {
      float o[C];
      UNROLL for (u32 c = 0; c < C; c++) o[c] = dot(s[c], asked);
      give(both(o, o, slice));
    }

    // row takes an item, asks what the row before asked, and brings what the one behind it needs: this
    // row's query, from its line, and an item from the next one, or from this line once more. Nothing
    // is taken on a condition: what is would have to be moved, and be waited for, before the sums.
    METHOD void row(const float *line_of, const Item &item, const Held &last, Held &query, const float *next_line, Item &next, bool kept) {
      float kv[C], o[C], delta[C];
      take(query, line_of + DIM, slice);
      take(next, next_line, slice, own);
      UNROLL for (u32 c = 0; c < C; c++) kv[c] = dot(s[c], item.key);
      UNROLL for (u32 c = 0; c < C; c++) o[c] = dot(s[c], last);
      const float sum = both(kv, o, slice), of_own = item.gates.y * fma(-item.gates.x, sum, item.value);
      UNROLL for (u32 c = 0; c < C; c++) delta[c] = shfl(of_own, (int)(tid() % 32 / L * L + (slice % C ^ c))); // a lane without the bit C
      give(sum);
      UNROLL for (u32 c = 0; c < C; c++) update(s[c], item.key, delta[c], item.gates.x);
      if (before) given += apart;
      before = true;
      if (kept) {
        if (slice < C) *logged = of_own;
        logged += line;
        if (++slot == log) slot = 0, logged -= log * line;
      }
    }
    // rows takes count of them from their lines on, and keeps their deltas.
    METHOD void rows(const float *from, u32 count, bool kept) {
      if (count == 0) return;
      Item a, b;
      Held query;
      take(a, from, slice, own);
      u32 left = count;
      _Pragma("nounroll") for (; left >= 2; left -= 2) {
        row(from, a, asked, query, from + LINE, b, kept);
        row(from + LINE, b, query, asked, from + (left > 2 ? 2 * LINE : LINE), a, kept);
        from += 2 * LINE;
      }
      if (left) {
        row(from, a, asked, query, from, b, kept);
        asked = query;
      }
    }
    // keep has deltas logged from an index on: the log's, of the block's columns, begin at deltas.
    METHOD void keep(float *deltas, u32 index) {
      slot = index % log;
      logged = deltas + own + slot * line;
    }
  };
};
