// A mixture's router: products in f32, the k largest of a softmax, and the lists by
// expert that the experts' kernels read. And the sum of what the experts made.
#include "choose.cuh"
#include "norm.cuh"
#include "simt.cuh"

// Router is what a launch routes by; the same for every block.
struct Router {
  float *routing; // [rows, 2k]: experts in ascending order, then their weights
  u32 *tables;    // how many slots are in use; from the fifth on {expert, first pair, pairs, 0} of each (slot)
  u32 *pairs;     // of each slot, row · each + rank
  float *shares;  // [rows]: sigmoid of the product with share
  float *logits;  // [rows, experts + 1]
  const float *x; // [rows, width]
  const u8 *router, *share; // share may be null
  u32 kind, share_kind;     // 0 (f32), 1 (f16) or 2 (bf16)
  u32 experts, width, k, renormalise;
  u32 each; // pairs of a row: k, or one more, where the shared expert is listed as one more
  const Step *step;
  // Where norm is not null rows are normed by these weights first; normed rows go to f32 and bf16
  // (null: not wanted). They are one, or of up to 2,048 inputs and as many as a block of route holds.
  const float *norm;
  float eps;
  float *f32;
  u16 *bf16;
  u32 own; // rows of a block of route
};

constexpr u32 routeThreads = 512, routeRows = 8, routeParts = 4, routeGroups = 4; // of a block
constexpr u32 fewRouteRows = 4; // of route at a time, where a block has no more: a step goes through their code once, and it comes from L2
constexpr u32 fewRows = 32, rehearsedRows = 2;

// Dots multiplies `each` experts by `held` rows in a warp, by a quarter of the inputs:
// lane l takes octets l, l+32, ... of it, whatever each is.
template <class F, u32 each, u32 held> struct Dots {
  const Router &p;
  Row w[each];
  u32 begin, end;
  typename F::Raw ahead[2][each];

  METHOD void load(u32 k, typename F::Raw (&raw)[each]) const {
    UNROLL for (u32 j = 0; j < each; j++) raw[j] = F::load(w[j], k, false);
  }

  // start loads the first weights: they never change.
  METHOD void start(const u8 *matrix, u32 kind, u32 first, u32 count) {
    const u32 octets = (p.width + 7) / 8, part = tid() / 32 % routeParts, lane = tid() % 32;
    const u32 per = (octets + routeParts - 1) / routeParts;
    begin = part * per;
    end = begin + per < octets ? begin + per : octets;
    UNROLL for (u32 j = 0; j < each; j++) { // past the end the last one is repeated
      const u32 e = first + j < count ? first + j : count - 1;
      w[j] = {matrix + e * F::bytes(p.width, kind), nullptr, nullptr, p.width, 0, kind};
    }
    UNROLL for (u32 s = 0; s < 2; s++)
      if (begin + lane + s * 32 < end) load(begin + lane + s * 32, ahead[s]);
  }

  // add multiplies n rows from first on, those past the last one by the last one's numbers:
  // what is loaded of them waits for nothing.
  template <u32 n> METHOD void add(float *y, const float (&v)[each][8], u32 k, u32 first, u32 rows) const {
    float a[n][8];
    UNROLL for (u32 r = 0; r < n; r++) {
      const float *x = p.x + (u64)(first + r < rows ? first + r : rows - 1) * p.width + k * 8;
      if (F::whole) {
        const f32x4 s = *(const f32x4 *)x, t = *(const f32x4 *)(x + 4);
        a[r][0] = s.x, a[r][1] = s.y, a[r][2] = s.z, a[r][3] = s.w, a[r][4] = t.x, a[r][5] = t.y, a[r][6] = t.z, a[r][7] = t.w;
      } else {
        UNROLL for (u32 i = 0; i < 8; i++) a[r][i] = k * 8 + i < p.width ? x[i] : 0;
      }
    }
    UNROLL for (u32 r = 0; r < n; r++)
      UNROLL for (u32 j = 0; j < each; j++)
        UNROLL for (u32 i = 0; i < 8; i++) y[r * each + j] = fma(a[r][i], v[j][i], y[r * each + j]);
  }

  // sum multiplies the rows from first on, some of those held.
  METHOD void sum(float (&y)[each * held], u32 first, u32 rows) const {
    constexpr u32 batch = (each == 1 || held == fewRouteRows) && F::whole ? held : 2;
    UNROLL for (u32 i = 0; i < each * held; i++) y[i] = 0;
    u32 turn = 0;
    for (u32 k = begin + tid() % 32; k < end; k += 32, turn++) {
      typename F::Raw raw[each];
      if (turn == 0) UNROLL for (u32 j = 0; j < each; j++) raw[j] = ahead[0][j];
      else if (turn == 1) UNROLL for (u32 j = 0; j < each; j++) raw[j] = ahead[1][j];
      else load(k, raw);
      float v[each][8];
      UNROLL for (u32 j = 0; j < each; j++) F::decode(raw[j], k, v[j]);
      if (first + 1 == rows) {
        add<1>(y, v, k, first, rows);
        continue;
      }
      UNROLL for (u32 r = 0; r < held; r += batch)
        if (first + r < rows) add<batch>(y + r * each, v, k, first + r, rows);
    }
  }
};

// add_parts writes the logits of `each` experts a group, by the rows held from first on.
template <u32 each, u32 held> DEV void add_parts(const Router &p, float *parts, float (&y)[each * held], u32 expert, u32 count, u32 to, u32 first, u32 rows) {
  const u32 lane = tid() % 32, warp = tid() / 32;
  constexpr u32 sums = each * held, apart = 32 / sums; // the i-th of the lanes that are so far apart has sum i
  if (each == 1 && first + 1 == rows) y[0] = warp_sum(y[0]);
  else fold<16, sums>(y);
  if (lane % apart == 0) parts[warp * 32 + lane / apart] = y[0];
  sync();
  if (tid() < routeGroups * sums) {
    const u32 group = tid() / sums, i = tid() % sums, row = first + i / each, e = expert + group * each + i % each;
    if (row < rows && e < count) {
      const float *from = parts + group * routeParts * 32 + i;
      p.logits[(u64)row * (p.experts + 1) + to + e] = from[0] + from[32] + from[64] + from[96];
    }
  }
  sync();
}

// write_row writes what a row chose, in a warp.
DEV void write_row(const Router &p, u32 row, const Chosen &to, float shared) {
  const u32 lane = tid() % 32;
  if (lane < p.k) {
    p.routing[(u64)row * 2 * p.k + to.rank] = (float)to.expert;
    p.routing[(u64)row * 2 * p.k + p.k + to.rank] = to.weight;
  }
  if (p.share && lane == 0) p.shares[row] = sigmoid(shared);
}

// choose_row routes a row in a warp.
DEV Chosen choose_row(const Router &p, u32 row, u64 *pairs) {
  const Choice c{p.logits + (u64)row * (p.experts + 1), p.experts, p.k, p.renormalise};
  const float shared = p.share ? c.shared() : 0;
  const Chosen to = choose(c, pairs);
  write_row(p, row, to, shared);
  return to;
}

// list_shared has all rows in the list of the shared expert.
DEV void list_shared(const Router &p, u32 rows, u32 first, u32 step) {
  for (u32 r = first; r < rows; r += step) p.pairs[rows * p.k + r] = r * p.each + p.k;
}

// slot is the place of an expert's in the tables, by their number: a shared expert's, which
// has all rows, is the first.
DEV u32x4 *slot(const Router &p, u32 number) { return (u32x4 *)(p.tables + 4) + number + (p.each > p.k); }
DEV u32x4 *slot_shared(const Router &p) { return (u32x4 *)(p.tables + 4); }

// Of few rows a slot has no more than slotRows pairs: an expert of more rows has several.
constexpr u32 slotRows = 8;
DEV u32 slots_of(u32 count) { return (count + slotRows - 1) / slotRows; }
DEV void put_slots(u32x4 *to, u32 expert, u32 first, u32 count) {
  for (u32 i = 0; i < count; i += slotRows) *to++ = {expert, first + i, count - i < slotRows ? count - i : slotRows, 0};
}

// Marks is what the rows of a few chose, in shared memory: what choose has taken of each, by
// lanes, and the place of an expert among those of its row, [rows, experts].
struct Marks {
  u16 *taken;
  u8 *places;
};

// list makes the slots of few rows: a thread an expert. What is rehearsed is not written.
DEV void list(const Router &p, const Marks &marks, u32 rows, u32 *totals, bool rehearsed) {
  const u32 e = tid(), lane = e % 32, warp = e / 32, pairs = rows * p.k;
  u32 chosen = 0; // by which rows
  _Pragma("nounroll") for (u32 base = 0; base < rows; base += 8)
    UNROLL for (u32 i = 0; i < 8; i++)
      if (base + i < rows) chosen |= (marks.taken[(base + i) * 32 + lane] >> warp & 1u) << (base + i);
  const u32 count = (u32)__builtin_popcount(chosen);
  const u32 own = slots_of(count) << 16 | count;
  u32 upto = warp_scan(own);
  if (lane == 31) totals[warp] = upto;
  sync();
  UNROLL for (u32 i = 0; i < routeThreads / 32; i++) upto += i < warp ? totals[i] : 0;
  u32 first = (upto - own) & 0xffff;
  const u32 before = p.each > p.k ? slots_of(rows) : 0; // those of a shared expert, which has all rows
  u32x4 *const to = (u32x4 *)(p.tables + 4);
  if (count) {
    if (!rehearsed) put_slots(to + before + ((upto - own) >> 16), e, first, count);
    for (; chosen; chosen &= chosen - 1) {
      const u32 r = (u32)__builtin_ctz(chosen), pair = r * p.each + marks.places[r * p.experts + e];
      if (!rehearsed) p.pairs[first++] = pair;
    }
  }
  if (rehearsed) return;
  if (before) list_shared(p, rows, e, routeThreads);
  if (e != routeThreads - 1) return;
  if (before) put_slots(to, p.experts, pairs, rows);
  p.tables[0] = (upto >> 16) + before;
}

constexpr u32 normHeld = 4; // quads of a thread that are on their way at once

// take_row norms the only row into shared memory, with the bits of rms_norm.
DEV void take_row(const Router &p, const f32x4 (&w)[normHeld], float *row, float *partials) {
  static_assert(routeThreads == normThreads);
  norm_row(
      (const f32x4 *)p.x, (const f32x4 *)p.norm, w, tid(), p.width, p.eps, partials, []() INLINE { sync(); },
      [&](u32 i, const f32x4 &a) INLINE {
        ((f32x4 *)row)[i] = a;
        if (bid() != 0) return;
        if (p.f32) ((f32x4 *)p.f32)[i] = a;
        if (p.bf16) ((u32x2 *)p.bf16)[i] = pack_bf16_x4(a);
      });
  sync();
}

// take_rows norms this block's rows into shared memory, of no more inputs than threads have quads.
template <u32 held> DEV void take_rows(const Router &p, f32x4 w, float *to, float *partials, u32 begin, u32 end) {
  constexpr u32 warps = normThreads / 32;
  const u32 t = tid(), quads = p.width / 4;
  f32x4 v[held];
  UNROLL for (u32 r = 0; r < held; r++)
    v[r] = t < quads && begin < end ? ((const f32x4 *)p.x)[(u64)(begin + r < end ? begin + r : end - 1) * quads + t] : f32x4{};
  UNROLL for (u32 r = 0; r < held; r++) {
    const float sum = warp_sum(squares(v[r]));
    if (t % 32 == 0) partials[r * warps + t / 32] = sum;
  }
  sync();
  float *scales = partials + held * warps;
  if (t / 32 < held) {
    const float scale = norm_scale(norm_total(partials + t / 32 * warps), p.width, p.eps);
    if (t % 32 == 0) scales[t / 32] = scale;
  }
  sync();
  UNROLL for (u32 r = 0; r < held; r++) {
    const f32x4 a = normed(v[r], scales[r], w);
    if (t >= quads) continue;
    ((f32x4 *)to)[r * quads + t] = a;
    if (bid() != 0 || begin + r >= end) continue;
    const u64 at = (u64)(begin + r) * quads + t;
    if (p.f32) ((f32x4 *)p.f32)[at] = a;
    if (p.bf16) ((u32x2 *)p.bf16)[at] = pack_bf16_x4(a);
  }
  sync();
}

// logits_of are those of `each` experts a group, for this block's rows of up to 32, as many as are held at a time.
template <class F, u32 each, u32 held> DEV void logits_of(Router &p, const u8 *matrix, u32 kind, u32 first, u32 count, u32 to, float *row, float *parts) {
  Dots<F, each, held> dots{p};
  dots.start(matrix, kind, first + tid() / 32 / routeParts * each, count);
  f32x4 norm[normHeld] = {};
  constexpr bool norms = held == fewRouteRows, one = norms && each == 1; // of one row a group has one expert
  if (norms && p.norm) norm_weights(norm, (const f32x4 *)p.norm, tid(), p.width);
  const u32 rows = p.step->rows; // it was there before the step's first kernel
  const u32 begin = bid_y() * p.own, end = rows < begin + p.own ? rows : begin + p.own;
  u32 before = 0; // rows ahead of the first one of x
  sync_warp();
  dependency_wait();
  if (norms && p.norm) {
    if (one && rows == 1) take_row(p, norm, row, parts);
    else take_rows<held>(p, norm[0], row, parts, begin, end);
    p.x = row, before = begin;
  }
  float y[each * held];
  _Pragma("nounroll") for (u32 r = begin; r < end; r += held) {
    dots.sum(y, r - before, end - before);
    add_parts<each, held>(p, parts, y, first, count, to, r, end);
  }
}

// route makes the logits of up to 32 rows: of `each` experts a group, so that a block a multiprocessor
// need not go through rows twice.
template <class F, u32 each> DEV void route(Router p, float *row, float *parts) {
  const u32 first = bid() * routeGroups * each;
  const bool shared = first >= p.experts;
  const u8 *const matrix = shared ? p.share : p.router;
  const u32 from = shared ? 0 : first, count = shared ? 1 : p.experts, to = shared ? p.experts : 0;
  launch_dependents();
  if (shared && !(F::whole && p.share_kind == p.kind)) logits_of<FormatOdd, 1, fewRouteRows>(p, matrix, p.share_kind, from, count, to, row, parts);
  else if (each > 1) logits_of<F, each, fewRouteRows>(p, matrix, p.kind, from, count, to, row, parts);
  else if (p.own > fewRouteRows) logits_of<F, 1, routeRows>(p, matrix, p.kind, from, count, to, row, parts);
  else logits_of<F, 1, fewRouteRows>(p, matrix, p.kind, from, count, to, row, parts);
}

// choose_few chooses and lists for them, in one block. Its instructions come from L2, or from
// memory, where all else is waiting for what it makes: so it is gone through once before there
// are logits, by numbers of the router, which never change.
template <u32 held> DEV void choose_few(const Router &p, const Marks &marks, u64 *pairs, u32 *totals) {
  const u32 warp = tid() / 32, lane = tid() % 32;
  launch_dependents();
  const u32 all = load_l2(&p.step->rows); // it was there before the step's first kernel
  _Pragma("nounroll") for (u32 turn = !beginsEarly; turn < 2; turn++) {
    const bool rehearsed = turn == 0;
    if (!rehearsed) dependency_wait();
    const u32 rows = rehearsed ? rehearsedRows : all;
    _Pragma("nounroll") for (u32 row = warp; row < rows; row += routeThreads / 32) {
      const float *logits = rehearsed ? (const float *)p.router : p.logits + (u64)row * (p.experts + 1);
      const Choice c{logits, p.experts, p.k, p.renormalise};
      const float shared = p.share && !rehearsed ? c.shared() : 0;
      const Chosen to = choose_of<held>(c, pairs + warp * mostPairs);
      marks.taken[row * 32 + lane] = (u16)to.taken;
      if (lane < p.k) marks.places[row * p.experts + to.expert] = (u8)to.rank;
      if (!rehearsed) write_row(p, row, to, shared);
    }
    sync();
    list(p, marks, rows, totals, rehearsed);
    sync();
  }
}

template <class F> DEV void share_logits(const Router &p, float *parts) {
  Dots<F, 1, routeRows> dots{p};
  dots.start(p.share, p.share_kind, 0, 1);
  dependency_wait();
  const u32 rows = p.step->rows, first = bid_y() * routeRows;
  if (first >= rows) return;
  float y[routeRows];
  dots.sum(y, first, rows);
  add_parts<1, routeRows>(p, parts, y, 0, 1, p.experts, first, rows);
}

// The same in three launches, for more rows: logits, and
template <class F> DEV void route_logits(const Router &p, float *parts) {
  const u32 group = tid() / 32 / routeParts, blocks = (p.experts + 4 * routeGroups - 1) / (4 * routeGroups);
  launch_dependents();
  if (bid() < blocks) {
    Dots<F, 4, routeRows> dots{p};
    dots.start(p.router, p.kind, (bid() * routeGroups + group) * 4, p.experts);
    const u32 rows = p.step->rows;
    dependency_wait();
    const u32 first = bid_y() * routeRows;
    if (first >= rows) return;
    float y[4 * routeRows];
    dots.sum(y, first, rows);
    add_parts<4, routeRows>(p, parts, y, bid() * routeGroups * 4, p.experts, 0, first, rows);
  } else if (F::whole && p.share_kind == p.kind) share_logits<F>(p, parts);
  else share_logits<FormatOdd>(p, parts);
}

// Rows of prompts: products of f32 on tensor cores. A number of f32 is the sum of three
// of bf16, cut from it rather than rounded, without a rest; of their products those that
// an f32 would not show are left out. What tensor cores add up is cut as well, so chains
// are short: 32 inputs, whose sums are added in f32. A block takes 64 rows by 32
// experts, a warp 16 of the rows by a quarter of the inputs; quarters are added in order.
// So a row's bits depend on that row alone, though they are others than those of steps.
constexpr u32 promptThreads = 512, promptRows = 64, promptSlices = 4, promptInputs = 32, promptExperts = 32, promptLine = 40; // words of a row's sums

// split cuts two numbers into parts of bf16, a in the low halves.
template <u32 parts> DEV void split(u32 (&to)[parts], float a, float b) {
  UNROLL for (u32 i = 0; i < parts; i++) {
    const u32 x = __builtin_bit_cast(u32, a), y = __builtin_bit_cast(u32, b);
    to[i] = x >> 16 | (y & 0xffff0000);
    a -= __builtin_bit_cast(float, x & 0xffff0000), b -= __builtin_bit_cast(float, y & 0xffff0000);
  }
}

// Of each format: of how many parts a weight is, and those of octet k.
template <class F> struct Cut;
template <> struct Cut<FormatBF16> {
  static constexpr u32 parts = 1;
  DEV void take(u32 (&w)[1][4], const u8 *row, u32 k) {
    const u32x4 v = *(const u32x4 *)(row + k * 16);
    w[0][0] = v.x, w[0][1] = v.y, w[0][2] = v.z, w[0][3] = v.w;
  }
};
template <u32 n> DEV void cut(u32 (&w)[n][4], const float (&v)[8]) {
  UNROLL for (u32 i = 0; i < 4; i++) {
    u32 both[n];
    split(both, v[2 * i], v[2 * i + 1]);
    UNROLL for (u32 j = 0; j < n; j++) w[j][i] = both[j];
  }
}
template <> struct Cut<FormatF16> {
  static constexpr u32 parts = 2;
  DEV void take(u32 (&w)[2][4], const u8 *row, u32 k) {
    float v[8];
    FormatF16::decode(*(const u32x4 *)(row + k * 16), k, v);
    cut(w, v);
  }
};
template <> struct Cut<FormatF32> {
  static constexpr u32 parts = 3;
  DEV void take(u32 (&w)[3][4], const u8 *row, u32 k) {
    float v[8];
    FormatF32::decode({*(const u32x4 *)(row + k * 32), *(const u32x4 *)(row + k * 32 + 16)}, k, v);
    cut(w, v);
  }
};

// multiply_prompt makes the logits of 64 rows from first on by 32 experts.
template <class F> DEV void multiply_prompt(const Router &p, float *sums, u32 first, u32 rows, u32 expert) {
  constexpr u32 parts = Cut<F>::parts, tiles = promptExperts / 8;
  const u32 lane = tid() % 32, warp = tid() / 32, g = lane / 4, t = lane % 4, group = warp % 4, slice = warp / 4;
  const u32 units = p.width / promptInputs, begin = slice * units / promptSlices, end = (slice + 1) * units / promptSlices;
  const float *x[2];
  UNROLL for (u32 i = 0; i < 2; i++) { // past the last row that one is multiplied, and dropped
    const u32 row = first + group * 16 + i * 8 + g;
    x[i] = p.x + (u64)(row < rows ? row : rows - 1) * p.width + t * 8;
  }
  const u64 line = F::bytes(p.width, p.kind);
  const u8 *w = p.router + t * F::bytes(8, p.kind);
  auto fetch = [&](f32x4 (&v)[2][2], u32 unit) {
    UNROLL for (u32 i = 0; i < 2; i++)
      UNROLL for (u32 j = 0; j < 2; j++) v[i][j] = *(const f32x4 *)(x[i] + unit * promptInputs + j * 4);
  };
  float total[tiles][4] = {};
  f32x4 next[2][2] = {};
  if (begin < end) fetch(next, begin);
  _Pragma("nounroll") for (u32 unit = begin; unit < end; unit++) {
    u32 a[3][2][4]; // part, step of 16 inputs, register
    UNROLL for (u32 i = 0; i < 2; i++)
      UNROLL for (u32 j = 0; j < 2; j++) {
        u32 low[3], high[3];
        split(low, next[i][j].x, next[i][j].y);
        split(high, next[i][j].z, next[i][j].w);
        UNROLL for (u32 q = 0; q < 3; q++) a[q][j][i] = low[q], a[q][j][i + 2] = high[q];
      }
    if (unit + 1 < end) fetch(next, unit + 1);
    u32 b[tiles][parts][4];
    float sum[tiles][4] = {};
    UNROLL for (u32 i = 0; i < tiles; i++) {
      const u32 e = expert + i * 8 + g;
      Cut<F>::take(b[i], w + (e < p.experts ? e : p.experts - 1) * line, unit * (promptInputs / 8));
    }
    UNROLL for (u32 both = 3; both-- > 0;) // the least first
      UNROLL for (u32 q = 0; q <= both; q++) {
        if (both - q >= parts) continue;
        UNROLL for (u32 j = 0; j < 2; j++)
          UNROLL for (u32 i = 0; i < tiles; i++) mma_bf16(sum[i], a[q][j], {b[i][both - q][j * 2], b[i][both - q][j * 2 + 1]});
      }
    UNROLL for (u32 i = 0; i < tiles; i++)
      UNROLL for (u32 j = 0; j < 4; j++) total[i][j] += sum[i][j];
  }
  UNROLL for (u32 nt = 0; nt < tiles; nt++)
    UNROLL for (u32 i = 0; i < 2; i++) *(f32x2 *)(sums + ((slice * 4 + group) * 16 + i * 8 + g) * promptLine + nt * 8 + t * 2) = {total[nt][i * 2], total[nt][i * 2 + 1]};
  sync();
  for (u32 i = tid(); i < promptRows * promptExperts; i += promptThreads) {
    const u32 row = i / promptExperts, e = expert + i % promptExperts;
    if (first + row >= rows || e >= p.experts) continue;
    const float *from = sums + row * promptLine + i % promptExperts;
    float sum = from[0];
    UNROLL for (u32 j = 1; j < promptSlices; j++) sum += from[j * promptRows * promptLine];
    p.logits[(u64)(first + row) * (p.experts + 1) + e] = sum;
  }
}

// share_prompt makes the products with the shared expert's weight: four rows a warp.
template <class F> DEV void share_prompt(const Router &p, u32 first, u32 rows) {
  constexpr u32 held = promptRows / (promptThreads / 32);
  const u32 lane = tid() % 32;
  first += tid() / 32 * held;
  if (first >= rows) return;
  const Row w{p.share, nullptr, nullptr, p.width, 0, p.share_kind};
  float y[held] = {};
  for (u32 k = lane; k < p.width / 8; k += 32) {
    float v[8];
    F::decode(F::load(w, k, false), k, v);
    UNROLL for (u32 r = 0; r < held; r++) {
      const float *x = p.x + (u64)(first + r < rows ? first + r : rows - 1) * p.width + k * 8;
      const f32x4 a = *(const f32x4 *)x, b = *(const f32x4 *)(x + 4);
      const float of[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      UNROLL for (u32 i = 0; i < 8; i++) y[r] = fma(of[i], v[i], y[r]);
    }
  }
  UNROLL for (u32 r = 0; r < held; r++) {
    y[r] = warp_sum(y[r]);
    if (lane == 0 && first + r < rows) p.logits[(u64)(first + r) * (p.experts + 1) + p.experts] = y[r];
  }
}

template <class F> DEV void route_prompt(const Router &p, float *sums) {
  launch_dependents();
  dependency_wait();
  const u32 rows = p.step->rows, first = bid_y() * promptRows, expert = bid() * promptExperts;
  if (first >= rows) return;
  if (expert < p.experts) multiply_prompt<F>(p, sums, first, rows, expert);
  else if (p.share_kind == 0) share_prompt<FormatF32>(p, first, rows);
  else if (p.share_kind == 1) share_prompt<FormatF16>(p, first, rows);
  else share_prompt<FormatBF16>(p, first, rows);
}

#define ROUTER_ARGS                                                                                                                     \
  float *routing, u32 *tables, u32 *pairs, float *shares, float *logits, const float *x, const u8 *router,                                \
      const u8 *share, u32 kind, u32 share_kind, u32 experts, u32 width, u32 k, u32 renormalise, u32 each, const Step *step, const float *norm, float eps, \
      float *f32, u16 *bf16, u32 own
#define ROUTER {routing, tables, pairs, shares, logits, x, router, share, kind, share_kind, experts, width, k, renormalise, each, step, norm, eps, f32, bf16, own}

#define ROUTE_FEW(name, F, each)                        \
  KERNEL(routeThreads) void name(ROUTER_ARGS) {         \
    DYNAMIC_SHARED(name, row);                          \
    SHARED(name) float parts[routeThreads];             \
    const Router p ROUTER;                              \
    route<F, each>(p, (float *)row, parts);             \
  }                                                     \
  REGISTER(name)

#define ROUTE(name, F)                                                          \
  ROUTE_FEW(route_##name, F, 1)                                                 \
  KERNEL(routeThreads) void route_logits_##name(ROUTER_ARGS) {                  \
    SHARED(route_logits_##name) float parts[routeThreads];                      \
    const Router p ROUTER;                                                      \
    route_logits<F>(p, parts);                                                  \
  }                                                                             \
  REGISTER(route_logits_##name)

ROUTE(f32, FormatF32)
ROUTE(f16, FormatF16)
ROUTE(bf16, FormatBF16)
ROUTE(odd, FormatOdd)
ROUTE_FEW(route_bf16_2, FormatBF16, 2)
ROUTE_FEW(route_bf16_4, FormatBF16, 4)

// A kernel for each number of experts, 32 a lane, has no more instructions than it needs.
#define CHOOSE_FEW(held)                                                          \
  KERNEL(routeThreads, 1) void route_choose_few_##held(ROUTER_ARGS) {             \
    DYNAMIC_SHARED(route_choose_few_##held, places); /* [rows, experts] */        \
    SHARED(route_choose_few_##held) u16 taken[fewRows * 32];                      \
    alignas(16) SHARED(route_choose_few_##held) u32 totals[routeThreads / 32];    \
    alignas(16) SHARED(route_choose_few_##held) u64 chosen[routeThreads / 32 * mostPairs]; \
    choose_few<held>(ROUTER, {taken, (u8 *)places}, chosen, totals);              \
  }                                                                               \
  REGISTER(route_choose_few_##held)

CHOOSE_FEW(4)
CHOOSE_FEW(8)
CHOOSE_FEW(16)

#define PROMPT(name, F)                              \
  KERNEL(promptThreads) void name(ROUTER_ARGS) {     \
    DYNAMIC_SHARED(name, sums);                      \
    route_prompt<F>(ROUTER, (float *)sums);          \
  }                                                  \
  REGISTER(name)

PROMPT(route_prompt_f32, FormatF32)
PROMPT(route_prompt_f16, FormatF16)
PROMPT(route_prompt_bf16, FormatBF16)

// choices, a warp a row: 32 rows a block, which notes for each expert who of them chose it,
// in chosen [rows / 32, experts], and
KERNEL(1024) void route_choose(ROUTER_ARGS, u32 *chosen) {
  SHARED(route_choose) u16 marks[32 * 32];
  alignas(16) SHARED(route_choose) u64 pairs_of[32 * mostPairs];
  launch_dependents();
  dependency_wait();
  const Router p ROUTER;
  const u32 lane = tid() % 32, warp = tid() / 32, rows = step->rows, row = bid() * 32 + warp;
  if (bid() * 32 >= rows) return;
  const u32 taken = row < rows ? choose_row(p, row, pairs_of + warp * mostPairs).taken : 0;
  marks[warp * 32 + lane] = (u16)taken;
  sync();
  if (tid() >= experts) return;
  u32 by = 0;
  UNROLL for (u32 r = 0; r < 32; r++) by |= (marks[r * 32 + lane] >> warp & 1u) << r;
  chosen[bid() * experts + tid()] = by;
}
REGISTER(route_choose)

constexpr u32 listThreads = 512;
static_assert(listThreads >= mostExperts);

// lists, a block an expert, whose slot has its number, but for that of a shared one. Each counts what the experts before
// it have, and so knows where its own begin.
KERNEL(listThreads) void route_list(ROUTER_ARGS, const u32 *chosen, u32 capacity, u32 tiles) {
  SHARED(route_list) u32 counts[listThreads];
  SHARED(route_list) u32 before[listThreads / 32];
  SHARED(route_list) u32 tiled[listThreads / 32];
  SHARED(route_list) u32 by[listThreads];
  SHARED(route_list) u32 at[listThreads];
  launch_dependents();
  dependency_wait();
  const u32 e = bid(), lane = tid() % 32, warp = tid() / 32, rows = step->rows, lines = (rows + 31) / 32;
  if (tid() == 0 && e == 0) tables[0] = gdim();
  if (e == experts) { // the shared one
    list_shared(ROUTER, rows, tid(), listThreads);
    if (tid() == 0) *slot_shared(ROUTER) = {e, rows * k, rows, 0};
    for (u32 i = tid(); i * capacity < rows; i += listThreads) { // its tiles are the first
      const u32 rest = rows - i * capacity;
      *(u32x4 *)(tables + tiles + i * 4) = {e, rows * k + i * capacity, rest < capacity ? rest : capacity, 0};
    }
    return;
  }
  // Some threads an expert, each with some of the lines.
  const u32 line = (experts + 31) / 32 * 32, turns = listThreads / line, turn = tid() / line, of = tid() % line;
  u32 count = 0;
  if (turn < turns && of < experts)
    _Pragma("unroll 8") for (u32 i = turn; i < lines; i += turns) count += (u32)__builtin_popcount(chosen[i * experts + of]);
  counts[tid()] = count;
  sync();
  count = 0;
  if (tid() < experts)
    for (u32 i = 0; i < turns; i++) count += counts[i * line + tid()];
  u32 less = tid() < e ? count : 0, parts = tid() < e ? (count + capacity - 1) / capacity : 0;
  UNROLL for (int m = 16; m; m >>= 1) less += shfl_xor(less, m), parts += shfl_xor(parts, m);
  sync();
  if (lane == 0) before[warp] = less, tiled[warp] = parts;
  if (tid() == e) counts[0] = count;
  sync();
  u32 first = 0, tile = gdim() > experts ? (rows + capacity - 1) / capacity : 0;
  UNROLL for (u32 i = 0; i < listThreads / 32; i++) first += before[i], tile += tiled[i];
  count = counts[0];
  // Tiles of up to `capacity` rows of an expert, of nearly equal length: {expert, first pair, rows}.
  parts = (count + capacity - 1) / capacity;
  const u32 per = parts ? ((count + parts - 1) / parts + 7) / 8 * 8 : 0;
  for (u32 i = tid(); i < parts; i += listThreads) {
    const u32 from = i * per, rest = count - from;
    *(u32x4 *)(tables + tiles + (tile + i) * 4) = {e, first + from, rest < per ? rest : per, 0};
  }
  if (tid() == 0) {
    *slot(ROUTER, e) = {e, first, count, 0};
    if (e == experts - 1) tables[1] = tile + parts;
  }
  // The rows that chose it, in their order: 32 a warp.
  for (u32 base = 0; base < lines; base += listThreads) {
    const u32 own = base + tid() < lines ? chosen[(base + tid()) * experts + e] : 0, n = (u32)__builtin_popcount(own), upto = warp_scan(n);
    sync();
    if (lane == 31) before[warp] = upto;
    by[tid()] = own;
    sync();
    u32 to = first + upto - n;
    UNROLL for (u32 i = 0; i < listThreads / 32; i++) {
      if (i < warp) to += before[i];
      first += before[i];
    }
    at[tid()] = to;
    sync();
    for (u32 i = warp; i < listThreads && base + i < lines; i += listThreads / 32) {
      if (!(by[i] >> lane & 1)) continue;
      const u32 row = (base + i) * 32 + lane;
      const float *ids = routing + (u64)row * 2 * k;
      u32 rank = 0;
      for (u32 j = 0; j < k; j++) rank += ids[j] < (float)e;
      pairs[at[i] + (u32)__builtin_popcount(by[i] & ((1u << lane) - 1))] = row * each + rank;
    }
  }
}
REGISTER(route_list)

// experts_sum adds to each row what its experts made, in the order of their numbers,
// and what the shared one made (null: there is none), in rows shared_line apart; 4
// elements a thread. each is the rows of made for a row.
KERNEL(256) void experts_sum(float *dst, const float *made, const float *shared, u32 shared_line, const float *shares, const float *routing, u32 width, u32 k, u32 each,
                             const Step *step) {
  launch_dependents();
  dependency_wait();
  const u32 row = bid_y(), c = (bid() * 256 + tid()) * 4;
  if (row >= step->rows || c >= width) return;
  const float *weights = routing + (u64)row * 2 * k + k;
  const float *from = made + (u64)row * each * width + c;
  const u64 at = (u64)row * width + c;
  if (width % 4 == 0) {
    f32x4 sum = *(const f32x4 *)(dst + at);
    auto add = [&](f32x4 y, float w) { sum = {fma(w, y.x, sum.x), fma(w, y.y, sum.y), fma(w, y.z, sum.z), fma(w, y.w, sum.w)}; };
    for (u32 i = 0; i < k; i++) add(*(const f32x4 *)(from + (u64)i * width), weights[i]);
    if (shared) add(*(const f32x4 *)(shared + (u64)row * shared_line + c), shares[row]);
    *(f32x4 *)(dst + at) = sum;
    return;
  }
  for (u32 j = 0; j < 4 && c + j < width; j++) {
    float sum = dst[at + j];
    for (u32 i = 0; i < k; i++) sum = fma(weights[i], from[(u64)i * width + j], sum);
    if (shared) sum = fma(shares[row], shared[(u64)row * shared_line + c + j], sum);
    dst[at + j] = sum;
  }
}
REGISTER(experts_sum)
