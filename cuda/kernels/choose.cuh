// A row's experts: the k largest of the logits, and their shares.
#pragma once
#include "gpu.cuh"

constexpr u32 mostExperts = 512, mostChosen = 32;

DEV float below_all() { return -__builtin_inff(); }

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

// Choice is what a row chooses by: its logits, [experts], and behind them that of a shared
// expert, where there is one.
struct Choice {
  const float *logits;
  u32 experts, k, renormalise;

  // shared is the logit of a shared expert, whose weight is its sigmoid.
  METHOD float shared() const { return load_l2(logits + experts); }
};

// Chosen is what a lane below k gets: an expert, its place in ascending order, and its weight.
// Bit j of taken says, in every lane, that expert lane + 32·j was chosen.
struct Chosen {
  u32 expert, rank, taken;
  float weight;
};

// Pairs are what a row's largest logits are found among, in the memory of a warp: an ordered
// logit above, and below it what is larger where the expert's number is less. So no two are
// equal, and the largest is the first to be chosen.
constexpr u32 mostPairs = 32;
DEV u64 pair_of(u32 key, u32 expert) { return (u64)key << 32 | ~expert; }

// choose_of routes a row in a warp, of at most 32 · held experts; pairs has room for
// mostPairs. Of the largest of each lane the k-th is a bound: no expert below it is chosen, and
// few that are not are above it. Where they are many, as of equal logits, the largest are
// taken one by one.
template <u32 held> DEV Chosen choose_of(const Choice &c, u64 *pairs) {
  constexpr u32 none = 0xffffffff;
  const u32 lane = tid() % 32;
  float x[held];
  UNROLL for (u32 j = 0; j < held; j++) { // past the end the last one
    const u32 e = lane + j * 32;
    x[j] = load_l2(c.logits + (e < c.experts ? e : c.experts - 1));
  }
  sync_warp(); // all are on their way now: else an assembler may wait for one after the other
  u32 key[held], best = 0; // 0: not there
  UNROLL for (u32 j = 0; j < held; j++) {
    key[j] = lane + j * 32 < c.experts ? ordered(x[j]) : 0;
    best = key[j] > best ? key[j] : best;
  }
  u32 *bests = (u32 *)pairs, above = 0;
  bests[lane] = best;
  sync_warp();
  UNROLL for (u32 i = 0; i < 8; i++) {
    const u32x4 v = ((const u32x4 *)bests)[i];
    above += (v.x > best) + (v.y > best) + (v.z > best) + (v.w > best);
  }
  const u32 bound = reduce_min(above < c.k ? best : none);
  sync_warp();
  u32 count = 0;
  UNROLL for (u32 j = 0; j < held; j++) {
    const bool mine = key[j] >= bound;
    const u32 votes = ballot(mine), at = count + (u32)__builtin_popcount(votes & ((1u << lane) - 1));
    if (mine && at < mostPairs) pairs[at] = pair_of(key[j], lane + j * 32);
    count += (u32)__builtin_popcount(votes);
  }
  sync_warp();
  float mine = below_all(), largest = 0;
  Chosen to{none, 0, 0, 0};
  if (count <= mostPairs) {
    u64 own = 0;
    if (lane < count) own = pairs[lane];
    else pairs[lane] = 0; // below all
    sync_warp();
    u32 place = 0;
    _Pragma("nounroll") for (u32 base = 0; base < count; base += 8)
      UNROLL for (u32 i = 0; i < 8; i++) place += pairs[base + i] > own;
    sync_warp();
    if (lane < count && place < c.k) pairs[place] = own;
    sync_warp();
    largest = number_of((u32)(pairs[0] >> 32));
    const u64 last = pairs[c.k - 1];
    if (lane < c.k) {
      own = pairs[lane];
      mine = number_of((u32)(own >> 32)), to.expert = ~(u32)own;
    }
    UNROLL for (u32 j = 0; j < held; j++)
      if (pair_of(key[j], lane + j * 32) >= last) to.taken |= 1u << j;
  } else {
    _Pragma("nounroll") for (u32 i = 0; i < c.k; i++) {
      u32 at = none;
      best = 0;
      UNROLL for (u32 j = 0; j < held; j++)
        if (!(to.taken >> j & 1) && key[j] > best) best = key[j], at = lane + j * 32;
      const u32 own = best;
      best = reduce_max(best);
      at = reduce_min(own == best ? at : none);
      if (at % 32 == lane) to.taken |= 1u << at / 32;
      if (i == 0) largest = number_of(best);
      if (lane == i) mine = number_of(best), to.expert = at;
    }
  }
  const float share = lane < c.k ? share_of(mine, largest) : 0;
  float sum = share;
  if (!c.renormalise) {
    sum = 0;
    UNROLL for (u32 j = 0; j < held; j++)
      if (key[j]) sum += share_of(number_of(key[j]), largest);
  }
  to.weight = share * reciprocal(warp_sum(sum));
  for (u32 i = 0; i < c.k; i++) to.rank += shfl(to.expert, (int)i) < to.expert;
  return to;
}

// choose is choose_of of as many as there are.
DEV Chosen choose(const Choice &c, u64 *pairs) {
  if (c.experts <= 128) return choose_of<4>(c, pairs);
  if (c.experts <= 256) return choose_of<8>(c, pairs);
  return choose_of<mostExperts / 32>(c, pairs);
}
