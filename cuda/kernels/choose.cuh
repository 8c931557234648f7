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

  // shared is the weight of a shared expert.
  METHOD float shared() const { return 1 / (1 + exp_precise(-load_l2(logits + experts))); }
};

// Chosen is what a lane below k gets: an expert, its place in ascending order, and its weight.
// Bit j of taken says, in every lane, that expert lane + 32·j was chosen.
struct Chosen {
  u32 expert, rank, taken;
  float weight;
};

// choose_of routes a row in a warp, of at most 32 · held experts.
template <u32 held> DEV Chosen choose_of(const Choice &c) {
  constexpr u32 none = 0xffffffff;
  const u32 lane = tid() % 32;
  float x[held];
  UNROLL for (u32 j = 0; j < held; j++) { // past the end the last one: all are on their way at once
    const u32 e = lane + j * 32;
    x[j] = load_l2(c.logits + (e < c.experts ? e : c.experts - 1));
  }
  u32 key[held]; // 0: taken, or not there
  UNROLL for (u32 j = 0; j < held; j++) key[j] = lane + j * 32 < c.experts ? ordered(x[j]) : 0;
  float mine = below_all(), largest = 0;
  Chosen to{none, 0, 0, 0};
  for (u32 i = 0; i < c.k; i++) {
    u32 best = 0, at = none;
    UNROLL for (u32 j = 0; j < held; j++) best = key[j] > best ? key[j] : best;
    best = reduce_max(best);
    UNROLL for (u32 j = held; j-- > 0;)
      if (key[j] == best) at = lane + j * 32;
    at = reduce_min(at);
    UNROLL for (u32 j = 0; j < held; j++)
      if (lane + j * 32 == at) key[j] = 0, to.taken |= 1u << j;
    if (i == 0) largest = number_of(best);
    if (lane == i) mine = number_of(best), to.expert = at;
  }
  const float share = lane < c.k ? share_of(mine, largest) : 0;
  float sum = share;
  if (!c.renormalise) { // logits are read again: they would take registers meanwhile
    sum = 0;
    UNROLL for (u32 j = 0; j < held; j++) {
      const u32 e = lane + j * 32;
      if (e >= c.experts) continue;
      const float x = load_l2(c.logits + e);
      sum += share_of(x != x ? below_all() : x, largest);
    }
  }
  to.weight = share / warp_sum(sum);
  for (u32 i = 0; i < c.k; i++) to.rank += shfl(to.expert, (int)i) < to.expert;
  return to;
}

// choose is choose_of of as many as there are.
DEV Chosen choose(const Choice &c) {
  if (c.experts <= 128) return choose_of<4>(c);
  if (c.experts <= 256) return choose_of<8>(c);
  return choose_of<mostExperts / 32>(c);
}
