// RotateStore: norm and rotation of query and key heads, and the storing of
// keys and values. One simdgroup takes one head of one row.
#include "types.h.metal"
#include "pages.h.metal"

struct RotateParams {
  uint rows, heads, kv_heads, dim, pairs;
  uint q_stride; // elements from query head to query head: dim, or more where gates follow
  uint base, slots, window, keep;
  uint page, scale_page; // elements, and scales, from page to page
  uint q_norm, k_norm; // whether there is one
  float eps;
};

// slot_of is backend.Layout.Slot.
inline uint slot_of(constant RotateParams& p, uint index) {
  if (p.window == 0 || index < p.keep) return index;
  return p.keep + (index - p.keep) % (p.slots - p.keep);
}

// Head is what a head's elements are made of. Without a norm weight is not read.
struct Head {
  device const float* x;
  device const float* weight;
  device const float* cosines; // of the row's position, [pairs]
  device const float* sines;
  float scale; // 1 / sqrt(mean(x²) + eps)
  bool has_norm;
  uint dim, pairs;
};

// couple gives the two elements that a lane takes together, i < dim/2: first the pairs
// that are rotated, then what stays as it is.
inline uint2 couple(Head h, uint i) { return i < h.pairs ? uint2(i, i + h.pairs) : uint2(i + h.pairs, i + h.dim / 2); }

inline float inverse_norm(Head h, float eps, uint lane) {
  float sum = 0.0f;
  for (uint i = lane; i < h.dim / 2; i += 32) {
    const uint2 at = couple(h, i);
    const float a = h.x[at.x], b = h.x[at.y];
    sum = fma(b, b, fma(a, a, sum));
  }
  return 1.0f / sqrt(simd_sum(sum) / float(h.dim) + eps);
}

inline float normed(Head h, uint i) { return h.has_norm ? h.x[i] * (h.scale * h.weight[i]) : h.x[i]; }

// rotated gives elements i and i + pairs of the rotated head, i < pairs.
inline float2 rotated(Head h, uint i) {
  const float a = normed(h, i), b = normed(h, i + h.pairs), c = h.cosines[i], s = h.sines[i];
  return float2(fma(a, c, -(b * s)), fma(b, c, a * s));
}

inline float rotated_element(Head h, uint i) {
  if (i >= 2 * h.pairs) return normed(h, i);
  return i < h.pairs ? rotated(h, i).x : rotated(h, i - h.pairs).y;
}

// narrow is v in a type of stored keys and values. Where it is more than f16 holds,
// the largest number stands for it: no sequence becomes infinite.
template <typename T> inline T narrow(float v) { return T(v); }
template <> inline half narrow<half>(float v) { return half(clamp(v, -65504.0f, 65504.0f)); }

// store_rotated: each lane writes the couples that it reads, here and in
// inverse_norm, so that dst may be h.x.
template <typename T> inline void store_rotated(device T* dst, Head h, uint lane) {
  for (uint i = lane; i < h.dim / 2; i += 32) {
    const uint2 at = couple(h, i);
    const float2 v = i < h.pairs ? rotated(h, i) : float2(normed(h, at.x), normed(h, at.y));
    dst[at.x] = narrow<T>(v.x);
    dst[at.y] = narrow<T>(v.y);
  }
}

// store_group is quant.Int8Scale and quant.Int8 of a group of count elements,
// of which the lane has elements lane and lane + 32 (0 past the end).
constant constexpr uint group_elements = 64;
inline void store_group(device char* dst, device float* scale_at, float2 v, uint count, uint lane) {
  const float scale = divide_exact(simd_max(max(fabs(v.x), fabs(v.y))), 127.0f);
  const float inverse = scale == 0.0f ? 0.0f : divide_exact(1.0f, scale);
  const float2 q = clamp(rint(v * inverse), float2(-127.0f), float2(127.0f));
  if (lane < count) dst[lane] = char(q.x);
  if (lane + 32 < count) dst[lane + 32] = char(q.y);
  if (lane == 0) *scale_at = scale;
}

// A line is where the vector of one head at one slot goes. Only int8 has
// scales, one a group.
template <typename T> inline void store_key(device T* line, device float*, Head h, uint lane) { store_rotated(line, h, lane); }
inline void store_key(device char* line, device float* scales, Head h, uint lane) {
  for (uint first = 0; first < h.dim; first += group_elements) {
    const uint a = first + lane, b = a + 32;
    const float2 v = float2(a < h.dim ? rotated_element(h, a) : 0.0f, b < h.dim ? rotated_element(h, b) : 0.0f);
    store_group(line + first, scales + first / group_elements, v, h.dim - first, lane);
  }
}

template <typename T> inline void store_value(device T* line, device float*, device const float* x, uint dim, uint lane) {
  for (uint i = lane; i < dim; i += 32) line[i] = narrow<T>(x[i]);
}
inline void store_value(device char* line, device float* scales, device const float* x, uint dim, uint lane) {
  for (uint first = 0; first < dim; first += group_elements) {
    const uint a = first + lane, b = a + 32;
    store_group(line + first, scales + first / group_elements, float2(a < dim ? x[a] : 0.0f, b < dim ? x[b] : 0.0f), dim - first, lane);
  }
}

// dst and q are [rows, heads·q_stride], gates copied as they are; k and v [rows, kv_heads·dim], positions [rows];
// angles are [positions, 2·pairs], of a position its cosines and then its sines;
// keys and values are those of one layer in page 0, [kv_heads, page_slots, dim], as are
// their scales, [kv_heads, page_slots, groups]. Heads are numbered along a row:
// queries, keys, values.
template <typename Q, typename T>
kernel void rotate_store(device Q* dst [[buffer(0)]], device const float* q [[buffer(1)]], device const float* k [[buffer(2)]],
                         device const float* v [[buffer(3)]], device const float* q_norm [[buffer(4)]],
                         device const float* k_norm [[buffer(5)]], device const float* angles [[buffer(6)]],
                         device const uint* positions [[buffer(7)]], device T* keys [[buffer(8)]], device T* values [[buffer(9)]],
                         device float* key_scales [[buffer(10)]], device float* value_scales [[buffer(11)]],
                         device const uint* table [[buffer(12)]], constant RotateParams& p [[buffer(13)]], uint group [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint heads = p.heads + 2 * p.kv_heads, item = group * simdgroups + simdgroup, row = item / heads;
  if (row >= p.rows) return;
  uint head = item % heads;
  Head h;
  h.dim = p.dim;
  h.pairs = p.pairs;
  h.cosines = angles + ulong(positions[row]) * (2 * p.pairs);
  h.sines = h.cosines + p.pairs;
  if (head < p.heads) {
    const ulong at = (ulong(row) * p.heads + head) * p.q_stride;
    h.x = q + at;
    h.weight = q_norm;
    h.has_norm = p.q_norm != 0;
    h.scale = h.has_norm ? inverse_norm(h, p.eps, lane) : 1.0f;
    store_rotated(dst + at, h, lane);
    for (uint i = p.dim + lane; i < p.q_stride; i += 32) dst[at + i] = narrow<Q>(q[at + i]);
    return;
  }
  head -= p.heads;
  const bool is_value = head >= p.kv_heads;
  if (is_value) head -= p.kv_heads;
  const ulong from = (ulong(row) * p.kv_heads + head) * p.dim;
  const uint slot = slot_of(p, p.base + row), vector = head * page_slots + slot % page_slots;
  const ulong page = table[slot / page_slots];
  const ulong line = page * p.page + vector * p.dim;
  const ulong scales = page * p.scale_page + vector * ((p.dim + group_elements - 1) / group_elements);
  if (is_value) {
    store_value(values + line, value_scales + scales, v + from, p.dim, lane);
    return;
  }
  h.x = k + from;
  h.weight = k_norm;
  h.has_norm = p.k_norm != 0;
  h.scale = h.has_norm ? inverse_norm(h, p.eps, lane) : 1.0f;
  store_key(keys + line, key_scales + scales, h, lane);
}

#define ROTATE_STORE(name, q_type, kv_type)                                                                                          \
  template [[host_name("rotate_store_" name)]] kernel void rotate_store<q_type, kv_type>(                                             \
      device q_type*, device const float*, device const float*, device const float*, device const float*, device const float*,        \
      device const float*, device const uint*, device kv_type*, device kv_type*, device float*, device float*, device const uint*, \
      constant RotateParams&, uint, uint, uint, uint);
ROTATE_STORE("f32_f32", float, float)
ROTATE_STORE("f32_f16", float, half)
ROTATE_STORE("f32_bf16", float, bfloat)
ROTATE_STORE("f32_int8", float, char)
ROTATE_STORE("bf16_f32", bfloat, float)
ROTATE_STORE("bf16_f16", bfloat, half)
ROTATE_STORE("bf16_bf16", bfloat, bfloat)
ROTATE_STORE("bf16_int8", bfloat, char)
