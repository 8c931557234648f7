// Copies to shared memory that complete their bytes at a barrier: boxes of tensor
// maps, runs of bytes, numbers sent to another block. They arrive as late as can
// be: when no lane can go on without them, the newest first; or, where lanes run in a
// random order, at any time and in any order.
#include "hopper_state.h"

#include <stdio.h>
#include <string.h>

#include <deque>
#include <vector>

#include "tensor_map.h"

namespace emulator {

namespace {

struct Pending {
  u8 *to;
  u32 address, bytes; // of the window
  PhaseBarrier *barrier;
  check::Stamp stamp;
  const TensorMap *map; // a box, with its place; or null
  u32 k, row;
  const u8 *from;       // a run of bytes; or null
  float v[4];
};
std::deque<Pending> pending;

void start(Pending p) {
  check::in_flight_by_proxy(p.to, p.bytes);
  memset(p.to, 0xff, p.bytes);
  p.stamp = check::now_stamp();
  pending.push_back(p);
}

PhaseBarrier *completes_at(u32 barrier, const char *what, const char *file, int line) {
  PhaseBarrier &b = barrier_at(barrier, what, file, line);
  if (!b.fenced) fail("%s at %s:%d completes at a barrier: no barriers_made() came after its barrier_init", what, base_name(file), line);
  return &b;
}

// box copies a box in the 128-byte swizzle; what is outside of the matrix is zero.
void box(const Pending &p) {
  const TensorMap &m = *p.map;
  memset(p.to, 0, p.bytes);
  u32 line_bytes = m.box_columns * 2;
  for (u32 r = 0; r < m.box_rows && p.row + r < m.rows; r++)
    for (u32 byte = 0; byte < line_bytes; byte += 2) {
      if (p.k + byte / 2 >= m.columns) break;
      u32 offset = r * line_bytes + byte, address = p.address + offset;
      u32 turned = (address & ~0x70u) | ((address >> 4 ^ address >> 7) & 7) << 4;
      memcpy(p.to + (turned - p.address), m.data + (p.row + r) * m.stride + (p.k + byte / 2) * 2, 2);
    }
}

} // namespace

void copy_box(u32 to, const void *map, u32 k, u32 row, u32 barrier, u32 blocks, const char *file, int line) {
  at(file, line);
  auto *m = (const TensorMap *)map;
  if ((uintptr_t)map % 64 || m->mark != tensor_map_mark) fail("copy_box at %s:%d: %p is no tensor map", base_name(file), line, map);
  u32 bytes = m->box_columns * m->box_rows * 2;
  if ((to & 0xffffff) % 128) fail("misaligned: copy_box at %s:%d to shared address %#x, want a multiple of 128", base_name(file), line, to);
  if (to >> 24 || barrier >> 24) fail("copy_box at %s:%d to an address of another block: blocks are named by their mask", base_name(file), line);
  if (blocks >> cluster_size()) fail("copy_box at %s:%d to blocks %#x of a cluster of %u", base_name(file), line, blocks, cluster_size());
  // Zeroes beyond the matrix are no reads.
  for (u32 r = 0; r < m->box_rows && row + r < m->rows; r++) {
    u64 columns = k < m->columns ? m->columns - k : 0;
    if (columns > m->box_columns) columns = m->box_columns;
    if (columns) check::access(m->data + (row + r) * m->stride + u64(k) * 2, u32(columns * 2), check::read | check::at_l2 | check::by_proxy, nullptr);
  }
  for (u32 rank = 0; rank < cluster_size(); rank++) {
    if (!(blocks >> rank & 1)) continue;
    u32 there = in_block(to, rank);
    start({shared_place(there, bytes, "copy_box", file, line), to & 0xffffff, bytes, completes_at(in_block(barrier, rank), "copy_box", file, line), {}, m, k, row, nullptr, {}});
  }
}

void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier, const char *file, int line) {
  at(file, line);
  if ((to | (uintptr_t)from | bytes) % 16) fail("misaligned: copy_bulk at %s:%d of %u bytes from %p to shared address %#x, want multiples of 16", base_name(file), line, bytes, from, to);
  if (!bytes) fail("copy_bulk at %s:%d of nothing", base_name(file), line);
  check::access(from, bytes, check::read | check::at_l2 | check::by_proxy, nullptr);
  start({shared_place(to, bytes, "copy_bulk", file, line), to & 0xffffff, bytes, completes_at(barrier, "copy_bulk", file, line), {}, nullptr, 0, 0, (const u8 *)from, {}});
}

void send(u32 to, const float *v, u32 barrier, const char *file, int line) {
  at(file, line);
  u32 rank = (to >> 24) - 1;
  if (!(to >> 24) || to >> 24 != barrier >> 24) fail("give at %s:%d: both addresses must be of one block of the cluster", base_name(file), line);
  if (rank == group.rank) fail("give at %s:%d to the block that executes it, which is undefined", base_name(file), line);
  Pending p{shared_place(to, 16, "give", file, line), to & 0xffffff, 16, completes_at(barrier, "give", file, line), {}, nullptr, 0, 0, nullptr, {}};
  memcpy(p.v, v, sizeof p.v);
  start(p);
}

bool deliver() {
  if (pending.empty()) return false;
  size_t i = pending.size() - 1;
  for (unsigned seen = 2; seen <= pending.size(); seen++)
    if (chance(seen)) i = pending.size() - seen;
  Pending p = pending[i];
  pending.erase(pending.begin() + long(i));
  if (p.map) box(p);
  else memcpy(p.to, p.from ? (const void *)p.from : (const void *)p.v, p.bytes);
  check::Stamp there = check::renewed(p.stamp); // what orders the start of a copy does not order its end
  check::arrived_by_proxy(p.to, p.bytes, there);
  complete(*p.barrier, p.bytes, there);
  return true;
}

void forget_bulk() { pending.clear(); }

const char *undelivered() {
  static char text[100];
  if (pending.empty()) return nullptr;
  snprintf(text, sizeof text, "%zu copies to shared memory are on their way when the blocks end", pending.size());
  return text;
}

} // namespace emulator
