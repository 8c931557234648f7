// What the checked build watches; the plain build compiles these to nothing.
#pragma once
#include "executor.h"

namespace emulator::check {

enum Access : unsigned { read = 0, write = 1, atomic = 2, at_l2 = 4 };

#ifdef CHECKED
void begin_launch(const Launch &, Range stacks, Range dynamic_shared);
bool end_launch(bool ok);
void begin_group();
// join: the lanes of the masks (one a wave) see what each of them did before.
void join(const uint32_t *masks, unsigned waves);
void fence();
// access checks bytes at an address; the instrumented code and the intrinsics call it.
EMULATOR_API void access(const void *address, unsigned bytes, unsigned kind, const void *from);
// in_flight: an asynchronous copy may write the bytes from now on; arrived ends that.
void in_flight(const void *address, unsigned bytes);
void arrived(const void *address, unsigned bytes);
void waited();
#else
inline void begin_launch(const Launch &, Range, Range) {}
inline bool end_launch(bool ok) { return ok; }
inline void begin_group() {}
inline void join(const uint32_t *, unsigned) {}
inline void fence() {}
inline void access(const void *, unsigned, unsigned, const void *) {}
inline void in_flight(const void *, unsigned) {}
inline void arrived(const void *, unsigned) {}
inline void waited() {}
#endif

} // namespace emulator::check
