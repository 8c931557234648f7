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
bool any_waited;
char failure[2048];

namespace {

constexpr size_t stack_bytes = 128 << 10;

Lane lanes[max_lanes];
Wave waves[max_waves];
unsigned wave_count, done_count;
uint32_t ready_waves; // those with a lane that can run
const Launch *launch;
Kernel *kernels;
uint8_t *stacks;
void *host_stack;
bool failed;
uint64_t random_state; // 0: no permutation

struct Barrier {
  unsigned arrived, count;
  const Lane *first;
  uint32_t lanes[max_waves];
};
Barrier barriers[max_barriers];

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

const char *base_name(const char *path) {
  const char *slash = path ? strrchr(path, '/') : nullptr;
  return slash ? slash + 1 : path ? path : "the start";
}

void describe(char *out, size_t size, const Lane &l) {
  const Wave &w = *l.wave;
  uint32_t bit = l.bit;
  if (w.done & bit)
    snprintf(out, size, "thread %u has exited (it last waited at %s:%d)", l.index, base_name(l.file), l.line);
  else
    snprintf(out, size, "thread %u waits %s%s at %s:%d", l.index, w.meeting & bit ? "for its " : "at a barrier", w.meeting & bit ? dialect.wave : "", base_name(l.file), l.line);
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

unsigned pick(uint32_t mask, unsigned after) {
  unsigned from = random_state ? draw() : after + 1;
  from &= 31;
  uint32_t turned = mask >> from | mask << (-from & 31);
  return (unsigned(__builtin_ctz(turned)) + from) & 31;
}

void go(Lane *from, Lane *to) {
  if (from == to) return;
  current = to;
  emulator_switch(&from->stack, to->stack);
}

Lane *lane_of(Wave &w, unsigned after) { return w.lanes + pick(w.ready(), after); }

// stuck finds out why no lane can run.
[[noreturn]] void stuck() {
  for (unsigned b = 0; b < max_barriers; b++) {
    if (!barriers[b].arrived) continue;
    Lane *in = nullptr, *out = nullptr;
    for (unsigned i = 0; i < group.lanes; i++) {
      Lane &l = lanes[i];
      (barriers[b].lanes[i / wave_lanes] >> l.lane & 1 ? in : out) = &l;
    }
    if (in && out) {
      char first[300], second[300];
      describe(first, sizeof first, *in);
      describe(second, sizeof second, *out);
      fail("divergence: barrier %u reached by %u of %u threads: %s, %s", b, barriers[b].arrived, barriers[b].count, first, second);
    }
    fail("divergence: barrier %u reached by %u of %u threads", b, barriers[b].arrived, barriers[b].count);
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
  if (w.meeting) part_ways(w);
  ready_waves &= ~(1u << w.index);
  if (!ready_waves) stuck();
  Wave &next = waves[pick(ready_waves, w.index)];
  go(me, lane_of(next, wave_lanes - 1));
}

// complete does the operation that all lanes have come to.
__attribute__((noinline)) void complete(Lane *me, Wave &w, uint32_t meeting) {
  w.meeting = meeting;
  if (w.done && !dialect.may_leave) part_ways(w);
  w.operation(w);
  w.turn ^= 1;
  w.meeting = 0;
  if (random_state && draw() % 4 == 0) { // let another wave overtake this one
    Wave &other = waves[pick(ready_waves, w.index)];
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
  if (++done_count == group.lanes) emulator_switch(&me->stack, host_stack);
  if (w.meeting && (w.meeting | w.done) == ~0u) complete(me, w, w.meeting); // it was the last to be waited for
  pass(me);
  __builtin_trap();
}

void prepare_lanes() {
  wave_count = (group.lanes + wave_lanes - 1) / wave_lanes;
  ready_waves = wave_count == 32 ? ~0u : (1u << wave_count) - 1;
  done_count = 0;
  memset(barriers, 0, sizeof barriers);
  for (unsigned i = 0; i < wave_count; i++) {
    Wave &w = waves[i];
    w.meeting = w.blocked = w.done = 0;
    w.index = i;
    w.lanes = lanes + i * wave_lanes;
    w.left = nullptr;
  }
  if (unsigned rest = group.lanes % wave_lanes) waves[wave_count - 1].done = ~0u << rest; // lanes that are not there
  for (unsigned i = 0; i < group.lanes; i++) {
    // Stacks start at different offsets of a page, or all of a wave's frames
    // would fall into the same few lines of the cache.
    uint8_t *top = stacks + (i + 1) * stack_bytes - i % 16 * 576 % 4096;
    void **s = (void **)((uintptr_t)top & ~(uintptr_t)63);
    *--s = nullptr;
    *--s = (void *)begin_lane;
    for (int r = 0; r < 6; r++) *--s = nullptr;
    unsigned first = i - i % wave_lanes;
    lanes[i] = Lane{s, &waves[i / wave_lanes], &lanes[first + (i + 1) % wave_lanes], i, i % wave_lanes, 1u << i % wave_lanes, nullptr, 0, false, 0};
  }
}

bool run_group() {
  const Range &shared = launch->kernel->shared;
  if (shared.begin) memset(shared.begin, 0xff, size_t(shared.end - shared.begin)); // NaN: nothing may be read before it is written
  memset(group.shared, 0xff, launch->shared);
  prepare_lanes();
  launch->begin_group(group.lanes);
  check::begin_group();
  current = lane_of(waves[pick(ready_waves, max_waves - 1)], wave_lanes - 1);
  emulator_switch(&host_stack, current->stack);
  current = nullptr;
  return !failed;
}

} // namespace

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
  Barrier &b = barriers[id];
  if (b.arrived && b.count != count) fail("barrier %u is waited for by %u and by %u threads", id, b.count, count);
  if (!b.arrived) b.first = me;
  b.count = count;
  b.lanes[w.index] |= bit;
  w.blocked |= bit;
  if (dialect.one_barrier && b.first->line != line) diverged("two barriers in", dialect.group, "", *me, *b.first);
  if (++b.arrived < count) return pass(me);
  check::join(b.lanes, wave_count, memory);
  for (unsigned i = 0; i < wave_count; i++) {
    if (!b.lanes[i]) continue;
    waves[i].blocked &= ~b.lanes[i];
    ready_waves |= 1u << i;
    b.lanes[i] = 0;
  }
  b.arrived = 0;
  if (random_state) pass(me);
}

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
  failed = any_waited = false;
  failure[0] = 0;
  random_state = l.seed * 0x9E3779B97F4A7C15ull;
  memory.resize(l.shared + 128);
  group = Group{{0, 0, 0}, {l.grid[0], l.grid[1], l.grid[2]}, l.lanes, nullptr};
  group.shared = (uint8_t *)(((uintptr_t)memory.data() + 127) & ~(uintptr_t)127);
  check::begin_launch(l, {stacks, stacks + stack_bytes * max_lanes}, {group.shared, group.shared + l.shared});
  uint64_t count = uint64_t(l.grid[0]) * l.grid[1] * l.grid[2];
  std::vector<uint32_t> order;
  if (l.seed) {
    order.resize(count);
    for (uint64_t i = 0; i < count; i++) order[i] = uint32_t(i);
    for (uint64_t i = count; i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
  }
  bool ok = true;
  for (uint64_t i = 0; i < count && ok; i++) {
    uint64_t g = l.seed ? order[i] : i;
    group.index[0] = unsigned(g % l.grid[0]);
    group.index[1] = unsigned(g / l.grid[0] % l.grid[1]);
    group.index[2] = unsigned(g / l.grid[0] / l.grid[1]);
    ok = run_group();
  }
  if (!check::end_launch(ok)) ok = false;
  launch = nullptr;
  return ok;
}

} // namespace emulator
