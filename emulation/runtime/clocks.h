// Who knows of what: the order of accesses that barriers, fences and atomics make.
//
// Every access carries the group's time. A lane knows, of each lane of its
// group, up to which time its accesses happened before; a barrier joins what
// its lanes know (of the memory that it orders: there are clocks for each). Groups run one after another but are not ordered by that:
// only what a lane released (a fence, then an atomic) to a lane that later did
// an atomic at the same address is, and what both know by then.
#pragma once
#ifdef CHECKED
#include <map>
#include <memory>
#include <vector>

#include "executor.h"

namespace emulator::check {

class Clocks {
public:
  void begin_launch(unsigned lanes);
  void begin_group(uint32_t group);
  typedef std::vector<uint32_t> Times; // by lane
  typedef std::shared_ptr<const Times> Known;

  // join: the lanes, or everyone, know what each of the lanes did before.
  void join(const std::vector<unsigned> &lanes, bool everyone);
  void fence(unsigned lane);
  // atomic releases what the lane has fenced, and acquires what others released at the address.
  void atomic(unsigned lane, const void *address);
  // acquire_at acquires alone.
  void acquire_at(unsigned lane, const void *address);
  // release adds what the lane knows, or one access, to what acquire gives to a lane.
  void release(Known &, unsigned lane);
  void release(Known &, unsigned lane, uint32_t when);
  void acquire(const Known &, unsigned lane);
  // proxy_fence shows what the lane knows to copies and products that come after it.
  void proxy_fence(unsigned lane);
  // fenced_for_proxy tells whether that holds for a copy or product of lane and an access of another's.
  bool fenced_for_proxy(unsigned other, uint32_t when, unsigned lane) const;
  // fenced_across is that of lanes that know of each other by an atomic: both have to fence.
  bool fenced_across(unsigned other, uint32_t when, unsigned lane) const;
  void tick() { time++; }

  uint32_t now() const { return time; }
  // settled: a barrier of the whole group came after the time.
  bool settled(uint32_t g, uint32_t when) const { return g == group && when < floor; }
  // before: an access of another lane at a time happened before what lane does now.
  // plain: lane reads through L1, which needs a fence after the acquiring atomic.
  bool before(uint32_t group, unsigned other, uint32_t when, unsigned lane, bool plain) const;
  // before_atomic is before for another's atomic at an address.
  bool before_atomic(uint32_t group, uint32_t when, unsigned lane, const void *address) const;

private:
  struct Release {
    uint32_t group, when;
    std::shared_ptr<Times> fenced; // null: nothing
    std::vector<uint32_t> known;
  };
  struct ProxyFence {
    uint32_t when, floor;
    Known seen;
  };
  struct Place { // an address of atomics
    unsigned index;
    std::vector<Release> releases;
  };
  struct Reference {
    unsigned place, release;
  };

  unsigned count = 0;
  uint32_t group = 0, time = 1;
  uint32_t floor = 0; // accesses before this time are known to all lanes
  bool fences = false;
  bool knows(unsigned lane, unsigned other, uint32_t when) const { return other == lane || when < floor || (seen[lane] && when <= (*seen[lane])[other]); }
  Place &place_of(const void *address);

  std::vector<Known> seen;                        // by lane; null: nothing
  Known given, taken, result;                     // what acquire joined last: lanes of a wave mostly know the same
  const ProxyFence *fence_after(unsigned writer, uint32_t when) const;
  std::vector<std::vector<ProxyFence>> proxy_fences; // by lane
  std::vector<Times> fenced;                      // by lane
  // Knowledge of releases: how many of each place, as atomics gave it and as a fence after made it good for L1.
  std::vector<std::vector<uint32_t>> known, known_plain; // by lane
  std::map<const void *, Place> places;
  std::vector<const Place *> place_list;
  std::map<uint32_t, std::vector<Reference>> by_group;
};

} // namespace emulator::check
#endif
