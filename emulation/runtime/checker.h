// What the checked build watches; the plain build compiles these to nothing.
#pragma once
#include "executor.h"

namespace emulator::check {

// update: a write that reads what was there.
// by_proxy: an asynchronous copy or a matrix unit does it, not the lane itself. relaxed: an atomic that orders nothing else.
enum Access : unsigned { read = 0, write = 1, atomic = 2, at_l2 = 4, update = 8, by_proxy = 16, relaxed = 32 };

#ifdef CHECKED
// ignored is the lanes' stacks, where most accesses are.
extern Range ignored;
inline bool on_stack(const void *p) { return uintptr_t(p) - uintptr_t(ignored.begin) < uintptr_t(ignored.end - ignored.begin); }
// begin_launch: accesses to the ignored ranges are not looked at.
// dynamic: shared memory of each group of a cohort.
void begin_launch(const Launch &, Range stacks, const Range *dynamic, unsigned groups);
// share adds memory that the group shares; it stays for the launch.
void share(Range, const char *name);
// end_launch returns false, with a message in failure, when the launch as a whole did something wrong.
bool end_launch(bool ok);
void begin_group();
// join: the lanes of the masks, of that many waves from the first on, see what each of them did before to the memory.
void join(unsigned first, const uint32_t *masks, unsigned waves, unsigned memory);
void fence();
// proxy_fence shows what the lane wrote, or knows of, to accesses by_proxy.
void proxy_fence();
// access checks one access of the running lane; from is the instruction after it, or null
// where the lane's last place in the source tells it.
EMULATOR_API void access(const void *address, unsigned bytes, unsigned kind, const void *from);
// misaligned ends the launch if the address is in memory that is looked at.
void misaligned(const void *address, unsigned bytes, unsigned kind, const void *from);
// matrix_access is an access by the matrix lane of that number of the running lane's wave.
void matrix_access(const void *address, unsigned bytes, unsigned lane, unsigned kind);
// in_flight: an asynchronous copy may write the bytes from now on; arrived ends that.
void in_flight(const void *address, unsigned bytes);
void arrived(const void *address, unsigned bytes);
// reserve says that bytes of shared memory are a barrier, which nobody reads or writes otherwise.
void reserve(const void *address, unsigned bytes);
// load_atomic is an atomic load that acquires.
void load_atomic(const void *address);
// load_relaxed and store_relaxed are atomic, and order nothing else.
void load_relaxed(const void *address, unsigned bytes);
void store_relaxed(const void *address, unsigned bytes);
// allow_unwritten: the bytes of shared memory may be read though nobody has written them.
void allow_unwritten(const void *address, unsigned bytes);
// reads_over: what the lanes of the running wave have read, they have in registers: a later write of that wave comes after it.
void reads_over();
// serialised: what follows begins after everything before has ended.
void serialised();
// forget: the memory at the address is freed.
void forget(const void *address);
#else
inline void begin_launch(const Launch &, Range, const Range *, unsigned) {}
inline bool end_launch(bool ok) { return ok; }
inline void begin_group() {}
inline void join(unsigned, const uint32_t *, unsigned, unsigned) {}
inline void share(Range, const char *) {}
inline void fence() {}
inline void proxy_fence() {}
inline void access(const void *, unsigned, unsigned, const void *) {}
inline void matrix_access(const void *, unsigned, unsigned, unsigned) {}
inline void in_flight(const void *, unsigned) {}
inline void arrived(const void *, unsigned) {}
inline void reserve(const void *, unsigned) {}
inline void load_atomic(const void *) {}
inline void load_relaxed(const void *, unsigned) {}
inline void store_relaxed(const void *, unsigned) {}
inline void allow_unwritten(const void *, unsigned) {}
inline void reads_over() {}
inline void serialised() {}
inline void forget(const void *) {}
#endif

// access_async is a read of shared memory by a matrix unit, for the running lane.
inline void access_async(const void *address, unsigned bytes) { access(address, bytes, read | by_proxy, nullptr); }

// allocation finds the device memory around an address, and what to call it; the emulator defines it.
bool allocation(const void *p, Range &r, const char *&name);

} // namespace emulator::check
