// What Apple's compiler refuses, or fast math breaks, one fault for each FAULT.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

struct Params {
  uint n;
};
static float first(const device float* p) { return p[0]; }
static float first_of_thread(const thread float* p) { return p[0]; }
template <typename T> inline float as_float(T v) { return float(v); }
constant constexpr float table[2] = {1.0f, 2.0f};
#if FAULT == 20
threadgroup float outside[4];
#elif FAULT == 21
constant bool option [[function_constant(0)]];
#elif FAULT == 22
static float helper() { threadgroup float s[4]; return s[0]; }
#endif

kernel void lint(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant Params& p [[buffer(2)]],
                 uint t [[thread_position_in_threadgroup]], device const bfloat* b [[buffer(3)]], device const Params* list [[buffer(4)]]
#if FAULT == 30
                 , device float* z [[buffer(1)]]
#elif FAULT == 31
                 , device float* z
#elif FAULT == 32
                 , uint3 group [[threadgroup_position_in_grid]]
#elif FAULT == 33
                 , device float* z [[buffer(31)]]
#elif FAULT == 34
                 , float4 color [[stage_in]]
#elif FAULT == 35
                 , threadgroup float* z [[buffer(5)]], thread float* w [[threadgroup(0)]]
#endif
) {
  threadgroup float s[32];
  threadgroup float *second = s + 1, *third = s + 2;
  float own[4] = {1.0f};
  device const float* a = x;
  y[0] = first(a) + first_of_thread(own) + table[t % 2] + as_float(b[0]) + float(list[1].n + p.n) + second[0] + third[0];
  const float4 v = *(device const float4*)(x + 4);
  y[1] = dot(v, float4(1.0f)) + float(bfloat4(v).x) + fast::exp(v.y);
  s[t] = simd_sum(x[t]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<bfloat, 8, 8> m;
  simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(m, b, 8);
  simdgroup_multiply_accumulate(sum, m, m, sum);
  simdgroup_store(sum, y, p.n, ulong2(0, 0), true);
  threadgroup atomic_uint counter;
  atomic_store_explicit(&counter, 1u, memory_order_relaxed);
#if FAULT == 1
  const float* q = x;
  y[1] = q[0];
#elif FAULT == 2
  y[2] = first_of_thread(x);
#elif FAULT == 3
  y[3] = first(s);
#elif FAULT == 4
  double d = 1;
  y[0] = d;
#elif FAULT == 5
  bfloat narrow = y[0];
  y[1] = narrow;
#elif FAULT == 6
  y[0] = max(x[0], t);
#elif FAULT == 7
  half4 h = float4(1.0f);
  y[0] = h.x;
#elif FAULT == 8
  y[0] = fmax(x[0], half(1));
#elif FAULT == 9
  x[0] = 1;
#elif FAULT == 10
  simdgroup_matrix<float, 8, 8> other;
  simdgroup_load(other, (device const half*)x, 8);
#elif FAULT == 11
  goto end;
end:
  y[0] = 1;
#elif FAULT == 12
  y[0] = float4(1.0f, 2.0f).x;
#elif FAULT == 13
  y[0] = x[0] == INFINITY ? 1 : 0;
#elif FAULT == 14
  y[0] = isnan(x[0]) ? 1 : 0;
#elif FAULT == 15
  y[0] = float(exp(b[0]));
#elif FAULT == 16
  atomic_store_explicit(&counter, 1u, memory_order_release);
#elif FAULT == 17
  threadgroup float* wrong = y;
#elif FAULT == 18
  simdgroup_store(sum, x, 8);
#elif FAULT == 19
  simdgroup_load(sum, p, 8);
#elif FAULT == 23
  threadgroup float set[2] = {1.0f, 2.0f};
#elif FAULT == 24
  y[0] = undeclared(x[0]);
#elif FAULT == 25
  device float* lost = new float[4];
#elif FAULT == 26
  float4 w = v;
  w = int4(1);
#elif FAULT == 27
  y[0] = as_type<half>(x[0]);
#elif FAULT == 28
  p.n = 1;
#elif FAULT == 29
  simdgroup_multiply_accumulate(m, m, v, m);
#elif FAULT == 36
  y[0] = sum.thread_elements()[0];
#endif
}
