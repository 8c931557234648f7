// The part of NCCL that the engine uses: communicators of one process, a rank a
// device, that gather and add f32. An exchange is an operation of each rank's
// stream, captured and ordered as others; it waits for the other ranks, each of
// which some thread has to wait for.
#include <string.h>

#include <chrono>
#include <condition_variable>

#include "driver.h"

using namespace emulator;

namespace {

// Codes of ncclResult_t, and the number of f32 in ncclDataType_t.
enum : int { NCCL_SUCCESS = 0, NCCL_CUDA_ERROR = 1, NCCL_INVALID_ARGUMENT = 4, NCCL_INVALID_USAGE = 5 };
enum : int { TYPE_F32 = 7, SUM = 0 };

constexpr auto patience = std::chrono::minutes(4);

std::condition_variable_any arrived;

// Clique is the ranks of one communicator, and the exchange that they are at.
struct Clique {
  size_t ranks, open;
  std::vector<const Work *> present; // of each rank, or null
  u64 rounds = 0;                    // exchanges done
  bool aborted = false, differ = false;
  explicit Clique(size_t n) : ranks(n), open(n), present(n) {}
};

} // namespace

namespace emulator {

struct Rank {
  std::shared_ptr<Clique> clique;
  size_t rank;
  int device;
  bool connected; // has exchanged something outside of captures
  std::shared_ptr<std::vector<u8>> uses = std::make_shared<std::vector<u8>>(); // held by what is queued or captured
};

} // namespace emulator

// perform does the exchange that all ranks are at. Targets may be sources.
static void perform(Clique &c) {
  const Work &first = *c.present[0];
  c.differ = false;
  for (const Work *w : c.present) c.differ |= w->value != first.value || w->bytes != first.bytes;
  if (c.differ) return;
  std::vector<std::vector<u8>> parts;
  for (const Work *w : c.present) parts.emplace_back((const u8 *)w->from, (const u8 *)w->from + w->bytes);
  for (const Work *w : c.present) {
    if (w->value == Work::gathers) {
      for (size_t i = 0; i < parts.size(); i++) memcpy((u8 *)w->to + i * w->bytes, parts[i].data(), w->bytes);
      continue;
    }
    for (size_t i = 0; i < w->bytes; i += 4) {
      float sum = 0;
      for (auto &p : parts) {
        float v;
        memcpy(&v, p.data() + i, 4);
        sum += v;
      }
      memcpy((u8 *)w->to + i, &sum, 4);
    }
  }
}

// run_exchange brings a rank to an exchange and waits for the others. An aborted
// exchange ends, as its kernel would, with nothing done.
int emulator::run_exchange(const Work &w) {
  std::shared_ptr<Clique> c = w.rank->clique;
  size_t me = w.rank->rank;
  if (const char *v = getenv("WINDROW_EMULATED_NCCL_FAILS"); v && *v && size_t(atoi(v)) == me) return refuse(LAUNCH_FAILED, "rank %zu was told to fail", me);
  if (c->aborted) return SUCCESS;
  u64 round = c->rounds;
  c->present[me] = &w;
  bool all = true;
  for (auto *p : c->present) all &= p != nullptr;
  if (all) {
    perform(*c);
    c->present.assign(c->ranks, nullptr);
    c->rounds++;
    arrived.notify_all();
  } else if (!arrived.wait_for(lock, patience, [&] { return c->aborted || c->rounds != round; })) {
    c->present[me] = nullptr;
    return refuse(LAUNCH_FAILED, "an exchange of rank %zu: another rank did not come", me);
  }
  if (c->aborted) c->present[me] = nullptr;
  return c->differ ? refuse(LAUNCH_FAILED, "the ranks are at exchanges of different kinds or sizes") : SUCCESS;
}

API ncclGetVersion(int *version) {
  *version = int(setting("WINDROW_EMULATED_NCCL", 22703));
  return NCCL_SUCCESS;
}

API ncclCommInitAll(Rank **ranks, int n, const int *devices) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (n < 1) return NCCL_INVALID_ARGUMENT;
  auto c = std::make_shared<Clique>(n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      if (devices[i] == devices[j]) return NCCL_INVALID_USAGE;
  for (int i = 0; i < n; i++) ranks[i] = new Rank{c, size_t(i), devices[i], false};
  return NCCL_SUCCESS;
}

// The real one waits until graphs that hold exchanges are gone.
API ncclCommDestroy(Rank *r) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (r->uses.use_count() > 1) return NCCL_INVALID_USAGE;
  delete r;
  return NCCL_SUCCESS;
}

// What is queued of an aborted rank still refers to it, so it stays.
API ncclCommAbort(Rank *r) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  r->clique->aborted = true;
  arrived.notify_all();
  return NCCL_SUCCESS;
}

static int exchange(const char *what, u32 kind, const void *from, void *to, size_t count, int type, Rank *r, Stream *s) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (!r || type != TYPE_F32 || !count) return NCCL_INVALID_ARGUMENT;
  if (r->clique->aborted) return NCCL_INVALID_USAGE;
  if (need_context(what) || current_device() != r->device) return NCCL_CUDA_ERROR;
  Work w{Work::exchange};
  w.rank = r;
  w.kept = r->uses;
  w.value = kind;
  w.from = from;
  w.to = to;
  w.bytes = 4 * count;
  size_t room = kind == Work::gathers ? w.bytes * r->clique->ranks : w.bytes;
  if (check_device_range(what, from, w.bytes) || check_device_range(what, to, room)) return NCCL_INVALID_ARGUMENT;
  if (capturing(s) && !r->connected) return NCCL_INVALID_USAGE; // connections are made outside of captures
  r->connected |= !capturing(s);
  return enqueue(what, s, w) ? NCCL_CUDA_ERROR : NCCL_SUCCESS;
}

API ncclAllGather(const void *from, void *to, size_t count, int type, Rank *r, Stream *s) {
  return exchange("ncclAllGather", Work::gathers, from, to, count, type, r, s);
}

API ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, Rank *r, Stream *s) {
  if (operation != SUM) return NCCL_INVALID_ARGUMENT;
  return exchange("ncclAllReduce", Work::adds, from, to, count, type, r, s);
}
