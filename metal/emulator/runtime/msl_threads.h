// Barriers and operations of a simdgroup or a quad. Lanes meet; the last one to
// arrive does the operation, or each takes what it needs from the operands.
#pragma once

#define MSL_QUIET __attribute__((no_sanitize("thread")))

namespace metal {

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
METAL_FUNC constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }

} // namespace metal

namespace msl {

static_assert((uint)metal::mem_flags::mem_device == emulator::of_device && (uint)metal::mem_flags::mem_threadgroup == emulator::of_group);

template <uint flags> inline void order(emulator::Wave &w) {
  uint32_t active = w.active();
  emulator::check::join(w.index, &active, 1, flags);
}

// Kinds of meetings: a function for each, whose address tells them apart. It
// keeps who met: lanes may have left when another comes to its results.
enum Kind { shuffle, shuffle_down, shuffle_up, broadcast, first, ballot, quad };
constexpr unsigned met_at = sizeof(emulator::Wave::exchange[0]) - sizeof(uint32_t);
template <Kind> MSL_QUIET inline void none(emulator::Wave &w) { *(uint32_t *)((uint8_t *)w.operands() + met_at) = w.active(); }

// Met holds the operands of the lanes that met.
template <class T> struct Met {
  const T *value;
  uint32_t active;
  uint me;
  T of(uint lane) const {
    if (lane >= 32 || !(active >> lane & 1)) emulator::fail("thread %u reads lane %u, which is no active lane of its simdgroup, at %s:%d", emulator::current->index, lane, emulator::current->file, emulator::current->line);
    return value[lane];
  }
};
template <Kind kind, class T> METAL_FUNC Met<T> meet(T v, const char *file, int line) {
  static_assert(sizeof(T) * 32 <= met_at);
  emulator::Lane *me = emulator::current;
  T *x = (T *)me->wave->operands();
  x[me->lane] = v;
  emulator::meet(none<kind>, file, line);
  return {x, *(uint32_t *)((uint8_t *)x + met_at), me->lane};
}

// Joins of all lanes, in the order of a butterfly; exited lanes are left out.
struct Add { template <class T> static T join(T a, T b) { return (T)(a + b); } };
struct Multiply { template <class T> static T join(T a, T b) { return (T)(a * b); } };
struct Max { template <class T> static T join(T a, T b) { return metal::max(a, b); } };
struct Min { template <class T> static T join(T a, T b) { return metal::min(a, b); } };
struct And { template <class T> static T join(T a, T b) { return (T)(a & b); } };
struct Or { template <class T> static T join(T a, T b) { return (T)(a | b); } };
struct Xor { template <class T> static T join(T a, T b) { return (T)(a ^ b); } };

template <class T, class F> MSL_QUIET inline void reduce_lanes(emulator::Wave &w) {
  T *x = (T *)w.operands();
  uint32_t active = w.active();
  for (uint m = 16; m; m >>= 1) {
    T y[32];
    if (active == ~0u) {
      for (uint i = 0; i < 32; i++) y[i] = F::join(x[i], x[i ^ m]);
    } else {
      uint32_t joined = active;
      for (uint i = 0; i < 32; i++) {
        bool a = active >> i & 1, b = active >> (i ^ m) & 1;
        y[i] = a && b ? F::join(x[i], x[i ^ m]) : b ? x[i ^ m] : x[i];
        if (b) joined |= 1u << i;
      }
      active = joined;
    }
    __builtin_memcpy(x, y, sizeof y);
  }
}
template <class F, class T> METAL_FUNC T reduce(T v, const char *file, int line) {
  emulator::Lane *me = emulator::current;
  T *x = (T *)me->wave->operands();
  x[me->lane] = v;
  emulator::meet(reduce_lanes<T, F>, file, line);
  return x[me->lane];
}

template <class T, class F, bool inclusive> MSL_QUIET inline void scan_lanes(emulator::Wave &w) {
  T *x = (T *)w.operands(), sum = F::template identity<T>();
  for (uint i = 0; i < 32; i++) {
    if (!(w.active() >> i & 1)) continue;
    T next = F::join(sum, x[i]);
    x[i] = inclusive ? next : sum;
    sum = next;
  }
}
struct AddFrom : Add { template <class T> static T identity() { return (T)0; } };
struct MultiplyFrom : Multiply { template <class T> static T identity() { return (T)1; } };
template <class F, bool inclusive, class T> METAL_FUNC T scan(T v, const char *file, int line) {
  emulator::Lane *me = emulator::current;
  T *x = (T *)me->wave->operands();
  x[me->lane] = v;
  emulator::meet(scan_lanes<T, F, inclusive>, file, line);
  return x[me->lane];
}

} // namespace msl

namespace metal {

METAL_FUNC void threadgroup_barrier(mem_flags f, MSL_SITE) {
  emulator::barrier(0, emulator::group.lanes, (uint)f & emulator::of_all, file, line);
  asm volatile("" ::: "memory");
}
METAL_FUNC void simdgroup_barrier(mem_flags f, MSL_SITE) {
  using namespace msl;
  void (*const orders[])(emulator::Wave &) = {order<0>, order<1>, order<2>, order<3>};
  emulator::meet(orders[(uint)f & emulator::of_all], file, line);
  asm volatile("" ::: "memory");
}

template <class T> METAL_FUNC T simd_sum(T v, MSL_SITE) { return msl::reduce<msl::Add>(v, file, line); }
template <class T> METAL_FUNC T simd_product(T v, MSL_SITE) { return msl::reduce<msl::Multiply>(v, file, line); }
template <class T> METAL_FUNC T simd_max(T v, MSL_SITE) { return msl::reduce<msl::Max>(v, file, line); }
template <class T> METAL_FUNC T simd_min(T v, MSL_SITE) { return msl::reduce<msl::Min>(v, file, line); }
template <class T> METAL_FUNC T simd_and(T v, MSL_SITE) { return msl::reduce<msl::And>(v, file, line); }
template <class T> METAL_FUNC T simd_or(T v, MSL_SITE) { return msl::reduce<msl::Or>(v, file, line); }
template <class T> METAL_FUNC T simd_xor(T v, MSL_SITE) { return msl::reduce<msl::Xor>(v, file, line); }
METAL_FUNC bool simd_all(bool v, MSL_SITE) { return msl::reduce<msl::And>((int)v, file, line); }
METAL_FUNC bool simd_any(bool v, MSL_SITE) { return msl::reduce<msl::Or>((int)v, file, line); }

template <class T> METAL_FUNC T simd_shuffle(T v, ushort lane, MSL_SITE) { return msl::meet<msl::shuffle>(v, file, line).of(lane); }
template <class T> METAL_FUNC T simd_shuffle_xor(T v, ushort mask, MSL_SITE) {
  auto m = msl::meet<msl::shuffle>(v, file, line);
  return m.of(m.me ^ mask);
}
// Past the end of the simdgroup lies anything: Metal says that it is undefined.
template <class T> METAL_FUNC T simd_shuffle_down(T v, ushort delta, MSL_SITE) {
  auto m = msl::meet<msl::shuffle_down>(v, file, line);
  if (m.me + delta < 32) return m.of(m.me + delta);
  T undefined;
  __builtin_memset((void *)&undefined, 0xff, sizeof undefined);
  return undefined;
}
template <class T> METAL_FUNC T simd_shuffle_up(T v, ushort delta, MSL_SITE) {
  auto m = msl::meet<msl::shuffle_up>(v, file, line);
  if (m.me >= delta) return m.of(m.me - delta);
  T undefined;
  __builtin_memset((void *)&undefined, 0xff, sizeof undefined);
  return undefined;
}
template <class T> METAL_FUNC T simd_shuffle_and_fill_down(T v, T fill, ushort delta, MSL_SITE) {
  auto m = msl::meet<msl::shuffle_down>(v, file, line);
  return m.me + delta < 32 ? m.of(m.me + delta) : fill;
}
template <class T> METAL_FUNC T simd_shuffle_and_fill_up(T v, T fill, ushort delta, MSL_SITE) {
  auto m = msl::meet<msl::shuffle_up>(v, file, line);
  return m.me >= delta ? m.of(m.me - delta) : fill;
}
template <class T> METAL_FUNC T simd_broadcast(T v, ushort lane, MSL_SITE) { return msl::meet<msl::broadcast>(v, file, line).of(lane); }
template <class T> METAL_FUNC T simd_broadcast_first(T v, MSL_SITE) {
  auto m = msl::meet<msl::first>(v, file, line);
  return m.of((uint)__builtin_ctz(m.active));
}
METAL_FUNC bool simd_is_first(MSL_SITE) {
  auto m = msl::meet<msl::first>(0, file, line);
  return m.me == (uint)__builtin_ctz(m.active);
}

template <class T> METAL_FUNC T simd_prefix_inclusive_sum(T v, MSL_SITE) { return msl::scan<msl::AddFrom, true>(v, file, line); }
template <class T> METAL_FUNC T simd_prefix_exclusive_sum(T v, MSL_SITE) { return msl::scan<msl::AddFrom, false>(v, file, line); }
template <class T> METAL_FUNC T simd_prefix_inclusive_product(T v, MSL_SITE) { return msl::scan<msl::MultiplyFrom, true>(v, file, line); }
template <class T> METAL_FUNC T simd_prefix_exclusive_product(T v, MSL_SITE) { return msl::scan<msl::MultiplyFrom, false>(v, file, line); }

class simd_vote {
public:
  typedef ulong vote_t;
  explicit simd_vote(vote_t v = 0) : votes(v) {}
  explicit operator vote_t() const { return votes; }
  bool all() const { return votes == 0xffffffff; }
  bool any() const { return votes != 0; }

private:
  vote_t votes;
};
METAL_FUNC simd_vote simd_ballot(bool v, MSL_SITE) {
  auto m = msl::meet<msl::ballot>((uint)v, file, line);
  ulong votes = 0;
  for (uint i = 0; i < 32; i++)
    if (m.active >> i & 1) votes |= (ulong)m.value[i] << i;
  return simd_vote(votes);
}
METAL_FUNC simd_vote simd_active_threads_mask(MSL_SITE) { return simd_vote(msl::meet<msl::ballot>(0u, file, line).active); }

// Quads: 4 lanes from a multiple of 4 on. All lanes of the simdgroup meet.
template <class T> METAL_FUNC T quad_shuffle_xor(T v, ushort mask, MSL_SITE) {
  auto m = msl::meet<msl::quad>(v, file, line);
  return m.of((m.me & ~3u) | ((m.me ^ mask) & 3));
}
template <class T> METAL_FUNC T quad_shuffle(T v, ushort lane, MSL_SITE) {
  auto m = msl::meet<msl::quad>(v, file, line);
  return m.of((m.me & ~3u) | (lane & 3));
}
template <class T> METAL_FUNC T quad_broadcast(T v, ushort lane, MSL_SITE) {
  auto m = msl::meet<msl::quad>(v, file, line);
  return m.of((m.me & ~3u) | (lane & 3));
}
template <class F, class T> METAL_FUNC T msl_quad(T v, const char *file, int line) {
  auto m = msl::meet<msl::quad>(v, file, line);
  uint q = m.me & ~3u;
  return F::join(F::join(m.of(q), m.of(q + 2)), F::join(m.of(q + 1), m.of(q + 3)));
}
template <class T> METAL_FUNC T quad_sum(T v, MSL_SITE) { return msl_quad<msl::Add>(v, file, line); }
template <class T> METAL_FUNC T quad_max(T v, MSL_SITE) { return msl_quad<msl::Max>(v, file, line); }
template <class T> METAL_FUNC T quad_min(T v, MSL_SITE) { return msl_quad<msl::Min>(v, file, line); }

} // namespace metal
