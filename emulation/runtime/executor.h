// The executor runs a GPU kernel on one CPU thread. Each GPU thread (a lane)
// is a fiber with a stack of its own; 32 lanes are a wave; the lanes that share
// memory and barriers are a group. Groups run one after another, or, where they
// need each other, some at a time: a cohort. A lane runs until it needs others: a
// collective operation of its wave, a barrier, or something that it waits for.
#pragma once
#include <stdint.h>

namespace emulator {

constexpr unsigned wave_lanes = 32, max_barriers = 16;
constexpr unsigned max_group_lanes = 1024;                                  // lanes of a group
constexpr unsigned max_lanes = 4096, max_waves = max_lanes / wave_lanes;    // of a cohort

struct Wave;
struct Block;
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
  unsigned number;      // in the cohort
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
  uint32_t meeting, blocked, parked, done;
  void (*operation)(Wave &);
  int line;
  unsigned index; // in the cohort
  Lane *lanes;
  Block *block;
  uint64_t trail; // of the lanes that are meeting
  Lane *left;     // one that has exited, or null

  uint8_t *operands() { return exchange[turn]; }
  uint32_t ready() const { return ~(meeting | blocked | parked | done); }
  uint32_t active() const { return ~done; }
};

// Group describes the running group to its lanes.
struct Group {
  unsigned index[3], grid[3], lanes;
  unsigned rank;   // in its cluster
  unsigned number; // in its cohort
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
  // What follows where a kernel waits for other devices: a kernel of the same arguments,
  // which may begin when ready says so.
  const Kernel *rest = nullptr;
  bool (*ready)(const Slot *arguments) = nullptr;
};

struct Launch {
  const Kernel *kernel;
  const Slot *arguments;
  unsigned grid[3], lanes, shared; // groups, lanes of a group, bytes of dynamic shared memory
  uint64_t seed; // not 0: permutes groups, waves and lanes
  void (*begin)(unsigned lanes); // called before each cohort
  unsigned cluster = 1; // groups, neighbours along x, that can use each other's shared memory
  unsigned at_once = 1; // groups of a cohort, whole clusters
  bool (*idle)() = nullptr; // called when no lane can go on: it does something that was put off, and is false where there is nothing
  const char *(*end)() = nullptr; // called after each cohort; a complaint, or null
};

#ifndef EMULATOR_API
#define EMULATOR_API __attribute__((visibility("default")))
#endif

extern EMULATOR_API Lane *current; // the running lane; null outside of kernels
extern EMULATOR_API Group group;
extern bool any_waited; // a lane of this launch has waited for the launch before
extern bool any_early;  // a lane of this launch let the next one begin before it had waited itself

// add enters a kernel; shared libraries of kernels call it as they are loaded.
EMULATOR_API void add(Kernel *);
// find returns null where there is no such kernel.
EMULATOR_API const Kernel *find(const char *name);

// run runs a launch. It returns false, and failure tells why, when the kernel
// did something wrong.
bool run(const Launch &);
extern char failure[2048];

// shared_of is the dynamic shared memory of a group of the running one's cluster;
// empty where it has ended.
EMULATOR_API Range shared_of(unsigned rank);
// cluster_size is the running launch's.
EMULATOR_API unsigned cluster_size();
// number_of is the place in the cohort of a lane of the running group's cluster.
EMULATOR_API unsigned number_of(unsigned rank, unsigned index);

// base_name is a file's name in messages; "the start" of null.
const char *base_name(const char *path);
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
// park waits until something has changed: for loops that ask whether they can go on.
EMULATOR_API void park(const char *file, int line);
// changed wakes the lanes that are parked; changes counts its calls.
void changed();
extern uint64_t changes;
// chance is true once in so many calls where lanes run in a random order.
bool chance(unsigned of);

} // namespace emulator
