// The intrinsics of gpu.cuh that need more than the lane itself.
#include "hopper_state.h"

#include <immintrin.h>
#include <string.h>

#include <vector>

#include "checker.h"

namespace emulator {

static const char *const headers[] = {"gpu.cuh", "emulated.h", "hopper.cuh", "hopper.h", nullptr};
const Dialect dialect = {"warp", "block", false, false, false, false, true, false, headers};

namespace {

// Copies of a lane that have not arrived: a copy is done when it is waited
// for, so that code which does not wait finds NaN.
struct Copy {
  void *to;
  const void *from;
  u32 bytes, batch;
};
struct Copies {
  std::vector<Copy> list;
  u32 batch;
};
Copies copies[max_lanes];

__m256 half(__m256i pairs, bool high) { return _mm256_castsi256_ps(high ? _mm256_and_si256(pairs, _mm256_set1_epi32(int(0xffff0000))) : _mm256_slli_epi32(pairs, 16)); }

void tiles(Wave &w, bool transposed) {
  auto &x = *(LoadMatrix *)w.operands();
  for (u32 tile = 0; tile < 4; tile++)
    for (u32 i = 0; i < 32; i++) {
      u32 g = i / 4, t = i % 4;
      unsigned short pair[2];
      if (transposed) {
        memcpy(&pair[0], x.row[tile * 8 + t * 2] + g * 2, 2);
        memcpy(&pair[1], x.row[tile * 8 + t * 2 + 1] + g * 2, 2);
      } else {
        memcpy(pair, x.row[tile * 8 + g] + t * 4, 4);
      }
      x.result[i][tile] = u32(pair[0]) | u32(pair[1]) << 16;
    }
}

template <class F> void butterfly(Wave &w, F join) {
  float *x = (float *)w.operands();
  for (u32 m = 16; m; m >>= 1) {
    float y[32];
    for (u32 i = 0; i < 32; i++) y[i] = join(x[i], x[i ^ m]);
    memcpy(x, y, sizeof y);
  }
}

} // namespace

void operation_sync([[maybe_unused]] Wave &w) {
#ifdef CHECKED
  uint32_t all = ~0u;
  check::join(w.index, &all, 1, of_all);
#endif
}

void operation_shuffle(Wave &w) {
  auto &x = *(Shuffle *)w.operands();
  u32 v[32];
  memcpy(v, x.value, sizeof v);
  for (u32 i = 0; i < 32; i++) x.value[i] = v[x.source[i]];
}

void operation_sum(Wave &w) {
  butterfly(w, [](float a, float b) { return a + b; });
}
void operation_max(Wave &w) {
  butterfly(w, [](float a, float b) { return __builtin_fmaxf(a, b); });
}

// c += a·b with f32 sums in the order of k. The unit of a GPU sums in an order
// and with roundings of its own, so results agree to about 2^-22 of the largest term.
void operation_mma(Wave &w) {
  auto &x = *(Mma *)w.operands();
  __m256 b[16];
  for (int p = 0; p < 8; p++) {
    __m256i pairs = _mm256_load_si256((const __m256i *)x.b[p]);
    b[p * 2] = half(pairs, false);
    b[p * 2 + 1] = half(pairs, true);
  }
  alignas(32) float low[16][8], high[16][8];
  for (int m = 0; m < 16; m++) {
    __m256i pairs = _mm256_load_si256((const __m256i *)x.a[m]);
    _mm256_store_ps(low[m], half(pairs, false));
    _mm256_store_ps(high[m], half(pairs, true));
  }
  for (int m = 0; m < 16; m += 8) {
    __m256 c[8];
    for (int i = 0; i < 8; i++) c[i] = _mm256_load_ps(x.c[m + i]);
    for (int p = 0; p < 8; p++) {
      for (int i = 0; i < 8; i++) c[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(&low[m + i][p]), b[p * 2], c[i]);
      for (int i = 0; i < 8; i++) c[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(&high[m + i][p]), b[p * 2 + 1], c[i]);
    }
    for (int i = 0; i < 8; i++) _mm256_store_ps(x.c[m + i], c[i]);
  }
}

void operation_load_matrix(Wave &w) { tiles(w, false); }
void operation_load_matrix_transposed(Wave &w) { tiles(w, true); }

void copy_async(void *shared, const void *global, u32 bytes, const char *file, int line) {
  if (((uintptr_t)shared | (uintptr_t)global) % 16) fail("copy_async at %s:%d: an address is not a multiple of 16", base_name(file), line);
  if (bytes != 0 && bytes != 16) fail("copy_async at %s:%d of %u bytes, not 0 or 16", base_name(file), line, bytes);
  current->file = file;
  current->line = line;
  if (bytes) check::access(global, bytes, check::read, nullptr);
  check::in_flight(shared, 16);
  memset(shared, 0xff, 16);
  Copies &c = copies[current->number];
  c.list.push_back({shared, global, bytes, c.batch});
}

void copy_commit() { copies[current->number].batch++; }

void copy_wait(u32 pending) {
  Copies &c = copies[current->number];
  size_t kept = 0;
  for (const Copy &p : c.list) {
    if (p.batch + pending >= c.batch) {
      c.list[kept++] = p;
      continue;
    }
    check::arrived(p.to, 16);
    memset(p.to, 0, 16);
    memcpy(p.to, p.from, p.bytes);
  }
  c.list.resize(kept);
}

void begin_blocks(unsigned lanes) {
  forget_barriers(lanes);
  forget_bulk();
  forget_products(lanes);
  for (unsigned i = 0; i < lanes; i++) {
    copies[i].list.clear();
    copies[i].batch = 0;
  }
}

const char *end_blocks() {
  if (const char *complaint = undelivered()) return complaint;
  return products_end();
}

void fence() { check::fence(); }

u32 atomic_add(u32 *p, u32 v, const char *file, int line) {
  if ((uintptr_t)p % 4) fail("misaligned: atomic_add at %s:%d of %p", base_name(file), line, (void *)p);
  current->file = file;
  current->line = line;
  check::access(p, 4, check::atomic | check::write, nullptr);
  u32 before = *p;
  *p += v;
  changed();
  return before;
}

void launch_dependents() { any_early = any_early || !current->waited; }

void dependency_wait() {
  current->waited = any_waited = true;
}

void allow_unwritten(const void *shared, u32 bytes) { check::allow_unwritten(shared, bytes); }

#ifdef CHECKED
void check_load(const void *p, u32 bytes, bool l2, const char *file, int line) {
  if ((uintptr_t)p % bytes) fail("misaligned: a load of %u bytes at %s:%d of %p", bytes, base_name(file), line, p);
  current->file = file;
  current->line = line;
  check::access(p, bytes, l2 ? check::at_l2 : check::read, nullptr);
}

void load(void *to, const void *from, u32 bytes, bool l2, const char *file, int line) {
  check_load(from, bytes, l2, file, line);
  memcpy(to, from, bytes);
}
#endif

} // namespace emulator
