// Row results: statistics and best candidates of each row's logits, in two
// kernels. The first takes chunks of 512 logits, a warp each; the second joins
// a row's chunks, and reads again those that can hold one of the best.
// Everything is joined in the order of the vocabulary or by a total order of
// candidates, so that neither rows nor blocks change a bit.
#include "gpu.cuh"

constexpr u32 chunkLogits = 512;
constexpr u32 chunkWarps = 4;   // of a block of row_chunks: chunks that it takes
constexpr u32 mergeWarps = 32;  // of a block of row_merge
constexpr u32 listKeys = 64;    // candidates that a warp keeps

// order maps logits to whole numbers in their order, above 0; −0 becomes 0: they tie.
DEV u32 order(float logit) {
  u32 b = __builtin_bit_cast(u32, logit + 0.0f);
  return b ^ ((u32)((i32)b >> 31) | 0x80000000u);
}
// A key orders candidates: the logit, then the lower id. 0 is none.
DEV u64 key_of(float logit, u32 id) { return (u64)order(logit) << 32 | (u32)~id; }
DEV u32 key_id(u64 key) { return ~(u32)key; }
DEV float key_logit(u64 key) {
  u32 b = (u32)(key >> 32);
  return __builtin_bit_cast(float, b & 0x80000000u ? b ^ 0x80000000u : ~b);
}
DEV u64 better(u64 a, u64 b) { return a > b ? a : b; }
DEV u64 worse(u64 a, u64 b) { return a > b ? b : a; }
DEV u64 shfl_xor_key(u64 v, int m) { return (u64)shfl_xor((u32)(v >> 32), m) << 32 | shfl_xor((u32)v, m); }
DEV u64 warp_best(u64 v) { UNROLL for (int m = 16; m; m >>= 1) v = better(v, shfl_xor_key(v, m)); return v; }

struct Allowed { // ids that may be chosen
  u32 limit, except;
  DEV Allowed make(const Step *step, u32 vocab) { return {step->limit > 0 && (u32)step->limit < vocab ? (u32)step->limit : vocab, (u32)step->except}; }
};
DEV bool allowed(Allowed a, u32 id) { return id < a.limit && id != a.except; }

// stats[rows, chunks] = maximum, Σ e^(z−max), Σ e^(z−max)·(z−max); best[rows, chunks] = the best key.
KERNEL(chunkWarps * 32) void row_chunks(const float *logits, u32 vocab, u32 chunks, f32x4 *stats, u64 *best, const Step *step) {
  launch_dependents();
  dependency_wait();
  const u32 lane = tid() % 32, chunk = bid() * chunkWarps + tid() / 32, row = bid_y();
  if (row >= step->wanted || chunk >= chunks) return;
  const Allowed may = Allowed::make(step, vocab);
  const float none = -__builtin_inff();
  const u32 first = chunk * chunkLogits;
  const float *z = logits + (u64)row * vocab + first;
  const u32 n = vocab - first < chunkLogits ? vocab - first : chunkLogits;
  float v[16];
  if (n == chunkLogits && vocab % 4 == 0) {
    UNROLL for (u32 i = 0; i < 4; i++) {
      f32x4 q = ((const f32x4 *)z)[i * 32 + lane];
      v[i * 4] = q.x, v[i * 4 + 1] = q.y, v[i * 4 + 2] = q.z, v[i * 4 + 3] = q.w;
    }
  } else {
    UNROLL for (u32 i = 0; i < 16; i++) {
      u32 at = i / 4 * 128 + lane * 4 + i % 4;
      v[i] = at < n ? z[at] : none;
    }
  }
  float peak = none;
  UNROLL for (u32 i = 0; i < 16; i++) peak = __builtin_fmaxf(peak, v[i]);
  peak = warp_max(peak);
  // A chunk of −∞ alone sums to 0, and a NaN stays one.
  const float shift = peak == none ? 0 : peak;
  float s0 = 0, s1 = 0;
  UNROLL for (u32 i = 0; i < 16; i++) {
    float d = v[i] - shift, e = exp(d);
    s0 += e;
    s1 = fma(e, e == 0 ? 0 : d, s1);
  }
  u32 most = 0, at = 0; // a lane's ids rise: the first of equals is the lowest
  auto look = [&](u32 i, u32 o) {
    if (o > most) most = o, at = i;
  };
  if (n == chunkLogits && first + n <= may.limit && may.except - first >= n) {
    UNROLL for (u32 i = 0; i < 16; i++) look(i, order(v[i]));
  } else {
    UNROLL for (u32 i = 0; i < 16; i++) look(i, allowed(may, first + i / 4 * 128 + lane * 4 + i % 4) ? order(v[i]) : 0);
  }
  u64 top = most ? (u64)most << 32 | ~(first + at / 4 * 128 + lane * 4 + at % 4) : 0;
  s0 = warp_sum(s0), s1 = warp_sum(s1), top = warp_best(top);
  if (lane == 0) {
    u64 to = (u64)row * chunks + chunk;
    stats[to] = {peak, s0, s1, 0};
    best[to] = top;
  }
}

// List is a warp's best 64 keys, best first: a lane has places lane and 32 + lane.
struct List { u64 a, b; };

// sort_bitonic sorts 32 keys, one a lane, that rise and then fall (or fall and then rise), best first.
DEV u64 sort_bitonic(u64 v) {
  const u32 lane = tid() % 32;
  UNROLL for (u32 s = 16; s; s >>= 1) {
    u64 o = shfl_xor_key(v, s);
    v = lane & s ? worse(v, o) : better(v, o);
  }
  return v;
}

// sort_worst_first sorts any 32 keys, one a lane.
DEV u64 sort_worst_first(u64 v) {
  const u32 lane = tid() % 32;
  UNROLL for (u32 size = 2; size <= 32; size *= 2) {
    UNROLL for (u32 s = size / 2; s; s >>= 1) {
      u64 o = shfl_xor_key(v, s);
      v = ((lane & s) != 0) == ((lane & size) == 0 || size == 32) ? better(v, o) : worse(v, o);
    }
  }
  return v;
}

// insert takes one more key from each lane (0: none).
DEV List insert(List l, u64 key) {
  // Of the list's second half and the new keys the better 32 stay: one falls, the other rises.
  l.b = sort_bitonic(better(l.b, sort_worst_first(key)));
  u64 r = shfl_xor_key(l.b, 31);
  return {sort_bitonic(better(l.a, r)), sort_bitonic(worse(l.a, r))};
}

// join keeps the best 64 of l and a sorted list in shared memory.
DEV List join(List l, const u64 *other) {
  const u32 lane = tid() % 32;
  u64 a = better(l.a, other[63 - lane]), b = better(l.b, other[31 - lane]);
  return {sort_bitonic(better(a, b)), sort_bitonic(worse(a, b))};
}

// join_all leaves the best 64 of the first warps lists in lists[0], for all threads to see.
DEV void join_all(u64 (*lists)[listKeys], List l, u32 warps) {
  const u32 lane = tid() % 32, warp = tid() / 32;
  lists[warp][lane] = l.a;
  lists[warp][32 + lane] = l.b;
  sync();
  u32 half = mergeWarps / 2;
  while (half >= warps) half /= 2;
  for (; half; half /= 2) {
    if (warp < half && warp + half < warps) {
      l = join(l, lists[warp + half]);
      lists[warp][lane] = l.a;
      lists[warp][32 + lane] = l.b;
    }
    sync();
  }
}

// out[rows] = {maximum, S0, S1, 0} and then top pairs of an id (none: all ones) and its logit, best first.
KERNEL(mergeWarps * 32) void row_merge(u32 *out, const float *logits, u32 vocab, u32 chunks, u32 top, const f32x4 *stats, const u64 *best, const Step *step) {
  SHARED(row_merge) float partials[3][mergeWarps];
  SHARED(row_merge) u64 lists[mergeWarps][listKeys];
  launch_dependents();
  dependency_wait();
  const u32 t = tid(), lane = t % 32, warp = t / 32, row = bid();
  if (row >= step->wanted) return;
  stats += (u64)row * chunks;
  best += (u64)row * chunks;
  logits += (u64)row * vocab;
  out += (u64)row * (4 + 2 * top);

  const float none = -__builtin_inff();
  float peak = none;
  u64 first = 0; // the best key of this thread's chunks
  for (u32 c = t; c < chunks; c += mergeWarps * 32) {
    peak = __builtin_fmaxf(peak, stats[c].x);
    first = better(first, best[c]);
  }
  peak = warp_max(peak);
  if (lane == 0) partials[0][warp] = peak;
  if (top == 1) {
    first = warp_best(first);
    if (lane == 0) lists[0][warp] = first;
  }
  sync();
  peak = warp_max(partials[0][lane]);
  float s0 = 0, s1 = 0;
  for (u32 c = t; c < chunks; c += mergeWarps * 32) {
    f32x4 s = stats[c];
    float d = s.x - peak, f = exp(d);
    s0 += f * s.y;
    s1 += f * fma(f == 0 ? 0 : d, s.y, s.z);
  }
  s0 = warp_sum(s0), s1 = warp_sum(s1);
  if (lane == 0) partials[1][warp] = s0, partials[2][warp] = s1;
  sync();
  if (warp == 0) {
    s0 = warp_sum(partials[1][lane]), s1 = warp_sum(partials[2][lane]);
    if (lane == 0) {
      const float head[4] = {peak, s0, s1, 0};
      UNROLL for (u32 i = 0; i < 4; i++) out[i] = __builtin_bit_cast(u32, head[i]);
    }
  }
  auto put = [&](u32 place, u64 key) {
    if (place >= top) return;
    out[4 + place * 2] = key_id(key);
    out[5 + place * 2] = __builtin_bit_cast(u32, key ? key_logit(key) : none);
  };
  if (top == 1) {
    if (warp == 0) {
      first = warp_best(lists[0][lane]);
      if (lane == 0) put(0, first);
    }
    return;
  }

  // The best of the chunks' best keys: at least top candidates are as good as
  // the last of them, and no other chunk has such a one.
  List l = {0, 0};
  u32 warps = (chunks + 31) / 32;
  if (warps > mergeWarps) warps = mergeWarps;
  for (u32 c = warp * 32; c < chunks; c += mergeWarps * 32) l = insert(l, c + lane < chunks ? best[c + lane] : 0);
  join_all(lists, l, warps);
  const u64 bar = lists[0][top - 1];

  // Two chunks a warp: a mask of this lane's 2 · 16 logits that pass the bar.
  const Allowed may = Allowed::make(step, vocab);
  u32 base[2], mask = 0;
  UNROLL for (u32 j = 0; j < 2; j++) {
    u32 place = warp + j * mergeWarps;
    u64 key = place < top ? lists[0][place] : 0;
    base[j] = key ? key_id(key) / chunkLogits * chunkLogits + lane : vocab;
    UNROLL for (u32 i = 0; i < 16; i++) {
      u32 id = base[j] + i * 32;
      if (id < vocab && allowed(may, id) && key_of(logits[id], id) >= bar) mask |= 1u << (j * 16 + i);
    }
  }
  u32 rounds = __builtin_popcount(mask);
  UNROLL for (int m = 16; m; m >>= 1) {
    u32 o = shfl_xor(rounds, m);
    rounds = o > rounds ? o : rounds;
  }
  l = {0, 0};
  for (; rounds; rounds--) {
    u64 key = 0;
    if (mask) {
      u32 i = __builtin_ctz(mask), id = (i < 16 ? base[0] : base[1]) + i % 16 * 32;
      mask &= mask - 1;
      key = key_of(logits[id], id);
    }
    l = insert(l, key);
  }
  sync(); // the bar and the chunks have been read
  join_all(lists, l, top < mergeWarps ? top : mergeWarps);
  if (t < listKeys) put(t, lists[0][t]);
}

REGISTER(row_chunks)
REGISTER(row_merge)
