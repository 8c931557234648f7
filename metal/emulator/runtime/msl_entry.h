// Entry points: the types of a kernel's parameters come from its own type, so
// the rewriter only has to tell their attributes, in order.
#pragma once

namespace msl {

constexpr int slots = 31;

// Arguments of a dispatch.
struct Arguments {
  void *buffer[slots], *threadgroup_memory[slots];
  uint threads[3]; // in a threadgroup
};

enum Attribute : int {
  attribute_buffer,
  attribute_threadgroup,
  attribute_thread_position_in_grid,
  attribute_thread_position_in_threadgroup,
  attribute_threadgroup_position_in_grid,
  attribute_threads_per_threadgroup,
  attribute_threadgroups_per_grid,
  attribute_threads_per_grid,
  attribute_thread_index_in_simdgroup,
  attribute_simdgroup_index_in_threadgroup,
  attribute_thread_index_in_threadgroup,
  attribute_simdgroups_per_threadgroup,
  attribute_threads_per_simdgroup,
};
template <Attribute A, int I = 0> struct Par {
  static constexpr Attribute attribute = A;
  static constexpr int index = I;
};
template <class... A> struct Pars {};

// Binding is what the emulator tells of a parameter.
struct Binding {
  int attribute, index;
  int size;  // of the element or struct
  bool writable, reference;
};

struct Entry {
  const char *name;
  void (*run)(const Arguments &);
  const Binding *bindings;
  int count;
  uint most_threads;
  Entry *next;
};
void enter(Entry *);

// variable is memory of the threadgroup; site numbers the declaration.
#ifdef LINT
template <class T> threadgroup T &variable(uint site, const char *name, uint alignment = alignof(T));
#else
void *variable(uint site, uint bytes, uint alignment, const char *name);
template <class T> METAL_FUNC T &variable(uint site, const char *name, uint alignment = alignof(T)) { return *(T *)variable(site, sizeof(T), alignment, name); }
#endif

template <class P> METAL_FUNC P three(uint x, uint y, uint z) {
  uint v[3] = {x, y, z};
  if constexpr (Shape<P>::vector) {
    P r;
    for (int i = 0; i < Shape<P>::N; i++) r[i] = (typename Shape<P>::T)v[i];
    return r;
  } else {
    return (P)x;
  }
}

#ifndef LINT
template <class P, class K> METAL_FUNC P argument(const Arguments &a) {
  const auto &g = emulator::group;
  uint i = emulator::current->index, x = i % a.threads[0], y = i / a.threads[0] % a.threads[1], z = i / a.threads[0] / a.threads[1];
  constexpr Attribute k = K::attribute;
  if constexpr (k == attribute_buffer || k == attribute_threadgroup) {
    void *p = k == attribute_buffer ? a.buffer[K::index] : a.threadgroup_memory[K::index];
    if constexpr (std::is_reference_v<P>)
      return *(std::remove_reference_t<P> *)p;
    else
      return (P)p;
  } else if constexpr (k == attribute_thread_position_in_grid) {
    return three<P>(g.index[0] * a.threads[0] + x, g.index[1] * a.threads[1] + y, g.index[2] * a.threads[2] + z);
  } else if constexpr (k == attribute_thread_position_in_threadgroup) {
    return three<P>(x, y, z);
  } else if constexpr (k == attribute_threadgroup_position_in_grid) {
    return three<P>(g.index[0], g.index[1], g.index[2]);
  } else if constexpr (k == attribute_threads_per_threadgroup) {
    return three<P>(a.threads[0], a.threads[1], a.threads[2]);
  } else if constexpr (k == attribute_threadgroups_per_grid) {
    return three<P>(g.grid[0], g.grid[1], g.grid[2]);
  } else if constexpr (k == attribute_threads_per_grid) {
    return three<P>(g.grid[0] * a.threads[0], g.grid[1] * a.threads[1], g.grid[2] * a.threads[2]);
  } else if constexpr (k == attribute_thread_index_in_simdgroup) {
    return (P)emulator::current->lane;
  } else if constexpr (k == attribute_simdgroup_index_in_threadgroup) {
    return (P)(i / emulator::wave_lanes);
  } else if constexpr (k == attribute_thread_index_in_threadgroup) {
    return (P)i;
  } else if constexpr (k == attribute_simdgroups_per_threadgroup) {
    return (P)((g.lanes + emulator::wave_lanes - 1) / emulator::wave_lanes);
  } else {
    return (P)emulator::wave_lanes;
  }
}

template <class R, class... P, class... K> METAL_FUNC void call(R (*f)(P...), Pars<K...>, const Arguments &a) {
  static_assert(sizeof...(P) == sizeof...(K));
  f(argument<P, K>(a)...);
}

template <class P, class K> Binding binding() {
  using E = std::remove_pointer_t<std::remove_reference_t<P>>;
  int size = 0;
  if constexpr ((std::is_pointer_v<P> || std::is_reference_v<P>) && !std::is_void_v<E>) size = sizeof(E);
  return {K::attribute, K::index, size, !std::is_const_v<E>, std::is_reference_v<P>};
}
template <class R, class... P, class... K> const Binding *bindings(R (*)(P...), Pars<K...>) {
  static const Binding list[] = {binding<P, K>()..., Binding{}};
  return list;
}
#endif

} // namespace msl
