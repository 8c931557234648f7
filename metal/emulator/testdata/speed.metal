// What the emulator's own speed is measured with.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

struct SpeedParams {
  uint n;
};

// n matrix products a simdgroup.
kernel void speed_multiply(device float* out [[buffer(0)]], constant SpeedParams& p [[buffer(1)]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  simdgroup_matrix<bfloat, 8, 8> a = make_filled_simdgroup_matrix<bfloat, 8, 8>(bfloat(0.5f));
  simdgroup_matrix<bfloat, 8, 8> b = make_filled_simdgroup_matrix<bfloat, 8, 8>(bfloat(0.25f));
  simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint i = 0; i < p.n; i++) simdgroup_multiply_accumulate(sum, a, b, sum);
  simdgroup_store(sum, out + simdgroup * 64, 8);
}

// n tiles of 4 products, 4 loads from threadgroup memory and one barrier a simdgroup.
kernel void speed_tile(device float* out [[buffer(0)]], constant SpeedParams& p [[buffer(1)]], uint thread_index [[thread_index_in_threadgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup bfloat tile[256];
  for (uint i = thread_index; i < 256; i += 128) tile[i] = bfloat(0.5f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<float, 8, 8> sum[4];
  for (uint i = 0; i < 4; i++) sum[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint i = 0; i < p.n; i++) {
    simdgroup_matrix<bfloat, 8, 8> a[2], b[2];
    for (uint j = 0; j < 2; j++) simdgroup_load(a[j], tile + j * 64, 8);
    for (uint j = 0; j < 2; j++) simdgroup_load(b[j], tile + 128 + j * 64, 8, ulong2(0, 0), true);
    for (uint j = 0; j < 4; j++) simdgroup_multiply_accumulate(sum[j], a[j / 2], b[j % 2], sum[j]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (uint j = 0; j < 4; j++) simdgroup_store(sum[j], out + (simdgroup * 4 + j) * 64, 8);
}

kernel void speed_sum(device float* out [[buffer(0)]], constant SpeedParams& p [[buffer(1)]], uint thread_index [[thread_index_in_threadgroup]]) {
  float v = float(thread_index);
  for (uint i = 0; i < p.n; i++) v = simd_sum(v) * 0.03f;
  out[thread_index] = v;
}

kernel void speed_barrier(device float* out [[buffer(0)]], constant SpeedParams& p [[buffer(1)]], uint thread_index [[thread_index_in_threadgroup]]) {
  for (uint i = 0; i < p.n; i++) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[thread_index] = 1.0f;
}

kernel void speed_memory(device float* out [[buffer(0)]], constant SpeedParams& p [[buffer(1)]], uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float values[128];
  values[thread_index] = float(thread_index);
  for (uint i = 0; i < p.n; i++) values[thread_index] = fma(values[thread_index], 0.5f, 1.0f);
  out[thread_index] = values[thread_index];
}
