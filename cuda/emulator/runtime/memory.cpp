// Memory of the driver API. Device memory is the process's own, with guards on
// both sides; new memory is filled with ones: NaN in every float type.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checker.h"
#include "driver.h"

using namespace emulator;

namespace {

constexpr size_t guard_bytes = 256;
constexpr u8 guard_fill = 0xa5;

struct Block {
  size_t bytes;
  u8 *base;
  int device;
};
std::map<const u8 *, Block> device_memory;
std::map<const u8 *, size_t> host_memory, registered;
std::map<int, u64> used; // of each device

const std::pair<const u8 *const, Block> *block_of(const void *p) {
  auto i = device_memory.upper_bound((const u8 *)p);
  if (i == device_memory.begin()) return nullptr;
  --i;
  return (const u8 *)p < i->first + i->second.bytes ? &*i : nullptr;
}

template <class M, class F> bool within(const M &m, const void *p, size_t n, F bytes) {
  auto i = m.upper_bound((const u8 *)p);
  if (i == m.begin()) return false;
  --i;
  return (const u8 *)p + n <= i->first + bytes(i->second);
}
size_t block_bytes(const Block &b) { return b.bytes; }
size_t plain_bytes(size_t n) { return n; }

bool intact(const u8 *guard) {
  for (size_t i = 0; i < guard_bytes; i++)
    if (guard[i] != guard_fill) return false;
  return true;
}

int transfer(const char *what, Stream *stream, void *to, const void *from, size_t n, bool to_device, bool from_device) {
  if (to_device)
    if (int r = check_device_range(what, to, n)) return r;
  if (from_device)
    if (int r = check_device_range(what, from, n)) return r;
  Work w{Work::copy};
  w.to = to;
  w.from = from;
  w.bytes = n;
  const void *host = to_device ? from : to;
  if (to_device == from_device || pinned(host, n)) return enqueue(what, stream, w);
  // Pageable memory: the source is read, and the target written, before the call returns.
  if (int r = refuse_in_capture("a copy of pageable memory")) return r;
  if (to_device) {
    w.kept = std::make_shared<std::vector<u8>>((const u8 *)from, (const u8 *)from + n);
    w.from = w.kept->data();
    return enqueue(what, stream, w);
  }
  w.pageable = true;
  if (int r = enqueue(what, stream, w)) return r;
  return finish_all();
}

int fill(const char *what, Stream *stream, void *p, u32 value, size_t width, size_t count) {
  if ((uintptr_t)p % width) return refuse(INVALID_VALUE, "%s: %p is not a multiple of %zu", what, p, width);
  if (int r = check_device_range(what, p, width * count)) return r;
  Work w{Work::fill};
  w.to = p;
  w.value = value;
  w.width = u32(width);
  w.bytes = width * count;
  return enqueue(what, stream, w);
}

} // namespace

namespace emulator {

bool on_device(const void *p, size_t n) { return within(device_memory, p, n, block_bytes); }
bool pinned(const void *p, size_t n) { return within(host_memory, p, n, plain_bytes) || within(registered, p, n, plain_bytes); }

bool check::allocation(const void *p, Range &r, const char *&) {
  if (auto *b = block_of(p)) {
    r = {(u8 *)b->first, (u8 *)b->first + b->second.bytes};
    return true;
  }
  for (auto *m : {&host_memory, &registered}) {
    auto j = m->upper_bound((const u8 *)p);
    if (j == m->begin()) continue;
    --j;
    if ((const u8 *)p < j->first + j->second) {
      r = {(u8 *)j->first, (u8 *)j->first + j->second};
      return true;
    }
  }
  return false;
}

bool elsewhere(const void *p) {
  auto *b = block_of(p);
  return b && b->second.device != current_device();
}

int check_device_range(const char *what, const void *p, size_t n) {
  auto *i = block_of(p);
  if (i && i->second.device != current_device()) return refuse(INVALID_VALUE, "%s: %p is memory of device %d, device %d is current", what, p, i->second.device, current_device());
  if (on_device(p, n)) return SUCCESS;
  if (i) {
    return refuse(INVALID_VALUE, "%s: bytes %zu to %zu of an allocation of %zu", what, size_t((const u8 *)p - i->first), size_t((const u8 *)p - i->first) + n, i->second.bytes);
  }
  return refuse(INVALID_VALUE, "%s: %p is not device memory", what, p);
}

int guards_hold(const char *after) {
  for (auto &[p, b] : device_memory) {
    bool before = intact(p - guard_bytes);
    if (before && intact(p + b.bytes)) continue;
    memset((void *)(p - guard_bytes), guard_fill, guard_bytes);
    memset((void *)(p + b.bytes), guard_fill, guard_bytes);
    return refuse(LAUNCH_FAILED, "%s: out of bounds: wrote %s an allocation of %zu bytes", after, before ? "past the end of" : "before", b.bytes);
  }
  return SUCCESS;
}

} // namespace emulator

API cuMemGetInfo_v2(size_t *available, size_t *total) {
  ENTER;
  *total = setting("WINDROW_EMULATED_MEMORY", 8ull << 30);
  u64 taken = used[current_device()];
  *available = *total > taken ? *total - taken : 0;
  return SUCCESS;
}

API cuMemAlloc_v2(void **p, size_t n) {
  ENTER;
  if (!n) return refuse(INVALID_VALUE, "cuMemAlloc: 0 bytes");
  size_t rounded = (n + 255) / 256 * 256;
  if (used[current_device()] + rounded > setting("WINDROW_EMULATED_MEMORY", 8ull << 30)) return refuse(OUT_OF_MEMORY, "out of memory");
  u8 *base = (u8 *)aligned_alloc(256, rounded + 2 * guard_bytes);
  if (!base) return refuse(OUT_OF_MEMORY, "the machine has no memory left");
  u8 *start = base + guard_bytes;
  memset(base, guard_fill, guard_bytes);
  memset(start, 0xff, n);
  memset(start + n, guard_fill, guard_bytes + rounded - n);
  device_memory[start] = {n, base, current_device()};
  used[current_device()] += rounded;
  *p = start;
  return SUCCESS;
}

API cuMemFree_v2(void *p) {
  ENTER;
  if (!p) return SUCCESS;
  auto i = device_memory.find((const u8 *)p);
  if (i == device_memory.end()) return refuse(INVALID_VALUE, "cuMemFree: %p was not allocated", p);
  int finished = finish_all();
  if (!finished) finished = guards_hold("before cuMemFree");
  check::forget(p);
  used[i->second.device] -= (i->second.bytes + 255) / 256 * 256;
  free(i->second.base);
  device_memory.erase(i);
  return finished;
}

API cuMemcpyHtoD_v2(void *to, const void *from, size_t n) {
  ENTER;
  if (int r = check_device_range("cuMemcpyHtoD", to, n)) return r;
  if (int r = finish_blocking()) return r;
  memcpy(to, from, n);
  return SUCCESS;
}

API cuMemcpyDtoH_v2(void *to, const void *from, size_t n) {
  ENTER;
  if (int r = check_device_range("cuMemcpyDtoH", from, n)) return r;
  if (int r = finish_blocking()) return r;
  memcpy(to, from, n);
  return SUCCESS;
}

API cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t n, Stream *s) {
  ENTER;
  return transfer("cuMemcpyHtoDAsync", s, to, from, n, true, false);
}

API cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t n, Stream *s) {
  ENTER;
  return transfer("cuMemcpyDtoHAsync", s, to, from, n, false, true);
}

API cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t n, Stream *s) {
  ENTER;
  if ((const u8 *)to < (const u8 *)from + n && (const u8 *)from < (const u8 *)to + n) return refuse(INVALID_VALUE, "cuMemcpyDtoDAsync: the ranges overlap");
  return transfer("cuMemcpyDtoDAsync", s, to, from, n, true, true);
}

API cuMemsetD8_v2(void *p, u8 value, size_t n) {
  ENTER;
  if (int r = check_device_range("cuMemsetD8", p, n)) return r;
  if (int r = finish_blocking()) return r;
  memset(p, value, n);
  return SUCCESS;
}

API cuMemsetD8Async(void *p, u8 value, size_t n, Stream *s) {
  ENTER;
  return fill("cuMemsetD8Async", s, p, value, 1, n);
}

API cuMemsetD32Async(void *p, u32 value, size_t n, Stream *s) {
  ENTER;
  return fill("cuMemsetD32Async", s, p, value, 4, n);
}

API cuMemHostAlloc(void **p, size_t n, unsigned) {
  ENTER;
  if (!n) return refuse(INVALID_VALUE, "cuMemHostAlloc: 0 bytes");
  *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
  if (!*p) return refuse(OUT_OF_MEMORY, "the machine has no memory left");
  memset(*p, 0xff, n);
  host_memory[(const u8 *)*p] = n;
  return SUCCESS;
}

API cuMemFreeHost(void *p) {
  ENTER;
  auto i = host_memory.find((const u8 *)p);
  if (i == host_memory.end()) return refuse(INVALID_VALUE, "cuMemFreeHost: %p was not allocated", p);
  int r = finish_all();
  check::forget(p);
  host_memory.erase(i);
  free(p);
  return r;
}

API cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned) {
  ENTER;
  if (!pinned(host, 1)) return refuse(INVALID_VALUE, "cuMemHostGetDevicePointer: %p is not page-locked", host);
  *device = host;
  return SUCCESS;
}

API cuMemHostRegister_v2(void *p, size_t n, unsigned) {
  ENTER;
  if ((uintptr_t)p % 4096 || !n) return refuse(INVALID_VALUE, "cuMemHostRegister: %p is not page-aligned", p);
  for (auto &[q, bytes] : registered)
    if ((u8 *)p < q + bytes && q < (u8 *)p + n) return refuse(ALREADY_REGISTERED, "cuMemHostRegister: part of the range is registered");
  registered[(const u8 *)p] = n;
  return SUCCESS;
}

API cuMemHostUnregister(void *p) {
  ENTER;
  auto i = registered.find((const u8 *)p);
  if (i == registered.end()) return refuse(NOT_REGISTERED, "cuMemHostUnregister: %p is not registered", p);
  int r = finish_all();
  check::forget(p);
  registered.erase(i);
  return r;
}
