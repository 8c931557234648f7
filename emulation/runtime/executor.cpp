#include "executor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "checker.h"

#ifndef __x86_64__
#error "the executor switches stacks in x86-64 assembly"
#endif

namespace emulator {

Lane *current;
Group group;
bool any_waited, any_early;
char failure[2048];
uint64_t changes;

struct Barrier {
  unsigned arrived, count;
  const Lane *first;
  uint32_t lanes[max_group_lanes / wave_lanes];
};

// Block is a group of the cohort.
struct Block {
  Group group;
  unsigned first_wave, waves, done;
  Lane *lanes;
  Barrier barriers[max_barriers];
};

namespace {

constexpr size_t stack_bytes = 128 << 10;

Lane lanes[max_lanes];
Wave waves[max_waves];
std::vector<Block> blocks; // of the cohort
unsigned wave_count, lane_count, done_count;
unsigned __int128 ready_waves; // those with a lane that can run
bool any_parked;
const Launch *launch;
Kernel *kernels;
uint8_t *stacks;
void *host_stack;
bool failed;
uint64_t random_state; // 0: no permutation

// emulator_switch stores where this stack continues and goes on with another.
// It ends by a return, to where the other lane called it: mostly the
// same place as this one, and so predicted.
extern "C" void emulator_switch(void **save, void *load);
asm(R"(
.text
.p2align 4
.type emulator_switch,@function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

unsigned draw() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return unsigned(random_state >> 20);
}

void describe(char *out, size_t size, const Lane &l) {
  const Wave &w = *l.wave;
  uint32_t bit = l.bit;
  if (w.done & bit)
    snprintf(out, size, "thread %u has exited (it last waited at %s:%d)", l.index, base_name(l.file), l.line);
  else
    snprintf(out, size, "thread %u waits %s%s at %s:%d", l.index, w.meeting & bit ? "for its " : w.parked & bit ? "in vain" : "at a barrier", w.meeting & bit ? dialect.wave : "", base_name(l.file), l.line);
}

// diverged: before, of a wave or a group, after.
[[noreturn]] void diverged(const char *before, const char *of, const char *after, const Lane &a, const Lane &b) {
  char first[300], second[300];
  describe(first, sizeof first, a);
  describe(second, sizeof second, b);
  fail("divergence: %s one %s%s: %s, %s", before, of, after, first, second);
}

[[noreturn]] void diverged_trail(const Lane &a, const Lane &b) {
  fail("divergence: the threads of one %s load, multiply or store different matrices: thread %u last at %s:%d, thread %u at %s:%d", dialect.wave, a.index, base_name(a.file), a.line, b.index, base_name(b.file), b.line);
}

unsigned __int128 wave_bit(unsigned index) { return (unsigned __int128)1 << index; }

// pick_wave picks one of those that are ready.
Wave &pick_wave(unsigned after) {
  unsigned from = (random_state ? draw() : after + 1) % max_waves;
  auto turned = from ? ready_waves >> from | ready_waves << (max_waves - from) : ready_waves;
  uint64_t low = uint64_t(turned), high = uint64_t(turned >> 64);
  unsigned at = low ? unsigned(__builtin_ctzl(low)) : 64 + unsigned(__builtin_ctzl(high));
  return waves[(at + from) % max_waves];
}

unsigned pick(uint32_t mask, unsigned after) {
  unsigned from = random_state ? draw() : after + 1;
  from &= 31;
  uint32_t turned = mask >> from | mask << (-from & 31);
  return (unsigned(__builtin_ctz(turned)) + from) & 31;
}

void go(Lane *from, Lane *to) {
  if (from == to) return;
  if (from->wave->block != to->wave->block) group = to->wave->block->group;
  current = to;
  emulator_switch(&from->stack, to->stack);
}

Lane *lane_of(Wave &w, unsigned after) { return w.lanes + pick(w.ready(), after); }

// stuck finds out why no lane can run.
[[noreturn]] void stuck() {
  for (unsigned i = 0; i < wave_count; i++) {
    if (!waves[i].parked) continue;
    Lane &l = waves[i].lanes[__builtin_ctz(waves[i].parked)];
    const unsigned *at = l.wave->block->group.index;
    fail("no thread can go on: thread %u of %s %u,%u,%u waits at %s:%d for what nobody does", l.index, dialect.group, at[0], at[1], at[2], base_name(l.file), l.line);
  }
  for (Block &block : blocks)
    for (unsigned b = 0; b < max_barriers; b++) {
      Barrier &at = block.barriers[b];
      if (!at.arrived) continue;
      Lane *in = nullptr, *out = nullptr;
      for (unsigned i = 0; i < block.group.lanes; i++) {
        Lane &l = block.lanes[i];
        (at.lanes[i / wave_lanes] >> l.lane & 1 ? in : out) = &l;
      }
      if (in && out) {
        char first[300], second[300];
        describe(first, sizeof first, *in);
        describe(second, sizeof second, *out);
        fail("divergence: barrier %u reached by %u of %u threads: %s, %s", b, at.arrived, at.count, first, second);
      }
      fail("divergence: barrier %u reached by %u of %u threads", b, at.arrived, at.count);
    }
  fail("divergence: no thread can go on");
}

[[noreturn]] void part_ways(Wave &w) {
  Lane *in = nullptr, *out = nullptr;
  for (unsigned i = 0; i < wave_lanes; i++)
    if (w.meeting >> i & 1)
      in = w.lanes + i;
    else if (!dialect.may_leave || w.blocked >> i & 1)
      out = w.lanes + i;
  diverged("threads of", dialect.wave, " part ways", *in, *out);
}

// pass gives the CPU to another lane: of the same wave while one can run, as
// that keeps the wave together.
void pass(Lane *me) {
  Wave &w = *me->wave;
  if (w.ready()) return go(me, lane_of(w, me->lane));
  if (w.meeting && !w.parked) part_ways(w);
  ready_waves &= ~wave_bit(w.index);
  while (!ready_waves)
    if (!launch->idle || !launch->idle()) stuck();
  go(me, lane_of(pick_wave(w.index), wave_lanes - 1));
}

// complete does the operation that all lanes have come to.
__attribute__((noinline)) void complete(Lane *me, Wave &w, uint32_t meeting) {
  w.meeting = meeting;
  if (w.done && !dialect.may_leave) part_ways(w);
  w.operation(w);
  w.turn ^= 1;
  w.meeting = 0;
  if (random_state && draw() % 4 == 0) { // let another wave overtake this one
    Wave &other = pick_wave(w.index);
    go(me, lane_of(other, me->lane));
  }
}

void begin_lane() {
  launch->kernel->run(launch->arguments);
  Lane *me = current;
  Wave &w = *me->wave;
  if (w.left && w.left->trail != me->trail) diverged_trail(*w.left, *me);
  w.left = me;
  w.done |= me->bit;
  w.block->done++;
  if (++done_count == lane_count) emulator_switch(&me->stack, host_stack);
  if (w.meeting && (w.meeting | w.done) == ~0u) complete(me, w, w.meeting); // it was the last to be waited for
  pass(me);
  __builtin_trap();
}

// prepare_lanes makes the lanes of the blocks. A lane's number counts whole waves.
void prepare_lanes() {
  wave_count = lane_count = done_count = 0;
  ready_waves = 0;
  any_parked = false;
  for (Block &b : blocks) {
    b.first_wave = wave_count;
    b.waves = (b.group.lanes + wave_lanes - 1) / wave_lanes;
    b.lanes = lanes + wave_count * wave_lanes;
    b.done = 0;
    memset(b.barriers, 0, sizeof b.barriers);
    lane_count += b.group.lanes;
    for (unsigned i = 0; i < b.waves; i++, wave_count++) {
      Wave &w = waves[wave_count];
      w.meeting = w.blocked = w.parked = w.done = 0;
      w.index = wave_count;
      w.lanes = lanes + wave_count * wave_lanes;
      w.block = &b;
      w.left = nullptr;
      ready_waves |= wave_bit(wave_count);
    }
    if (unsigned rest = b.group.lanes % wave_lanes) waves[wave_count - 1].done = ~0u << rest; // lanes that are not there
    for (unsigned i = 0; i < b.group.lanes; i++) {
      unsigned number = b.first_wave * wave_lanes + i;
      // Stacks start at different offsets of a page, or all of a wave's frames
      // would fall into the same few lines of the cache.
      uint8_t *top = stacks + (number + 1) * stack_bytes - i % 16 * 576 % 4096;
      void **s = (void **)((uintptr_t)top & ~(uintptr_t)63);
      *--s = nullptr;
      *--s = (void *)begin_lane;
      for (int r = 0; r < 6; r++) *--s = nullptr;
      unsigned first = number - number % wave_lanes;
      lanes[number] = Lane{s, &waves[number / wave_lanes], &lanes[first + (number + 1) % wave_lanes], i, i % wave_lanes, number, 1u << i % wave_lanes, nullptr, 0, false, 0};
    }
  }
}

// refuse ends a launch while no lane runs.
void refuse(const char *complaint) {
  snprintf(failure, sizeof failure, "%s: %s", launch->kernel->name, complaint);
  failed = true;
}

bool run_cohort() {
  const Range &shared = launch->kernel->shared;
  if (shared.begin) memset(shared.begin, 0xff, size_t(shared.end - shared.begin)); // NaN: nothing may be read before it is written
  for (Block &b : blocks) memset(b.group.shared, 0xff, launch->shared);
  prepare_lanes();
  launch->begin(wave_count * wave_lanes);
  group = blocks[0].group;
  check::begin_group();
  current = lane_of(pick_wave(max_waves - 1), wave_lanes - 1);
  group = current->wave->block->group;
  emulator_switch(&host_stack, current->stack);
  current = nullptr;
  if (!failed && launch->end)
    if (const char *complaint = launch->end()) refuse(complaint);
  return !failed;
}

} // namespace

const char *base_name(const char *path) {
  const char *slash = path ? strrchr(path, '/') : nullptr;
  return slash ? slash + 1 : path ? path : "the start";
}

void fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  char text[1600];
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (!failed) {
    const char *name = launch ? launch->kernel->name : "?";
    if (current)
      snprintf(failure, sizeof failure, "%s: %s [%s %u,%u,%u thread %u]", name, text, dialect.group, group.index[0], group.index[1], group.index[2], current->index);
    else
      snprintf(failure, sizeof failure, "%s: %s", name, text);
  }
  failed = true;
  void *dropped;
  emulator_switch(current ? &current->stack : &dropped, host_stack);
  __builtin_trap();
}

[[noreturn]] __attribute__((noinline)) static void mismatch(Lane *me) {
  Wave &w = *me->wave;
  Lane &other = w.lanes[__builtin_ctz(w.meeting)];
  w.meeting |= me->bit;
  if (other.line == me->line && w.trail != me->trail) diverged_trail(*me, other);
  diverged("two operations in", dialect.wave, "", *me, other);
}

// meet and its switch are most of what running a kernel costs: hence no calls
// before the last one, which is a jump.
void meet(void (*operation)(Wave &), const char *file, int line) {
  Lane *me = current;
  Wave &w = *me->wave;
  me->file = file;
  me->line = line;
  uint32_t meeting = w.meeting;
  if (!meeting) {
    w.operation = operation;
    w.line = line;
    w.trail = me->trail;
  } else if (__builtin_expect(w.operation != operation || w.line != line || w.trail != me->trail, 0)) {
    mismatch(me);
  }
  meeting |= me->bit;
  if ((meeting | w.done) == ~0u) return complete(me, w, meeting);
  w.meeting = meeting;
  Lane *next = me->next;
  if (__builtin_expect((w.ready() & next->bit) == 0 || random_state, 0)) return pass(me);
  current = next;
  emulator_switch(&me->stack, next->stack);
}

void barrier(unsigned id, unsigned count, unsigned memory, const char *file, int line) {
  Lane *me = current;
  Wave &w = *me->wave;
  uint32_t bit = 1u << me->lane;
  me->file = file;
  me->line = line;
  if (id >= max_barriers || count == 0 || (count % wave_lanes && count != group.lanes) || count > group.lanes) fail("barrier %u of %u threads in a %s of %u", id, count, dialect.group, group.lanes);
  if (w.blocked) {
    const Lane &other = w.lanes[__builtin_ctz(w.blocked)];
    if (other.line != line) {
      w.blocked |= bit;
      diverged("two barriers in", dialect.wave, "", *me, other);
    }
    if (other.trail != me->trail) diverged_trail(*me, other);
  }
  Block &block = *w.block;
  Barrier &b = block.barriers[id];
  unsigned at = w.index - block.first_wave;
  if (b.arrived && b.count != count) fail("barrier %u is waited for by %u and by %u threads", id, b.count, count);
  if (!b.arrived) b.first = me;
  b.count = count;
  b.lanes[at] |= bit;
  w.blocked |= bit;
  if (dialect.one_barrier && b.first->line != line) diverged("two barriers in", dialect.group, "", *me, *b.first);
  if (++b.arrived < count) return pass(me);
  check::join(block.first_wave, b.lanes, block.waves, memory);
  for (unsigned i = 0; i < block.waves; i++) {
    if (!b.lanes[i]) continue;
    waves[block.first_wave + i].blocked &= ~b.lanes[i];
    ready_waves |= wave_bit(block.first_wave + i);
    b.lanes[i] = 0;
  }
  b.arrived = 0;
  if (random_state) pass(me);
}

void park(const char *file, int line) {
  Lane *me = current;
  me->file = file;
  me->line = line;
  me->wave->parked |= me->bit;
  any_parked = true;
  pass(me);
}

void changed() {
  changes++;
  if (!any_parked) return;
  any_parked = false;
  for (unsigned i = 0; i < wave_count; i++) {
    waves[i].parked = 0;
    if (waves[i].ready()) ready_waves |= wave_bit(i);
  }
}

bool chance(unsigned of) { return random_state && draw() % of == 0; }

unsigned cluster_size() { return launch->cluster; }

static Block &in_cluster(unsigned rank) { return blocks[group.number / launch->cluster * launch->cluster + rank]; }

Range shared_of(unsigned rank) {
  if (rank >= launch->cluster) return {};
  Block &b = in_cluster(rank);
  if (b.done == b.group.lanes) return {};
  return {b.group.shared, b.group.shared + launch->shared};
}

unsigned number_of(unsigned rank, unsigned index) { return in_cluster(rank).first_wave * wave_lanes + index; }

void add(Kernel *k) {
  k->next = kernels;
  kernels = k;
}

const Kernel *find(const char *name) {
  for (const Kernel *k = kernels; k; k = k->next)
    if (!strcmp(k->name, name)) return k;
  return nullptr;
}

bool run(const Launch &l) {
  static std::vector<uint8_t> memory;
  if (!stacks) {
    void *p = mmap(nullptr, stack_bytes * max_lanes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      snprintf(failure, sizeof failure, "no memory for %u stacks", max_lanes);
      return false;
    }
    stacks = (uint8_t *)p;
  }
  launch = &l;
  failed = any_waited = any_early = false;
  failure[0] = 0;
  random_state = l.seed * 0x9E3779B97F4A7C15ull;
  uint64_t count = uint64_t(l.grid[0]) * l.grid[1] * l.grid[2];
  unsigned at_once = l.at_once;
  if ((l.lanes + wave_lanes - 1) / wave_lanes * at_once > max_waves) refuse("more threads have to run at once than the emulator has room for");
  if (at_once > 1 && l.kernel->shared.begin) refuse("groups that run at once have no static shared memory in the emulator");
  // Dynamic shared memory of the groups of a cohort, with a gap between them.
  size_t room = (l.shared + 127) / 128 * 128 + 4096;
  memory.resize(room * at_once + 128);
  auto *first = (uint8_t *)(((uintptr_t)memory.data() + 127) & ~(uintptr_t)127);
  std::vector<Range> dynamic;
  for (unsigned i = 0; i < at_once && l.shared; i++) dynamic.push_back({first + i * room, first + i * room + l.shared});
  check::begin_launch(l, {stacks, stacks + stack_bytes * max_lanes}, dynamic.data(), unsigned(dynamic.size()));
  uint64_t cohorts = (count + at_once - 1) / at_once;
  std::vector<uint32_t> order;
  if (l.seed) {
    order.resize(cohorts);
    for (uint64_t i = 0; i < cohorts; i++) order[i] = uint32_t(i);
    for (uint64_t i = cohorts; i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
  }
  bool ok = !failed;
  for (uint64_t i = 0; i < cohorts && ok; i++) {
    uint64_t g = (l.seed ? order[i] : i) * at_once;
    blocks.assign(std::min<uint64_t>(at_once, count - g), Block{});
    for (unsigned b = 0; b < blocks.size(); b++, g++)
      blocks[b].group = Group{{unsigned(g % l.grid[0]), unsigned(g / l.grid[0] % l.grid[1]), unsigned(g / l.grid[0] / l.grid[1])}, {l.grid[0], l.grid[1], l.grid[2]}, l.lanes, b % l.cluster, b, first + b * room};
    ok = run_cohort();
  }
  if (!check::end_launch(ok)) ok = false;
  launch = nullptr;
  return ok;
}

} // namespace emulator
