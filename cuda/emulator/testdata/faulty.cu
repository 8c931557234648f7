// Kernels with one fault each, which the checked build must report, and
// correct ones that come near, which it must not. Blocks have 128 threads.
#include "gpu.cuh"

#define FAULTY(name, ...) KERNEL(128) void name(__VA_ARGS__)

// No barrier between writing and reading shared memory.
FAULTY(no_sync, const float *in, float *out) {
  dependency_wait();
  SHARED(no_sync) float s[128];
  s[tid()] = in[tid()];
  out[tid()] = s[127 - tid()];
}

// A barrier of the warp where the block's is needed.
FAULTY(warp_sync_only, const float *in, float *out) {
  dependency_wait();
  SHARED(warp_sync_only) float s[128];
  s[tid()] = in[tid()];
  sync_warp();
  out[tid()] = s[127 - tid()];
}

// A shuffle orders no memory.
FAULTY(shuffle_is_no_barrier, const float *in, float *out) {
  dependency_wait();
  SHARED(shuffle_is_no_barrier) float s[128];
  s[tid()] = in[tid()];
  shfl_xor(s[tid()], 1);
  out[tid()] = s[tid() ^ 1];
}

// The next round overwrites what others still read.
FAULTY(no_sync_before_reuse, const float *in, float *out) {
  dependency_wait();
  SHARED(no_sync_before_reuse) float s[128];
  float sum = 0;
  for (u32 i = 0; i < 2; i++) {
    s[tid()] = in[i * 128 + tid()];
    sync();
    sum += s[127 - tid()];
  }
  out[tid()] = sum;
}

// One of two groups of warps waits, the other does not.
FAULTY(barrier_of_wrong_group, const float *in, float *out) {
  dependency_wait();
  SHARED(barrier_of_wrong_group) float s[128];
  s[tid()] = in[tid()];
  sync_group(1 + tid() / 64, 64);
  out[tid()] = s[tid() ^ 64];
}

FAULTY(no_copy_wait, const float *in, float *out) {
  dependency_wait();
  alignas(16) SHARED(no_copy_wait) float s[512];
  copy_async(s + tid() * 4, in + tid() * 4);
  copy_commit();
  out[tid()] = s[tid() * 4];
}

// Waits for all but the newest batch, and reads the newest.
FAULTY(copy_wait_of_older, const float *in, float *out) {
  dependency_wait();
  alignas(16) SHARED(copy_wait_of_older) float s[1024];
  for (u32 i = 0; i < 2; i++) {
    copy_async(s + i * 512 + tid() * 4, in + i * 512 + tid() * 4);
    copy_commit();
  }
  copy_wait<1>();
  out[tid()] = s[512 + tid() * 4];
}

// A copy is waited for by the thread that made it, and shown to none else.
FAULTY(no_sync_after_copy_wait, const float *in, float *out) {
  dependency_wait();
  alignas(16) SHARED(no_sync_after_copy_wait) float s[512];
  copy_async(s + tid() * 4, in + tid() * 4);
  copy_commit();
  copy_wait<0>();
  out[tid()] = s[508 - tid() * 4];
}

// A copy into a buffer that others may still be reading.
FAULTY(copy_into_read_buffer, const float *in, float *out) {
  dependency_wait();
  alignas(16) SHARED(copy_into_read_buffer) float s[512];
  float sum = 0;
  for (u32 i = 0; i < 2; i++) {
    copy_async(s + tid() * 4, in + i * 512 + tid() * 4);
    copy_commit();
    copy_wait<0>();
    sync();
    sum += s[508 - tid() * 4];
  }
  out[tid()] = sum;
}

FAULTY(read_past_end, const float *in, float *out, u32 n) {
  dependency_wait();
  out[tid()] = in[n - 127 + tid()];
}

FAULTY(write_past_end, float *out) {
  dependency_wait();
  out[tid() + 1] = 1;
}

// Past the end of the launch's dynamic shared memory.
FAULTY(dynamic_shared_overrun, float *out) {
  dependency_wait();
  DYNAMIC_SHARED(dynamic_shared_overrun, memory);
  float *s = (float *)memory;
  s[tid() + 1] = 1;
  sync();
  out[tid()] = s[tid() + 1];
}

// An index past a shared array, into the next one.
FAULTY(shared_array_overrun, float *out, u32 n) {
  dependency_wait();
  SHARED(shared_array_overrun) float a[64];
  SHARED(shared_array_overrun) float b[64];
  if (tid() < 64) b[tid()] = 1;
  sync();
  if (tid() == 0) a[n] = 2;
  out[tid()] = tid() < 64 ? b[tid()] : 0;
}

FAULTY(uninitialised_shared, float *out) {
  dependency_wait();
  SHARED(uninitialised_shared) float s[128];
  if (tid() != 5) s[tid()] = 1;
  sync();
  out[tid()] = s[tid()];
}

FAULTY(divergent_barrier, float *out) {
  dependency_wait();
  if (tid() < 32) sync();
  out[tid()] = 1;
}

// The threads of one warp at two barriers.
FAULTY(two_barriers, float *out) {
  dependency_wait();
  if (tid() % 2)
    sync();
  else
    sync_group(0, 128);
  out[tid()] = 1;
}

FAULTY(divergent_shuffle, float *out) {
  dependency_wait();
  float v = 1;
  if (tid() % 2) v = shfl_xor(v, 2);
  out[tid()] = v;
}

// Half of a warp has left when the rest reduces.
FAULTY(exited_lanes, float *out, u32 n) {
  dependency_wait();
  if (tid() >= n) return;
  out[tid()] = warp_sum(1);
}

FAULTY(misaligned_vector, const float *in, float *out) {
  dependency_wait();
  u32x4 v = *(const u32x4 *)(in + tid() + 1);
  out[tid()] = float(v.x);
}

FAULTY(misaligned_stream, const float *in, float *out) {
  dependency_wait();
  out[tid()] = float(load_stream(in + tid() * 2).x);
}

FAULTY(misaligned_copy, const float *in, float *out) {
  dependency_wait();
  alignas(16) SHARED(misaligned_copy) float s[512];
  copy_async(s + tid() * 4, in + tid() * 2);
  copy_commit();
  copy_wait<0>();
  out[tid()] = s[tid() * 4];
}

// Two blocks write one place.
FAULTY(blocks_collide, float *out) {
  dependency_wait();
  out[tid()] = float(bid());
}

// One block reads what another writes.
FAULTY(blocks_do_not_wait, float *data, float *out) {
  dependency_wait();
  if (bid() == 0) data[tid()] = 1;
  if (bid() == 3) out[tid()] = data[tid()];
}

// What the last block of a grid sums; the flags leave out one step each.
template <bool fenced, bool counted, bool fence_after, bool through_l2> DEV void last_block(float *partials, u32 *ticket, float *out, u32 *last) {
  dependency_wait();
  partials[bid() * 128 + tid()] = float(tid());
  sync();
  if (tid() == 0) {
    if (fenced) fence();
    *last = counted ? atomic_add(ticket, 1) == gdim() - 1 : bid() == gdim() - 1;
  }
  sync();
  if (!*last) return;
  if (fence_after) fence();
  float sum = 0;
  for (u32 b = 0; b < gdim(); b++) sum += through_l2 ? load_l2(partials + b * 128 + tid()) : partials[b * 128 + tid()];
  out[tid()] = sum;
  if (tid() == 0) *ticket = 0;
}
#define TICKET(name, ...)                                          \
  FAULTY(name, float *partials, u32 *ticket, float *out) {         \
    SHARED(name) u32 last;                                         \
    last_block<__VA_ARGS__>(partials, ticket, out, &last);         \
  }
TICKET(ticket_without_fence, false, true, true, true)
TICKET(no_ticket, true, false, true, true)
TICKET(ticket_then_l1, true, true, false, false)
TICKET(ok_ticket, true, true, true, false)
TICKET(ok_ticket_l2, true, true, false, true)

// Each thread fences its own writes, one takes the ticket after a barrier.
FAULTY(ok_ticket_all_fence, float *partials, u32 *ticket, float *out) {
  SHARED(ok_ticket_all_fence) u32 last;
  dependency_wait();
  partials[bid() * 128 + tid()] = float(tid());
  fence();
  sync();
  if (tid() == 0) last = atomic_add(ticket, 1) == gdim() - 1;
  sync();
  if (!last) return;
  fence();
  float sum = 0;
  for (u32 b = 0; b < gdim(); b++) sum += partials[b * 128 + tid()];
  out[tid()] = sum;
  if (tid() == 0) *ticket = 0;
}

// One thread's fence does not cover what others wrote after the last barrier.
FAULTY(fence_before_barrier, float *partials, u32 *ticket, float *out) {
  SHARED(fence_before_barrier) u32 last;
  dependency_wait();
  if (tid() == 0) fence();
  partials[bid() * 128 + tid()] = float(tid());
  sync();
  if (tid() == 0) last = atomic_add(ticket, 1) == gdim() - 1;
  sync();
  if (!last) return;
  fence();
  float sum = 0;
  for (u32 b = 0; b < gdim(); b++) sum += partials[b * 128 + tid()];
  out[tid()] = sum;
}

// Reads what the kernel before wrote without waiting for it.
FAULTY(reads_before_wait, const float *in, float *out) {
  float v = in[tid()];
  dependency_wait();
  out[tid()] = v;
}

// Overwrites what the kernel before may still read.
FAULTY(writes_before_wait, float *out) {
  out[tid()] = 1;
  dependency_wait();
}

FAULTY(never_waits, float *out) { out[tid()] = 1; }

FAULTY(shift_too_far, float *out, u32 n) {
  dependency_wait();
  out[tid()] = float(1u << n);
}

// Correct: barriers of the block, of a group of warps and of a warp; copies in
// two stages; reads by many, then a write after a barrier; atomics.
FAULTY(ok_barriers, const float *in, float *out) {
  dependency_wait();
  SHARED(ok_barriers) float s[128];
  float sum = 0;
  for (u32 i = 0; i < 2; i++) {
    s[tid()] = in[i * 128 + tid()];
    sync();
    sum += s[127 - tid()];
    sync();
    s[tid()] = sum;
    sync_group(1 + tid() / 64, 64);
    sum += s[tid() ^ 63];
    sync_group(1 + tid() / 64, 64);
    s[tid()] = sum;
    sync_warp();
    sum += s[tid() ^ 31];
    sync_warp();
    s[tid()] = sum;
    sync_warp();
    sum += s[tid() ^ 1];
    sync();
  }
  out[tid()] = sum;
}

FAULTY(ok_copies, const float *in, float *out) {
  dependency_wait();
  DYNAMIC_SHARED(ok_copies, memory);
  float *s = (float *)memory, sum = 0;
  auto load = [&](u32 i) {
    if (i < 4) copy_async(s + i % 2 * 512 + tid() * 4, in + i * 512 + tid() * 4, tid() < 100 ? 16 : 0);
    copy_commit();
  };
  load(0);
  for (u32 i = 0; i < 4; i++) {
    load(i + 1);
    copy_wait<1>();
    sync();
    sum += s[i % 2 * 512 + 508 - tid() * 4];
    sync();
  }
  out[tid()] = sum;
}

// Reads what nobody has written, and says that it does not matter.
FAULTY(ok_unwritten, float *out) {
  dependency_wait();
  SHARED(ok_unwritten) float s[160];
  if (tid() < 100) s[tid()] = 1;
  sync();
  allow_unwritten(s + 100, 28 * 4);
  float v = s[tid()];
  out[tid()] = tid() < 100 ? v : 0;
}

FAULTY(ok_atomic, u32 *out) {
  dependency_wait();
  atomic_add(out, 1);
}

FAULTY(ok_bytes, u8 *out) {
  dependency_wait();
  SHARED(ok_bytes) u8 s[128];
  s[tid()] = u8(tid());
  sync();
  out[tid()] = s[tid() ^ 1];
}

FAULTY(ok_constants_before_wait, const float *in, float *out) {
  float v = in[tid()];
  dependency_wait();
  out[tid()] += v;
}

// Reads what the kernel before the last one wrote: the last one waited for it before it let
// this one begin, or did not.
FAULTY(reads_what_came_before, const float *in, float *out) {
  float v = in[tid()];
  dependency_wait();
  out[tid()] = v;
}

FAULTY(late, float *out) {
  dependency_wait();
  launch_dependents();
  out[tid()] = 1;
}

FAULTY(early, float *out) {
  launch_dependents();
  dependency_wait();
  out[tid()] = 1;
}

FAULTY(set, float *out) {
  dependency_wait();
  out[tid()] = 1;
}
REGISTER(no_sync)
REGISTER(warp_sync_only)
REGISTER(shuffle_is_no_barrier)
REGISTER(no_sync_before_reuse)
REGISTER(barrier_of_wrong_group)
REGISTER(no_copy_wait)
REGISTER(copy_wait_of_older)
REGISTER(no_sync_after_copy_wait)
REGISTER(copy_into_read_buffer)
REGISTER(read_past_end)
REGISTER(write_past_end)
REGISTER(dynamic_shared_overrun)
REGISTER(shared_array_overrun)
REGISTER(uninitialised_shared)
REGISTER(divergent_barrier)
REGISTER(two_barriers)
REGISTER(divergent_shuffle)
REGISTER(exited_lanes)
REGISTER(misaligned_vector)
REGISTER(misaligned_stream)
REGISTER(misaligned_copy)
REGISTER(blocks_collide)
REGISTER(blocks_do_not_wait)
REGISTER(ticket_without_fence)
REGISTER(no_ticket)
REGISTER(ticket_then_l1)
REGISTER(ok_ticket)
REGISTER(ok_ticket_l2)
REGISTER(ok_ticket_all_fence)
REGISTER(fence_before_barrier)
REGISTER(reads_before_wait)
REGISTER(writes_before_wait)
REGISTER(never_waits)
REGISTER(shift_too_far)
REGISTER(ok_barriers)
REGISTER(ok_copies)
REGISTER(ok_unwritten)
REGISTER(ok_atomic)
REGISTER(ok_bytes)
REGISTER(ok_constants_before_wait)
REGISTER(reads_what_came_before)
REGISTER(late)
REGISTER(early)
REGISTER(set)
