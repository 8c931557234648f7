// Scalars and vectors. clang's extended vectors have Metal's swizzles and
// rules of conversion; only constructors and casts between vectors are missing,
// which the rewriter turns into mk and cast.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;

namespace metal {
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
}

#define MSL_VECTORS(T)                              \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_VECTORS(char)
MSL_VECTORS(uchar)
MSL_VECTORS(short)
MSL_VECTORS(ushort)
MSL_VECTORS(int)
MSL_VECTORS(uint)
MSL_VECTORS(long)
MSL_VECTORS(ulong)
MSL_VECTORS(float)
MSL_VECTORS(half)
MSL_VECTORS(bfloat)
MSL_VECTORS(bool)

namespace msl {

using metal::vec;

// Shape tells the element type and the number of elements of a vector.
template <class V> struct Shape {
  using T = V;
  static constexpr int N = 1;
  static constexpr bool vector = false;
};
template <class E, int M> struct Shape<E __attribute__((ext_vector_type(M)))> {
  using T = E;
  static constexpr int N = M;
  static constexpr bool vector = true;
};

template <class T> struct Plain { using type = T; };
#ifdef LINT
template <class T> struct Plain<__attribute__((address_space(1))) T> { using type = T; };
template <class T> struct Plain<__attribute__((address_space(2))) T> { using type = T; };
template <class T> struct Plain<__attribute__((address_space(3))) T> { using type = T; };
#endif
// pointee is what a pointer points to, without address space and qualifiers.
template <class P> using pointee = std::remove_cv_t<typename Plain<std::remove_cv_t<std::remove_pointer_t<P>>>::type>;

template <class T> constexpr bool number = std::is_arithmetic_v<T> || std::is_same_v<T, half> || std::is_same_v<T, bfloat>;

// convert one number; between half and bfloat by way of float.
template <class D, class S> METAL_FUNC D convert(S s) {
  if constexpr (std::is_same_v<std::remove_cv_t<S>, bfloat> || std::is_same_v<D, bfloat>)
    return (D)(float)s;
  else
    return (D)s;
}

template <class V, int I, class A> METAL_FUNC void put(V &v, A a) {
  using T = typename Shape<V>::T;
  if constexpr (Shape<A>::vector) {
    for (int i = 0; i < Shape<A>::N; i++) v[I + i] = convert<T>((typename Shape<A>::T)a[i]);
  } else {
    v[I] = convert<T>(a);
  }
}
template <class V, int I> METAL_FUNC void fill(V &) { static_assert(I == Shape<V>::N, "wrong number of vector components"); }
template <class V, int I, class A, class... R> METAL_FUNC void fill(V &v, A a, R... r) {
  put<V, I>(v, a);
  fill<V, I + Shape<A>::N>(v, r...);
}

// mk is V(...): of a vector a splat, a conversion, or a concatenation.
template <class V> METAL_FUNC V mk() { return V{}; }
template <class V, class A> METAL_FUNC V mk(A a) {
  if constexpr (requires { typename A::unpacked; }) {
    return mk<V>((typename A::unpacked)a);
  } else if constexpr (Shape<V>::vector && Shape<A>::vector) {
    static_assert(Shape<V>::N == Shape<A>::N, "wrong number of vector components");
    constexpr bool between = std::is_same_v<typename Shape<V>::T, bfloat> || std::is_same_v<typename Shape<A>::T, bfloat>;
    if constexpr (between)
      return __builtin_convertvector(__builtin_convertvector(a, vec<float, Shape<V>::N>), V);
    else
      return __builtin_convertvector(a, V);
  } else if constexpr (Shape<V>::vector) {
    return (V)convert<typename Shape<V>::T>(a);
  } else if constexpr (number<V>) {
    static_assert(!Shape<A>::vector, "a vector is no number");
    return convert<V>(a);
  } else {
    return V(a);
  }
}
template <class V, class A, class B, class... R> METAL_FUNC V mk(A a, B b, R... r) {
  if constexpr (Shape<V>::vector) {
    V v;
    fill<V, 0>(v, a, b, r...);
    return v;
  } else {
    return V(a, b, r...);
  }
}

// cast<D>{}->*x is (D)x.
template <class D> struct cast {};
template <class D, class S> METAL_FUNC D operator->*(cast<D>, const S &s) {
  if constexpr (Shape<D>::vector || number<D>)
    return mk<D>(s);
  else
    return (D)s;
}

// packed is a vector with the alignment of its elements.
template <class T, int N> struct packed {
  using unpacked = vec<T, N>;
  T e[N];
  packed() = default;
  packed(unpacked v) {
    for (int i = 0; i < N; i++) e[i] = v[i];
  }
  operator unpacked() const {
    unpacked v;
    for (int i = 0; i < N; i++) v[i] = e[i];
    return v;
  }
  T &operator[](int i) { return e[i]; }
  const T &operator[](int i) const { return e[i]; }
};

} // namespace msl

#define MSL_PACKED(T)                      \
  typedef msl::packed<T, 2> packed_##T##2; \
  typedef msl::packed<T, 3> packed_##T##3; \
  typedef msl::packed<T, 4> packed_##T##4;
MSL_PACKED(char)
MSL_PACKED(uchar)
MSL_PACKED(short)
MSL_PACKED(ushort)
MSL_PACKED(int)
MSL_PACKED(uint)
MSL_PACKED(float)
MSL_PACKED(half)
MSL_PACKED(bfloat)

inline constexpr half operator""h(long double v) { return (half)v; }
inline constexpr half operator""h(unsigned long long v) { return (half)v; }

namespace metal {
using std::conditional;
using std::conditional_t;
using std::enable_if;
using std::enable_if_t;
using std::false_type;
using std::integral_constant;
using std::is_floating_point;
using std::is_integral;
using std::is_integral_v;
using std::is_same;
using std::is_same_v;
using std::numeric_limits;
using std::remove_const_t;
using std::remove_cv_t;
using std::remove_reference_t;
using std::true_type;

template <class D, class S> METAL_FUNC D as_type(S s) {
  static_assert(sizeof(D) == sizeof(S), "as_type: different sizes");
  D d;
  __builtin_memcpy(&d, &s, sizeof(D));
  return d;
}
} // namespace metal

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX ((half)65504.0f)
#define M_PI_F 3.14159265358979323846f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_SQRT2_F 1.41421356237309504880f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f
#define CHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
