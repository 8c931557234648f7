// Kernels of compute capability 9.0 with one fault each, which the checked build
// must report, and correct ones that come near, which it must not. Blocks have 160
// threads: a warpgroup, and a warp that copies. map is of 64 rows of 256 bf16, in
// boxes of 64 by 64; data has 8192 bytes or more.
#include "hopper.cuh"
#ifdef __NVPTX__ // the tests' images are read for their entries alone
template <int tiles> DEV void product(float (&)[tiles][4], const u32 (&)[4], u64, bool) {}
#endif

#define ARGUMENTS const void *map, float *data, u32 *counts, float *out
// A kernel is body<fault>; clusters are marked by their names, as in ../../kernels/build.sh.
#define FAULTY(name, body, fault)                        \
  HOPPER_KERNEL(160) void name(ARGUMENTS) {              \
    DYNAMIC_SHARED(name, memory);                        \
    body<fault>(memory, map, data, counts, out);         \
  }                                                      \
  REGISTER(name)

enum Fault {
  NONE,
  // of a ring
  WRONG_PARITY, NO_WAIT, EARLY_FREE, EARLY_REFILL, FEW_BYTES, MANY_BYTES, NOT_MADE, NO_SYNC, OUTSIDE, OFF_LINE, OFF_SWIZZLE,
  // of products
  EARLY_SUMS, NO_FENCE, NO_COMMIT, PART_WAYS, BY_STORES, BY_COPIES,
  // of bulk copies
  OFF_TARGET, OFF_SOURCE, ODD_SIZE, PAST_SOURCE, TWICE,
  // of clusters
  NO_CLUSTER_SYNC, OWN_BLOCK, RELAXED, HAS_LEFT, HAS_LEFT_ALONE,
  // of blocks that meet
  NO_RELEASE, WRONG_COUNTER, ONE_THREAD, HIDDEN, NOT_LOOKED_FOR,
};

constexpr u32 TILE = 8192; // bytes of a box

// Dynamic shared memory: barriers, two tiles, 4096 bytes of sums, from a multiple of 1024 on.
DEV u32 start(const u8 *memory) { return (shared_address(memory) + 1023) / 1024 * 1024; }
DEV u32 tile_at(u32 base, u32 stage) { return base + 1024 + stage * TILE; }
DEV u32 sums_at(u32 base) { return base + 1024 + 2 * TILE; }

// multiply starts c[64, 64] (+)= ones[64, 64] · tile[64, 64]ᵀ; turn is 1 where the
// steps are not in order.
DEV void multiply(float (&c)[8][4], u32 tile, bool add, u32 turn = 0) {
  const u32 ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
  for (u32 k = 0; k < 4; k++) product(c, ones, descriptor(tile + (k ^ turn) * 32), add || k > 0);
}

DEV float sum_of(const float (&c)[8][4]) {
  float sum = 0;
  for (u32 i = 0; i < 32; i++) sum += c[i / 4][i % 4];
  return sum;
}

// ring passes four boxes of map through two stages.
template <Fault F> DEV void ring(u8 *memory, ARGUMENTS) {
  const u32 base = start(memory), full = base, empty = base + 16, warp = tid() / 32;
  if (tid() == 0) {
    for (u32 s = 0; s < 2; s++) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, 4);
    }
    if (F != NOT_MADE) barriers_made();
  }
  if (F != NO_SYNC) sync();
  dependency_wait();
  Ring at{2};
  if (warp == 4) {
    for (u32 i = 0; i < 4; i++) {
      if (F != EARLY_REFILL) wait_phase(empty + at.stage * 8, at.phase ^ 1);
      else if (i >= 2) wait_phase(full + at.stage * 8, at.phase ^ 1); // there, but not used
      if (tid() % 32 == 0) {
        u32 to = tile_at(base, at.stage);
        if (F == OUTSIDE) to = sums_at(base) + 1024; // its end is past the end
        if (F == OFF_LINE) to += 64;
        expect(full + at.stage * 8, F == FEW_BYTES ? TILE - 16 : F == MANY_BYTES ? TILE + 16 : TILE);
        copy_box(to, map, i * 64, 0, full + at.stage * 8);
      }
      sync_warp();
      at.next();
    }
    return;
  }
  float c[8][4];
  for (u32 i = 0; i < 4; i++) {
    if (F != NO_WAIT) wait_phase(full + at.stage * 8, F == WRONG_PARITY ? at.phase ^ 1 : at.phase);
    if (F != NO_FENCE) products_fence();
    multiply(c, tile_at(base, at.stage) + (F == OFF_SWIZZLE ? 128 : 0), i > 0, F == PART_WAYS && warp == 3);
    if (F != NO_COMMIT) products_commit();
    if (F == EARLY_FREE) arrive(empty + at.stage * 8, tid() % 32 == 0);
    if (F == EARLY_SUMS) out[bid() * 128 + tid()] = sum_of(c);
    products_wait<0>(c);
    if (F != EARLY_FREE) arrive(empty + at.stage * 8, tid() % 32 == 0);
    at.next();
  }
  if (F != EARLY_SUMS) out[bid() * 128 + tid()] = sum_of(c);
}
FAULTY(ok_ring, ring, NONE)
FAULTY(wrong_parity, ring, WRONG_PARITY)
FAULTY(no_wait_for_copy, ring, NO_WAIT)
FAULTY(freed_before_product, ring, EARLY_FREE)
FAULTY(refilled_before_free, ring, EARLY_REFILL)
FAULTY(too_few_bytes, ring, FEW_BYTES)
FAULTY(too_many_bytes, ring, MANY_BYTES)
FAULTY(barriers_not_made, ring, NOT_MADE)
FAULTY(barriers_not_shown, ring, NO_SYNC)
FAULTY(box_outside, ring, OUTSIDE)
FAULTY(box_off_line, ring, OFF_LINE)
FAULTY(descriptor_off_swizzle, ring, OFF_SWIZZLE)
FAULTY(sums_before_wait, ring, EARLY_SUMS)
FAULTY(no_products_fence, ring, NO_FENCE)
FAULTY(products_not_committed, ring, NO_COMMIT)
FAULTY(warps_part_ways, ring, PART_WAYS)

// stored multiplies what its threads wrote themselves, by stores or by copies of
// their own; shown tells the product of it.
template <Fault F, bool shown> DEV void stored(u8 *memory, ARGUMENTS) {
  const u32 tile = tile_at(start(memory), 0);
  dependency_wait();
  if (tid() >= 128) return;
  for (u32 i = 0; i < 4; i++) {
    const u32 at = (i * 128 + tid()) * 16;
    if (F == BY_STORES) put_at(tile + at, {1, 1, 1, 1});
    else copy_to(tile + at, (const u8 *)data + at, true);
  }
  copy_commit();
  copy_wait<0>();
  if (shown) proxy_fence();
  sync_group(1, 128);
  float c[8][4];
  products_fence();
  multiply(c, tile, false);
  products_commit();
  products_wait<0>(c);
  out[tid()] = sum_of(c);
}
template <Fault F> DEV void stored_shown(u8 *memory, ARGUMENTS) { stored<F, true>(memory, map, data, counts, out); }
template <Fault F> DEV void stored_hidden(u8 *memory, ARGUMENTS) { stored<F, false>(memory, map, data, counts, out); }
FAULTY(ok_stores, stored_shown, BY_STORES)
FAULTY(ok_copies, stored_shown, BY_COPIES)
FAULTY(stores_not_shown, stored_hidden, BY_STORES)
FAULTY(copies_not_shown, stored_hidden, BY_COPIES)

// bulk copies data in one piece, or in two.
template <Fault F> DEV void bulk(u8 *memory, ARGUMENTS) {
  const u32 base = start(memory), to = tile_at(base, 0) + (F == OFF_TARGET ? 8 : F == OUTSIDE ? 2 * TILE - 1024 : 0);
  if (tid() == 0) {
    barrier_init(base, 1);
    barriers_made();
  }
  sync();
  dependency_wait();
  const float *from = data + (F == OFF_SOURCE ? 2 : F == PAST_SOURCE ? 4 : 0);
  if (tid() / 32 == 4) {
    if (F == TWICE) copy_bulk(to + TILE / 2, from, TILE / 2, base);
    copy_bulk(to, from, F == TWICE ? TILE / 2 : F == ODD_SIZE ? TILE - 8 : TILE, base);
    return;
  }
  if (F != NO_WAIT) wait_phase(base, 0);
  float v[4], sum = 0;
  for (u32 i = 0; i < 4; i++) {
    get(v, to + (i * 128 + tid()) * 16);
    sum += v[0] + v[1] + v[2] + v[3];
  }
  out[tid()] = sum;
}
FAULTY(ok_bulk, bulk, NONE)
FAULTY(bulk_not_waited_for, bulk, NO_WAIT)
FAULTY(bulk_off_target, bulk, OFF_TARGET)
FAULTY(bulk_off_source, bulk, OFF_SOURCE)
FAULTY(bulk_of_odd_size, bulk, ODD_SIZE)
FAULTY(bulk_past_source, bulk, PAST_SOURCE)
FAULTY(bulk_outside, bulk, OUTSIDE)
FAULTY(bulk_twice, bulk, TWICE)

// nobody waits for a barrier that nobody arrives at.
template <Fault F> DEV void nobody(u8 *memory, ARGUMENTS) {
  const u32 base = start(memory);
  if (tid() == 0) {
    barrier_init(base, 2);
    barriers_made();
  }
  sync();
  dependency_wait();
  arrive(base, tid() == 32);
  wait_phase(base, 0);
  out[tid()] = 1;
}
FAULTY(nobody_arrives, nobody, NONE)

// sends gives each block of a cluster a line of each other's.
template <Fault F> DEV void sends(u8 *memory, ARGUMENTS) {
  const u32 base = start(memory), box = sums_at(base), rank = cluster_rank(), lane = tid() % 32;
  if (tid() == 0) {
    barrier_init(base, 1);
    barriers_made();
  }
  if (F == NO_CLUSTER_SYNC) sync();
  else cluster_sync();
  dependency_wait();
  if (tid() >= 32) return;
  if (lane == 0) expect(base, (F == OWN_BLOCK ? 4 : 3) * 512);
  sync_warp();
  const float mine[4] = {1, 2, 3, float(rank)};
  const u32 to = box + rank * 512 + lane * 16;
  for (u32 r = 0; r < 4; r++) {
    if (r != rank || F == OWN_BLOCK) give(in_block(to, r), mine, in_block(base, r));
    else put_at(to, mine);
  }
  if (F != NO_WAIT) wait_with(base, 0);
  float v[4], sum = 0;
  for (u32 r = 0; r < 4; r++) {
    get(v, box + r * 512 + lane * 16);
    sum += v[3];
  }
  out[bid() * 32 + lane] = sum;
}
FAULTY(ok_sends_c4, sends, NONE)
FAULTY(sends_not_waited_for_c4, sends, NO_WAIT)
FAULTY(sends_to_own_block_c4, sends, OWN_BLOCK)
FAULTY(sends_before_made_c4, sends, NO_CLUSTER_SYNC)

// put writes from the first block of two to the second.
template <Fault F> DEV void put(u8 *memory, ARGUMENTS) {
  const u32 base = start(memory), at = sums_at(base) + tid() % 128 * 16;
  constexpr bool leaves = F == HAS_LEFT || F == HAS_LEFT_ALONE;
  if (tid() == 0) {
    barrier_init(base, 128);
    barriers_made();
  }
  cluster_sync();
  dependency_wait();
  if (leaves && cluster_rank() == 1) {
    atomic_add(counts, 1);
    return;
  }
  if (cluster_rank() == 0) {
    if (leaves && tid() == 0) {
      while (load_acquire(counts) < 160) {
      }
    }
    if (leaves) sync();
    if (tid() < 128) {
      if (F != HAS_LEFT_ALONE) put_into(at, 1, {1, 2, 3, 4});
      if (F != RELAXED) arrive_with(base, 1);
    }
  }
  if (leaves) return;
  if (F == RELAXED) {
    cluster_arrive();
    cluster_wait();
  }
  if (cluster_rank() == 1 && tid() < 128) {
    if (F != RELAXED && F != NO_WAIT) wait_with(base, 0);
    float v[4];
    get(v, at);
    out[tid()] = v[3];
  }
  sync_warp();
  cluster_sync();
}
FAULTY(ok_put_pair, put, NONE)
FAULTY(put_not_waited_for_pair, put, NO_WAIT)
FAULTY(put_not_shown_pair, put, RELAXED)
FAULTY(put_to_ended_pair, put, HAS_LEFT)
FAULTY(arrives_at_ended_pair, put, HAS_LEFT_ALONE)

// shared has two blocks load half of a box each for both; each frees it in both.
template <Fault F> DEV void shared(u8 *memory, ARGUMENTS) {
  const u32 base = start(memory), full = base, empty = base + 16, rank = cluster_rank(), lane = tid() % 32;
  if (tid() == 0) {
    for (u32 s = 0; s < 2; s++) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, F == EARLY_REFILL ? 4 : 8);
    }
    barriers_made();
  }
  cluster_sync();
  dependency_wait();
  Ring at{2};
  if (tid() / 32 == 4) {
    if (lane == 0) {
      for (u32 i = 0; i < 4; i++) {
        wait_phase(empty + at.stage * 8, at.phase ^ 1);
        expect(full + at.stage * 8, 2 * TILE / 2);
        copy_box_pair(tile_at(base, at.stage) + rank * (TILE / 2), map, i * 64, rank * 32, full + at.stage * 8);
        at.next();
      }
    }
  } else {
    float c[8][4];
    for (u32 i = 0; i < 4; i++) {
      wait_phase(full + at.stage * 8, at.phase);
      products_fence();
      multiply(c, tile_at(base, at.stage), i > 0);
      products_commit();
      products_wait<0>(c);
      if (F == EARLY_REFILL) arrive(empty + at.stage * 8, lane == 0); // in this block alone
      else arrive_at(empty + at.stage * 8, lane, lane < 2);
      at.next();
    }
    out[bid() * 128 + tid()] = sum_of(c);
  }
  sync_warp();
  cluster_sync();
}
FAULTY(ok_shared_pair, shared, NONE)
FAULTY(freed_by_one_pair, shared, EARLY_REFILL)

// meets adds up what the blocks of the grid wrote, once all have.
template <Fault F> DEV void meets(u8 *, ARGUMENTS) {
  dependency_wait();
  if (F == WRONG_COUNTER && tid() == 0) atomic_add(counts + 1, 1);
  if (tid() < 128) data[bid() * 128 + tid()] = float(bid());
  sync();
  if (tid() == 0) {
    if (F != NO_RELEASE) fence();
    atomic_add(counts, 1);
    while (load_acquire(counts + (F == WRONG_COUNTER)) < gdim()) {
    }
  }
  if (F != ONE_THREAD) sync();
  float sum = 0;
  for (u32 b = 0; b < gdim(); b++) sum += load_l2(data + b * 128 + tid() % 128);
  if (tid() < 128) out[bid() * 128 + tid()] = sum;
}
FAULTY(ok_meets, meets, NONE)
FAULTY(meets_without_fence, meets, NO_RELEASE)
FAULTY(meets_at_wrong_counter, meets, WRONG_COUNTER)
FAULTY(meets_one_thread, meets, ONE_THREAD)

// copies_met copies what the blocks of the grid wrote, once all have.
template <Fault F, bool box = false> DEV void copies_met(u8 *memory, ARGUMENTS) {
  const u32 base = start(memory), to = tile_at(base, 0);
  if (tid() == 0) {
    barrier_init(base, 1);
    barriers_made();
  }
  dependency_wait();
  if (tid() < 128) data[bid() * 128 + tid()] = float(bid());
  if (F != HIDDEN) proxy_fence_global();
  sync();
  if (tid() == 0) {
    if (F != NO_RELEASE) fence();
    atomic_add(counts, 1);
    while (load_acquire(counts) < gdim()) {
    }
  }
  sync();
  if (F != NOT_LOOKED_FOR) proxy_fence_global();
  if (tid() / 32 == 4) {
    if (!box) {
      copy_bulk(to, data, gdim() * 512, base);
    } else if (elected()) {
      expect(base, TILE);
      copy_box(to, map, 0, 0, base);
    }
    return;
  }
  wait_phase(base, 0);
  float v[4], sum = 0;
  for (u32 b = 0; b < gdim(); b++) {
    get(v, to + b * 512 + tid() / 4 * 16);
    sum += v[tid() % 4];
  }
  out[bid() * 128 + tid()] = sum;
}
FAULTY(ok_copies_met, copies_met, NONE)
FAULTY(met_not_shown, copies_met, HIDDEN)
FAULTY(met_not_looked_for, copies_met, NOT_LOOKED_FOR)
FAULTY(met_without_fence, copies_met, NO_RELEASE)

// boxes_met is copies_met by a map, whose matrix data is.
template <Fault F> DEV void boxes_met(u8 *memory, ARGUMENTS) { copies_met<F, true>(memory, map, data, counts, out); }
FAULTY(ok_boxes_met, boxes_met, NONE)
FAULTY(boxes_not_shown, boxes_met, HIDDEN)
FAULTY(boxes_not_looked_for, boxes_met, NOT_LOOKED_FOR)
FAULTY(boxes_without_fence, boxes_met, NO_RELEASE)
