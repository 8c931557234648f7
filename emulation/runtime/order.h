// Order that a GPU's interface makes by other means than barriers of a group and
// atomics: what barriers in memory and asynchronous copies release and acquire.
#pragma once
#include <memory>
#include <vector>

#include "checker.h"

namespace emulator::check {

#ifdef CHECKED
// Stamp is an access: whose, and when.
struct Stamp {
  unsigned lane;
  uint32_t when;
};
// Knowledge is what lanes released to whoever acquires it.
struct Knowledge {
  std::shared_ptr<const std::vector<uint32_t>> times; // by lane; null: nothing
};
// now_stamp is the running lane now; time passes.
Stamp now_stamp();
// renewed is an access by the same lane now: only who acquires it knows of it, and the lane itself.
Stamp renewed(Stamp);
void release(Knowledge &);        // what the running lane knows
void release(Knowledge &, Stamp); // one access
void acquire(const Knowledge &);
// knows tells whether the running lane knows of an access.
bool knows(Stamp);
// in_flight and arrived of a copy that is not the lane's own doing.
void in_flight_by_proxy(const void *address, unsigned bytes);
void arrived_by_proxy(const void *address, unsigned bytes, Stamp);
#else
struct Stamp {};
struct Knowledge {};
inline Stamp now_stamp() { return {}; }
inline Stamp renewed(Stamp s) { return s; }
inline void release(Knowledge &) {}
inline void release(Knowledge &, Stamp) {}
inline void acquire(const Knowledge &) {}
inline bool knows(Stamp) { return true; }
inline void in_flight_by_proxy(const void *, unsigned) {}
inline void arrived_by_proxy(const void *, unsigned, Stamp) {}
#endif

} // namespace emulator::check
