// Kernels with one fault each, which the emulator must report, and correct ones
// that come near, which it must not. Threadgroups have 128 threads, in has 512
// floats, out 128.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

#define KERNEL(name) \
  kernel void name(device const float* in [[buffer(0)]], device float* out [[buffer(1)]], uint t [[thread_index_in_threadgroup]])
#define KERNEL_WITH(name, ...) \
  kernel void name(device const float* in [[buffer(0)]], device float* out [[buffer(1)]], uint t [[thread_index_in_threadgroup]], __VA_ARGS__)
#define GROUP uint group [[threadgroup_position_in_grid]]

constant constexpr mem_flags shared_flag = mem_flags::mem_threadgroup;

KERNEL(no_barrier) {
  threadgroup float s[128];
  s[t] = in[t];
  out[t] = s[127 - t];
}

KERNEL(barrier_of_simdgroup) {
  threadgroup float s[128];
  s[t] = in[t];
  simdgroup_barrier(shared_flag);
  out[t] = s[127 - t];
}

// The barrier names the memory that is not meant.
KERNEL(barrier_of_other_memory) {
  out[t] = in[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t < 64) out[t] = out[127 - t];
}
KERNEL(barrier_of_device_memory) {
  threadgroup float s[128];
  s[t] = in[t];
  threadgroup_barrier(mem_flags::mem_device);
  out[t] = s[127 - t];
}
KERNEL(barrier_of_nothing) {
  threadgroup float s[128];
  s[t] = in[t];
  threadgroup_barrier(mem_flags::mem_none);
  out[t] = s[127 - t];
}

// A shuffle orders no memory.
KERNEL(shuffle_is_no_barrier) {
  threadgroup float s[128];
  s[t] = in[t];
  out[t] = simd_shuffle_xor(in[t], 1);
  out[t] += s[t ^ 1];
}

// The next round overwrites what others still read.
KERNEL(no_barrier_before_reuse) {
  threadgroup float s[128];
  float sum = 0.0f;
  for (uint i = 0; i < 2; i++) {
    s[t] = in[i * 128 + t];
    threadgroup_barrier(shared_flag);
    sum += s[127 - t];
  }
  out[t] = sum;
}

KERNEL(read_past_end) { out[t] = in[512 - 127 + t]; }
KERNEL(read_before_begin) { out[t] = in[int(t) - 1]; }
KERNEL(write_past_end) { out[t + 1] = 1.0f; }

// An index past a threadgroup array, known or through a pointer.
KERNEL(array_overrun) {
  threadgroup float s[64];
  if (t < 64) s[t] = in[t];
  threadgroup_barrier(shared_flag);
  out[t] = t < 64 ? s[t + 1] : 0.0f;
}
KERNEL(pointer_overrun) {
  threadgroup float s[64];
  threadgroup float s2[64];
  threadgroup float* p = s;
  if (t < 65) p[t] = in[t];
  if (t < 64) s2[t] = 1.0f;
  threadgroup_barrier(shared_flag);
  out[t] = s2[t % 64];
}
KERNEL_WITH(dynamic_overrun, threadgroup float* s [[threadgroup(0)]]) {
  s[t] = in[t];
  threadgroup_barrier(shared_flag);
  out[t] = s[t];
}

KERNEL(uninitialised) {
  threadgroup float s[128];
  if (t != 5) s[t] = in[t];
  threadgroup_barrier(shared_flag);
  out[t] = s[t];
}
KERNEL(uninitialised_counter) {
  threadgroup atomic_uint n;
  atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);
  threadgroup_barrier(shared_flag);
  out[t] = 1.0f;
}

KERNEL(divergent_barrier) {
  if (t < 32) threadgroup_barrier(shared_flag);
  out[t] = 1.0f;
}
KERNEL(two_barriers) {
  if (t % 2) {
    threadgroup_barrier(shared_flag);
  } else {
    threadgroup_barrier(shared_flag);
  }
  out[t] = 1.0f;
}
KERNEL(two_barriers_of_simdgroups) {
  if (t < 64) {
    threadgroup_barrier(shared_flag);
  } else {
    threadgroup_barrier(shared_flag);
  }
  out[t] = 1.0f;
}
KERNEL(divergent_sum) {
  float v = in[t];
  if (t % 2) {
    v = simd_sum(v);
  } else {
    v = simd_max(v);
  }
  out[t] = v;
}
KERNEL(sum_beside_barrier) {
  float v = in[t];
  if (t % 32 < 16) v = simd_sum(v);
  threadgroup_barrier(shared_flag);
  out[t] = v;
}
KERNEL(shuffle_from_exited) {
  if (t % 32 >= 16) return;
  out[t] = simd_shuffle_xor(in[t], 16);
}

KERNEL(misaligned_device) { out[t] = (*(device const float4*)(in + t % 64 + 1)).x; }
KERNEL(misaligned_vector) {
  const float4 v = *(device const float4*)(in + 2 * t);
  out[t] = v.x + v.w;
}
// A threadgroup array has the alignment of its elements.
KERNEL(misaligned_threadgroup) {
  threadgroup float s[128];
  s[t] = in[t];
  threadgroup_barrier(shared_flag);
  out[t] = (*(threadgroup float4*)(s + t / 4 * 4)).x;
}

KERNEL_WITH(threadgroups_collide, GROUP) { out[t] = float(group); }
KERNEL_WITH(threadgroups_do_not_wait, GROUP) {
  if (group == 0) out[t] = in[t];
  if (group == 1 && out[t] == 1.0f) out[t] = 2.0f;
}
KERNEL(counter_and_plain) {
  device atomic_uint* n = (device atomic_uint*)out;
  atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);
  if (t == 64) out[0] = 1.0f;
}
KERNEL(shift_too_far) { out[t] = float(1u << (t + 1)); }

typedef simdgroup_matrix<float, 8, 8> matrix;

// Matrices are loaded and stored by no thread in particular.
KERNEL(matrix_of_unordered_writes) {
  threadgroup float s[128];
  s[t] = in[t];
  matrix m;
  simdgroup_load(m, s + t / 64 * 64, 8);
  simdgroup_store(m, out, 8);
}
KERNEL(matrix_read_without_barrier) {
  threadgroup float s[256];
  matrix m;
  simdgroup_load(m, in, 8);
  simdgroup_store(m, s + t / 32 * 64, 8);
  out[t] = s[t / 32 * 64 + t % 32];
}
KERNEL(matrix_transposed_in_place) {
  threadgroup float s[256];
  threadgroup float* own = s + t / 32 * 64;
  matrix m;
  simdgroup_load(m, in, 8);
  simdgroup_store(m, own, 8);
  simdgroup_load(m, own, 8, ulong2(0, 0), true);
  if (t < 32) simdgroup_store(m, out, 8);
}
KERNEL(matrix_past_end) {
  matrix m;
  simdgroup_load(m, in + 512 - 63, 8);
  if (t < 32) simdgroup_store(m, out, 8);
}
KERNEL(matrices_collide) {
  matrix m;
  simdgroup_load(m, in, 8);
  simdgroup_store(m, out, 8);
}
KERNEL(matrix_in_a_branch) {
  matrix m = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  if (t < 16) simdgroup_load(m, in, 8);
  if (t < 32) simdgroup_store(m, out, 8);
}
KERNEL(matrix_of_many_places) {
  matrix m;
  simdgroup_load(m, in + t % 2, 8);
  if (t < 32) simdgroup_store(m, out, 8);
}
KERNEL(product_after_exit) {
  if (t % 32 == 31) return;
  matrix m = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_multiply_accumulate(m, m, m, m);
  out[t] = m.thread_elements()[0];
}

KERNEL(too_much_memory) {
  threadgroup float s[8200];
  s[t] = in[t];
  threadgroup_barrier(shared_flag);
  out[t] = s[t];
}

// Correct kernels.

KERNEL(ok_barriers) {
  threadgroup float s[128];
  float sum = 0.0f;
  for (uint i = 0; i < 2; i++) {
    s[t] = in[i * 128 + t];
    threadgroup_barrier(shared_flag);
    sum += s[127 - t];
    threadgroup_barrier(shared_flag);
    s[t] = sum;
    simdgroup_barrier(shared_flag);
    sum += s[t ^ 31];
    simdgroup_barrier(shared_flag);
    s[t] = sum;
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    sum += s[t ^ 127];
    threadgroup_barrier(shared_flag);
  }
  out[t] = sum;
}
KERNEL(ok_device_barrier) {
  out[t] = in[t];
  threadgroup_barrier(mem_flags::mem_device);
  const float v = out[127 - t];
  threadgroup_barrier(mem_flags::mem_device);
  out[t] = v;
}
KERNEL(ok_exited) {
  if (t % 32 >= 20 || t >= 96) return;
  out[t] = simd_sum(in[t]) + simd_shuffle_xor(in[t], 3);
}
KERNEL_WITH(ok_threadgroups, GROUP) {
  if (t / 64 == group) out[t] = in[t];
}
KERNEL(ok_counter) {
  device atomic_uint* n = (device atomic_uint*)out;
  atomic_fetch_add_explicit(n + t % 4, 1u, memory_order_relaxed);
}
KERNEL(ok_threadgroup_counter) {
  threadgroup atomic_uint n[2];
  if (t < 2) atomic_store_explicit(&n[t], 0u, memory_order_relaxed);
  threadgroup_barrier(shared_flag);
  atomic_fetch_add_explicit(&n[t % 2], 1u, memory_order_relaxed);
  threadgroup_barrier(shared_flag);
  out[t] = float(atomic_load_explicit(&n[0], memory_order_relaxed));
}
KERNEL(ok_aligned) {
  alignas(16) threadgroup float s[128];
  threadgroup uchar bytes[5], more[128];
  s[t] = in[t];
  if (t < 5) bytes[t] = uchar(t);
  more[t] = uchar(t);
  threadgroup_barrier(shared_flag);
  out[t] = (*(threadgroup float4*)(s + t / 4 * 4)).y + float(bytes[t % 5]) + float(more[127 - t]);
}
KERNEL_WITH(ok_dynamic, threadgroup float* s [[threadgroup(0)]], threadgroup float4* v [[threadgroup(1)]]) {
  s[t] = in[t];
  if (t < 4) v[t] = float4(1.0f);
  threadgroup_barrier(shared_flag);
  out[t] = s[127 - t] + v[t % 4].w;
}
KERNEL(ok_matrix) {
  threadgroup float s[4][64];
  const uint own = t / 32;
  matrix m, sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(m, in, 8);
  simdgroup_multiply_accumulate(sum, m, m, sum);
  simdgroup_store(sum, s[own], 8);
  simdgroup_load(sum, s[own], 8);
  simdgroup_store(sum, s[own], 8);
  simdgroup_barrier(shared_flag);
  const float v = s[own][t % 32];
  simdgroup_barrier(shared_flag);
  simdgroup_store(m, s[own], 8);
  threadgroup_barrier(shared_flag);
  out[t] = v + s[3 - own][t % 32];
}
