// The checker: a shadow of device and shared memory that says of every byte
// who wrote it and who read it, and finds accesses that nothing orders.
#ifdef CHECKED
#include "checker.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "clocks.h"
#include "order.h"
#include "place.h"

namespace emulator::check {

namespace {

// Reads of one group since the last write: their time, waves, and, where that
// is one wave, its lanes.
typedef unsigned __int128 Waves;
struct Reads {
  Waves waves;
  uint32_t group, when, lanes;
};

// proxied: a copy wrote it, not a lane.
enum : uint8_t { written = 1, by_atomic = 2, initialised = 4, flying = 8, proxied = 16, reserved = 32 };

struct Cell {
  const void *from; // the last write's instruction
  uint32_t group, when;
  uint16_t lane;
  uint8_t flags;
  Reads reads;
  uint32_t others; // index of a list of other groups' reads, or 0
};

// Page: the cells of 1024 bytes. A cell is as small as the accesses are.
struct Page {
  uint64_t stamp = 0;
  unsigned shift = 4; // a cell has 1 << shift bytes
  std::vector<Cell> cells;
  uint64_t written_in = 0, read_in = 0; // the last launches that did
};
constexpr uintptr_t page_bytes = 1024;

struct Region {
  Range range;
  bool shared;
  std::vector<Page> pages;
  const char *name;
};

std::map<const uint8_t *, Region> memory; // device memory that kernels have used
std::vector<Region> shared;
Region *last_region;
Range own, arguments;
Clocks device_clocks, shared_clocks; // all in the first where barriers order all memory
unsigned real_lanes, wave_count; // of a cohort; matrix lanes come after the real ones, from wave_count * wave_lanes on
unsigned group_lanes, at_once;   // group_lanes: of one group, whole waves
std::vector<std::vector<Reads>> other_reads[2]; // of device memory, of shared memory
bool by_wave; // reads are told apart by waves: those of a kernel whose waves pass barriers of their own, in memory or of clusters
uint64_t stamp, launch_stamp, group_stamp, chain; // chain: the first launch that this one may overlap
uint32_t running; // number of the cohort
bool on, touched; // touched: the launch used device memory
const Launch *current_launch;
std::vector<uint32_t> read_until; // by wave: reads before that time are over

bool in(const Range &r, const void *p) { return p >= r.begin && p < r.end; }

void open(Region &r, Range range, bool shared, const char *name) {
  r.range = range;
  r.shared = shared;
  r.name = name;
  uintptr_t first = (uintptr_t)range.begin / page_bytes, last = ((uintptr_t)range.end + page_bytes - 1) / page_bytes;
  r.pages.clear();
  r.pages.resize(last - first);
}

Region *region_of(const uint8_t *p) {
  if (last_region && in(last_region->range, p)) return last_region;
  for (Region &r : shared)
    if (in(r.range, p)) return last_region = &r;
  auto i = memory.upper_bound(p);
  if (i != memory.begin()) {
    --i;
    if (in(i->second.range, p)) return last_region = &i->second;
  }
  Range found;
  const char *name = "device memory";
  if (!allocation(p, found, name)) return nullptr;
  Region &r = memory[found.begin];
  open(r, found, false, name);
  return last_region = &r;
}

// cells returns the first cell of an access and its number of cells, after it
// has made them small enough; the access lies in one page.
Cell *cells(Region &r, Page &page, const uint8_t *p, unsigned bytes, unsigned &count) {
  uint64_t want = r.shared ? group_stamp : launch_stamp;
  unsigned shift = std::min(page.shift, unsigned(__builtin_ctzl((uintptr_t)p | bytes)));
  if (page.stamp != want) {
    page.stamp = want;
    page.shift = shift;
    page.cells.assign(page_bytes >> shift, Cell{});
  } else if (shift < page.shift) {
    std::vector<Cell> fine(page_bytes >> shift);
    for (size_t i = 0; i < fine.size(); i++) fine[i] = page.cells[i >> (page.shift - shift)];
    page.cells = std::move(fine);
    page.shift = shift;
  }
  count = bytes >> page.shift;
  return &page.cells[((uintptr_t)p % page_bytes) >> page.shift];
}

[[noreturn]] void report(const char *what, const Region &r, const uint8_t *p, unsigned bytes, const void *from, const char *other) {
  fail("%s of %u bytes at byte %zu of %zu of %s, %s%s", what, bytes, size_t(p - r.range.begin), size_t(r.range.end - r.range.begin), r.name, place(from).c_str(), other);
}

// near tells whether a lane of a cohort is in the running lane's group.
bool near(uint32_t cohort, unsigned lane) { return cohort == running && (at_once == 1 || lane / group_lanes == current->number / group_lanes); }

[[noreturn]] void race(const char *what, const Region &r, const uint8_t *p, unsigned bytes, const void *from, const char *did, uint32_t group, unsigned lane, const std::string &where) {
  char other[600];
  char block[40] = "";
  char who[60];
  unsigned matrix = wave_count * wave_lanes;
  if (group != running || (lane < matrix && !near(group, lane))) snprintf(block, sizeof block, "%s %u ", dialect.group, (group - 1) * at_once + (lane < matrix ? lane / group_lanes : 0));
  if (lane < matrix)
    snprintf(who, sizeof who, "thread %u", lane % group_lanes);
  else
    snprintf(who, sizeof who, "the matrices of %s %u", dialect.wave, (lane - matrix) / wave_lanes);
  snprintf(other, sizeof other, ": %s by %s%s%s%s, and nothing orders the two", did, block, who, where.empty() ? "" : " at ", where.c_str());
  char first[60];
  snprintf(first, sizeof first, "race: %s", what);
  report(first, r, p, bytes, from, other);
}

Clocks &clocks_of(const Region &r) { return dialect.memory_flags && r.shared ? shared_clocks : device_clocks; }

// reads_before tells whether all of the reads happened before what lane does now; else it names a lane.
bool reads_before(const Clocks &clocks, const Reads &reads, unsigned lane, unsigned &culprit) {
  if (clocks.settled(reads.group, reads.when)) return true;
  for (Waves waves = reads.waves; waves; waves &= waves - 1) {
    unsigned wave = uint64_t(waves) ? unsigned(__builtin_ctzl(uint64_t(waves))) : 64 + unsigned(__builtin_ctzl(uint64_t(waves >> 64)));
    if (wave == lane / wave_lanes && reads.group == running && reads.when < read_until[wave]) continue;
    for (uint32_t lanes = reads.lanes; lanes; lanes &= lanes - 1) {
      culprit = wave * wave_lanes + unsigned(__builtin_ctz(lanes));
      if (!clocks.before(reads.group, culprit, reads.when, lane, false)) return false;
    }
  }
  return true;
}

void add_read(const Clocks &clocks, std::vector<std::vector<Reads>> &lists, Cell &c, unsigned lane) {
  Waves wave = Waves(1) << (lane / wave_lanes);
  uint32_t bit = 1u << (lane % wave_lanes);
  if (c.reads.group != running || (by_wave && c.reads.waves != wave)) {
    if (c.reads.group && !clocks.settled(c.reads.group, c.reads.when)) {
      if (!c.others) {
        c.others = uint32_t(lists.size());
        lists.emplace_back();
      }
      auto &list = lists[c.others];
      auto mine = std::find_if(list.begin(), list.end(), [&](const Reads &r) { return r.group == running && r.waves == wave; });
      if (mine != list.end()) {
        std::swap(*mine, c.reads);
        c.reads.when = clocks.now();
        c.reads.lanes |= bit;
        return;
      }
      list.push_back(c.reads);
    }
    c.reads = {wave, running, clocks.now(), bit};
    return;
  }
  c.reads.when = clocks.now();
  if (c.reads.waves == wave) {
    c.reads.lanes |= bit;
  } else {
    c.reads.waves |= wave;
    c.reads.lanes = ~0u;
  }
}

// check_overlap: a kernel may begin before the one before it has ended, until it waits for that.
void check_overlap(Region &r, Page &page, const uint8_t *p, unsigned bytes, bool writing, const void *from) {
  if (r.shared || !dialect.overlap) return;
  touched = true;
  if (!current->waited) {
    uint64_t other = page.written_in > chain && page.written_in != launch_stamp ? page.written_in : writing && page.read_in > chain && page.read_in != launch_stamp ? page.read_in : 0;
    if (other) report(writing ? "write before dependency_wait()" : "read before dependency_wait()", r, p, bytes, from, ", which an earlier kernel of the stream uses");
  }
  (writing ? page.written_in : page.read_in) = launch_stamp;
}

void access_page(Region &r, const uint8_t *p, unsigned bytes, unsigned kind, unsigned lane, const void *from) {
  unsigned count;
  Clocks &clocks = clocks_of(r);
  Page &page = r.pages[(uintptr_t)p / page_bytes - (uintptr_t)r.range.begin / page_bytes];
  bool writing = kind & write, atomically = kind & atomic;
  check_overlap(r, page, p, bytes, writing, from);
  Cell *first = cells(r, page, p, bytes, count);
  for (Cell *c = first; c < first + count; c++) {
    const char *what = writing ? "write" : "read";
    if (c->flags & reserved) report(what, r, p, bytes, from, ", which is a barrier");
    if (c->flags & flying) race(what, r, p, bytes, from, "an asynchronous copy", c->group, c->lane, c->from ? place(c->from) : "");
    if (r.shared && (!writing || kind & update) && !(c->flags & initialised)) report("read", r, p, bytes, from, ", which nobody has written");
    if (c->flags & written && !(atomically && c->flags & by_atomic)) {
      bool ordered = clocks.settled(c->group, c->when) || clocks.before(c->group, c->lane, c->when, lane, !r.shared && !writing && !(kind & (at_l2 | atomic)) && !near(c->group, c->lane));
      if (!ordered && c->flags & by_atomic) ordered = clocks.before_atomic(c->group, c->when, lane, p);
      if (!ordered) race(what, r, p, bytes, from, "written", c->group, c->lane, place(c->from));
      if (r.shared && kind & by_proxy && !(c->flags & proxied) && c->group == running && !clocks.fenced_for_proxy(c->lane, c->when, lane))
        report(writing ? "an asynchronous copy" : "a product's read", r, p, bytes, from, (": no proxy_fence() after the write at " + place(c->from)).c_str());
      if (!r.shared && kind & by_proxy && c->group == running && !near(c->group, c->lane) && !clocks.fenced_across(c->lane, c->when, lane))
        report("a copy's read", r, p, bytes, from, (": no proxy_fence_global() after the write at " + place(c->from) + ", or before the read").c_str());
    }
    if (!writing) {
      if (!atomically) add_read(clocks, other_reads[r.shared], *c, lane); // atomic loads race with no write that is atomic
      continue;
    }
    unsigned culprit;
    if (c->reads.group && !reads_before(clocks, c->reads, lane, culprit)) race(what, r, p, bytes, from, "read", c->reads.group, culprit, "");
    if (c->others) {
      auto &list = other_reads[r.shared][c->others];
      for (const Reads &o : list)
        if (!reads_before(clocks, o, lane, culprit)) race(what, r, p, bytes, from, "read", o.group, culprit, "");
      list.clear();
    }
    *c = Cell{from, running, clocks.now(), uint16_t(lane), uint8_t(written | initialised | (atomically ? by_atomic : 0)), {}, c->others};
  }
  if (!atomically || dialect.relaxed || kind & relaxed) return;
  if (writing) clocks.atomic(lane, p);
  else clocks.acquire_at(lane, p);
}

} // namespace

Range ignored;

void begin_launch(const Launch &l, Range stack_range, const Range *dynamic, unsigned groups) {
  if (!own.begin) own = image_of((void *)begin_launch);
  ignored = stack_range;
  arguments = {(uint8_t *)l.arguments, (uint8_t *)(l.arguments + l.kernel->parameters)};
  current_launch = &l;
  launch_stamp = ++stamp;
  other_reads[0].assign(1, {});
  last_region = nullptr;
  at_once = l.at_once;
  by_wave = at_once > 1; // groups of a cluster arrive each at its own time
  real_lanes = l.lanes * at_once;
  group_lanes = (l.lanes + wave_lanes - 1) / wave_lanes * wave_lanes;
  wave_count = group_lanes / wave_lanes * at_once;
  for (Clocks *c : {&device_clocks, &shared_clocks}) c->begin_launch(wave_count * wave_lanes * (dialect.matrix_lanes ? 2 : 1));
  if (!dialect.overlap) memory.clear(); // launches have nothing to do with one another
  shared.clear();
  if (l.kernel->shared.begin) share(l.kernel->shared, "static shared memory");
  for (unsigned i = 0; i < groups; i++) share(dynamic[i], "dynamic shared memory");
  on = true;
  touched = false;
}

void share(Range range, const char *name) {
  shared.emplace_back();
  open(shared.back(), range, true, name);
  last_region = nullptr; // they have moved
}

bool end_launch(bool ok) {
  on = false;
  if (!ok) return false;
  // The next launch begins when all blocks of this one have let it, or ended: where none
  // did before it had waited, all launches before this one are over by then.
  if (any_waited && !any_early) chain = launch_stamp - 1;
  if (!dialect.overlap || any_waited || !touched) return true;
  snprintf(failure, sizeof failure, "%s: no thread calls dependency_wait()", current_launch->kernel->name);
  return false;
}

void begin_group() {
  running = 1 + (group.index[0] + group.grid[0] * (group.index[1] + group.grid[1] * group.index[2])) / at_once;
  group_stamp = ++stamp;
  other_reads[1].assign(1, {});
  for (Clocks *c : {&device_clocks, &shared_clocks}) c->begin_group(running);
  read_until.assign(max_waves, 0);
}

void join(unsigned first, const uint32_t *masks, unsigned waves, unsigned ordered) {
  std::vector<unsigned> lanes;
  for (unsigned w = 0; w < waves; w++)
    for (uint32_t m = masks[w]; m; m &= m - 1) lanes.push_back((first + w) * wave_lanes + unsigned(__builtin_ctz(m)));
  bool everyone = lanes.size() == real_lanes;
  for (unsigned w = 0; dialect.matrix_lanes && w < waves; w++)
    for (unsigned l = 0; masks[w] && l < wave_lanes; l++) lanes.push_back((wave_count + first + w) * wave_lanes + l);
  if (ordered & of_device) device_clocks.join(lanes, everyone);
  if (ordered & of_group && dialect.memory_flags) shared_clocks.join(lanes, everyone);
}

void fence() { device_clocks.fence(current->number); }
void proxy_fence() { device_clocks.proxy_fence(current->number); }
Stamp now_stamp() {
  Stamp s{current->number, device_clocks.now()};
  device_clocks.tick();
  return s;
}
Stamp renewed(Stamp s) {
  device_clocks.tick();
  s.when = device_clocks.now();
  device_clocks.tick();
  return s;
}
void release(Knowledge &k) { device_clocks.release(k.times, current->number); }
void release(Knowledge &k, Stamp s) { device_clocks.release(k.times, s.lane, s.when); }
void acquire(const Knowledge &k) { device_clocks.acquire(k.times, current->number); }
bool knows(Stamp s) { return device_clocks.before(running, s.lane, s.when, current->number, false); }
void load_relaxed(const void *address, unsigned bytes) { access(address, bytes, read | atomic | relaxed, nullptr); }
void store_relaxed(const void *address, unsigned bytes) { access(address, bytes, write | atomic | relaxed, nullptr); }
void load_atomic(const void *address) { access(address, 4, read | atomic, nullptr); }
void reads_over() {
  device_clocks.tick();
  read_until[current->number / wave_lanes] = device_clocks.now();
}
void serialised() { chain = stamp; }

void forget(const void *address) {
  memory.erase((const uint8_t *)address);
  last_region = nullptr;
}

// neighbour is the memory nearest to an address outside of all, within a page.
static Range neighbour(const uint8_t *p, const char *&name) {
  constexpr intptr_t far = 4096;
  Range found{};
  intptr_t distance = far;
  for (const Region &r : shared) {
    intptr_t d = p < r.range.begin ? r.range.begin - p : p - r.range.end;
    if (d >= distance) continue;
    distance = d;
    found = r.range;
    name = r.name;
  }
  for (intptr_t d = 0; d < far && !found.begin; d += 64)
    if (!allocation(p - d, found, name)) allocation(p + d, found, name);
  return found;
}

static void access_by(unsigned lane, const void *address, unsigned bytes, unsigned kind, const void *from) {
  auto *p = (const uint8_t *)address;
  if (!on || on_stack(p) || in(own, p)) return;
  Region *r = region_of(p);
  if (!r) {
    if (in(arguments, p)) return;
    Dl_info info;
    if (dladdr(p, &info)) {
      if (!(kind & write)) return; // constants
      fail("write to a variable that is neither the thread's nor SHARED of this kernel, %s", place(from).c_str());
    }
    const char *name = "device memory";
    Range near = neighbour(p, name);
    bool before = p < near.begin;
    if (near.begin) fail("out of bounds: %s of %u bytes, %zu %s of %zu of %s, %s", kind & write ? "write" : "read", bytes, size_t(before ? near.begin - p : p - near.end), before ? "before the first" : "past the end", size_t(near.end - near.begin), name, place(from).c_str());
    fail("out of bounds: %s of %u bytes at %p, which is no memory of the device, %s", kind & write ? "write" : "read", bytes, address, place(from).c_str());
  }
  if (p + bytes > r->range.end) fail("out of bounds: %s of %u bytes at byte %zu of %zu of %s, %s", kind & write ? "write" : "read", bytes, size_t(p - r->range.begin), size_t(r->range.end - r->range.begin), r->name, place(from).c_str());
  while (bytes) {
    unsigned part = std::min(bytes, unsigned(page_bytes - (uintptr_t)p % page_bytes));
    // A part whose size is no power of two is looked at in powers of two.
    part = 1u << (31 - __builtin_clz(part));
    access_page(*r, p, part, kind, lane, from);
    p += part;
    bytes -= part;
  }
}

void access(const void *address, unsigned bytes, unsigned kind, const void *from) {
  if (current) access_by(current->number, address, bytes, kind, from ? from : here());
}

void misaligned(const void *address, unsigned bytes, unsigned kind, const void *from) {
  auto *p = (const uint8_t *)address;
  if (on && current && !on_stack(p) && !in(own, p) && region_of(p)) fail("misaligned: %s of %u bytes at %p, %s", kind & write ? "write" : "read", bytes, address, place(from).c_str());
}

void matrix_access(const void *address, unsigned bytes, unsigned lane, unsigned kind) {
  access_by((wave_count + current->wave->index) * wave_lanes + lane, address, bytes, kind, here());
}

// each calls f with the cells of bytes of shared memory, in parts that are as large
// as their alignment lets them be, and with the part.
template <class F> static void each(const char *what, const void *address, unsigned bytes, F f) {
  auto *p = (const uint8_t *)address;
  if (!on) return;
  Region *r = region_of(p);
  if (!r || !r->shared || p + bytes > r->range.end) fail("%s of %u bytes at %p, which are not in shared memory of this kernel, %s", what, bytes, address, place(here()).c_str());
  for (unsigned part; bytes; p += part, bytes -= part) {
    part = 1u << std::min(unsigned(__builtin_ctzl((uintptr_t)p | page_bytes)), 31 - unsigned(__builtin_clz(bytes)));
    f(*r, p, part);
  }
}

template <class F> static void each_cell(Region &r, const uint8_t *p, unsigned bytes, F f) {
  unsigned count;
  Cell *first = cells(r, r.pages[(uintptr_t)p / page_bytes - (uintptr_t)r.range.begin / page_bytes], p, bytes, count);
  for (Cell *c = first; c < first + count; c++) f(*c);
}

static void mark(const void *address, unsigned bytes, unsigned kind, uint8_t flags, Stamp at) {
  each("an asynchronous copy", address, bytes, [&](Region &r, const uint8_t *p, unsigned part) {
    if (flags & flying) access_page(r, p, part, write | kind, at.lane, here());
    each_cell(r, p, part, [&](Cell &c) {
      c.group = running;
      c.lane = uint16_t(at.lane);
      c.when = at.when;
      c.flags = flags;
    });
  });
}

void allow_unwritten(const void *address, unsigned bytes) {
  each("allow_unwritten", address, bytes, [](Region &r, const uint8_t *p, unsigned part) {
    each_cell(r, p, part, [](Cell &c) { c.flags |= initialised; });
  });
}

void reserve(const void *address, unsigned bytes) {
  by_wave = true;
  each("a barrier", address, bytes, [](Region &r, const uint8_t *p, unsigned part) {
    access_page(r, p, part, write, current->number, here());
    each_cell(r, p, part, [](Cell &c) { c.flags |= reserved; });
  });
}

void in_flight(const void *address, unsigned bytes) { mark(address, bytes, 0, written | flying, {current->number, device_clocks.now()}); }
void arrived(const void *address, unsigned bytes) { mark(address, bytes, 0, written | initialised, {current->number, device_clocks.now()}); }
void in_flight_by_proxy(const void *address, unsigned bytes) { mark(address, bytes, by_proxy, written | flying | proxied, {current->number, device_clocks.now()}); }
void arrived_by_proxy(const void *address, unsigned bytes, Stamp at) { mark(address, bytes, by_proxy, written | initialised | proxied, at); }

} // namespace emulator::check
#endif
