// simdgroup_matrix: 8x8, two elements a lane. Lane l holds row (l/4 & 4) + l/2 % 4
// and columns (l/4 & 2)*2 + l%2*2 and the next: the layout that public Metal kernels
// rely on in thread_elements().
#pragma once

namespace msl {

METAL_FUNC uint matrix_row(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
METAL_FUNC uint matrix_column(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

// Elements of a lane pass between vectors and numbers as bits: vectors of two
// 16-bit floats go by way of the stack, and stall there.
template <class T> METAL_FUNC void spread(const vec<T, 2> &v, float *to) {
  uint32_t bits[sizeof(T) / 2];
  __builtin_memcpy(bits, &v, sizeof bits);
  if constexpr (std::is_same_v<T, bfloat>) {
    to[0] = __builtin_bit_cast(float, bits[0] << 16);
    to[1] = __builtin_bit_cast(float, bits[0] & 0xffff0000);
  } else {
    T e[2];
    __builtin_memcpy(e, bits, sizeof e);
    to[0] = (float)e[0];
    to[1] = (float)e[1];
  }
}
template <class T> METAL_FUNC void gather(vec<T, 2> &v, const float *from) {
  T e[2] = {(T)from[0], (T)from[1]};
  __builtin_memcpy(&v, e, sizeof e);
}

// MatrixProduct: the operands of d = a·b + c, and d in the place of c.
struct MatrixProduct {
  float a[8][8], b[8][8], c[8][8];
};
static_assert(sizeof(MatrixProduct) <= sizeof(emulator::Wave::exchange[0]));
void multiply(emulator::Wave &);

// Accesses of elements by the matrix unit, which the checker keeps apart from
// those of the lanes: only barriers order the two.
#if defined(CHECKED) && !defined(LINT)
void matrix_read(void *to, const void *from, uint bytes, uint lane);
void matrix_write(void *to, const void *from, uint bytes, uint lane);
#else
METAL_FUNC void matrix_read(void *to, const void *from, uint bytes, uint) { __builtin_memcpy(to, from, bytes); }
METAL_FUNC void matrix_write(void *to, const void *from, uint bytes, uint) { __builtin_memcpy(to, from, bytes); }
#endif

// transfer calls f with the lane's elements in memory; all lanes of the
// simdgroup have to give the same place.
template <class P, class F> METAL_FUNC void transfer(P place, ulong stride, ulong2 origin, bool transposed, const char *file, int line, F f) {
  emulator::Lane *me = emulator::current;
  me->file = file;
  me->line = line;
  emulator::follow((uint64_t)(uintptr_t)place + stride * 0x10001 + origin.x * 0x3000003 + origin.y * 0x500000005 + (uint64_t)line * 2 + transposed);
  if (me->index / 32 * 32 + 32 > emulator::group.lanes) emulator::fail("a matrix is loaded or stored by less than 32 threads, at %s:%d", file, line);
  ulong row = origin.y + matrix_row(me->lane), column = origin.x + matrix_column(me->lane);
  if (transposed) {
    f(place + (column * stride + row), place + ((column + 1) * stride + row), me->lane);
  } else {
    f(place + (row * stride + column), place + (row * stride + column + 1), me->lane);
  }
}

} // namespace msl

namespace metal {

template <class T, int Columns, int Rows> struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix is 8x8");
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat>, "simdgroup_matrix of float, half or bfloat");
  typedef vec<T, 2> storage_type;
  storage_type elements;

  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    uint lane = emulator::current->lane, row = msl::matrix_row(lane), column = msl::matrix_column(lane);
    elements[0] = row == column ? diagonal : (T)0;
    elements[1] = row == column + 1 ? diagonal : (T)0;
  }
  thread storage_type &thread_elements() thread { return elements; }
  const thread storage_type &thread_elements() const thread { return elements; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Columns, int Rows> METAL_FUNC simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.elements = value;
  return m;
}

template <class T, class P>
METAL_FUNC void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &m, P from, ulong stride = 8, ulong2 origin = 0, bool transposed = false, MSL_SITE) {
  static_assert(std::is_same_v<msl::pointee<P>, T>, "simdgroup_load: memory of another element type");
#ifndef LINT
  msl::transfer(from, stride, origin, transposed, file, line, [&](const T *a, const T *b, uint lane) __attribute__((always_inline)) {
    T e[2];
    if (b == a + 1) {
      msl::matrix_read(e, a, sizeof e, lane);
    } else {
      msl::matrix_read(e, a, sizeof(T), lane);
      msl::matrix_read(e + 1, b, sizeof(T), lane);
    }
    __builtin_memcpy(&m.elements, e, sizeof e);
  });
#endif
}

template <class T, class P>
METAL_FUNC void simdgroup_store(simdgroup_matrix<T, 8, 8> m, P to, ulong stride = 8, ulong2 origin = 0, bool transposed = false, MSL_SITE) {
  static_assert(std::is_same_v<msl::pointee<P>, T> && !std::is_const_v<std::remove_pointer_t<P>>, "simdgroup_store: memory of another element type, or constant");
#ifndef LINT
  msl::transfer(to, stride, origin, transposed, file, line, [&](T *a, T *b, uint lane) __attribute__((always_inline)) {
    T e[2];
    __builtin_memcpy(e, &m.elements, sizeof e);
    if (b == a + 1) {
      msl::matrix_write(a, e, sizeof e, lane);
    } else {
      msl::matrix_write(a, e, sizeof(T), lane);
      msl::matrix_write(b, e + 1, sizeof(T), lane);
    }
  });
#endif
}

// The operands may be of narrower types than the sums. Sums are f32 in the
// order of the inner index, rounded to D.
template <class D, class A, class B, class C>
METAL_FUNC void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, const thread simdgroup_matrix<A, 8, 8> &a, const thread simdgroup_matrix<B, 8, 8> &b,
                                              const thread simdgroup_matrix<C, 8, 8> &c, MSL_SITE) {
  emulator::Lane *me = emulator::current;
  auto &x = *(msl::MatrixProduct *)me->wave->operands();
  uint row = msl::matrix_row(me->lane), column = msl::matrix_column(me->lane);
  float *sum = &x.c[row][column];
  msl::spread(a.elements, &x.a[row][column]);
  msl::spread(b.elements, &x.b[row][column]);
  msl::spread(c.elements, sum);
  emulator::meet(msl::multiply, file, line);
  msl::gather(d.elements, sum);
}

template <class D, class A, class B>
METAL_FUNC void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &d, const thread simdgroup_matrix<A, 8, 8> &a, const thread simdgroup_matrix<B, 8, 8> &b, MSL_SITE) {
  simdgroup_matrix<D, 8, 8> zero;
  zero.elements = (D)0;
  simdgroup_multiply_accumulate(d, a, b, zero, file, line);
}

} // namespace metal
