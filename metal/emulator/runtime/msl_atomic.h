// Atomics: relaxed is the only order that Metal 3.1 has.
#pragma once

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float; // of device memory only

} // namespace metal

namespace msl {

// atomic_access tells the checker of an atomic.
#if defined(CHECKED) && !defined(LINT)
void atomic_access(void *, uint bytes, bool update);
#else
METAL_FUNC void atomic_access(void *, uint, bool) {}
#endif

template <class P> using held = decltype(pointee<P>::value);

template <class T, class F> MSL_QUIET inline T exchange_value(volatile T *value, F f) {
  T before = *value;
  *value = f(before);
  return before;
}
template <class P, class F> METAL_FUNC held<P> exchange(P a, F f, bool update, const char *file, int line) {
#ifdef LINT
  return held<P>();
#else
  emulator::current->file = file;
  emulator::current->line = line;
  atomic_access((void *)&a->value, sizeof a->value, update);
  return exchange_value(&a->value, f);
#endif
}

struct Keep { template <class T> static T join(T a, T) { return a; } };
struct Replace { template <class T> static T join(T, T b) { return b; } };
struct Subtract { template <class T> static T join(T a, T b) { return (T)(a - b); } };

template <class F, class P, class U> METAL_FUNC held<P> change(P a, U v, bool update, const char *file, int line) {
  using T = held<P>;
  return exchange(a, [v](T old) { return F::join(old, (T)v); }, update, file, line);
}

} // namespace msl

namespace metal {

template <class P> METAL_FUNC msl::held<P> atomic_load_explicit(P a, memory_order, MSL_SITE) { return msl::change<msl::Keep>(a, 0, true, file, line); }
template <class P, class U> METAL_FUNC void atomic_store_explicit(P a, U v, memory_order, MSL_SITE) { msl::change<msl::Replace>(a, v, false, file, line); }
template <class P, class U> METAL_FUNC msl::held<P> atomic_exchange_explicit(P a, U v, memory_order, MSL_SITE) { return msl::change<msl::Replace>(a, v, true, file, line); }
template <class P, class U> METAL_FUNC bool atomic_compare_exchange_weak_explicit(P a, thread msl::held<P> *expected, U v, memory_order, memory_order, MSL_SITE) {
  using T = msl::held<P>;
  T wanted = *expected, old = msl::exchange(a, [=](T o) { return o == wanted ? (T)v : o; }, true, file, line);
  *expected = old;
  return old == wanted;
}
#define MSL_ATOMIC(name, F) \
  template <class P, class U> METAL_FUNC msl::held<P> name(P a, U v, memory_order, MSL_SITE) { return msl::change<msl::F>(a, v, true, file, line); }
MSL_ATOMIC(atomic_fetch_add_explicit, Add)
MSL_ATOMIC(atomic_fetch_sub_explicit, Subtract)
MSL_ATOMIC(atomic_fetch_max_explicit, Max)
MSL_ATOMIC(atomic_fetch_min_explicit, Min)
MSL_ATOMIC(atomic_fetch_and_explicit, And)
MSL_ATOMIC(atomic_fetch_or_explicit, Or)
MSL_ATOMIC(atomic_fetch_xor_explicit, Xor)

} // namespace metal
