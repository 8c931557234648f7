// Arithmetic functions. The overloads are no templates, as in Metal, so that
// a call with mixed types is as ambiguous as there. There are none for bfloat:
// deleted ones keep it from becoming a float unasked.
#pragma once

namespace metal {

#define MSL_EACH(M, T) M(T, 2) M(T, 3) M(T, 4)

#define MSL_ONE(T, name, value) \
  METAL_FUNC T name(T x) {      \
    float v = (float)x;         \
    return (T)(value);          \
  }
#define MSL_ONE_VECTOR(T, N, name)                      \
  METAL_FUNC T##N name(T##N x) {                        \
    T##N r;                                             \
    for (int i = 0; i < N; i++) r[i] = name((T)x[i]);   \
    return r;                                           \
  }
#define MSL_FUNCTION(name, value)                                                                  \
  bfloat name(bfloat) = delete;                                                                  \
  MSL_ONE(float, name, value)                                                                      \
  MSL_ONE(half, name, value)                                                                       \
  MSL_ONE_VECTOR(float, 2, name)                                                                   \
  MSL_ONE_VECTOR(float, 3, name)                                                                   \
  MSL_ONE_VECTOR(float, 4, name)                                                                   \
  MSL_ONE_VECTOR(half, 2, name)                                                                    \
  MSL_ONE_VECTOR(half, 3, name)                                                                    \
  MSL_ONE_VECTOR(half, 4, name)

// Functions that have a fast:: and a precise:: form.
#define MSL_APPROXIMATE(X)                  \
  X(exp, __builtin_expf(v))                 \
  X(exp2, __builtin_exp2f(v))               \
  X(exp10, __builtin_powf(10.0f, v))        \
  X(log, __builtin_logf(v))                 \
  X(log2, __builtin_log2f(v))               \
  X(log10, __builtin_log10f(v))             \
  X(sqrt, __builtin_sqrtf(v))               \
  X(rsqrt, 1.0f / __builtin_sqrtf(v))       \
  X(sin, __builtin_sinf(v))                 \
  X(cos, __builtin_cosf(v))                 \
  X(tan, __builtin_tanf(v))                 \
  X(asin, __builtin_asinf(v))               \
  X(acos, __builtin_acosf(v))               \
  X(atan, __builtin_atanf(v))               \
  X(sinh, __builtin_sinhf(v))               \
  X(cosh, __builtin_coshf(v))               \
  X(tanh, __builtin_tanhf(v))               \
  X(floor, __builtin_floorf(v))             \
  X(ceil, __builtin_ceilf(v))               \
  X(trunc, __builtin_truncf(v))             \
  X(rint, __builtin_rintf(v))               \
  X(round, __builtin_roundf(v))             \
  X(fract, v - __builtin_floorf(v))         \
  X(fabs, __builtin_fabsf(v))               \
  X(sign, v > 0 ? 1.0f : v < 0 ? -1.0f : v) \
  X(saturate, v < 0 ? 0.0f : v > 1 ? 1.0f : v)
MSL_APPROXIMATE(MSL_FUNCTION)

#define MSL_TWO(T, name, value)        \
  METAL_FUNC T name(T x, T y) {        \
    float a = (float)x, b = (float)y;  \
    return (T)(value);                 \
  }
#define MSL_TWO_VECTOR(T, N, name)                                \
  METAL_FUNC T##N name(T##N x, T##N y) {                          \
    T##N r;                                                       \
    for (int i = 0; i < N; i++) r[i] = name((T)x[i], (T)y[i]);    \
    return r;                                                     \
  }
#define MSL_FUNCTION2(name, value)      \
  bfloat name(bfloat, bfloat) = delete; \
  MSL_TWO(float, name, value)      \
  MSL_TWO(half, name, value)       \
  MSL_TWO_VECTOR(float, 2, name)   \
  MSL_TWO_VECTOR(float, 3, name)   \
  MSL_TWO_VECTOR(float, 4, name)   \
  MSL_TWO_VECTOR(half, 2, name)    \
  MSL_TWO_VECTOR(half, 3, name)    \
  MSL_TWO_VECTOR(half, 4, name)
MSL_FUNCTION2(pow, __builtin_powf(a, b))
MSL_FUNCTION2(powr, __builtin_powf(a, b))
MSL_FUNCTION2(fmod, __builtin_fmodf(a, b))
MSL_FUNCTION2(atan2, __builtin_atan2f(a, b))
MSL_FUNCTION2(fmax, __builtin_fmaxf(a, b))
MSL_FUNCTION2(fmin, __builtin_fminf(a, b))
MSL_FUNCTION2(copysign, __builtin_copysignf(a, b))
MSL_FUNCTION2(step, b < a ? 0.0f : 1.0f)

#define MSL_ORDER(T)                                         \
  METAL_FUNC T max(T a, T b) { return a < b ? b : a; }       \
  METAL_FUNC T min(T a, T b) { return b < a ? b : a; }       \
  METAL_FUNC T clamp(T x, T low, T high) { return min(max(x, low), high); }
#define MSL_ORDER_VECTOR(T, N)                                                                  \
  METAL_FUNC T##N max(T##N a, T##N b) {                                                         \
    return a < b ? b : a;                                                                       \
  }                                                                                             \
  METAL_FUNC T##N min(T##N a, T##N b) {                                                         \
    return b < a ? b : a;                                                                       \
  }                                                                                             \
  METAL_FUNC T##N clamp(T##N x, T##N low, T##N high) { return min(max(x, low), high); }
#define MSL_ORDERS(T) MSL_ORDER(T) MSL_EACH(MSL_ORDER_VECTOR, T)
MSL_ORDERS(char)
MSL_ORDERS(uchar)
MSL_ORDERS(short)
MSL_ORDERS(ushort)
MSL_ORDERS(int)
MSL_ORDERS(uint)
MSL_ORDERS(long)
MSL_ORDERS(ulong)
MSL_ORDERS(float)
MSL_ORDERS(half)
bfloat max(bfloat, bfloat) = delete;
bfloat min(bfloat, bfloat) = delete;
bfloat clamp(bfloat, bfloat, bfloat) = delete;
bfloat abs(bfloat) = delete;
bfloat fma(bfloat, bfloat, bfloat) = delete;

#define MSL_ABS(T) \
  METAL_FUNC T abs(T a) { return a < (T)0 ? (T)-a : a; }
#define MSL_ABS_VECTOR(T, N)                                                 \
  METAL_FUNC T##N abs(T##N a) {                                              \
    T##N r;                                                                  \
    for (int i = 0; i < N; i++) r[i] = a[i] < (T)0 ? (T)-a[i] : a[i];        \
    return r;                                                                \
  }
#define MSL_ABSES(T) MSL_ABS(T) MSL_EACH(MSL_ABS_VECTOR, T)
MSL_ABSES(char)
MSL_ABSES(short)
MSL_ABSES(int)
MSL_ABSES(long)
MSL_ABSES(float)
MSL_ABSES(half)

METAL_FUNC float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
METAL_FUNC half fma(half a, half b, half c) { return (half)__builtin_fmaf(a, b, c); }
#define MSL_FMA(T, N) \
  METAL_FUNC T##N fma(T##N a, T##N b, T##N c) { return __builtin_elementwise_fma(a, b, c); }
MSL_EACH(MSL_FMA, float)
MSL_EACH(MSL_FMA, half)

METAL_FUNC float sincos(float x, thread float &c) {
  c = __builtin_cosf(x);
  return __builtin_sinf(x);
}
METAL_FUNC float mix(float a, float b, float t) { return a + (b - a) * t; }
METAL_FUNC float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }
METAL_FUNC float frexp(float x, thread int &e) { return __builtin_frexpf(x, &e); }
METAL_FUNC bool isnan(float x) { return __builtin_isnan(x); }
METAL_FUNC bool isnan(half x) { return x != x; }
METAL_FUNC bool isinf(float x) { return __builtin_isinf(x); }
METAL_FUNC bool isinf(half x) { return __builtin_isinf((float)x); }
METAL_FUNC bool isfinite(float x) { return __builtin_isfinite(x); }
METAL_FUNC bool isfinite(half x) { return __builtin_isfinite((float)x); }
METAL_FUNC bool signbit(float x) { return __builtin_signbit(x); }

#define MSL_DOT(T, N)                                  \
  METAL_FUNC T dot(T##N a, T##N b) {                   \
    T s = 0;                                           \
    for (int i = 0; i < N; i++) s += a[i] * b[i];      \
    return s;                                          \
  }
MSL_EACH(MSL_DOT, float)
MSL_EACH(MSL_DOT, half)

#define MSL_SELECT(T) \
  METAL_FUNC T select(T a, T b, bool c) { return c ? b : a; }
MSL_SELECT(int)
MSL_SELECT(uint)
MSL_SELECT(float)
MSL_SELECT(half)
#define MSL_SELECT_VECTOR(T, N)                                   \
  METAL_FUNC T##N select(T##N a, T##N b, bool##N c) {             \
    T##N r;                                                       \
    for (int i = 0; i < N; i++) r[i] = c[i] ? b[i] : a[i];        \
    return r;                                                     \
  }
MSL_EACH(MSL_SELECT_VECTOR, int)
MSL_EACH(MSL_SELECT_VECTOR, uint)
MSL_EACH(MSL_SELECT_VECTOR, float)
MSL_EACH(MSL_SELECT_VECTOR, half)
#define MSL_ALL(T, N)                                  \
  METAL_FUNC bool all(T##N v) {                        \
    bool r = true;                                     \
    for (int i = 0; i < N; i++) r = r && v[i];         \
    return r;                                          \
  }                                                    \
  METAL_FUNC bool any(T##N v) {                        \
    bool r = false;                                    \
    for (int i = 0; i < N; i++) r = r || v[i];         \
    return r;                                          \
  }
MSL_EACH(MSL_ALL, bool)

METAL_FUNC uint popcount(uint x) { return uint(__builtin_popcount(x)); }
METAL_FUNC ulong popcount(ulong x) { return ulong(__builtin_popcountl(x)); }
METAL_FUNC int popcount(int x) { return __builtin_popcount(uint(x)); }
METAL_FUNC uint clz(uint x) { return x ? uint(__builtin_clz(x)) : 32; }
METAL_FUNC int clz(int x) { return x ? __builtin_clz(uint(x)) : 32; }
METAL_FUNC ulong clz(ulong x) { return x ? ulong(__builtin_clzl(x)) : 64; }
METAL_FUNC uint ctz(uint x) { return x ? uint(__builtin_ctz(x)) : 32; }
METAL_FUNC int ctz(int x) { return x ? __builtin_ctz(uint(x)) : 32; }
METAL_FUNC ulong ctz(ulong x) { return x ? ulong(__builtin_ctzl(x)) : 64; }
METAL_FUNC uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
METAL_FUNC uint extract_bits(uint x, uint offset, uint bits) { return bits == 0 ? 0 : (x >> offset) & uint((1ull << bits) - 1); }
METAL_FUNC uint mulhi(uint a, uint b) { return uint(((ulong)a * b) >> 32); }
METAL_FUNC uint rotate(uint x, uint n) {
  n &= 31;
  return n ? (x << n) | (x >> (32 - n)) : x;
}

#define MSL_FORWARD1(T, name) \
  METAL_FUNC T name(T x) { return ::metal::name(x); }
#define MSL_FORWARD(name, value) \
  MSL_FORWARD1(float, name)      \
  MSL_FORWARD1(half, name)       \
  MSL_FORWARD1(float2, name)     \
  MSL_FORWARD1(float3, name)     \
  MSL_FORWARD1(float4, name)
#define MSL_FORWARD2(name) \
  METAL_FUNC float name(float a, float b) { return ::metal::name(a, b); }
#define MSL_FORMS                                                                           \
  MSL_APPROXIMATE(MSL_FORWARD)                                                              \
  MSL_FORWARD2(pow)                                                                         \
  MSL_FORWARD2(powr)                                                                        \
  MSL_FORWARD2(fmod)                                                                        \
  MSL_FORWARD2(fmax)                                                                        \
  MSL_FORWARD2(fmin)                                                                        \
  MSL_FORWARD2(max)                                                                         \
  MSL_FORWARD2(min)                                                                         \
  METAL_FUNC float clamp(float x, float low, float high) { return ::metal::clamp(x, low, high); } \
  METAL_FUNC float divide(float a, float b) { return a / b; }                               \
  METAL_FUNC float sincos(float x, thread float &c) { return ::metal::sincos(x, c); }
namespace fast {
MSL_FORMS
}
namespace precise {
MSL_FORMS
}

} // namespace metal
