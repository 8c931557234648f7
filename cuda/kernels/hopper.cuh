// What the kernels of compute capability 9.0 share: operand lists of wgmma,
// descriptors of shared memory, barriers.
#pragma once
#include "gpu.cuh"
#ifdef __NVPTX__

// N10(3) names %30 to %39, N64 the first 64; F4(c, j) binds c[j].
#define N10(d) "%" #d "0, %" #d "1, %" #d "2, %" #d "3, %" #d "4, %" #d "5, %" #d "6, %" #d "7, %" #d "8, %" #d "9, "
#define N64 N10() N10(1) N10(2) N10(3) N10(4) N10(5) "%60, %61, %62, %63"
#define F4(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])

// descriptor of lines of 128 bytes in the 128-byte swizzle, in groups of 8 that
// are 1024 bytes apart. Where lines do not run along k, lead is the distance of
// the halves of the other dimension; else it is not looked at.
DEV u64 descriptor(u32 address, u32 lead = 16) { return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)(lead >> 4) << 16 | (address & 0x3ffff) >> 4; }

// Barriers in shared memory (mbarrier), by their 32-bit shared address.
DEV void barrier_init(u32 barrier, u32 arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
// wait_phase waits until the phase of that parity is over.
DEV void wait_phase(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}
// expect arrives, and makes the phase wait for so many bytes of copies.
DEV void expect(u32 barrier, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory"); }
// arrive is of the lanes where yes is set: a branch around it would leave the
// warp diverged.
DEV void arrive(u32 barrier, bool yes) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %1, 0;\n\t@p mbarrier.arrive.shared::cta.b64 _, [%0];\n\t}" ::"r"(barrier), "r"((u32)yes) : "memory");
}
// copy_box copies a map's box at (k, row) to shared memory.
DEV void copy_box(u32 to, const void *map, u32 k, u32 row, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier) : "memory");
}
#endif
