// The executor runs a GPU kernel on one CPU thread. Each GPU thread (a lane)
// is a fiber with a stack of its own; 32 lanes are a wave; the lanes that share
// memory and barriers are a group. Groups run one after another. A lane runs
// until it needs others: a collective operation of its wave, or a barrier.
#pragma once
#include <stdint.h>

namespace emulator {

constexpr unsigned wave_lanes = 32, max_lanes = 1024, max_waves = max_lanes / wave_lanes, max_barriers = 16;

struct Wave;
typedef unsigned long long Slot; // of an argument

// Dialect is how one GPU interface differs from another; each emulator has one.
struct Dialect {
  const char *wave, *group; // what messages call them
  bool may_leave;     // a lane that has exited has no part in later operations of its wave; else it is missed
  bool one_barrier;   // all lanes of a group wait at the same line
  bool memory_flags;  // a barrier orders the memory that it names, and no other
  bool relaxed;       // atomics order nothing
  bool overlap;       // a launch may begin before the one before it has ended, until it waits for that
  bool matrix_lanes;  // matrices are loaded and stored by lanes of the wave's own, ordered by barriers alone
  const char *const *headers; // files that messages do not name while there is a user of them; ends in null
};
extern const Dialect dialect;

// Memory that a barrier orders.
enum Memory : unsigned { of_device = 1, of_group = 2, of_all = 3 };

struct Lane {
  void *stack; // where it continues
  Wave *wave;
  Lane *next; // the one after it in the wave; the first after the last
  unsigned index, lane; // in the group, in the wave
  uint32_t bit; // in the masks of the wave
  const char *file; // where it last waited
  int line;
  bool waited; // for the launch before (programmatic overlap of launches)
  uint64_t trail; // of what the lane has followed
};

// Wave: the masks have a bit a lane. exchange[turn] holds the operands, then the
// results, of the collective operation that the wave is at, in a layout of that
// operation's. Turns alternate: a lane may be at the next operation while
// others have yet to read their results of this one.
struct alignas(64) Wave {
  uint8_t exchange[2][2048];
  unsigned turn;
  uint32_t meeting, blocked, done;
  void (*operation)(Wave &);
  int line;
  unsigned index;
  Lane *lanes;
  uint64_t trail; // of the lanes that are meeting
  Lane *left;     // one that has exited, or null

  uint8_t *operands() { return exchange[turn]; }
  uint32_t ready() const { return ~(meeting | blocked | done); }
  uint32_t active() const { return ~done; }
};

// Group describes the running group to its lanes.
struct Group {
  unsigned index[3], grid[3], lanes;
  uint8_t *shared; // dynamic shared memory
};

// Range is memory from begin up to end.
struct Range {
  uint8_t *begin, *end;
};

// Kernel is one entry point. Each argument lies in a slot of 64 bits.
struct Kernel {
  const char *name;
  void (*run)(const Slot *arguments);
  Range shared; // its static shared variables
  const unsigned char *sizes; // of its parameters, in bytes
  unsigned parameters;
  Kernel *next;
};

struct Launch {
  const Kernel *kernel;
  const Slot *arguments;
  unsigned grid[3], lanes, shared; // groups, lanes of a group, bytes of dynamic shared memory
  uint64_t seed; // not 0: permutes groups, waves and lanes
  void (*begin_group)(unsigned lanes); // called before each group
};

#ifndef EMULATOR_API
#define EMULATOR_API __attribute__((visibility("default")))
#endif

extern EMULATOR_API Lane *current; // the running lane; null outside of kernels
extern EMULATOR_API Group group;
extern bool any_waited; // a lane of this launch has waited for the launch before

// add enters a kernel; shared libraries of kernels call it as they are loaded.
EMULATOR_API void add(Kernel *);
// find returns null where there is no such kernel.
const Kernel *find(const char *name);

// run runs a launch. It returns false, and failure tells why, when the kernel
// did something wrong.
bool run(const Launch &);
extern char failure[2048];

// fail ends the running launch with a message.
[[noreturn]] EMULATOR_API void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// meet waits for all lanes of the wave. The last to arrive calls operation,
// which finds every lane's operands in Wave::operands() and leaves the results
// there.
EMULATOR_API void meet(void (*operation)(Wave &), const char *file, int line);
// follow notes a step that all lanes of the wave have to take alike, without
// waiting for them: they are compared where they next wait, or exit.
static inline __attribute__((always_inline)) void follow(uint64_t step) { current->trail = (current->trail ^ step) * 0x9E3779B97F4A7C15ull; }
// barrier waits until count lanes of the group have arrived at barrier id; it orders the memory.
EMULATOR_API void barrier(unsigned id, unsigned count, unsigned memory, const char *file, int line);

} // namespace emulator
