// One source, two targets: PTX by clang without a CUDA toolkit, and the CPU
// (the emulator), where the same kernels are tested. Every intrinsic that a
// kernel uses is declared here; ../emulator/runtime/emulated.h has the CPU's side.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef __bf16 bf16;
typedef _Float16 f16;
#ifdef CHECKED // the emulator: a copy that is not trivial has its addresses checked
struct Whole {
  Whole() = default;
  Whole(const Whole &) {}
  Whole &operator=(const Whole &) { return *this; }
};
#define WHOLE [[no_unique_address]] Whole whole;
#else
#define WHOLE
#endif
struct alignas(8) u32x2 { u32 x, y; WHOLE };
struct alignas(16) u32x4 { u32 x, y, z, w; WHOLE };
struct alignas(8) f32x2 { float x, y; WHOLE };
struct alignas(16) f32x4 { float x, y, z, w; WHOLE };

// The step block: what changes from step to step (docs/cuda.md).
struct Span { u32 first, rows, base, slots, window, keep, pages, pad; };
struct Step {
  u32 rows, spans, wanted, top;
  i32 limit, except;
  u32 position, pad; // of row 0
  const u32 *tokens, *positions;
  const u32 *span_of;
  const Span *span;
  const u64 *pages;
  const u32 *want;
  Span first; // span[0]: most steps are of one sequence, which finds it beside the rest
};

#define INLINE __attribute__((always_inline)) // of lambdas: a call that is left cannot be linked

#ifdef __NVPTX__
// KERNEL(threads) or KERNEL(threads, blocks): of a block at most, and of a multiprocessor at least.
#define KERNEL(...) extern "C" __attribute__((global, launch_bounds(__VA_ARGS__)))
#define DEV static __attribute__((device, always_inline)) inline
#define METHOD __attribute__((device, always_inline)) inline // DEV of members
// SHARED(kernel) T name[n]: static shared memory of that kernel; alignas goes before it.
#define SHARED(kernel) __attribute__((shared))
// DYNAMIC_SHARED(kernel, name): the launch's dynamic shared memory, as u8[], 128-byte aligned.
#define DYNAMIC_SHARED(kernel, name) extern __attribute__((shared, aligned(128))) u8 dynamic_shared[]; u8 *name = dynamic_shared
#define REGISTER(kernel)
#define UNROLL _Pragma("unroll")

DEV u32 tid() { return __nvvm_read_ptx_sreg_tid_x(); }
DEV u32 bid() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEV u32 bid_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEV u32 bid_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEV u32 bdim() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEV u32 gdim() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEV u32 gdim_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }
DEV void sync() { asm volatile("bar.sync 0;" ::: "memory"); }
// sync_group: a barrier of threads threads (a multiple of 32) under a number 1 to 15.
DEV void sync_group(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEV void sync_warp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
// fence orders this thread's writes before what it does next, for the whole device.
DEV void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DEV float shfl_xor(float v, int m) { return __nvvm_shfl_sync_bfly_f32(0xffffffff, v, m, 31); }
DEV u32 shfl_xor(u32 v, int m) { return __nvvm_shfl_sync_bfly_i32(0xffffffff, v, m, 31); }
DEV float shfl(float v, int lane) { return __nvvm_shfl_sync_idx_f32(0xffffffff, v, lane, 31); }
DEV u32 shfl(u32 v, int lane) { return __nvvm_shfl_sync_idx_i32(0xffffffff, v, lane, 31); }
// rsqrt is within 1.3e-7 of 1/√x, reciprocal within an ulp of 1/x: an instruction each, of numbers that are not subnormal. A quotient or
// root that is rounded right takes some 10 and 20, a branch and a subroutine, and where four are made one waits for the other. The assembler
// makes those of a constant, and rounds them right: kernels that are to agree in bits ask for no constant's but a power of two's reciprocal.
DEV float rsqrt(float x) { float r; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float reciprocal(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float ex2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float lg2(float x) { float r; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// atomic_add returns the value before.
DEV u32 atomic_add(u32 *p, u32 v) { u32 o; asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(o) : "l"(p), "r"(v) : "memory"); return o; }
// load_stream: 16 bytes that are read once, past L1.
DEV u32x4 load_stream(const void *p) {
  u32x4 r;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}
// prefetch_l2 brings the 128 bytes around p to L2.
DEV void prefetch_l2(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// load_l2: from L2, for what other blocks of this launch wrote.
DEV float load_l2(const float *p) { float r; asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(r) : "l"(p) : "memory"); return r; }
// load_now is on its way where it stands, whatever is done with it later.
DEV u64 load_now(const u64 *p) { u64 r; asm volatile("ld.global.u64 %0, [%1];" : "=l"(r) : "l"(p) : "memory"); return r; }
DEV u32 load_now(const u32 *p) { u32 r; asm volatile("ld.global.u32 %0, [%1];" : "=r"(r) : "l"(p) : "memory"); return r; }
DEV f32x4 load_l2_x4(const float *p) { f32x4 r; asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "l"(p) : "memory"); return r; }
DEV u32 shared_address(const void *p) { u32 r; asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(r) : "l"(p)); return r; }
// copy_async: 16 bytes from global to shared memory; bytes (0 or 16) of them are read, the rest is zero.
DEV void copy_async(void *shared, const void *global, u32 bytes = 16) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes) : "memory"); }
DEV void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// copy_wait<n> waits until all but the newest n groups of this thread have arrived; a barrier shows them to others.
template <int n> DEV void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); }
// c[16,8] += a[16,16] · b[16,8], by the PTX layout of m16n8k16.
DEV void mma_bf16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// load_matrix: four 8×8 tiles of 16-bit elements; lane i names row i%8 of tile i/8 (16 bytes, 16-byte aligned).
DEV void load_matrix(u32 (&r)[4], const void *shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(shared)) : "memory");
}
DEV void load_matrix_transposed(u32 (&r)[4], const void *shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(shared)) : "memory");
}
// Shared is an address in shared memory as instructions take it: of the addresses
// of many copies and loads, only one is converted then.
typedef u32 Shared;
DEV Shared shared_at(const void *p) { return shared_address(p); }
// copy_to is copy_async of 16 bytes, or of none.
DEV void copy_to(Shared to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
DEV void load_matrix_at(u32 (&r)[4], Shared from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
DEV void load_matrix_transposed_at(u32 (&r)[4], Shared from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
// pack_bf16 rounds two floats to nearest even: low half lo, high half hi.
DEV u32 pack_bf16(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
DEV float warp_sum(float v) { UNROLL for (int m = 16; m; m >>= 1) v += shfl_xor(v, m); return v; }
DEV float warp_max(float v) { UNROLL for (int m = 16; m; m >>= 1) v = __builtin_fmaxf(v, shfl_xor(v, m)); return v; }
#ifdef HOPPER
constexpr bool beginsEarly = true; // before the kernel before has ended
// launch_dependents lets the next kernel of the stream start its prologue; dependency_wait waits
// until the kernel before has finished and its writes are seen. Without the launch attribute both do nothing.
DEV void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEV void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
constexpr bool beginsEarly = false;
DEV void launch_dependents() {}
DEV void dependency_wait() {}
#endif
// reduce_max and reduce_min are of all lanes.
DEV u32 reduce_max(u32 v) { u32 r; asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); return r; }
DEV u32 reduce_min(u32 v) { u32 r; asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); return r; }
// reduce_or has the bits of all lanes.
DEV u32 reduce_or(u32 v) { u32 r; asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); return r; }
// ballot has a bit for each lane where yes is set.
DEV u32 ballot(bool yes) {
  u32 r;
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %1, 0;\n\tvote.sync.ballot.b32 %0, p, 0xffffffff;\n\t}" : "=r"(r) : "r"((u32)yes));
  return r;
}
// allow_unwritten tells the emulator that these bytes of shared memory may be
// read though nobody has written them: what is made of them is dropped.
DEV void allow_unwritten(const void *, u32) {}
#else
#include "../emulator/runtime/emulated.h"
DEV u64 load_now(const u64 *p) { return *p; }
DEV u32 load_now(const u32 *p) { return *p; }
DEV void prefetch_l2(const void *) {}
DEV u32 reduce_max(u32 v) { UNROLL for (int m = 16; m; m >>= 1) { const u32 o = shfl_xor(v, m); v = o > v ? o : v; } return v; }
DEV u32 reduce_min(u32 v) { UNROLL for (int m = 16; m; m >>= 1) { const u32 o = shfl_xor(v, m); v = o < v ? o : v; } return v; }
DEV u32 reduce_or(u32 v) { UNROLL for (int m = 16; m; m >>= 1) v |= shfl_xor(v, m); return v; }
DEV u32 ballot(bool yes) { return reduce_or((u32)yes << tid() % 32); }
#endif

DEV u32 load_l2(const u32 *p) { return __builtin_bit_cast(u32, load_l2((const float *)p)); }

// warp_scan adds up the numbers of the lanes up to this one.
DEV u32 warp_scan(u32 v) {
  const u32 lane = tid() % 32;
  UNROLL for (u32 d = 1; d < 32; d *= 2) {
    const u32 other = shfl(v, (int)((lane - d) & 31));
    if (lane >= d) v += other;
  }
  return v;
}

// head_of is the head of a step block. What is used of it is on its way at once: where little else
// is to be done, each load that waits for another is half a microsecond more.
template <class S> DEV S head_of(const S *step) {
  const S head = *step;
  sync_warp();
  return head;
}
// span_at is the i-th span of a step whose head is given.
DEV Span span_at(const Step *step, const Step &head, u32 i) { return *(i == 0 ? &step->first : head.span + i); }

DEV float low_bf16(u32 v) { return __builtin_bit_cast(float, v << 16); }
DEV float high_bf16(u32 v) { return __builtin_bit_cast(float, v & 0xffff0000u); }
DEV float exp(float x) { return ex2(x * 1.4426950408889634f); }
// exp_precise has a relative error under 4e-7 for |x| up to 87; beyond, it stays at the value there. A NaN stays one.
DEV float exp_precise(float x) {
  x = x < -87 ? -87 : x > 87 ? 87 : x;
  const float whole = fma(x, 1.4426950408889634f, 12582912), n = whole - 12582912; // 1.5 · 2^23: rounds, and has the whole number in its last bits
  const float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
  return ex2(r * 1.4426950408889634f) * __builtin_bit_cast(float, (__builtin_bit_cast(u32, whole) + 127) << 23);
}

// silu of a projection; sigmoid, and silu of what goes on in f32.
DEV float silu(float x) { return x * reciprocal(1 + exp(-x)); }
DEV float sigmoid(float x) { return reciprocal(1 + exp_precise(-x)); }
DEV float silu_precise(float x) { return x * sigmoid(x); }

// norm_scale is what a norm multiplies by, 1 / √(mean(x²) + eps), of the sum of n squares.
DEV float norm_scale(float total, u32 n, float eps) { return rsqrt(fma(total, reciprocal((float)n), eps)); }
