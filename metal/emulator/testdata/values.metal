// What the shim must compute as Metal does.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

struct ValueParams {
  uint n, m;
};

kernel void positions(device uint* out [[buffer(0)]], constant ValueParams& p [[buffer(1)]], ushort3 in_grid [[thread_position_in_grid]],
                      uint3 in_group [[thread_position_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]],
                      uint3 threads [[threads_per_threadgroup]], uint3 groups [[threadgroups_per_grid]], uint3 all [[threads_per_grid]],
                      ushort lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint index [[thread_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                      uint width [[threads_per_simdgroup]]) {
  const uint size = threads.x * threads.y * threads.z;
  const uint i = index + size * (group.x + groups.x * (group.y + groups.y * group.z));
  out[i] = in_grid.x + 10 * in_grid.y + 100 * in_grid.z + 1000 * lane + 100000 * simdgroup;
  if (any(in_group + group * threads != uint3(in_grid)) || any(all != groups * threads)) out[i] = 1;
  if (simdgroups != (size + 31) / 32 || width != 32 || index != in_group.x + threads.x * (in_group.y + threads.y * in_group.z)) out[i] = 2;
}

[[host_name("limited")]] [[max_total_threads_per_threadgroup(64)]] kernel void limited_kernel(device uint* out [[buffer(0)]], constant ValueParams& p [[buffer(1)]]) {
  out[0] = p.n;
}

kernel void dynamic(device uint* out [[buffer(0)]], threadgroup uint* s [[threadgroup(3)]]) {
  s[0] = 1;
  out[0] = s[0];
}

// Operations of a simdgroup, 32 results each.
kernel void simd_values(device const float* in [[buffer(0)]], device float* out [[buffer(1)]], uint lane [[thread_index_in_simdgroup]]) {
  const float v = in[lane];
  uint i = 0;
  out[32 * i++ + lane] = simd_sum(v);
  out[32 * i++ + lane] = simd_max(v);
  out[32 * i++ + lane] = simd_min(v);
  out[32 * i++ + lane] = simd_product(1.0f + v / 64.0f);
  out[32 * i++ + lane] = simd_shuffle(v, (lane * 7) % 32);
  out[32 * i++ + lane] = simd_shuffle_xor(v, 5);
  out[32 * i++ + lane] = lane < 29 ? simd_shuffle_and_fill_down(v, -1.0f, 3) : simd_shuffle_and_fill_down(v, -1.0f, 3);
  out[32 * i++ + lane] = simd_shuffle_and_fill_up(v, -1.0f, 3);
  out[32 * i++ + lane] = simd_broadcast(v, 9);
  out[32 * i++ + lane] = simd_broadcast_first(v);
  out[32 * i++ + lane] = simd_prefix_inclusive_sum(v);
  out[32 * i++ + lane] = simd_prefix_exclusive_sum(v);
  out[32 * i++ + lane] = float(uint(ulong(simd_ballot(v > 3.0f)) & 0xffff));
  out[32 * i++ + lane] = simd_all(v > 3.0f) ? 1.0f : simd_any(v > 3.0f) ? 2.0f : 3.0f;
  out[32 * i++ + lane] = quad_sum(v);
  out[32 * i++ + lane] = quad_max(v);
  out[32 * i++ + lane] = quad_shuffle_xor(v, 1);
  out[32 * i++ + lane] = quad_broadcast(v, 2);
  out[32 * i++ + lane] = float(simd_sum(int(lane)));
  out[32 * i++ + lane] = float(simd_max(uint(lane)) + (simd_is_first() ? 100 : 0));
}

// Matrices: in has a, b and c, 16 rows of 20; out gets a·bᵀ + c of the 8x8 at
// column 4 and row 3.
template <typename T>
kernel void matrix_values(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device const float* c [[buffer(2)]],
                          device float* out [[buffer(3)]], device float* elements [[buffer(4)]], uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_matrix<T, 8, 8> ma, mb;
  simdgroup_matrix<float, 8, 8> mc, product;
  simdgroup_load(ma, a, 20, ulong2(4, 3));
  simdgroup_load(mb, b + 3 * 20 + 4, 20, ulong2(0, 0), true);
  simdgroup_load(mc, c, 20, ulong2(4, 3));
  simdgroup_multiply_accumulate(mc, ma, mb, mc);
  simdgroup_store(mc, out, 20, ulong2(4, 3));
  simdgroup_multiply(product, ma, mb);
  simdgroup_store(product, out + 320, 8, ulong2(0, 0), true);
  simdgroup_matrix<float, 8, 8> diagonal(2.0f);
  elements[2 * lane] = mc.thread_elements()[0];
  elements[2 * lane + 1] = mc.thread_elements()[1];
  mc.thread_elements()[0] = float(lane);
  mc.thread_elements()[1] = float(lane) + 0.5f;
  simdgroup_multiply(mc, mc, diagonal);
  simdgroup_store(mc, out + 384, 8);
}
template [[host_name("matrix_f32")]] kernel void matrix_values<float>(device const float*, device const float*, device const float*, device float*, device float*, uint);
template [[host_name("matrix_f16")]] kernel void matrix_values<half>(device const half*, device const half*, device const float*, device float*, device float*, uint);
template [[host_name("matrix_" "bf16")]] kernel void matrix_values<bfloat>(device const bfloat*, device const bfloat*, device const float*, device float*, device float*, uint);

template <typename T, typename V> inline float first_of(device const T* p) { return float(V(*(device const vec<T, 4>*)p).x); }

// Conversions: numbers to vectors, between vectors, and of bits.
kernel void vector_values(device const float* in [[buffer(0)]], device float* out [[buffer(1)]]) {
  using quad = vec<float, 4>;
  const float4 v = float4(in[0], in[1], float2(in[2], in[3]));
  const int4 truncated = int4(v);
  const half4 halves = half4(v);
  const bfloat4 bits = bfloat4(v);
  const float4 casts = (float4)truncated + static_cast<float4>(uchar4(1, 2, 3, 4));
  const packed_float3 packed = packed_float3(v.xyz);
  uint i = 0;
  for (uint j = 0; j < 4; j++) out[i++] = float(truncated[j]);
  for (uint j = 0; j < 4; j++) out[i++] = float(halves[j]);
  for (uint j = 0; j < 4; j++) out[i++] = float(bits[j]);
  for (uint j = 0; j < 4; j++) out[i++] = casts[j];
  for (uint j = 0; j < 4; j++) out[i++] = (quad(in[1]) * v.wzyx)[j];
  out[i++] = float3(packed).z;
  out[i++] = float(as_type<uint>(in[0]) >> 16);
  out[i++] = as_type<half2>(0x3c004000u).x;
  out[i++] = dot(v, float4(1.0f, 2.0f, 3.0f, 4.0f));
  out[i++] = first_of<float, half4>(in);
  out[i++] = float(half(in[0])) + 1.h;
  out[i++] = clamp(in[0], 0.25, .5) + 1e-1 + max(in[1], 0.0f);
  out[i++] = float(bfloat(in[3]));
  out[i++] = select(1.0f, 2.0f, in[0] > 0.0f);
  out[i++] = fma(in[0], in[1], in[2]) + rsqrt(4.0f) + exp2(3.0f) + precise::log2(8.0f) + fast::exp(0.0f);
}
