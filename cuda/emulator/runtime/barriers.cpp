// Barriers in shared memory (mbarrier), the barrier of a cluster, and what else
// waits for memory.
#include "hopper_state.h"

#include <map>
#include <vector>

#include <string.h>

namespace emulator {

namespace {

std::map<const u8 *, PhaseBarrier> barriers;

// Meeting is the barrier of a cluster: lanes arrive, and wait later.
struct Meeting {
  u32 arrived, phase;
  check::Knowledge coming, there;
};
Meeting meetings[max_waves]; // by cluster of the cohort
u32 waits_for[max_lanes];    // by lane: the phase that it has arrived at, and one
u32 waited_for[max_lanes];   // the last one that is over for it

// Seen is a lane's last look at a word that others change.
struct Seen {
  const u32 *address;
  u32 value;
  u64 changes;
};
Seen seen[max_lanes];
// Look is how often a lane let others go on since a change.
struct Look {
  u64 changes;
  unsigned times;
};
Look looks[max_lanes];

u32 rank_of(u32 address) { return address >> 24 ? (address >> 24) - 1 : group.rank; }

void step(PhaseBarrier &b) {
  if (b.left || b.bytes) return;
  b.phase++;
  b.left = b.expected;
  b.there = b.coming;
  changed();
}

} // namespace

void at(const char *file, int line) {
  current->file = file;
  current->line = line;
}

u32 shared_address(const void *p) {
  Range own = shared_of(group.rank);
  if ((u8 *)p < own.begin || (u8 *)p > own.end) fail("shared_address of %p, which is not in this block's dynamic shared memory", p);
  return window + u32((u8 *)p - own.begin);
}

u32 in_block(u32 address, u32 rank) {
  if (address >> 24) fail("in_block of %#x, which is an address of another block", address);
  if (rank >= cluster_size()) fail("in_block: block %u of a cluster of %u", rank, cluster_size());
  return address | (rank + 1) << 24;
}

u8 *shared_place(u32 address, u32 bytes, const char *what, const char *file, int line) {
  at(file, line);
  u32 rank = rank_of(address), offset = address & 0xffffff;
  Range r = shared_of(rank);
  if (!r.begin) fail("%s at %s:%d of shared memory of block %u of the cluster, which has ended or is none", what, base_name(file), line, rank);
  if (offset < window || offset - window + bytes > r.end - r.begin) fail("out of bounds: %s at %s:%d of %u bytes at byte %lld of %zu of dynamic shared memory", what, base_name(file), line, bytes, (long long)offset - window, size_t(r.end - r.begin));
  if (offset % (bytes < 16 ? bytes : 16)) fail("misaligned: %s at %s:%d of %u bytes at shared address %#x", what, base_name(file), line, bytes, offset);
  return r.begin + (offset - window);
}

void barrier_init(u32 barrier, u32 arrivals, const char *file, int line) {
  if (barrier >> 24) fail("barrier_init at %s:%d in another block", base_name(file), line);
  if (!arrivals || arrivals >= 1 << 20) fail("barrier_init at %s:%d for %u arrivals", base_name(file), line, arrivals);
  u8 *p = shared_place(barrier, 8, "barrier_init", file, line);
  check::reserve(p, 8);
  barriers[p] = {arrivals, arrivals, 0, 0, false, 0, check::now_stamp(), {}, {}};
}

void barriers_made() {
  // Those of this block alone: a lane makes no other's.
  Range own = shared_of(group.rank);
  for (auto &[p, b] : barriers)
    if (p >= own.begin && p < own.end) b.fenced = true;
}

PhaseBarrier &barrier_at(u32 address, const char *what, const char *file, int line) {
  auto found = barriers.find(shared_place(address, 8, what, file, line));
  if (found == barriers.end()) fail("%s at %s:%d: there is no barrier at shared address %#x", what, base_name(file), line, address & 0xffffff);
  PhaseBarrier &b = found->second;
  if ((!b.shown || waited_for[current->number] < b.shown) && !check::knows(b.made)) fail("race: %s at %s:%d of a barrier whose barrier_init nothing orders before", what, base_name(file), line);
  if (!b.fenced && rank_of(address) != group.rank) fail("%s at %s:%d of another block's barrier: no barriers_made() came after its barrier_init", what, base_name(file), line);
  return b;
}

void complete(PhaseBarrier &b, u32 bytes, check::Stamp s) {
  b.bytes -= bytes;
  check::release(b.coming, s);
  step(b);
}

void barrier_arrive(u32 barrier, u32 bytes, const char *file, int line) {
  PhaseBarrier &b = barrier_at(barrier, "an arrival", file, line);
  if (!b.left) fail("an arrival at %s:%d: the phase has its %u arrivals, and waits for %lld bytes of copies", base_name(file), line, b.expected, b.bytes);
  check::release(b.coming);
  b.left--;
  b.bytes += bytes;
  step(b);
}

// waited_at is the barrier of a wait, or of a look.
static PhaseBarrier &waited_at(u32 barrier, u32 parity, const char *file, int line) {
  if (barrier >> 24) fail("a wait at %s:%d for another block's barrier", base_name(file), line);
  PhaseBarrier &b = barrier_at(barrier, "a wait", file, line);
  if (parity > 1) fail("a wait at %s:%d for parity %u", base_name(file), line, parity);
  if (chance(8)) deliver();
  return b;
}

void barrier_wait(u32 barrier, u32 parity, const char *file, int line) {
  PhaseBarrier &b = waited_at(barrier, parity, file, line);
  while ((b.phase & 1) == parity) park(file, line);
  check::acquire(b.there);
}

// A phase that is over may not be seen to be yet.
bool barrier_over(u32 barrier, u32 parity, const char *file, int line) {
  PhaseBarrier &b = waited_at(barrier, parity, file, line);
  if ((b.phase & 1) == parity || chance(8)) return false;
  check::acquire(b.there);
  return true;
}

// A cluster's barrier counts all of its lanes: here none may have ended.
void cluster_arrive(bool release, const char *file, int line) {
  at(file, line);
  Meeting &m = meetings[group.number / cluster_size()];
  u32 &mine = waits_for[current->number];
  if (mine) fail("cluster_arrive at %s:%d by a thread that has arrived, and not waited", base_name(file), line);
  mine = m.phase + 1;
  if (release) check::release(m.coming);
  if (++m.arrived < group.lanes * cluster_size()) return;
  m.arrived = 0;
  m.phase++;
  m.there = m.coming;
  for (unsigned rank = 0; rank < cluster_size(); rank++) {
    Range r = shared_of(rank);
    for (auto &[p, b] : barriers)
      if (p >= r.begin && p < r.end && b.fenced && !b.shown) b.shown = m.phase;
  }
  changed();
}

void cluster_wait(const char *file, int line) {
  at(file, line);
  Meeting &m = meetings[group.number / cluster_size()];
  u32 &mine = waits_for[current->number];
  if (!mine) fail("cluster_wait at %s:%d by a thread that has not arrived", base_name(file), line);
  while (m.phase < mine) park(file, line);
  waited_for[current->number] = mine;
  mine = 0;
  check::acquire(m.there);
}

void forget_barriers(unsigned lanes) {
  barriers.clear();
  for (Meeting &m : meetings) m = {};
  memset(waits_for, 0, lanes * sizeof *waits_for);
  memset(waited_for, 0, lanes * sizeof *waited_for);
  memset(seen, 0, lanes * sizeof *seen);
  memset(looks, 0, lanes * sizeof *looks);
}

void proxy_fence() { check::proxy_fence(); }

void operation_elect(Wave &w) { *(u32 *)w.operands() = 0; }

void set_registers(u32 n, const char *file, int line) {
  if (n < 24 || n > 256 || n % 8) fail("%u registers a thread at %s:%d: 24 to 256, in steps of 8, can be", n, base_name(file), line);
  meet(operation_elect, file, line); // all lanes of the warp
}

// Whoever loads knows of nothing but what it finds.
void store_relaxed(void *p, u64 v, const char *file, int line) {
  if ((uintptr_t)p % 8) fail("misaligned: store_relaxed at %s:%d of %p", base_name(file), line, p);
  at(file, line);
  check::store_relaxed(p, 8);
  *(u64 *)p = v;
  changed();
}

u64 load_relaxed(const void *p, const char *file, int line) {
  if ((uintptr_t)p % 8) fail("misaligned: load_relaxed at %s:%d of %p", base_name(file), line, p);
  at(file, line);
  check::load_relaxed(p, 8);
  return *(const u64 *)p;
}

// Whoever has looked some times since anybody did anything waits until somebody does: lanes of a warp that look
// together may have looked before and behind the last change.
void let_others(const char *file, int line) {
  Look &l = looks[current->number];
  if (l.changes != changes) l = {changes, 0};
  else if (++l.times > 3) park(file, line);
}

u32 load_acquire(const u32 *p, const char *file, int line) {
  if ((uintptr_t)p % 4) fail("misaligned: load_acquire at %s:%d of %p", base_name(file), line, (const void *)p);
  Seen &s = seen[current->number];
  // A loop that finds what it found before waits until somebody has done something.
  if (s.address == p && s.changes == changes) park(file, line);
  at(file, line);
  check::load_atomic(p);
  s = {p, *p, changes};
  return s.value;
}

} // namespace emulator
