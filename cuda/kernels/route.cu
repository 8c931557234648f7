// A mixture's router: products in f32, the k largest of a softmax, and the lists by
// expert that the experts' kernels read. And the sum of what the experts made.
#include "norm.cuh"
#include "simt.cuh"

// Router is what a launch routes by; the same for every block.
struct Router {
  float *routing; // [rows, 2k]: experts in ascending order, then their weights
  u32 *tables;    // how many slots are in use; from the fifth on {expert, first pair, pairs, 0} of each
  u32 *pairs;     // of each slot, row · each + rank
  float *shares;  // [rows]: sigmoid of the product with share
  float *logits;  // [rows, experts + 1]
  u32 *counter;   // blocks that are done; 0 between launches
  const float *x; // [rows, width]
  const u8 *router, *share; // share may be null
  u32 kind, share_kind;     // 0 (f32), 1 (f16) or 2 (bf16)
  u32 experts, width, k, renormalise;
  u32 each; // pairs of a row: k, or one more, where the shared expert is listed behind the others
  const Step *step;
  // Where norm is not null x is one row, and is normed by these weights first; the
  // normed row goes to f32 and bf16 (null: not wanted).
  const float *norm;
  float eps;
  float *f32;
  u16 *bf16;
};

constexpr u32 routeThreads = 512, routeRows = 8, routeParts = 4, routeGroups = 4; // of a block
constexpr u32 mostExperts = 512, mostChosen = 32, fewRows = 32;

DEV float below_all() { return -__builtin_inff(); }

// Dots multiplies `each` experts by 8 rows in a warp, by a quarter of the inputs:
// lane l takes octets l, l+32, ... of it, whatever each is.
template <class F, u32 each> struct Dots {
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

  // sum multiplies the rows from first on, some of eight.
  METHOD void sum(float (&y)[each * routeRows], u32 first, u32 rows) const {
    constexpr u32 batch = each == 1 && F::whole ? routeRows : 2;
    UNROLL for (u32 i = 0; i < each * routeRows; i++) y[i] = 0;
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
      UNROLL for (u32 r = 0; r < routeRows; r += batch)
        if (first + r < rows) add<batch>(y + r * each, v, k, first + r, rows);
    }
  }
};

// halve adds each of 2·n numbers up over pairs of lanes that are m apart: the upper ones
// go on with the later half of them.
template <u32 m, u32 n> DEV void halve(float *v) {
  const bool upper = tid() & m;
  UNROLL for (u32 i = 0; i < n; i++) {
    const float keep = upper ? v[i + n] : v[i], give = upper ? v[i] : v[i + n];
    v[i] = keep + shfl_xor(give, (int)m);
  }
}

// add_parts writes the logits of `each` experts a group, by eight rows from first on.
template <u32 each> DEV void add_parts(const Router &p, float *parts, float (&y)[each * routeRows], u32 expert, u32 count, u32 to, u32 first, u32 rows) {
  const u32 lane = tid() % 32, warp = tid() / 32;
  if constexpr (each == 4) { // in the tree of warp_sum
    fold<16>(y);
    parts[warp * 32 + lane] = y[0];
  } else {
    if (first + 1 == rows) {
      y[0] = warp_sum(y[0]);
    } else { // in the tree of warp_sum, too
      halve<16, 4>(y);
      halve<8, 2>(y);
      halve<4, 1>(y);
      y[0] += shfl_xor(y[0], 2);
      y[0] += shfl_xor(y[0], 1);
    }
    if (lane % 4 == 0) parts[warp * 32 + lane / 4] = y[0]; // of lanes 4·r those of row r
  }
  sync();
  if (tid() < routeGroups * 8 * each) {
    const u32 group = tid() / (8 * each), i = tid() % (8 * each), row = first + i / each, e = expert + group * each + i % each;
    if (row < rows && e < count) {
      const float *from = parts + group * routeParts * 32 + i;
      p.logits[(u64)row * (p.experts + 1) + to + e] = from[0] + from[32] + from[64] + from[96];
    }
  }
  sync();
}

// share_of is e^(x-largest), 1 where both are the same infinity.
DEV float share_of(float x, float largest) {
  if (x == largest) return 1;
  const float d = x - largest;
  return d < -87 ? 0 : exp_precise(d);
}

// ordered is a number above 0 that is larger where x is; what is no number is less than
// all others, and both zeros are equal.
DEV u32 ordered(float x) {
  const u32 bits = __builtin_bit_cast(u32, x != x ? below_all() : x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000;
}
DEV float number_of(u32 ordered) { return __builtin_bit_cast(float, ordered >> 31 ? ordered & 0x7fffffff : ~ordered); }

// choose routes a row in a warp, of at most 32 · held experts. A lane below k gets an
// expert, and its place in ascending order; bit j of taken says that expert lane + 32·j
// was chosen.
template <u32 held> DEV void choose_of(const Router &p, u32 row, u32 &expert, u32 &rank, u32 &taken) {
  constexpr u32 none = 0xffffffff;
  const u32 lane = tid() % 32;
  const float *logits = p.logits + (u64)row * (p.experts + 1);
  u32 key[held]; // 0: taken, or not there
  UNROLL for (u32 j = 0; j < held; j++) {
    const u32 e = lane + j * 32;
    key[j] = e < p.experts ? ordered(load_l2(logits + e)) : 0;
  }
  float mine = below_all(), largest = 0;
  expert = none, taken = 0;
  for (u32 i = 0; i < p.k; i++) {
    u32 best = 0, at = none;
    UNROLL for (u32 j = 0; j < held; j++) best = key[j] > best ? key[j] : best;
    best = reduce_max(best);
    UNROLL for (u32 j = held; j-- > 0;)
      if (key[j] == best) at = lane + j * 32;
    at = reduce_min(at);
    UNROLL for (u32 j = 0; j < held; j++)
      if (lane + j * 32 == at) key[j] = 0, taken |= 1u << j;
    if (i == 0) largest = number_of(best);
    if (lane == i) mine = number_of(best), expert = at;
  }
  const float share = lane < p.k ? share_of(mine, largest) : 0;
  float sum = share;
  if (!p.renormalise) {
    sum = 0;
    UNROLL for (u32 j = 0; j < held; j++) {
      const u32 e = lane + j * 32;
      if (e >= p.experts) continue;
      const float x = load_l2(logits + e);
      sum += share_of(x != x ? below_all() : x, largest);
    }
  }
  sum = warp_sum(sum);
  rank = 0;
  for (u32 i = 0; i < p.k; i++) rank += shfl(expert, (int)i) < expert;
  if (lane < p.k) {
    p.routing[(u64)row * 2 * p.k + rank] = (float)expert;
    p.routing[(u64)row * 2 * p.k + p.k + rank] = share / sum;
  }
  if (p.share && lane == 0) p.shares[row] = 1 / (1 + exp_precise(-load_l2(logits + p.experts)));
}

DEV void choose(const Router &p, u32 row, u32 &expert, u32 &rank, u32 &taken) {
  if (p.experts <= 128) choose_of<4>(p, row, expert, rank, taken);
  else if (p.experts <= 256) choose_of<8>(p, row, expert, rank, taken);
  else choose_of<mostExperts / 32>(p, row, expert, rank, taken);
}

// scan adds up the numbers of the lanes up to this one.
DEV u32 scan(u32 v) {
  const u32 lane = tid() % 32;
  UNROLL for (u32 d = 1; d < 32; d *= 2) {
    const u32 other = shfl(v, (int)((lane - d) & 31));
    if (lane >= d) v += other;
  }
  return v;
}

// list_shared has all rows in the list of the shared expert.
DEV void list_shared(const Router &p, u32 rows, u32 first, u32 step) {
  for (u32 r = first; r < rows; r += step) p.pairs[rows * p.k + r] = r * p.each + p.k;
}

// list makes the slots of few rows: a thread an expert. ids are those of all pairs, marks
// what choose has taken of each row, by lanes.
DEV void list(const Router &p, const u16 *marks, const u16 *ids, u32 rows, u32 *totals) {
  const u32 e = tid(), lane = e % 32, warp = e / 32, pairs = rows * p.k;
  u32 chosen = 0; // by which rows
  for (u32 r = 0; r < rows; r++) chosen |= (marks[r * 32 + lane] >> warp & 1u) << r;
  const u32 count = (u32)__builtin_popcount(chosen);
  const u32 own = (count ? 1 << 16 : 0) + count;
  u32 upto = scan(own);
  if (lane == 31) totals[warp] = upto;
  sync();
  for (u32 i = 0; i < warp; i++) upto += totals[i];
  u32 first = (upto - own) & 0xffff;
  if (count) {
    *(u32x4 *)(p.tables + 4 + ((upto - own) >> 16) * 4) = {e, first, count, 0};
    for (; chosen; chosen &= chosen - 1) {
      const u32 r = (u32)__builtin_ctz(chosen);
      u32 rank = 0;
      while (ids[r * p.k + rank] != e) rank++;
      p.pairs[first++] = r * p.each + rank;
    }
  }
  if (p.each > p.k) list_shared(p, rows, e, routeThreads);
  if (e != routeThreads - 1) return;
  u32 slots = upto >> 16;
  if (p.each > p.k) *(u32x4 *)(p.tables + 4 + slots++ * 4) = {p.experts, pairs, rows, 0};
  p.tables[0] = slots;
}

// take_row norms the only row into shared memory, with the bits of rms_norm.
DEV void take_row(const Router &p, float *row, float *partials) {
  static_assert(routeThreads == normThreads);
  constexpr u32 held = 4;
  const u32 t = tid(), quads = p.width / 4;
  f32x4 w[held], v[held];
  float sum = 0;
  UNROLL for (u32 j = 0; j < held; j++)
    if (t + j * normThreads < quads) w[j] = ((const f32x4 *)p.norm)[t + j * normThreads], v[j] = ((const f32x4 *)p.x)[t + j * normThreads];
  UNROLL for (u32 j = 0; j < held; j++)
    if (t + j * normThreads < quads) sum += squares(v[j]);
  for (u32 i = t + held * normThreads; i < quads; i += normThreads) sum += squares(((const f32x4 *)p.x)[i]);
  sum = warp_sum(sum);
  if (t % 32 == 0) partials[t / 32] = sum;
  sync();
  const float scale = norm_scale(norm_total(partials), p.width, p.eps);
  auto put = [&](u32 i, f32x4 a, f32x4 b) {
    a = normed(a, scale, b);
    ((f32x4 *)row)[i] = a;
    if (bid() != 0) return;
    if (p.f32) ((f32x4 *)p.f32)[i] = a;
    if (p.bf16) ((u32x2 *)p.bf16)[i] = pack_bf16_x4(a);
  };
  UNROLL for (u32 j = 0; j < held; j++)
    if (t + j * normThreads < quads) put(t + j * normThreads, v[j], w[j]);
  for (u32 i = t + held * normThreads; i < quads; i += normThreads) put(i, ((const f32x4 *)p.x)[i], ((const f32x4 *)p.norm)[i]);
  sync();
}

// logits_of are those of an expert a group, for up to 32 rows.
template <class F> DEV u32 logits_of(Router &p, const u8 *matrix, u32 kind, u32 first, u32 count, u32 to, float *row, float *parts) {
  Dots<F, 1> dots{p};
  dots.start(matrix, kind, first + tid() / 32 / routeParts, count);
  dependency_wait();
  const u32 rows = p.step->rows;
  if (p.norm) take_row(p, row, parts), p.x = row;
  float y[routeRows];
  for (u32 r = 0; r < rows; r += routeRows) {
    dots.sum(y, r, rows);
    add_parts<1>(p, parts, y, first, count, to, r, rows);
  }
  return rows;
}

// route is all of it for up to 32 rows: the block that is done last chooses and lists.
template <class F> DEV void route(Router p, float *row, float *parts, u16 *marks, u16 *ids, u32 *totals, u32 *last) {
  const u32 warp = tid() / 32, lane = tid() % 32, first = bid() * routeGroups;
  launch_dependents();
  u32 rows;
  if (first < p.experts) rows = logits_of<F>(p, p.router, p.kind, first, p.experts, 0, row, parts);
  else if (F::whole && p.share_kind == p.kind) rows = logits_of<F>(p, p.share, p.kind, 0, 1, p.experts, row, parts);
  else rows = logits_of<FormatOdd>(p, p.share, p.share_kind, 0, 1, p.experts, row, parts);
  if (tid() == 0) {
    fence();
    *last = atomic_add(p.counter, 1) == gdim() - 1;
  }
  sync();
  if (!*last) return;
  fence();
  for (u32 row = warp; row < rows; row += routeThreads / 32) {
    u32 expert, rank, taken;
    choose(p, row, expert, rank, taken);
    marks[row * 32 + lane] = (u16)taken;
    if (lane < p.k) {
      ids[row * p.k + rank] = (u16)expert;
      if (rows == 1) {
        *(u32x4 *)(p.tables + 4 + rank * 4) = {expert, rank, 1, 0};
        p.pairs[rank] = rank;
      }
    }
  }
  if (tid() == 0) *p.counter = 0;
  if (rows == 1) {
    if (tid() != 0) return;
    p.tables[0] = p.each;
    if (p.each == p.k) return;
    *(u32x4 *)(p.tables + 4 + p.k * 4) = {p.experts, p.k, 1, 0};
    p.pairs[p.k] = p.k;
    return;
  }
  sync();
  list(p, marks, ids, rows, totals);
}

template <class F> DEV void share_logits(const Router &p, float *parts) {
  Dots<F, 1> dots{p};
  dots.start(p.share, p.share_kind, 0, 1);
  dependency_wait();
  const u32 rows = p.step->rows, first = bid_y() * routeRows;
  if (first >= rows) return;
  float y[routeRows];
  dots.sum(y, first, rows);
  add_parts<1>(p, parts, y, 0, 1, p.experts, first, rows);
}

// The same in three launches, for more rows: logits, and
template <class F> DEV void route_logits(const Router &p, float *parts) {
  const u32 group = tid() / 32 / routeParts, blocks = (p.experts + 4 * routeGroups - 1) / (4 * routeGroups);
  launch_dependents();
  if (bid() < blocks) {
    Dots<F, 4> dots{p};
    dots.start(p.router, p.kind, (bid() * routeGroups + group) * 4, p.experts);
    dependency_wait();
    const u32 rows = p.step->rows, first = bid_y() * routeRows;
    if (first >= rows) return;
    float y[4 * routeRows];
    dots.sum(y, first, rows);
    add_parts<4>(p, parts, y, bid() * routeGroups * 4, p.experts, 0, first, rows);
  } else if (F::whole && p.share_kind == p.kind) share_logits<F>(p, parts);
  else share_logits<FormatOdd>(p, parts);
}

#define ROUTER_ARGS                                                                                                                     \
  float *routing, u32 *tables, u32 *pairs, float *shares, float *logits, u32 *counter, const float *x, const u8 *router,              \
      const u8 *share, u32 kind, u32 share_kind, u32 experts, u32 width, u32 k, u32 renormalise, u32 each, const Step *step, const float *norm, float eps, \
      float *f32, u16 *bf16
#define ROUTER {routing, tables, pairs, shares, logits, counter, x, router, share, kind, share_kind, experts, width, k, renormalise, each, step, norm, eps, f32, bf16}

#define ROUTE(name, F)                                                          \
  KERNEL(routeThreads) void route_##name(ROUTER_ARGS) {                         \
    DYNAMIC_SHARED(route_##name, row);                                          \
    SHARED(route_##name) float parts[routeThreads];                             \
    SHARED(route_##name) u16 ids[fewRows * mostChosen];                         \
    SHARED(route_##name) u16 marks[fewRows * 32];                               \
    SHARED(route_##name) u32 totals[routeThreads / 32];                         \
    SHARED(route_##name) u32 last;                                              \
    const Router p ROUTER;                                                      \
    route<F>(p, (float *)row, parts, marks, ids, totals, &last);                \
  }                                                                             \
  REGISTER(route_##name)                                                        \
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

// choices, a warp a row, and
KERNEL(256) void route_choose(ROUTER_ARGS) {
  launch_dependents();
  dependency_wait();
  const Router p ROUTER;
  const u32 row = bid() * 8 + tid() / 32;
  if (row >= step->rows) return;
  u32 expert, rank, taken;
  choose(p, row, expert, rank, taken);
}
REGISTER(route_choose)

// lists, a block an expert, whose slot has its number. A thread has some of the rows.
KERNEL(256) void route_list(ROUTER_ARGS, u32 capacity, u32 tiles) {
  SHARED(route_list) u32 lower[8];
  SHARED(route_list) u32 equal[8];
  SHARED(route_list) u32 last;
  launch_dependents();
  dependency_wait();
  const u32 e = bid(), lane = tid() % 32, warp = tid() / 32, rows = step->rows;
  const u32 begin = (u64)tid() * rows / 256, end = (u64)(tid() + 1) * rows / 256;
  u32 less = 0, own = 0;
  for (u32 r = begin; r < end; r++)
    for (u32 i = 0; i < k; i++) {
      const u32 id = (u32)routing[(u64)r * 2 * k + i];
      less += id < e;
      own += id == e;
    }
  const u32 upto = scan(own), before = scan(less);
  if (lane == 31) lower[warp] = before, equal[warp] = upto;
  sync();
  u32 first = 0, count = 0, at = upto - own;
  for (u32 i = 0; i < 8; i++) {
    first += lower[i];
    if (i < warp) at += equal[i];
    count += equal[i];
  }
  at += first;
  if (e == experts) count = rows, list_shared(ROUTER, rows, tid(), 256); // the shared one: less has counted all pairs
  if (tid() == 0) *(u32x4 *)(tables + 4 + e * 4) = {e, first, count, 0};
  if (tid() == 0 && e == 0) tables[0] = gdim();
  if (own)
    for (u32 r = begin; r < end; r++)
      for (u32 i = 0; i < k; i++)
        if ((u32)routing[(u64)r * 2 * k + i] == e) pairs[at++] = r * each + i;
  sync();
  if (tid() == 0) {
    fence();
    last = atomic_add(counter, 1) == gdim() - 1;
  }
  sync();
  if (!last) return;
  fence();
  // Tiles of up to `capacity` rows of an expert, of nearly equal length: {expert, first pair, rows}.
  u32 done = 0;
  for (u32 base = 0; base < experts; base += 256) {
    const u32 of = base + tid();
    u32 from = 0, rest = 0;
    if (of < experts) {
      from = __builtin_bit_cast(u32, load_l2((const float *)tables + 4 + of * 4 + 1));
      rest = __builtin_bit_cast(u32, load_l2((const float *)tables + 4 + of * 4 + 2));
    }
    const u32 parts = (rest + capacity - 1) / capacity, through = scan(parts);
    sync();
    if (lane == 31) lower[warp] = through;
    sync();
    u32 to = done + through - parts;
    for (u32 i = 0; i < 8; i++) {
      if (i < warp) to += lower[i];
      done += lower[i];
    }
    const u32 per = parts ? ((rest + parts - 1) / parts + 7) / 8 * 8 : 0;
    for (u32 i = 0; i < rest; i += per, to++) *(u32x4 *)(tables + tiles + to * 4) = {of, from + i, rest - i < per ? rest - i : per, 0};
  }
  if (tid() == 0) {
    tables[1] = done;
    *counter = 0;
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
