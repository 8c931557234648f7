// The CPU's side of hopper.cuh. Shared memory is named by 32-bit addresses as
// there: of the block's own window, or, from in_block, of another block's of the
// cluster.
#pragma once
#include "emulated.h"

namespace emulator {

EMULATOR_API u32 shared_address(const void *);
EMULATOR_API u32 in_block(u32 address, u32 rank);
// shared_place is where bytes at an address lie; it ends the launch where they are
// in no shared memory of the cluster, or of a block that has ended.
EMULATOR_API u8 *shared_place(u32 address, u32 bytes, const char *what, const char *file, int line);

// Barriers in shared memory.
EMULATOR_API void barrier_init(u32 barrier, u32 arrivals, const char *file, int line);
EMULATOR_API void barriers_made();
EMULATOR_API void barrier_wait(u32 barrier, u32 parity, const char *file, int line);
EMULATOR_API bool barrier_over(u32 barrier, u32 parity, const char *file, int line);
// barrier_arrive arrives once, and makes the phase wait for so many bytes more.
EMULATOR_API void barrier_arrive(u32 barrier, u32 bytes, const char *file, int line);
EMULATOR_API void cluster_arrive(bool release, const char *file, int line);
EMULATOR_API void cluster_wait(const char *file, int line);

// Copies that complete their bytes at a barrier, some time later.
EMULATOR_API void copy_box(u32 to, const void *map, u32 k, u32 row, u32 barrier, u32 blocks, const char *file, int line);
EMULATOR_API void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier, const char *file, int line);
EMULATOR_API void send(u32 to, const float *v, u32 barrier, const char *file, int line); // st.async of four
// proxy_fence shows what the thread wrote to copies and products.
EMULATOR_API void proxy_fence();

EMULATOR_API void operation_elect(Wave &);
EMULATOR_API u32 load_acquire(const u32 *, const char *file, int line);
EMULATOR_API void store_relaxed(void *, u64, const char *file, int line);
EMULATOR_API u64 load_relaxed(const void *, const char *file, int line);
EMULATOR_API void let_others(const char *file, int line);
EMULATOR_API void set_registers(u32 n, const char *file, int line);

// Products of a warpgroup (wgmma) with sums c[tiles][4], which hold NaN until they
// are waited for. a is four registers, or null: then a_tile describes it. b_rows: b
// lies [k][n] (its descriptor's lead tells the halves apart), else [n][k].
EMULATOR_API void product(float *c, u32 tiles, const u32 *a, u64 a_tile, u64 b_tile, bool b_rows, bool add, const char *file, int line);
EMULATOR_API void products_fence(const char *file, int line);
EMULATOR_API void products_commit(const char *file, int line);
EMULATOR_API void products_wait(u32 newest, const char *file, int line);

} // namespace emulator

#define CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

DEV u32 shared_address(const void *p) { return emulator::shared_address(p); }
DEV void barrier_init(u32 barrier, u32 arrivals, CALLER) { emulator::barrier_init(barrier, arrivals, file, line); }
DEV void barriers_made() { emulator::barriers_made(); }
DEV void wait_phase(u32 barrier, u32 parity, CALLER) { emulator::barrier_wait(barrier, parity, file, line); }
DEV bool phase_over(u32 barrier, u32 parity, CALLER) { return emulator::barrier_over(barrier, parity, file, line); }
DEV void wait_with(u32 barrier, u32 parity, CALLER) { emulator::barrier_wait(barrier, parity, file, line); }
DEV void expect(u32 barrier, u32 bytes, CALLER) { emulator::barrier_arrive(barrier, bytes, file, line); }
DEV void arrive(u32 barrier, bool yes, CALLER) {
  if (yes) emulator::barrier_arrive(barrier, 0, file, line);
}
DEV u32 in_block(u32 address, u32 rank) { return emulator::in_block(address, rank); }
DEV void arrive_at(u32 barrier, u32 rank, bool yes, CALLER) {
  if (yes) emulator::barrier_arrive(emulator::in_block(barrier, rank), 0, file, line);
}
DEV void arrive_with(u32 barrier, u32 rank, CALLER) { emulator::barrier_arrive(emulator::in_block(barrier, rank), 0, file, line); }
DEV void give(u32 to, const float (&v)[4], u32 barrier, CALLER) { emulator::send(to, v, barrier, file, line); }
DEV void put_at(u32 to, const float (&v)[4], CALLER) {
  auto *at = (f32x4 *)emulator::shared_place(to, 16, "put_at", file, line);
  *at = f32x4{v[0], v[1], v[2], v[3]};
}
// put_into writes to the shared memory of a block of the cluster.
DEV void put_into(u32 to, u32 rank, const float (&v)[4], CALLER) { put_at(emulator::in_block(to, rank), v, file, line); }
DEV void get(float (&v)[4], u32 from, CALLER) {
  f32x4 x = *(const f32x4 *)emulator::shared_place(from, 16, "get", file, line);
  v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}
DEV u32 get_word(u32 from, CALLER) { return *(const u32 *)emulator::shared_place(from, 4, "get_word", file, line); }
DEV u32x4 get_x4(u32 from, CALLER) { return *(const u32x4 *)emulator::shared_place(from, 16, "get_x4", file, line); }
DEV void put_x2(u32 to, const u32x2 &v, CALLER) { *(u32x2 *)emulator::shared_place(to, 8, "put_x2", file, line) = v; }
DEV void put_x4(u32 to, const u32x4 &v, CALLER) { *(u32x4 *)emulator::shared_place(to, 16, "put_x4", file, line) = v; }
DEV u32 count_word(u32 at, bool yes, CALLER) { return yes ? emulator::atomic_add((u32 *)emulator::shared_place(at, 4, "count_word", file, line), 1, file, line) : 0; }
DEV u32x2 get_x2(u32 from, CALLER) { return *(const u32x2 *)emulator::shared_place(from, 8, "get_x2", file, line); }
DEV u32 cluster_rank() { return emulator::group.rank; }
DEV void cluster_arrive(CALLER) { emulator::cluster_arrive(false, file, line); }
DEV void cluster_arrive_with(CALLER) { emulator::cluster_arrive(true, file, line); }
DEV void cluster_wait(CALLER) { emulator::cluster_wait(file, line); }
DEV void cluster_sync(CALLER) {
  emulator::cluster_arrive(true, file, line);
  emulator::cluster_wait(file, line);
}
DEV void copy_box(u32 to, const void *map, u32 k, u32 row, u32 barrier, CALLER) { emulator::copy_box(to, map, k, row, barrier, 1u << emulator::group.rank, file, line); }
DEV void copy_box_pair(u32 to, const void *map, u32 k, u32 row, u32 barrier, CALLER) { emulator::copy_box(to, map, k, row, barrier, 3, file, line); }
DEV void store_relaxed(void *p, u64 v, CALLER) { emulator::store_relaxed(p, v, file, line); }
DEV u32x4 load_relaxed(const void *p, CALLER) {
  const u64 v = emulator::load_relaxed(p, file, line), w = emulator::load_relaxed((const u8 *)p + 8, file, line);
  return {(u32)v, (u32)(v >> 32), (u32)w, (u32)(w >> 32)};
}
DEV void let_others(CALLER) { emulator::let_others(file, line); }
DEV u32 load_acquire(const u32 *p, CALLER) { return emulator::load_acquire(p, file, line); }
DEV bool elected(CALLER) {
  emulator::Lane *me = emulator::current;
  auto *lane = (const u32 *)me->wave->operands();
  emulator::meet(emulator::operation_elect, file, line);
  return *lane == me->lane;
}
DEV void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier, u32 all, CALLER) {
  if (!elected(file, line)) return;
  emulator::barrier_arrive(barrier, all, file, line);
  emulator::copy_bulk(to, from, bytes, barrier, file, line);
}
DEV void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier, CALLER) { copy_bulk(to, from, bytes, barrier, bytes, file, line); }
DEV void copy_more(u32 to, const void *from, u32 bytes, u32 barrier, CALLER) {
  if (elected(file, line)) emulator::copy_bulk(to, from, bytes, barrier, file, line);
}
DEV void copy_bulk_once(u32 to, const void *from, u32 bytes, u32 barrier, u32 all, CALLER) { copy_bulk(to, from, bytes, barrier, all, file, line); }
DEV void copy_more_once(u32 to, const void *from, u32 bytes, u32 barrier, CALLER) { copy_more(to, from, bytes, barrier, file, line); }
DEV void copy_if(bool yes, u32 to, const void *from, u32 bytes, u32 barrier, CALLER) {
  if (yes) emulator::copy_bulk(to, from, bytes, barrier, file, line);
}
DEV void prefetch_map(const void *) {}
DEV void allow_unwritten(u32 at, u32 bytes, CALLER) {
  if (bytes) emulator::allow_unwritten(emulator::shared_place(at, bytes, "allow_unwritten", file, line), bytes);
}
DEV void proxy_fence() { emulator::proxy_fence(); }
DEV void proxy_fence_global() { emulator::proxy_fence(); }
template <u32 n> DEV void fewer_registers(CALLER) { emulator::set_registers(n, file, line); }
template <u32 n> DEV void more_registers(CALLER) { emulator::set_registers(n, file, line); }
DEV void copy_to(u32 to, const void *from, bool there, CALLER) { copy_async(emulator::shared_place(to, 16, "copy_to", file, line), from, there ? 16 : 0, file, line); }
DEV void load_matrix_at(u32 (&r)[4], u32 from, CALLER) { load_matrix(r, emulator::shared_place(from, 16, "load_matrix_at", file, line), file, line); }

// product starts c[64, tiles·8] (+)= a[64, 16]·b[tiles·8, 16]ᵀ.
template <int tiles> DEV void product(float (&c)[tiles][4], const u32 (&a)[4], u64 b, bool add, bool b_rows = false, CALLER) { emulator::product(&c[0][0], tiles, a, 0, b, b_rows, add, file, line); }
template <int tiles> DEV void product(float (&c)[tiles][4], u64 a, u64 b, bool add, CALLER) { emulator::product(&c[0][0], tiles, nullptr, a, b, false, add, file, line); }
DEV void products_fence(CALLER) { emulator::products_fence(file, line); }
DEV void products_commit(CALLER) { emulator::products_commit(file, line); }
template <u32 newest> DEV void products_wait(CALLER) { emulator::products_wait(newest, file, line); }
template <u32 newest, int tiles> DEV void products_wait(float (&)[tiles][4], CALLER) { emulator::products_wait(newest, file, line); }

#undef CALLER
