// What code built with -fsanitize=thread,alignment,... calls, instead of the
// compiler's own runtimes, which would have to own the process.
#ifdef CHECKED
#include <string.h>

#include "checker.h"

using namespace emulator;

#define HOOK extern "C" EMULATOR_API
#define FROM __builtin_return_address(0)

// plain is an access that may be unaligned. Most are to stacks.
static inline __attribute__((always_inline)) void plain(void *p, unsigned n, unsigned kind, const void *from) {
  if (!check::on_stack(p)) check::access(p, n, kind, from);
}
// aligned: what an element of a vector is read by is not seen by the other instrumentation.
static inline __attribute__((always_inline)) void aligned(void *p, unsigned n, unsigned kind, const void *from) {
  if (check::on_stack(p)) return;
  if (uintptr_t(p) % (n < 8 ? n : 8)) check::misaligned(p, n, kind, from);
  check::access(p, n, kind, from);
}

#define ACCESSES(n)                                                                                      \
  HOOK void __tsan_read##n(void *p) { aligned(p, n, check::read, FROM); }                                \
  HOOK void __tsan_write##n(void *p) { aligned(p, n, check::write, FROM); }                              \
  HOOK void __tsan_unaligned_read##n(void *p) { plain(p, n, check::read, FROM); }                        \
  HOOK void __tsan_unaligned_write##n(void *p) { plain(p, n, check::write, FROM); }                      \
  HOOK void __tsan_read_write##n(void *p) { plain(p, n, check::read, FROM), plain(p, n, check::write, FROM); } \
  HOOK void __tsan_unaligned_read_write##n(void *p) { plain(p, n, check::read, FROM), plain(p, n, check::write, FROM); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

HOOK void __tsan_init() {}
HOOK void __tsan_vptr_update(void **, void *) {}
HOOK void __tsan_vptr_read(void **) {}
HOOK void *__tsan_memcpy(void *to, const void *from, size_t n) {
  if (n) check::access(from, unsigned(n), check::read, FROM), check::access(to, unsigned(n), check::write, FROM);
  return memcpy(to, from, n);
}
HOOK void *__tsan_memmove(void *to, const void *from, size_t n) {
  if (n) check::access(from, unsigned(n), check::read, FROM), check::access(to, unsigned(n), check::write, FROM);
  return memmove(to, from, n);
}
HOOK void *__tsan_memset(void *to, int v, size_t n) {
  if (n) check::access(to, unsigned(n), check::write, FROM);
  return memset(to, v, n);
}

namespace {

// Every report of undefined behaviour begins with its place in the source.
struct Place {
  const char *file;
  uint32_t line, column;
};
struct Type {
  uint16_t kind, info;
  char name[1];
};
struct Mismatch {
  Place place;
  const Type *type;
  uint8_t alignment; // its logarithm
  uint8_t kind;
};
struct Bounds {
  Place place;
  const Type *array, *index;
};

} // namespace

HOOK void __ubsan_handle_type_mismatch_v1_abort(Mismatch *m, uintptr_t p) {
  fail("misaligned: %s at %s:%u needs an address that is a multiple of %u, it is %#lx", m->type->name, base_name(m->place.file), m->place.line, 1u << m->alignment, (unsigned long)p);
}
HOOK void __ubsan_handle_out_of_bounds_abort(Bounds *b, uintptr_t index) {
  fail("out of bounds: index %lu of %s at %s:%u", (unsigned long)index, b->array->name, base_name(b->place.file), b->place.line);
}
HOOK void __ubsan_handle_shift_out_of_bounds_abort(Place *p, uintptr_t, uintptr_t by) { fail("shift by %ld bits at %s:%u", long(by), base_name(p->file), p->line); }
HOOK void __ubsan_handle_divrem_overflow_abort(Place *p, uintptr_t, uintptr_t) { fail("division by zero at %s:%u", base_name(p->file), p->line); }
#endif
