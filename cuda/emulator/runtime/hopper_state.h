// What barriers in shared memory and copies that complete at them share.
#pragma once
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(8) u32x2 { u32 x, y; };
struct alignas(16) u32x4 { u32 x, y, z, w; };
struct alignas(16) f32x4 { float x, y, z, w; };
#include "hopper.h"
#include "order.h"

namespace emulator {

// Where a block's window begins: on 128 bytes, as DYNAMIC_SHARED promises, and no more.
constexpr u32 window = 0x480;

// PhaseBarrier is a barrier in shared memory (mbarrier).
struct PhaseBarrier {
  u32 expected, left;   // arrivals of a phase; those to come
  long long bytes;      // of copies to come
  u32 phase;            // how many are over
  bool fenced;          // barriers_made() came after barrier_init
  u32 shown;            // the phase of the cluster's barrier from which on its lanes know of this one, or 0
  check::Stamp made;
  check::Knowledge coming, there; // what arrivals gave; what those of the phases that are over did
};

// barrier_at finds the barrier that an instruction uses, from another block or not.
PhaseBarrier &barrier_at(u32 address, const char *what, const char *file, int line);
// complete takes bytes of a copy off.
void complete(PhaseBarrier &, u32 bytes, check::Stamp);

// at notes where the running lane is.
void at(const char *file, int line);

void forget_barriers(unsigned lanes);
void forget_bulk();
// deliver lets the copy that was started last arrive, or any; false where there is none.
bool deliver();
const char *undelivered();
void forget_products(unsigned lanes);
// products_end is called where a cohort has ended: a complaint, or null.
const char *products_end();

} // namespace emulator
