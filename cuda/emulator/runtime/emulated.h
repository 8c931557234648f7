// The CPU's side of gpu.cuh: the same kernels, run by the emulator. Every
// intrinsic takes its caller's place in the source, for messages.
#pragma once
#include "executor.h"

namespace emulator {

// Operations of a warp; the operands are in Wave::operands().
EMULATOR_API void operation_sync(Wave &);
EMULATOR_API void operation_shuffle(Wave &);
EMULATOR_API void operation_sum(Wave &);
EMULATOR_API void operation_max(Wave &);
EMULATOR_API void operation_mma(Wave &);
EMULATOR_API void operation_load_matrix(Wave &);
EMULATOR_API void operation_load_matrix_transposed(Wave &);

struct Shuffle { u32 value[32], source[32]; };
// Mma: a by rows, pairs of columns in one word; b by pairs of rows; c by rows.
struct Mma { u32 a[16][8], b[8][8]; float c[16][8]; };
struct LoadMatrix { const u8 *row[32]; u32 result[32][4]; };
static_assert(sizeof(Mma) <= sizeof(Wave::exchange[0]) && sizeof(LoadMatrix) <= sizeof(Wave::exchange[0]));

EMULATOR_API void copy_async(void *shared, const void *global, u32 bytes, const char *file, int line);
EMULATOR_API void copy_commit();
EMULATOR_API void copy_wait(u32 pending);
EMULATOR_API void fence();
EMULATOR_API u32 atomic_add(u32 *, u32, const char *file, int line);
EMULATOR_API void launch_dependents();
EMULATOR_API void dependency_wait();
EMULATOR_API void allow_unwritten(const void *, u32 bytes);
// load copies 4 or 16 bytes to the lane; l2: past L1.
#ifdef CHECKED
EMULATOR_API void check_load(const void *, u32 bytes, bool l2, const char *file, int line);
EMULATOR_API void load(void *to, const void *from, u32 bytes, bool l2, const char *file, int line);
#else
static inline void check_load(const void *, u32, bool, const char *, int) {}
static inline __attribute__((always_inline)) void load(void *to, const void *from, u32 bytes, bool, const char *, int) { __builtin_memcpy(to, from, bytes); }
#endif

// Parameters reach a kernel in slots of 64 bits.
template <class T> static inline T parameter(u64 slot) {
  T v;
  __builtin_memcpy(&v, &slot, sizeof v);
  return v;
}
template <class T, T... I> struct Indices {};
template <class... P, int... I> static inline void call(void (*k)(P...), const u64 *slots, Indices<int, I...>) { k(parameter<P>(slots[I])...); }
template <class... P> static inline void call(void (*k)(P...), const u64 *slots) { call(k, slots, __make_integer_seq<Indices, int, sizeof...(P)>{}); }
template <class... P> static inline void describe(Kernel &kernel, void (*)(P...)) {
  static const u8 sizes[] = {sizeof(P)..., 0};
  kernel.sizes = sizes;
  kernel.parameters = sizeof...(P);
}

} // namespace emulator

#define KERNEL(...) static __attribute__((noinline)) 
#define DEV static __attribute__((always_inline)) inline
#define METHOD inline
#define SHARED(kernel) static __attribute__((section("shared_" #kernel)))
#define DYNAMIC_SHARED(kernel, name) u8 *name = emulator::group.shared
#define UNROLL
#define REGISTER(kernel)                                                                                             \
  extern "C" __attribute__((weak, visibility("hidden"))) u8 __start_shared_##kernel[], __stop_shared_##kernel[];      \
  static __attribute__((constructor)) void register_##kernel() {                                                     \
    static emulator::Kernel k{#kernel, [](const u64 *slots) { emulator::call(&kernel, slots); }, {__start_shared_##kernel, __stop_shared_##kernel}, nullptr, 0, nullptr}; \
    emulator::describe(k, &kernel);                                                                                  \
    emulator::add(&k);                                                                                               \
  }
// WAITS: a kernel waits for other devices, after its own blocks have ended; then rest runs.
#define WAITS(kernel, others, condition)                                                                             \
  static __attribute__((constructor)) void waits_##kernel() {                                                        \
    auto *k = const_cast<emulator::Kernel *>(emulator::find(#kernel));                                               \
    k->rest = emulator::find(#others);                                                                               \
    k->ready = condition;                                                                                            \
  }
#define CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

DEV u32 tid() { return emulator::current->index; }
DEV u32 bid() { return emulator::group.index[0]; }
DEV u32 bid_y() { return emulator::group.index[1]; }
DEV u32 bid_z() { return emulator::group.index[2]; }
DEV u32 bdim() { return emulator::group.lanes; }
DEV u32 gdim() { return emulator::group.grid[0]; }
DEV u32 gdim_y() { return emulator::group.grid[1]; }
DEV void sync(CALLER) { emulator::barrier(0, emulator::group.lanes, emulator::of_all, file, line); }
DEV void sync_group(u32 id, u32 threads, CALLER) { emulator::barrier(id, threads, emulator::of_all, file, line); }
DEV void sync_warp(CALLER) { emulator::meet(emulator::operation_sync, file, line); }
DEV void fence() { emulator::fence(); }

DEV u32 shuffle(u32 v, u32 source, const char *file, int line) {
  emulator::Lane *me = emulator::current;
  auto &x = *(emulator::Shuffle *)me->wave->operands();
  x.value[me->lane] = v;
  x.source[me->lane] = source & 31;
  emulator::meet(emulator::operation_shuffle, file, line);
  return x.value[me->lane];
}
DEV u32 shfl_xor(u32 v, int m, CALLER) { return shuffle(v, emulator::current->lane ^ u32(m), file, line); }
DEV u32 shfl(u32 v, int lane, CALLER) { return shuffle(v, u32(lane), file, line); }
DEV float shfl_xor(float v, int m, CALLER) { return __builtin_bit_cast(float, shuffle(__builtin_bit_cast(u32, v), emulator::current->lane ^ u32(m), file, line)); }
DEV float shfl(float v, int lane, CALLER) { return __builtin_bit_cast(float, shuffle(__builtin_bit_cast(u32, v), u32(lane), file, line)); }
// Sums and maxima of a warp meet once; the order is that of the shuffles in gpu.cuh.
DEV float reduce(float v, void (*operation)(emulator::Wave &), const char *file, int line) {
  emulator::Lane *me = emulator::current;
  float *x = (float *)me->wave->operands();
  x[me->lane] = v;
  emulator::meet(operation, file, line);
  return x[me->lane];
}
DEV float warp_sum(float v, CALLER) { return reduce(v, emulator::operation_sum, file, line); }
DEV float warp_max(float v, CALLER) { return reduce(v, emulator::operation_max, file, line); }

DEV float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
DEV float reciprocal(float x) { return 1 / x; }
DEV float ex2(float x) { return __builtin_exp2f(x); }
DEV float lg2(float x) { return __builtin_log2f(x); }
DEV float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV u32 atomic_add(u32 *p, u32 v, CALLER) { return emulator::atomic_add(p, v, file, line); }
DEV u32x4 load_stream(const void *p, CALLER) {
  u32x4 r;
  emulator::load(&r, p, 16, false, file, line);
  return r;
}
DEV float load_l2(const float *p, CALLER) {
  float r;
  emulator::load(&r, p, 4, true, file, line);
  return r;
}
DEV f32x4 load_l2_x4(const float *p, CALLER) {
  f32x4 r;
  emulator::load(&r, p, 16, true, file, line);
  return r;
}
DEV void copy_async(void *shared, const void *global, u32 bytes = 16, CALLER) { emulator::copy_async(shared, global, bytes, file, line); }
DEV void copy_commit() { emulator::copy_commit(); }
template <int n> DEV void copy_wait() { emulator::copy_wait(n); }

DEV void mma_bf16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2], CALLER) {
  emulator::Lane *me = emulator::current;
  auto &x = *(emulator::Mma *)me->wave->operands();
  u32 g = me->lane / 4, t = me->lane % 4;
  x.a[g][t] = a[0];
  x.a[g + 8][t] = a[1];
  x.a[g][t + 4] = a[2];
  x.a[g + 8][t + 4] = a[3];
  x.b[t][g] = b[0];
  x.b[t + 4][g] = b[1];
  float *low = &x.c[g][t * 2], *high = &x.c[g + 8][t * 2];
  low[0] = c[0];
  low[1] = c[1];
  high[0] = c[2];
  high[1] = c[3];
  emulator::meet(emulator::operation_mma, file, line);
  c[0] = low[0];
  c[1] = low[1];
  c[2] = high[0];
  c[3] = high[1];
}
DEV void load_tiles(u32 (&r)[4], const void *shared, void (*operation)(emulator::Wave &), const char *file, int line) {
  emulator::Lane *me = emulator::current;
  auto &x = *(emulator::LoadMatrix *)me->wave->operands();
  emulator::check_load(shared, 16, false, file, line);
  x.row[me->lane] = (const u8 *)shared;
  emulator::meet(operation, file, line);
  for (int i = 0; i < 4; i++) r[i] = x.result[me->lane][i];
}
DEV void load_matrix(u32 (&r)[4], const void *shared, CALLER) { load_tiles(r, shared, emulator::operation_load_matrix, file, line); }
DEV void load_matrix_transposed(u32 (&r)[4], const void *shared, CALLER) { load_tiles(r, shared, emulator::operation_load_matrix_transposed, file, line); }

typedef u8 *Shared;
DEV Shared shared_at(const void *p) { return (u8 *)p; }
DEV void copy_to(Shared to, const void *from, bool there, CALLER) { copy_async(to, from, there ? 16 : 0, file, line); }
DEV void load_matrix_at(u32 (&r)[4], Shared from, CALLER) { load_matrix(r, from, file, line); }
DEV void load_matrix_transposed_at(u32 (&r)[4], Shared from, CALLER) { load_matrix_transposed(r, from, file, line); }

DEV u32 round_bf16(float v) {
  u32 u = __builtin_bit_cast(u32, v);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff; // the hardware's NaN
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
DEV u32 pack_bf16(float lo, float hi) { return round_bf16(lo) | round_bf16(hi) << 16; }
constexpr bool beginsEarly = true;
DEV void launch_dependents() { emulator::launch_dependents(); }
DEV void dependency_wait() { emulator::dependency_wait(); }
DEV void allow_unwritten(const void *shared, u32 bytes) { emulator::allow_unwritten(shared, bytes); }
#undef CALLER
