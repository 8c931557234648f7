// Row results: statistics and best candidates of each row's logits, in two
// kernels. The first takes chunks of 512 logits, a simdgroup each; the second
// joins a row's chunks, and reads again those that can hold one of the best.
// Everything is joined in an order that the vocabulary alone decides, or by a
// total order of candidates, so that other rows do not change a bit. Logits
// that are not finite are told apart by their bits: fast math may assume that
// floats are finite.
#include "types.h.metal"

constant constexpr uint chunk_logits = 512;
constant constexpr uint list_keys = 64;       // candidates that a simdgroup keeps
constant constexpr uint merge_simdgroups = 8; // of a threadgroup of row_merge
constant constexpr uint nan_bits = 0x7fc00000;
constant constexpr uint minus_infinity = 0xff800000;

struct ResultParams {
  uint vocab, chunks;
  uint limit, except; // candidates are the ids below limit (at most vocab), but for except
  uint top;           // 1 to 64
  uint wide;          // rows of logits are whole runs of 4 at such places
};

inline bool allowed(constant ResultParams& p, uint id) { return id < p.limit && id != p.except; }

// A key orders candidates: the logit, then the lower id. The upper half is the
// logit as a whole number in the order of floats, above 0. 0 is no candidate.
inline uint order(uint bits) {
  if (bits == 0x80000000) bits = 0; // -0 and 0 tie
  return bits ^ (bits >> 31 ? 0xffffffff : 0x80000000);
}
inline ulong key_of(uint bits, uint id) { return ulong(order(bits)) << 32 | ulong(~id); }
inline uint key_id(ulong key) { return ~uint(key); }
inline uint key_logit(ulong key) {
  const uint o = uint(key >> 32);
  return o ^ (o >> 31 ? 0x80000000 : 0xffffffff);
}
inline ulong better(ulong a, ulong b) { return a > b ? a : b; }
inline ulong worse(ulong a, ulong b) { return a > b ? b : a; }
inline ulong shuffle_key(ulong key, ushort mask) { return as_type<ulong>(simd_shuffle_xor(as_type<uint2>(key), mask)); }
inline ulong best_of(ulong key) {
  for (ushort m = 16; m > 0; m >>= 1) key = better(key, shuffle_key(key, m));
  return key;
}

// stats[rows, chunks] are the bits of the maximum, of Σ e^(z−max) and of
// Σ e^(z−max)·(z−max), and whether a logit is a NaN or +∞; best[rows,
// chunks] is the best key. A logit of −∞ adds 0 to the sums.
kernel void row_chunks(device const uint* logits [[buffer(0)]], device uint4* stats [[buffer(1)]], device ulong* best [[buffer(2)]],
                       constant ResultParams& p [[buffer(3)]], uint2 group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint chunk = group.x * simdgroups + simdgroup, row = group.y;
  if (chunk >= p.chunks) return;
  const uint first = chunk * chunk_logits, n = min(chunk_logits, p.vocab - first);
  device const uint* z = logits + ulong(row) * p.vocab + first;
  const bool wide = p.wide != 0 && n == chunk_logits;
  uint4 v[4];
  uint bad = 0;
  float peak = -FLT_MAX;
  ulong top = 0;
  #pragma unroll
  for (uint i = 0; i < 4; i++) {
    const uint at = i * 128 + lane * 4;
    if (wide) {
      v[i] = *(device const uint4*)(z + at);
    } else {
      for (uint j = 0; j < 4; j++) v[i][j] = at + j < n ? z[at + j] : minus_infinity;
    }
    #pragma unroll
    for (uint j = 0; j < 4; j++) {
      const uint bits = v[i][j], id = first + at + j;
      if (allowed(p, id)) top = better(top, key_of(bits, id));
      if ((bits & 0x7f800000) != 0x7f800000) {
        peak = max(peak, as_type<float>(bits));
      } else if (bits != minus_infinity) {
        bad = 1;
      }
    }
  }
  peak = simd_max(peak);
  float s0 = 0.0f, s1 = 0.0f;
  #pragma unroll
  for (uint i = 0; i < 4; i++) {
    #pragma unroll
    for (uint j = 0; j < 4; j++) {
      const uint bits = v[i][j];
      if ((bits & 0x7f800000) == 0x7f800000) continue;
      // Below -150 e^d is 0 in a float; the bound keeps d finite.
      const float d = max(as_type<float>(bits) - peak, -150.0f), e = precise::exp(d);
      s0 += e;
      s1 = fma(e, d, s1);
    }
  }
  s0 = simd_sum(s0);
  s1 = simd_sum(s1);
  bad = simd_max(bad);
  top = best_of(top);
  if (lane == 0) {
    const ulong to = ulong(row) * p.chunks + chunk;
    stats[to] = uint4(as_type<uint>(peak), as_type<uint>(s0), as_type<uint>(s1), bad);
    best[to] = top;
  }
}

// List is a simdgroup's best 64 keys, best first: a lane has places lane and
// 32 + lane.
struct List {
  ulong a, b;
};

// sort_bitonic sorts 32 keys, one a lane, that rise and then fall (or fall and
// then rise), best first.
inline ulong sort_bitonic(ulong key, uint lane) {
  for (ushort s = 16; s > 0; s >>= 1) {
    const ulong other = shuffle_key(key, s);
    key = lane & s ? worse(key, other) : better(key, other);
  }
  return key;
}

// sort_worst_first sorts any 32 keys, one a lane.
inline ulong sort_worst_first(ulong key, uint lane) {
  for (ushort size = 2; size <= 32; size *= 2) {
    for (ushort s = size / 2; s > 0; s >>= 1) {
      const ulong other = shuffle_key(key, s);
      const bool rising = size == 32 || (lane & size) == 0;
      key = ((lane & s) != 0) == rising ? better(key, other) : worse(key, other);
    }
  }
  return key;
}

// insert takes one more key from each lane (0: none).
inline List insert(List l, ulong key, uint lane) {
  // Of the list's second half and the new keys the better 32 stay: one falls, the other rises.
  const ulong b = sort_bitonic(better(l.b, sort_worst_first(key, lane)), lane);
  const ulong r = shuffle_key(b, 31);
  List out;
  out.a = sort_bitonic(better(l.a, r), lane);
  out.b = sort_bitonic(worse(l.a, r), lane);
  return out;
}

// join keeps the best 64 of l and of a sorted list in threadgroup memory.
inline List join(List l, threadgroup const ulong* other, uint lane) {
  const ulong a = better(l.a, other[63 - lane]), b = better(l.b, other[31 - lane]);
  List out;
  out.a = sort_bitonic(better(a, b), lane);
  out.b = sort_bitonic(worse(a, b), lane);
  return out;
}

// join_all leaves the best 64 of all simdgroups' lists in the first 64 of
// lists, for all threads to see.
inline void join_all(threadgroup ulong* lists, List l, uint lane, uint simdgroup) {
  threadgroup ulong* mine = lists + simdgroup * list_keys;
  mine[lane] = l.a;
  mine[32 + lane] = l.b;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint n = merge_simdgroups / 2; n > 0; n /= 2) {
    if (simdgroup < n) {
      l = join(l, mine + n * list_keys, lane);
      mine[lane] = l.a;
      mine[32 + lane] = l.b;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// out[rows] are the bits of the maximum (a NaN where a logit is a NaN or +∞),
// of S0 and of S1, 0, and then top pairs of an id (none: all ones) and the bits
// of its logit, best first.
kernel void row_merge(device uint* out [[buffer(0)]], device const uint* logits [[buffer(1)]], device const uint4* stats [[buffer(2)]],
                      device const ulong* best [[buffer(3)]], constant ResultParams& p [[buffer(4)]],
                      uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint threads = 32 * merge_simdgroups;
  threadgroup float partial[4 * merge_simdgroups];
  threadgroup ulong lists[merge_simdgroups * list_keys];
  stats += ulong(row) * p.chunks;
  best += ulong(row) * p.chunks;
  logits += ulong(row) * p.vocab;
  out += ulong(row) * (4 + 2 * p.top);

  float peak = -FLT_MAX, bad = 0.0f;
  for (uint c = thread_index; c < p.chunks; c += threads) {
    peak = max(peak, as_type<float>(stats[c].x));
    bad = stats[c].w != 0 ? 1.0f : bad;
  }
  peak = simd_max(peak);
  bad = simd_max(bad);
  if (lane == 0) {
    partial[simdgroup] = peak;
    partial[merge_simdgroups + simdgroup] = bad;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  peak = simd_max(partial[lane % merge_simdgroups]);
  bad = simd_max(partial[merge_simdgroups + lane % merge_simdgroups]);
  float s0 = 0.0f, s1 = 0.0f;
  for (uint c = thread_index; c < p.chunks; c += threads) {
    const uint4 s = stats[c];
    const float d = max(as_type<float>(s.x) - peak, -150.0f), f = precise::exp(d);
    s0 = fma(f, as_type<float>(s.y), s0);
    s1 = fma(f, fma(d, as_type<float>(s.y), as_type<float>(s.z)), s1);
  }
  s0 = threadgroup_sum(s0, partial + 2 * merge_simdgroups, lane, simdgroup, merge_simdgroups);
  s1 = threadgroup_sum(s1, partial + 3 * merge_simdgroups, lane, simdgroup, merge_simdgroups);
  if (thread_index == 0) {
    out[0] = bad != 0.0f ? nan_bits : as_type<uint>(peak);
    out[1] = as_type<uint>(s0);
    out[2] = as_type<uint>(s1);
    out[3] = 0;
  }

  // The best of the chunks' best keys: at least top candidates are as good as
  // the last of them, and no other chunk has such a one.
  List l = {0, 0};
  for (uint c = simdgroup * 32; c < p.chunks; c += threads) l = insert(l, c + lane < p.chunks ? best[c + lane] : 0, lane);
  join_all(lists, l, lane, simdgroup);
  const ulong bar = lists[p.top - 1];

  // The candidates of those chunks that pass the bar, a chunk at a time.
  l = {0, 0};
  for (uint place = simdgroup; place < p.top; place += merge_simdgroups) {
    const ulong key = lists[place];
    if (key == 0) break;
    const uint first = key_id(key) / chunk_logits * chunk_logits + lane;
    uint mask = 0; // of this lane's 16 logits
    for (uint i = 0; i < 16; i++) {
      const uint id = first + i * 32;
      if (id < p.vocab && allowed(p, id) && key_of(logits[id], id) >= bar) mask |= 1u << i;
    }
    for (uint rounds = simd_max(popcount(mask)); rounds > 0; rounds--) {
      ulong one = 0;
      if (mask != 0) {
        const uint id = first + ctz(mask) * 32;
        mask &= mask - 1;
        one = key_of(logits[id], id);
      }
      l = insert(l, one, lane);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup); // all have read the bar and the chunks
  join_all(lists, l, lane, simdgroup);
  for (uint i = thread_index; i < p.top; i += threads) {
    const ulong key = lists[i];
    out[4 + 2 * i] = key_id(key);
    out[5 + 2 * i] = key != 0 ? key_logit(key) : minus_infinity;
  }
}
