// Element types (float, half and bfloat) and the reductions that several
// kernels share. T(x) and vec<T, 4>(x) round a float to nearest, ties to even,
// for half and bfloat alike. Sums are f32.
#include <metal_stdlib>
using namespace metal;

// load4 gives elements i to i + 3 of n as floats, and 0 past the end. Where
// wide is set n and the place of p are multiples of 4 elements: one load takes
// all. The result is the same either way, and so is what is made of it.
template <typename T> inline float4 load4(device const T* p, uint i, uint n, bool wide) {
  if (wide) return float4(*(device const vec<T, 4>*)(p + i));
  float4 v = float4(0.0f);
  for (uint j = 0; j < 4 && i + j < n; j++) v[j] = float(p[i + j]);
  return v;
}

// store4 is load4's counterpart: it rounds, and writes nothing past the end.
template <typename T> inline void store4(device T* p, uint i, uint n, bool wide, float4 v) {
  if (wide) {
    *(device vec<T, 4>*)(p + i) = vec<T, 4>(v);
    return;
  }
  for (uint j = 0; j < 4 && i + j < n; j++) p[i + j] = T(v[j]);
}

// threadgroup_sum adds up one number a thread in an order that only the
// number of simdgroups (at most 32) decides; every thread gets the sum.
// partial holds one float a simdgroup, and may be used again after a barrier.
inline float threadgroup_sum(float v, threadgroup float* partial, uint lane, uint simdgroup, uint simdgroups) {
  v = simd_sum(v);
  if (lane == 0) partial[simdgroup] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(lane < simdgroups ? partial[lane] : 0.0f);
}

// divide_exact gives a / b correctly rounded for normal results, also where the
// compiler makes a fast reciprocal of the division: the remainder of the first quotient
// is exact in an fma.
inline float divide_exact(float a, float b) {
  const float q = a / b;
  const float r = fma(-q, b, a);
  return fma(r, 1.0f / b, q);
}
