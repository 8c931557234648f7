// A libcuda.so.1 for machines without a GPU: the part of the driver API that
// the engine uses, strict where the real one is, with kernels run by the
// executor. Work of a stream is done when something waits for it, as late as
// the API allows, so that code which does not wait finds nothing.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor.h"

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

namespace emulator {

// Codes of CUresult.
enum : int {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209, PEER_ACCESS_UNSUPPORTED = 217, PEER_ACCESS_ALREADY_ENABLED = 704, INVALID_PTX = 218, UNSUPPORTED_PTX_VERSION = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
  ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, INVALID_CLUSTER_SIZE = 912,
};

extern std::recursive_mutex lock; // around every call

// refuse keeps a message for cuGetErrorString and returns the code.
int refuse(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
// need refuses where the calling thread has no current context.
int need_context(const char *function);
int current_device(); // of the thread's context; -1 without one
u64 setting(const char *name, u64 otherwise);
void capability(int &major, int &minor);
u64 shared_limit();  // most shared memory of a block
int driver_version();

// Memory.
bool on_device(const void *p, size_t n);
bool pinned(const void *p, size_t n);
// check_device_range refuses what is not memory of the current device.
int check_device_range(const char *what, const void *p, size_t n);
// elsewhere tells whether an address lies in another device's memory.
bool elsewhere(const void *p);
// guards_hold tells whether nobody wrote beside an allocation; refuses otherwise.
int guards_hold(const char *after);

// Function is a kernel as a module declares it.
struct Function {
  const Kernel *kernel;
  u32 most_lanes, static_shared, most_dynamic;
  bool any_lanes; // the kernel asks for the size of its block
  u32 cluster = 1;       // blocks of a cluster, along x
  bool together = false; // its blocks may wait for each other
  int carveout = -1;     // percent of L1 that is to be shared memory; -1: as the driver likes
};

struct Stream;
struct Event;
struct Rank; // of a communicator

// Work is one operation of a stream.
struct Work {
  enum Kind { launch, copy, fill, record, wait, graph, exchange } kind;
  enum : u32 { gathers, adds }; // exchanges, by their value
  explicit Work(Kind k) : kind(k) {}
  const Function *function = nullptr;
  std::vector<Slot> arguments;
  u32 grid[3] = {}, lanes = 0, shared = 0;
  bool pageable = false; // a copy to memory that is not page-locked, which the caller waits for
  void *to = nullptr;
  const void *from = nullptr;
  std::shared_ptr<std::vector<u8>> kept; // what from points at, where the caller may change it
  size_t bytes = 0;
  u32 value = 0, width = 0;
  Event *event = nullptr;
  Rank *rank = nullptr;
  u64 ticket = 0;
  std::shared_ptr<std::vector<Work>> nodes;
};

int enqueue(const char *what, Stream *, Work);
bool capturing(Stream *);
int run_exchange(const Work &);
// finish does all work of the current device's streams that wait for the default stream, or of all its streams.
int finish_blocking();
int finish_all();
int refuse_in_capture(const char *what);

} // namespace emulator

#define API extern "C" EMULATOR_API int
#define ENTER                                                    \
  std::lock_guard<std::recursive_mutex> guard(emulator::lock);   \
  if (int r = emulator::need_context(__func__)) return r
