// Dispatches: what ../library.go calls.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "msl.h"
#undef device
#undef constant
#undef threadgroup
#undef thread
#undef kernel

namespace emulator {

static const char *const headers[] = {"msl_types.h", "msl_math.h", "msl_threads.h", "msl_matrix.h", "msl_atomic.h", "msl_entry.h", nullptr};
const Dialect dialect = {"simdgroup", "threadgroup", true, true, true, true, false, true, headers};

} // namespace emulator

using namespace emulator;

namespace msl {

namespace {

constexpr uint most_threadgroup_memory = 32 << 10;

// Dispatch is what Go fills in.
struct Dispatch {
  const char *kernel;
  uint64_t seed;
  uint8_t *pointer[slots], *base[slots]; // null: nothing is bound; the start of the allocation
  uint64_t length[slots];                // from pointer to the end of the allocation
  uint32_t bytes[slots];                 // 1: given by setBytes
  uint32_t threadgroup_memory[slots];
  uint32_t groups[3], threads[3];
};

struct Variable {
  uint site, bytes;
  uint8_t *place;
};

Entry *entries;
Arguments arguments;
void (*run_kernel)(const Arguments &);

struct Bound {
  Range range;
  int index;
};
std::vector<Bound> bound;
std::vector<std::unique_ptr<char[]>> names; // of buffers and variables, for messages
std::vector<Variable> variables;

// Threadgroup memory: variables with gaps between them, in which the checker
// finds accesses past an end.
constexpr size_t arena_bytes = 4 * most_threadgroup_memory + 64 * 256, gap = 64;
uint8_t *arena, *arena_next;
uint memory_used;
const uint32_t *memory_given; // by index

const char *keep(std::string s) {
  names.emplace_back(new char[s.size() + 1]);
  memcpy(names.back().get(), s.c_str(), s.size() + 1);
  return names.back().get();
}

// take is a place in the arena. Checked, it has no more alignment than is promised.
uint8_t *take(uint bytes, uint alignment, const char *name) {
  memory_used += (bytes + 15) / 16 * 16;
  if (memory_used > most_threadgroup_memory) return nullptr;
  uint8_t *p = (uint8_t *)(((uintptr_t)arena_next + gap + 127) & ~uintptr_t(127));
#ifdef CHECKED
  p += std::min(alignment, 64u);
#else
  (void)alignment;
#endif
  arena_next = p + bytes;
  if (arena_next + gap > arena + arena_bytes) return nullptr;
  check::share({p, p + bytes}, name);
  return p;
}

// begin_group: new threadgroup memory is NaN.
void begin_group(unsigned) {
  if (!arena_next) {
    arena_next = arena;
    memory_used = 0;
    for (int i = 0; i < slots; i++)
      if (uint n = memory_given[i]) arguments.threadgroup_memory[i] = take(n, 16, keep("threadgroup memory " + std::to_string(i)));
  }
  memset(arena, 0xff, size_t(arena_next - arena));
}

// fit is "" where the dispatch can run.
std::string fit(const Entry &e, const Dispatch &d) {
  std::string name = std::string(e.name) + ": ";
  uint64_t threads = uint64_t(d.threads[0]) * d.threads[1] * d.threads[2], groups = uint64_t(d.groups[0]) * d.groups[1] * d.groups[2];
  if (!groups) return name + "a grid of no threadgroups";
  if (groups > 0xffffffff) return name + "too many threadgroups";
  if (!threads || threads > max_group_lanes) return name + std::to_string(threads) + " threads in a threadgroup, 1 to " + std::to_string(max_group_lanes) + " can be";
  if (e.most_threads && threads > e.most_threads) return name + std::to_string(threads) + " threads in a threadgroup, the kernel allows " + std::to_string(e.most_threads);
  uint64_t memory = 0;
  for (int i = 0; i < slots; i++) memory += d.threadgroup_memory[i];
  if (memory > most_threadgroup_memory) return name + "threadgroup memory over 32 KiB: " + std::to_string(memory) + " bytes";
  for (int i = 0; i < slots; i++)
    if (d.threadgroup_memory[i] % 16) return name + "threadgroup memory " + std::to_string(i) + " of " + std::to_string(d.threadgroup_memory[i]) + " bytes, which is not a multiple of 16";
  for (const Binding *b = e.bindings; b < e.bindings + e.count; b++) {
    std::string index = std::to_string(b->index), size = std::to_string(b->size);
    if (b->attribute == attribute_threadgroup && !d.threadgroup_memory[b->index]) return name + "no threadgroup memory is set at index " + index;
    if (b->attribute != attribute_buffer) continue;
    if (!d.pointer[b->index]) return name + "nothing is bound at index " + index;
    uint64_t length = d.length[b->index];
    if (d.bytes[b->index] && b->writable) return name + "bytes are bound at index " + index + ", which the kernel may write";
    if (b->reference && d.bytes[b->index] && length != uint64_t(b->size)) return name + "the bytes at index " + index + " are " + std::to_string(length) + ", the kernel's struct has " + size;
    if (b->reference && length < uint64_t(b->size)) return name + "the buffer at index " + index + " has " + std::to_string(length) + " bytes, the kernel's struct " + size;
    if ((uintptr_t)d.pointer[b->index] % std::min(4, b->size & -b->size)) return name + "misaligned: the offset of the buffer at index " + index + " is no multiple of its elements' alignment";
  }
  return "";
}

void bind(const Dispatch &d) {
  if (!arena) arena = (uint8_t *)aligned_alloc(4096, arena_bytes);
  arena_next = nullptr;
  memory_given = d.threadgroup_memory;
  names.clear();
  variables.clear();
  bound.clear();
  arguments = {};
  memcpy(arguments.threads, d.threads, sizeof d.threads);
  for (int i = 0; i < slots; i++) {
    arguments.buffer[i] = d.pointer[i];
    if (!d.pointer[i]) continue;
    bound.push_back({{d.base[i], d.pointer[i] + d.length[i]}, i});
  }
}

} // namespace

void enter(Entry *e) {
  e->next = entries;
  entries = e;
}

void *variable(uint site, uint bytes, uint alignment, const char *name) {
  for (const Variable &v : variables)
    if (v.site == site) return v.place;
  uint8_t *p = take(bytes, alignment, name);
  if (!p) fail("threadgroup memory over 32 KiB: %u bytes with %s", memory_used, name);
  memset(p, 0xff, bytes); // as begin_group does for those that it knows
  variables.push_back({site, bytes, p});
  return p;
}

void multiply(Wave &w) {
  typedef float Row __attribute__((ext_vector_type(8)));
  auto &x = *(MatrixProduct *)w.operands();
  if (w.done) {
    const Lane &l = w.lanes[__builtin_ctz(w.active())];
    fail("divergence: matrices are multiplied after threads of the simdgroup have exited, at %s:%d", l.file, l.line);
  }
  Row b[8], c[8];
  memcpy((void *)b, x.b, sizeof b);
  memcpy((void *)c, x.c, sizeof c);
  for (int k = 0; k < 8; k++)
    for (int i = 0; i < 8; i++) c[i] = __builtin_elementwise_fma((Row)x.a[i][k], b[k], c[i]);
  memcpy(x.c, (void *)c, sizeof c);
}

#ifdef CHECKED
void matrix_read(void *to, const void *from, uint bytes, uint lane) {
  check::matrix_access(from, bytes, lane, check::read);
  memcpy(to, from, bytes);
}
void matrix_write(void *to, const void *from, uint bytes, uint lane) {
  check::matrix_access(to, bytes, lane, check::write);
  memcpy(to, from, bytes);
}
void atomic_access(void *p, uint bytes, bool update) { check::access(p, bytes, check::write | check::atomic | (update ? check::update : 0), nullptr); }
#endif

} // namespace msl

bool check::allocation(const void *p, Range &r, const char *&name) {
  for (const auto &b : msl::bound) {
    if (p < b.range.begin || p >= b.range.end) continue;
    r = b.range;
    name = msl::keep("buffer " + std::to_string(b.index));
    return true;
  }
  return false;
}

#define EXPORT extern "C" __attribute__((visibility("default")))

// metal_describe writes a line a kernel: its name, its most threads, then
// attribute:index:size:writable:reference of each parameter. It returns the
// length.
EXPORT uint64_t metal_describe(char *out, uint64_t size) {
  std::string s;
  for (const msl::Entry *e = msl::entries; e; e = e->next) {
    s += std::string(e->name) + " " + std::to_string(e->most_threads);
    for (const msl::Binding *b = e->bindings; b < e->bindings + e->count; b++) {
      char text[100];
      snprintf(text, sizeof text, " %d:%d:%d:%d:%d", b->attribute, b->index, b->size, b->writable, b->reference);
      s += text;
    }
    s += "\n";
  }
  if (s.size() <= size) memcpy(out, s.data(), s.size());
  return s.size();
}

// metal_dispatch runs a dispatch; it returns the length of a message of what was wrong.
EXPORT uint64_t metal_dispatch(const msl::Dispatch *d, char *message, uint64_t size) {
  auto wrong = [&](const std::string &s) {
    size_t n = std::min<size_t>(s.size(), size);
    memcpy(message, s.data(), n);
    return n;
  };
  const msl::Entry *e = msl::entries;
  while (e && strcmp(e->name, d->kernel)) e = e->next;
  if (!e) return wrong(std::string("no kernel ") + d->kernel);
  if (std::string s = msl::fit(*e, *d); !s.empty()) return wrong(s);
  msl::bind(*d);
  msl::run_kernel = e->run;
  Kernel k{e->name, [](const Slot *) { msl::run_kernel(msl::arguments); }, {nullptr, nullptr}, nullptr, 0, nullptr};
  Launch l{&k, nullptr, {d->groups[0], d->groups[1], d->groups[2]}, d->threads[0] * d->threads[1] * d->threads[2], 0, d->seed, msl::begin_group};
  return run(l) ? 0 : wrong(failure);
}
