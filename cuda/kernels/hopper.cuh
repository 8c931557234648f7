// What the kernels of compute capability 9.0 share, besides gpu.cuh: operand lists
// of wgmma, descriptors of shared memory, barriers, clusters, copies by the copy
// unit. ../emulator/runtime/hopper.h has the CPU's side.
#pragma once
#include "gpu.cuh"
#ifdef __NVPTX__
// HOPPER_KERNEL is KERNEL of blocks that have a multiprocessor's registers to themselves.
#define HOPPER_KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads, 1)))

// N10(3) names %30 to %39, N24 to N128 the first 24 to 128; F4(c, j) binds c[j],
// and SUMS8(c) the first 8.
#define N10(d) "%" #d "0, %" #d "1, %" #d "2, %" #d "3, %" #d "4, %" #d "5, %" #d "6, %" #d "7, %" #d "8, %" #d "9, "
#define N24 N10() N10(1) "%20, %21, %22, %23"
#define N32 N10() N10(1) N10(2) "%30, %31"
#define N36 N10() N10(1) N10(2) "%30, %31, %32, %33, %34, %35"
#define N64 N10() N10(1) N10(2) N10(3) N10(4) N10(5) "%60, %61, %62, %63"
#define N128 N10() N10(1) N10(2) N10(3) N10(4) N10(5) N10(6) N10(7) N10(8) N10(9) N10(10) N10(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define F4(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define F16(c, j) F4(c, j), F4(c, j + 1), F4(c, j + 2), F4(c, j + 3)
#define SUMS1(c) F4(c, 0)
#define SUMS2(c) F4(c, 0), F4(c, 1)
#define SUMS4(c) F16(c, 0)
#define SUMS6(c) SUMS4(c), F4(c, 4), F4(c, 5)
#define SUMS8(c) F16(c, 0), F16(c, 4)
#define SUMS9(c) SUMS8(c), F4(c, 8)
#define SUMS16(c) SUMS8(c), F16(c, 8), F16(c, 12)
#define SUMS32(c) SUMS16(c), F16(c, 16), F16(c, 20), F16(c, 24), F16(c, 28)

// Products of a warpgroup (wgmma) run in the order in which they are started.
// products_fence comes before the first one, and before one whose sums or
// operands in registers were touched; products_commit makes a group of what was started.
DEV void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// products_wait waits for all groups but the newest ones; the sums that it is
// given may be read then.
template <u32 newest> DEV void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(newest) : "memory"); }
#define PRODUCTS_WAIT(tiles, sums)                                                         \
  template <u32 newest> DEV void products_wait(float (&c)[tiles][4]) {                     \
    static_assert(newest < 2);                                                             \
    if (newest == 0) asm volatile("wgmma.wait_group.sync.aligned 0;" : sums(c)::"memory"); \
    else asm volatile("wgmma.wait_group.sync.aligned 1;" : sums(c)::"memory");             \
  }
PRODUCTS_WAIT(1, SUMS1)
PRODUCTS_WAIT(2, SUMS2)
PRODUCTS_WAIT(4, SUMS4)
PRODUCTS_WAIT(6, SUMS6)
PRODUCTS_WAIT(8, SUMS8)
PRODUCTS_WAIT(9, SUMS9)
PRODUCTS_WAIT(16, SUMS16)
PRODUCTS_WAIT(32, SUMS32)
#undef PRODUCTS_WAIT

// Barriers in shared memory (mbarrier), by their 32-bit shared address.
DEV void barrier_init(u32 barrier, u32 arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
// barriers_made shows barriers that were made to other threads, and to copies.
DEV void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// wait_phase waits until the phase of that parity is over.
DEV void wait_phase(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}
// phase_over looks whether it is over, in this thread's eyes: others of the warp may see it sooner or later.
DEV bool phase_over(u32 barrier, u32 parity) {
  u32 done;
  asm volatile("{\n\t.reg .pred p;\n\tmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}
// expect arrives, and makes the phase wait for so many bytes of copies.
DEV void expect(u32 barrier, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory"); }
// arrive is of the lanes where yes is set: a branch around it would leave the
// warp diverged.
DEV void arrive(u32 barrier, bool yes) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %1, 0;\n\t@p mbarrier.arrive.shared::cta.b64 _, [%0];\n\t}" ::"r"(barrier), "r"((u32)yes) : "memory");
}
// wait_with waits like wait_phase, and sees what blocks of the cluster wrote
// before they arrived.
DEV void wait_with(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}
// in_block is the address of the same place in a block of the cluster.
DEV u32 in_block(u32 address, u32 rank) {
  u32 r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
// arrive_at arrives at the same barrier of a block of the cluster.
DEV void arrive_at(u32 barrier, u32 rank, bool yes) {
  asm volatile("{\n\t.reg .pred p;\n\t.reg .b32 remote;\n\tsetp.ne.b32 p, %2, 0;\n\t"
               "@p mapa.shared::cluster.u32 remote, %0, %1;\n\t@p mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier), "r"(rank), "r"((u32)yes) : "memory");
}
// arrive_with arrives there with what this thread wrote there, for wait_with.
DEV void arrive_with(u32 barrier, u32 rank) {
  asm volatile("{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\tmbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier), "r"(rank) : "memory");
}
// give sends numbers to the shared memory of another block of the cluster, whose
// barrier they complete their bytes at: a fence for the cluster would wait for
// all copies that are on their way (measured: 1 µs an exchange).
DEV void give(u32 to, const float (&v)[4], u32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier) : "memory");
}
// put_at and get write and read this block's.
DEV void put_at(u32 to, const float (&v)[4]) { asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory"); }
DEV void get(float (&v)[4], u32 from) { asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory"); }
DEV u32x4 get_x4(u32 from) { u32x4 r; asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(from) : "memory"); return r; }
DEV u32 get_word(u32 from) { u32 r; asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(from) : "memory"); return r; }
// count_word adds one, and returns what was there: in the lane where yes is set.
DEV u32 count_word(u32 at, bool yes) {
  u32 r = 0;
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %2, 0;\n\t@p atom.shared.add.u32 %0, [%1], %2;\n\t}" : "+r"(r) : "r"(at), "r"((u32)yes) : "memory");
  return r;
}
DEV u32x2 get_x2(u32 from) { u32x2 r; asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "r"(from) : "memory"); return r; }
DEV void put_x2(u32 to, u32x2 v) { asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(v.x), "r"(v.y) : "memory"); }
DEV void put_x4(u32 to, u32x4 v) { asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory"); }
// put_into writes to a block of the cluster.
DEV void put_into(u32 to, u32 rank, const float (&v)[4]) {
  asm volatile("{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\tst.shared::cluster.v4.f32 [remote], {%2, %3, %4, %5};\n\t}" ::"r"(to), "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
DEV u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
// Barrier of all threads of the cluster, in two halves: what was written before is
// not shown, but for barriers that a fence.mbarrier_init did.
DEV void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
// cluster_arrive_with arrives with what this thread wrote.
DEV void cluster_arrive_with() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }
DEV void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
// cluster_sync is both, and shows all.
DEV void cluster_sync() { asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory"); }
// copy_box copies a map's box at (k, row) to shared memory.
DEV void copy_box(u32 to, const void *map, u32 k, u32 row, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier) : "memory");
}
// copy_box_pair is copy_box to the same place in both blocks.
DEV void copy_box_pair(u32 to, const void *map, u32 k, u32 row, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier), "h"((u16)3) : "memory");
}
// load_acquire sees what was written before what it reads was added.
DEV u32 load_acquire(const u32 *p) { u32 r; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(p) : "memory"); return r; }
// store_relaxed stores eight bytes as one, and load_relaxed loads twice eight, in this order or another: what
// it finds of either is all of one store's.
DEV void store_relaxed(void *p, u64 v) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
DEV u32x4 load_relaxed(const void *p) {
  u64 v, w;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(v), "=l"(w) : "l"(p) : "memory");
  return {(u32)v, (u32)(v >> 32), (u32)w, (u32)(w >> 32)};
}
// let_others is between looks for what another thread does.
DEV void let_others() { asm volatile("nanosleep.u32 256;"); }
// elected is true in one thread of a warp.
DEV bool elected() {
  u32 r;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(r));
  return r;
}
// copy_bulk copies bytes (a multiple of 16, as both addresses) to shared memory,
// and makes the phase wait for them, or for more: one thread of the warp does both.
DEV void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier, u32 all) {
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %4;\n\t"
               "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n\t}" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "r"(all)
               : "memory");
}
DEV void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier) { copy_bulk(to, from, bytes, barrier, bytes); }
// copy_more copies what the phase waits for already.
DEV void copy_more(u32 to, const void *from, u32 bytes, u32 barrier) {
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t"
               "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n\t}" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// copy_bulk_once and copy_more_once are of what a step reads once, as weights: what L2 has of it makes room
// first, so that code stays there, and what steps read again (docs/adr/0048-what-a-step-goes-through-once.md).
// There is no such cp.async: where its place has a part that is alike in all lanes, ptxas makes an instruction
// that is none (12.4, and the driver of release 580).
constexpr u64 readOnce = 0x12f0000000000000; // what createpolicy.fractional.L2::evict_first makes, at each copy
DEV void copy_bulk_once(u32 to, const void *from, u32 bytes, u32 barrier, u32 all) {
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t"
               "@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %4;\n\t"
               "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %5;\n\t}" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "r"(all), "l"(readOnce)
               : "memory");
}
DEV void copy_more_once(u32 to, const void *from, u32 bytes, u32 barrier) {
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t"
               "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;\n\t}" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(readOnce)
               : "memory");
}
// copy_if copies, in each lane where yes is set, what the phase waits for already.
DEV void copy_if(bool yes, u32 to, const void *from, u32 bytes, u32 barrier) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %4, 0;\n\t"
               "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n\t}" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "r"((u32)yes)
               : "memory");
}
// prefetch_map fetches a tensor map.
DEV void prefetch_map(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
// proxy_fence shows what this thread wrote to shared memory to copies and
// products, also to those of threads that a barrier follows for.
DEV void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// proxy_fence_global shows to copies what was written to global memory: by this thread, where it stands
// before what tells others of it, or by those of whom it was told.
DEV void proxy_fence_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// A warpgroup gives registers back, or takes more, up to a number a thread.
template <u32 n> DEV void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n)); }
template <u32 n> DEV void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n)); }
// allow_unwritten is gpu.cuh's by address.
DEV void allow_unwritten(u32, u32) {}
#else
#define HOPPER_KERNEL(threads) KERNEL(threads)
#include "../emulator/runtime/hopper.h"
#endif

// descriptor of lines of 128 bytes in the 128-byte swizzle, in groups of 8 that
// are 1024 bytes apart. Where lines do not run along k, lead is the distance of
// the halves of the other dimension; else it is not looked at.
DEV u64 descriptor(u32 address, u32 lead = 16) { return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)(lead >> 4) << 16 | (address & 0x3ffff) >> 4; }

// descriptor_low and descriptor_of are descriptor(address) in two steps: the low
// half, to which distances in units of 16 bytes may be added, and the whole.
DEV u32 descriptor_low(u32 address) { return (1 << 16) + ((address & 0x3ffff) >> 4); }
DEV u64 descriptor_of(u32 low) { return (u64)(1u << 30 | 1024 >> 4) << 32 | low; }

// Ring is a place in a ring of shared memory: a stage, and the parity of the round.
struct Ring {
  u32 stages, stage = 0, phase = 0;
  METHOD void next() {
    if (++stage == stages) stage = 0, phase ^= 1;
  }
};
