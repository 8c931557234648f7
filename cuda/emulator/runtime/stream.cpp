// Streams, events, graphs and launches of the driver API.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <set>

#include "checker.h"
#include "driver.h"

namespace emulator {

struct Event {
  Stream *stream = nullptr;
  u64 recorded = 0, reached = 0;
  timespec time = {};
};

struct Stream {
  std::deque<Work> queue;
  bool blocking = true;
  bool busy = false; // a thread does its work, and may wait for other streams meanwhile
  int device = 0;
  std::shared_ptr<std::vector<Work>> captured; // not null: capturing
  int mode = 0;
};

// Of the kernels' side: what is done before blocks run, when none can go on, and when they have ended.
void begin_blocks(unsigned lanes);
bool deliver();
const char *end_blocks();

static std::set<Stream *> streams;
static Stream default_stream;
static std::condition_variable_any idle; // a stream is no longer busy
static std::condition_variable_any come; // a device has written what another one may wait for

static int run_work(const Work &w);

// finish does a stream's work, up to an event where one is given.
static int finish(Stream &s, const Event *until = nullptr, u64 ticket = 0) {
  idle.wait(lock, [&] { return !s.busy; });
  struct Busy {
    Stream &s;
    explicit Busy(Stream &stream) : s(stream) { s.busy = true; }
    ~Busy() {
      s.busy = false;
      idle.notify_all();
    }
  } busy(s);
  while (!s.queue.empty() && !(until && until->reached >= ticket)) {
    Work w = std::move(s.queue.front());
    s.queue.pop_front();
    if (int r = run_work(w)) {
      s.queue.clear(); // as after a real failure: nothing more runs
      return r;
    }
  }
  check::serialised();
  return SUCCESS;
}

static int run_launch(const Work &w) {
  Launch l{w.function->kernel, w.arguments.data(), {w.grid[0], w.grid[1], w.grid[2]}, w.lanes, w.shared, setting("WINDROW_EMULATED_SEED", 0), begin_blocks};
  l.idle = deliver;
  l.end = end_blocks;
  // Blocks that wait for each other find as many at work as a GPU would have.
  const Function &f = *w.function;
  l.cluster = l.at_once = f.cluster;
  if (f.together) {
    u64 blocks = u64(w.grid[0]) * w.grid[1] * w.grid[2], room = setting("WINDROW_EMULATED_SMS", 6);
    l.at_once = u32(std::max<u64>(f.cluster, std::min(blocks, room) / f.cluster * f.cluster));
  }
  if (!run(l)) return refuse(LAUNCH_FAILED, "%s", failure);
  if (const Kernel *rest = l.kernel->rest) {
    if (const char *v = getenv("WINDROW_EMULATED_NCCL_FAILS"); v && *v && atoi(v) == current_device()) return refuse(LAUNCH_FAILED, "rank %s was told to fail", v);
    come.notify_all();
    // The host's word to stop tells nobody: it is looked for.
    auto end = std::chrono::steady_clock::now() + std::chrono::minutes(4);
    while (!l.kernel->ready(l.arguments)) {
      if (std::chrono::steady_clock::now() > end) return refuse(LAUNCH_FAILED, "%s: another device did not come", l.kernel->name);
      come.wait_for(lock, std::chrono::milliseconds(5));
    }
    l.kernel = rest;
    if (!run(l)) return refuse(LAUNCH_FAILED, "%s", failure);
  }
  return guards_hold(w.function->kernel->name);
}

static int run_work(const Work &w) {
  if (w.kind != Work::launch) check::serialised();
  switch (w.kind) {
  case Work::launch:
    return run_launch(w);
  case Work::copy:
    if (!w.kept && !on_device(w.from, w.bytes) && !pinned(w.from, w.bytes)) return refuse(INVALID_VALUE, "a queued copy of %zu bytes: its source has been freed", w.bytes);
    if (!on_device(w.to, w.bytes) && !pinned(w.to, w.bytes) && on_device(w.from, w.bytes) && !w.pageable) return refuse(INVALID_VALUE, "a queued copy of %zu bytes: its target has been freed", w.bytes);
    memcpy(w.to, w.from, w.bytes);
    return SUCCESS;
  case Work::fill:
    if (int r = check_device_range("a queued memset", w.to, w.bytes)) return r;
    for (size_t i = 0; i < w.bytes; i += w.width) memcpy((u8 *)w.to + i, &w.value, w.width);
    return SUCCESS;
  case Work::record:
    clock_gettime(CLOCK_MONOTONIC, &w.event->time);
    w.event->reached = std::max(w.event->reached, w.ticket);
    return SUCCESS;
  case Work::wait:
    if (w.event->reached < w.ticket && w.event->stream) return finish(*w.event->stream, w.event, w.ticket);
    return SUCCESS;
  case Work::graph:
    for (const Work &n : *w.nodes)
      if (int r = run_work(n)) return r;
    return SUCCESS;
  case Work::exchange:
    return run_exchange(w);
  }
  return INVALID_VALUE;
}

static int stream_of(const char *what, Stream *&s) {
  if (!s || s == (Stream *)1) {
    s = &default_stream;
    return SUCCESS;
  }
  if (!streams.count(s)) return refuse(INVALID_HANDLE, "%s: no such stream", what);
  return SUCCESS;
}

int enqueue(const char *what, Stream *s, Work w) {
  if (int r = stream_of(what, s)) return r;
  if (s->captured) {
    s->captured->push_back(std::move(w));
    return SUCCESS;
  }
  if (s == &default_stream) {
    if (int r = refuse_in_capture(what)) return r;
    if (int r = finish_blocking()) return r;
  }
  s->queue.push_back(std::move(w));
  return s->queue.size() > 4096 ? finish(*s) : SUCCESS;
}

int finish_blocking() {
  int first = finish(default_stream);
  for (Stream *s : streams)
    if (s->blocking && !s->captured && s->device == current_device())
      if (int r = finish(*s); r && !first) first = r;
  return first;
}

int finish_all() {
  int first = finish(default_stream);
  for (Stream *s : streams)
    if (s->device == current_device())
      if (int r = finish(*s); r && !first) first = r;
  return first;
}

bool capturing(Stream *s) { return streams.count(s) && s->captured; }

int refuse_in_capture(const char *what) {
  for (Stream *s : streams)
    if (s->captured && s->mode != 2 && s->device == current_device()) return refuse(CAPTURE_UNSUPPORTED, "%s during a capture", what);
  return SUCCESS;
}

} // namespace emulator

using namespace emulator;
typedef std::vector<Work> Nodes;

API cuStreamCreate(Stream **s, unsigned flags) {
  ENTER;
  *s = new Stream;
  (*s)->blocking = !(flags & 1);
  (*s)->device = current_device();
  streams.insert(*s);
  return SUCCESS;
}

API cuStreamCreateWithPriority(Stream **s, unsigned flags, int) { return cuStreamCreate(s, flags); }

API cuStreamDestroy_v2(Stream *s) {
  ENTER;
  if (!streams.count(s)) return refuse(INVALID_HANDLE, "cuStreamDestroy: no such stream");
  int r = finish(*s);
  streams.erase(s);
  delete s;
  return r;
}

API cuStreamSynchronize(Stream *s) {
  ENTER;
  if (int r = stream_of("cuStreamSynchronize", s)) return r;
  if (s->captured) return refuse(CAPTURE_UNSUPPORTED, "cuStreamSynchronize of a stream that is captured");
  return s == &default_stream ? finish_blocking() : finish(*s);
}

API cuStreamQuery(Stream *s) { return cuStreamSynchronize(s); }

API cuStreamWaitEvent(Stream *s, Event *e, unsigned) {
  ENTER;
  Work w{Work::wait};
  w.event = e;
  w.ticket = e->recorded;
  return enqueue("cuStreamWaitEvent", s, w);
}

API cuEventCreate(Event **e, unsigned) {
  ENTER;
  *e = new Event;
  return SUCCESS;
}

API cuEventRecord(Event *e, Stream *s) {
  ENTER;
  Work w{Work::record};
  w.event = e;
  w.ticket = ++e->recorded;
  Stream *at = s;
  if (int r = stream_of("cuEventRecord", at)) return r;
  e->stream = at;
  return enqueue("cuEventRecord", s, w);
}

API cuEventSynchronize(Event *e) {
  ENTER;
  return e->stream ? finish(*e->stream, e, e->recorded) : SUCCESS;
}

API cuEventQuery(Event *e) { return cuEventSynchronize(e); }

API cuEventElapsedTime(float *ms, const Event *a, const Event *b) {
  ENTER;
  if (!a->recorded || !b->recorded) return refuse(INVALID_HANDLE, "cuEventElapsedTime: an event was not recorded");
  if (a->reached < a->recorded || b->reached < b->recorded) return refuse(NOT_READY, "cuEventElapsedTime: an event has not been reached");
  *ms = float(double(b->time.tv_sec - a->time.tv_sec) * 1e3 + double(b->time.tv_nsec - a->time.tv_nsec) / 1e6);
  return SUCCESS;
}

API cuEventDestroy_v2(Event *e) {
  ENTER;
  int r = e->stream && (e->stream == &default_stream || streams.count(e->stream)) ? finish(*e->stream, e, e->recorded) : SUCCESS;
  delete e;
  return r;
}

static int launch(const char *what, const Function *f, const u32 *grid, const u32 *block, u32 shared, Stream *s, void **parameters, void **extra) {
  if (extra) return refuse(INVALID_VALUE, "%s: arguments as one buffer are not emulated", what);
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) return refuse(INVALID_VALUE, "%s of %s: grid %ux%ux%u", what, f->kernel->name, grid[0], grid[1], grid[2]);
  if (block[1] != 1 || block[2] != 1 || !block[0] || block[0] % wave_lanes) return refuse(INVALID_VALUE, "%s of %s: a block of %ux%ux%u threads is not one row of whole warps", what, f->kernel->name, block[0], block[1], block[2]);
  if (block[0] > f->most_lanes || (block[0] != f->most_lanes && !f->any_lanes)) return refuse(INVALID_VALUE, "%s of %s: %u threads a block, the kernel is written for %u", what, f->kernel->name, block[0], f->most_lanes);
  if (grid[0] % f->cluster) return refuse(INVALID_CLUSTER_SIZE, "%s of %s: a grid of %u blocks along x is not one of whole clusters of %u", what, f->kernel->name, grid[0], f->cluster);
  if (shared > f->most_dynamic) return refuse(INVALID_VALUE, "%s of %s: %u bytes of dynamic shared memory, %u are allowed", what, f->kernel->name, shared, f->most_dynamic);
  Work w{Work::launch};
  w.function = f;
  for (u32 i = 0; i < f->kernel->parameters; i++) {
    u64 slot = 0;
    memcpy(&slot, parameters[i], f->kernel->sizes[i]);
    if (f->kernel->sizes[i] == 8 && elsewhere((const void *)slot)) return refuse(INVALID_VALUE, "%s of %s: argument %u is memory of another device", what, f->kernel->name, i);
    w.arguments.push_back(slot);
  }
  memcpy(w.grid, grid, sizeof w.grid);
  w.lanes = block[0];
  w.shared = shared;
  return enqueue(what, s, std::move(w));
}

API cuLaunchKernel(const Function *f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 shared, Stream *s, void **parameters, void **extra) {
  ENTER;
  u32 grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  return launch("cuLaunchKernel", f, grid, block, shared, s, parameters, extra);
}

struct LaunchAttribute {
  u32 id, unused;
  u32 value[16];
};
struct LaunchConfig {
  u32 grid[3], block[3], shared;
  Stream *stream;
  const LaunchAttribute *attributes;
  u32 count;
};

API cuLaunchKernelEx(const LaunchConfig *c, const Function *f, void **parameters, void **extra) {
  ENTER;
  bool overlap = false;
  int major, minor;
  capability(major, minor);
  for (u32 i = 0; i < c->count; i++) {
    if (c->attributes[i].id != 6) return refuse(INVALID_VALUE, "cuLaunchKernelEx: attribute %u is not emulated", c->attributes[i].id);
    overlap = c->attributes[i].value[0];
  }
  if (overlap && major < 9) return refuse(NOT_SUPPORTED, "cuLaunchKernelEx: launches overlap on devices of 9.0 and later");
  return launch("cuLaunchKernelEx", f, c->grid, c->block, c->shared, c->stream, parameters, extra);
}

// A cluster lies on multiprocessors that follow each other. Where the emulator has room for fewer
// threads that wait for each other, that is what is at work at once.
API cuOccupancyMaxActiveClusters(int *clusters, const Function *f, const LaunchConfig *c) {
  ENTER;
  u64 bytes = u64(c->shared) + 1024, each = std::min<u64>(2048 / std::max(c->block[0], 32u), (shared_limit() + 1024) / bytes);
  const u64 waves = (c->block[0] + wave_lanes - 1) / wave_lanes * f->cluster;
  *clusters = int(std::min<u64>(setting("WINDROW_EMULATED_SMS", 6) / f->cluster * each, max_waves / waves));
  return SUCCESS;
}

API cuStreamBeginCapture_v2(Stream *s, int mode) {
  ENTER;
  if (int r = stream_of("cuStreamBeginCapture", s)) return r;
  if (s == &default_stream) return refuse(CAPTURE_UNSUPPORTED, "cuStreamBeginCapture of the default stream");
  if (s->captured) return refuse(CAPTURE_UNSUPPORTED, "cuStreamBeginCapture: the stream is being captured");
  s->captured = std::make_shared<Nodes>();
  s->mode = mode;
  return SUCCESS;
}

API cuStreamEndCapture(Stream *s, Nodes **graph) {
  ENTER;
  if (int r = stream_of("cuStreamEndCapture", s)) return r;
  if (!s->captured) return refuse(INVALID_VALUE, "cuStreamEndCapture: the stream is not captured");
  *graph = new Nodes(std::move(*s->captured));
  s->captured = nullptr;
  return SUCCESS;
}

API cuStreamIsCapturing(Stream *s, int *status) {
  ENTER;
  if (int r = stream_of("cuStreamIsCapturing", s)) return r;
  *status = s->captured ? 1 : 0;
  return SUCCESS;
}

API cuGraphGetNodes(const Nodes *g, void **nodes, size_t *count) {
  ENTER;
  if (nodes) return refuse(INVALID_VALUE, "cuGraphGetNodes: only the number is emulated");
  *count = g->size();
  return SUCCESS;
}

API cuGraphInstantiateWithFlags(std::shared_ptr<Nodes> **x, const Nodes *g, unsigned long long) {
  ENTER;
  *x = new std::shared_ptr<Nodes>(new Nodes(*g));
  return SUCCESS;
}

API cuGraphLaunch(std::shared_ptr<Nodes> *x, Stream *s) {
  ENTER;
  Work w{Work::graph};
  w.nodes = *x;
  return enqueue("cuGraphLaunch", s, w);
}

API cuGraphUpload(std::shared_ptr<Nodes> *, Stream *) { return SUCCESS; }

API cuGraphExecDestroy(std::shared_ptr<Nodes> *x) {
  ENTER;
  delete x;
  return SUCCESS;
}

API cuGraphDestroy(Nodes *g) {
  ENTER;
  delete g;
  return SUCCESS;
}
