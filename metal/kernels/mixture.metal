// What a mixture of experts has besides its projections: the choice of experts, their
// lists of rows, and the sum of what they make.
#include "types.h.metal"

struct RouteParams {
  uint rows, experts, chosen;
  uint renormalise;
};

// rank_of orders logits as whole numbers, the larger the better, which fast math leaves
// alone: 0 and -0 are equal, what is no number is as -infinity.
inline uint rank_of(float v) {
  uint bits = as_type<uint>(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0xff800000u;
  if (bits == 0x80000000u) bits = 0u;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// logit_of is the logit of a rank, at most 1e38 either way.
inline float logit_of(uint rank) {
  const bool positive = (rank & 0x80000000u) != 0;
  const float size = as_type<float>(min(positive ? rank & 0x7fffffffu : rank ^ 0x7fffffffu, 0x7e967699u));
  return positive ? size : -size;
}

// share_of is e^(logit - largest) where that is more than 1e-38.
inline float share_of(uint rank, float largest) { return exp(max(logit_of(rank) - largest, -87.0f)); }

// route chooses experts for each row of logits, [rows, experts]: a simdgroup a row. A round
// finds the best of those behind the one before, of equal ones the lowest number;
// the last of them tells which are chosen. routing, [rows, 2 · chosen], gets their
// numbers, ascending, and their shares of softmax.
kernel void route(device float* routing [[buffer(0)]], device const float* logits [[buffer(1)]], constant RouteParams& p [[buffer(2)]],
                  uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                  uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint row = group * simdgroups + simdgroup;
  if (row >= p.rows) return;
  device const float* z = logits + ulong(row) * p.experts;
  device float* numbers = routing + ulong(row) * 2 * p.chosen;
  device float* shares = numbers + p.chosen;
  uint last = ~0u, last_expert = 0;
  float largest = 0.0f;
  for (uint round = 0; round < p.chosen; round++) {
    uint best = 0, best_expert = ~0u;
    for (uint e = lane; e < p.experts; e += 32) {
      const uint rank = rank_of(z[e]);
      if (rank > best && (rank < last || (rank == last && e > last_expert))) best = rank, best_expert = e;
    }
    last = simd_max(best);
    last_expert = simd_min(best == last ? best_expert : ~0u);
    if (round == 0) largest = logit_of(last);
  }
  float sum = 0.0f;
  for (uint e = lane; e < p.experts; e += 32) {
    const uint rank = rank_of(z[e]);
    const bool chosen = rank > last || (rank == last && e <= last_expert);
    if (chosen || p.renormalise == 0) sum += share_of(rank, largest);
  }
  sum = simd_sum(sum);
  uint before = 0;
  for (uint first = 0; first < p.experts; first += 32) {
    const uint e = first + lane, rank = rank_of(z[min(e, p.experts - 1)]);
    const bool chosen = e < p.experts && (rank > last || (rank == last && e <= last_expert));
    const uint one = chosen ? 1 : 0, at = before + simd_prefix_exclusive_sum(one);
    if (chosen) numbers[at] = float(e), shares[at] = share_of(rank, largest) / sum;
    before += simd_sum(one);
  }
}

struct SortParams {
  uint rows, experts, chosen, slots;
};

// sort_pairs lists the pairs of a routing by expert: pair row · chosen + place. slots gets
// [slots, 3]: of each expert that has rows, in order, its number, where its pairs begin in
// list, and how many it has; then nothing. One threadgroup; a thread has some experts.
kernel void sort_pairs(device uint* slots [[buffer(0)]], device uint* list [[buffer(1)]], device const float* routing [[buffer(2)]],
                       constant SortParams& p [[buffer(3)]], threadgroup uint* counts [[threadgroup(0)]],
                       uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
  for (uint e = thread_index; e < p.experts; e += threads) {
    uint n = 0;
    for (uint row = 0; row < p.rows; row++)
      for (uint i = 0; i < p.chosen; i++) n += uint(routing[row * 2 * p.chosen + i]) == e ? 1 : 0;
    counts[e] = n;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint from = 0, first = 0, slot = 0; // of the experts before from
  for (uint e = thread_index; e < p.experts; e += threads) {
    for (; from < e; from++) {
      first += counts[from];
      slot += counts[from] != 0 ? 1 : 0;
    }
    if (counts[e] == 0) continue;
    device uint* to = slots + slot * 3;
    to[0] = e, to[1] = first, to[2] = counts[e];
    uint at = first;
    for (uint row = 0; row < p.rows; row++)
      for (uint i = 0; i < p.chosen; i++)
        if (uint(routing[row * 2 * p.chosen + i]) == e) list[at++] = row * p.chosen + i;
  }
  uint used = 0;
  for (uint e = 0; e < p.experts; e++) used += counts[e] != 0 ? 1 : 0;
  for (uint s = used + thread_index; s < p.slots; s += threads) slots[s * 3] = 0, slots[s * 3 + 1] = 0, slots[s * 3 + 2] = 0;
}

struct SumParams {
  uint width, chosen;
  uint shared; // whether there is a shared expert
  uint wide;   // width is a multiple of 4
};

// add_experts adds to each row of dst, [rows, width], what its experts made, [rows, chosen,
// width], in their order, and what the shared one made, [rows, width], whose logits are
// [rows]. A thread has 4 columns. Grid: threads of a row, rows.
kernel void add_experts(device float* dst [[buffer(0)]], device const float* made [[buffer(1)]], device const float* routing [[buffer(2)]],
                        device const float* shared_made [[buffer(3)]], device const float* shared_logits [[buffer(4)]],
                        constant SumParams& p [[buffer(5)]], uint2 group [[threadgroup_position_in_grid]],
                        uint2 place [[thread_position_in_threadgroup]], uint2 threads [[threads_per_threadgroup]]) {
  const uint row = group.y, i = 4 * (group.x * threads.x + place.x);
  if (i >= p.width) return;
  const bool wide = p.wide != 0;
  const ulong at = ulong(row) * p.width;
  float4 sum = load4(dst + at, i, p.width, wide);
  device const float* shares = routing + ulong(row) * 2 * p.chosen + p.chosen;
  for (uint j = 0; j < p.chosen; j++)
    sum = fma(float4(shares[j]), load4(made + (ulong(row) * p.chosen + j) * p.width, i, p.width, wide), sum);
  if (p.shared != 0) {
    const float share = 1.0f / (1.0f + exp(min(-shared_logits[row], 80.0f)));
    sum = fma(float4(share), load4(shared_made + at, i, p.width, wide), sum);
  }
  store4(dst + at, i, p.width, wide, sum);
}
