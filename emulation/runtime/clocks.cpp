#ifdef CHECKED
#include "clocks.h"

#include <algorithm>

namespace emulator::check {

// take joins one list of times or counts into another.
static void take(std::vector<uint32_t> &to, const std::vector<uint32_t> &from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
}

void Clocks::begin_launch(unsigned lanes) {
  count = lanes;
  places.clear();
  place_list.clear();
  by_group.clear();
}

void Clocks::begin_group(uint32_t g) {
  group = g;
  time = 1;
  floor = 0;
  fences = false;
  seen.assign(count, nullptr);
  fenced.assign(count, {});
  known.assign(count, {});
  known_plain.assign(count, {});
  proxy_fences.assign(count, {});
  given = taken = result = nullptr;
}

void Clocks::join(const std::vector<unsigned> &lanes, bool everyone) {
  if (everyone) {
    floor = time + 1;
  } else {
    auto all = std::make_shared<Times>(count, 0);
    const Times *last = nullptr; // lanes that met before share what they have seen
    for (unsigned l : lanes) {
      if (seen[l] && seen[l].get() != last) take(*all, *seen[l]);
      last = seen[l].get();
    }
    for (unsigned l : lanes) (*all)[l] = time;
    for (unsigned l : lanes) seen[l] = all;
  }
  if (fences) {
    Times all;
    for (unsigned l : lanes) take(all, fenced[l]);
    for (unsigned l : lanes) fenced[l] = all;
  }
  if (!places.empty()) {
    std::vector<uint32_t> all, plain;
    for (unsigned l : lanes) {
      take(all, known[l]);
      take(plain, known_plain[l]);
    }
    for (unsigned l : lanes) {
      known[l] = all;
      known_plain[l] = plain;
    }
  }
  time++;
}

void Clocks::fence(unsigned lane) {
  fences = true;
  Times &f = fenced[lane];
  f.resize(count);
  for (unsigned i = 0; i < count; i++) f[i] = std::max({f[i], seen[lane] ? (*seen[lane])[i] : 0, floor ? floor - 1 : 0});
  f[lane] = time;
  known_plain[lane] = known[lane];
  time++;
}

void Clocks::release(Known &to, unsigned lane) {
  if (to.use_count() != 1) to = to ? std::make_shared<const Times>(*to) : std::make_shared<const Times>(count, 0);
  auto &times = const_cast<Times &>(*to); // nobody else has it
  if (seen[lane] && seen[lane] != to) take(times, *seen[lane]);
  times[lane] = time++;
}

void Clocks::release(Known &to, unsigned lane, uint32_t when) {
  auto times = to ? std::make_shared<Times>(*to) : std::make_shared<Times>(count, 0);
  (*times)[lane] = std::max((*times)[lane], when);
  to = std::move(times);
}

void Clocks::acquire(const Known &from, unsigned lane) {
  if (!from || seen[lane] == from) return;
  if (!seen[lane]) {
    seen[lane] = from;
    return;
  }
  if (given != from || taken != seen[lane]) {
    auto times = std::make_shared<Times>(*from);
    take(*times, *seen[lane]);
    given = from;
    taken = seen[lane];
    result = std::move(times);
  }
  seen[lane] = result;
}

void Clocks::proxy_fence(unsigned lane) { proxy_fences[lane].push_back({time++, floor, seen[lane]}); }

// fence_after is the writer's first fence after the write, which is the first that others know of.
const Clocks::ProxyFence *Clocks::fence_after(unsigned writer, uint32_t when) const {
  auto &list = proxy_fences[writer];
  auto at = std::lower_bound(list.begin(), list.end(), when, [](const ProxyFence &f, uint32_t t) { return f.when < t; });
  return at == list.end() ? nullptr : &*at;
}

bool Clocks::fenced_for_proxy(unsigned other, uint32_t when, unsigned lane) const {
  const ProxyFence *theirs = fence_after(other, when);
  if (theirs && knows(lane, other, theirs->when)) return true;
  auto &own = proxy_fences[lane];
  return !own.empty() && (when < own.back().floor || (own.back().seen && when <= (*own.back().seen)[other]));
}

bool Clocks::fenced_across(unsigned other, uint32_t when, unsigned lane) const {
  const ProxyFence *theirs = fence_after(other, when);
  auto &own = proxy_fences[lane];
  return theirs && before(group, other, theirs->when, lane, false) && !own.empty() && own.back().when > theirs->when;
}

Clocks::Place &Clocks::place_of(const void *address) {
  auto [at, added] = places.try_emplace(address);
  Place &p = at->second;
  if (added) {
    p.index = unsigned(place_list.size());
    place_list.push_back(&p);
  }
  return p;
}

void Clocks::acquire_at(unsigned lane, const void *address) {
  Place &p = place_of(address);
  auto &k = known[lane];
  if (k.size() <= p.index) k.resize(p.index + 1);
  for (size_t i = k[p.index]; i < p.releases.size(); i++) {
    std::vector<uint32_t> more = p.releases[i].known;
    take(k, more);
  }
  k[p.index] = uint32_t(p.releases.size());
  time++;
}

void Clocks::atomic(unsigned lane, const void *address) {
  acquire_at(lane, address);
  Place &p = place_of(address);
  auto &k = known[lane];
  Release r{group, time, nullptr, k};
  if (!fenced[lane].empty()) r.fenced = std::make_shared<Times>(fenced[lane]);
  by_group[group].push_back({p.index, unsigned(p.releases.size())});
  p.releases.push_back(std::move(r));
  k[p.index]++;
  time++;
}

bool Clocks::before(uint32_t other_group, unsigned other, uint32_t when, unsigned lane, bool plain) const {
  if (other_group == group && knows(lane, other, when)) return true;
  auto list = by_group.find(other_group);
  if (list == by_group.end()) return false;
  auto &k = plain ? known_plain[lane] : known[lane];
  for (const Reference &r : list->second) {
    if (r.place >= k.size() || r.release >= k[r.place]) continue;
    const auto &f = place_list[r.place]->releases[r.release].fenced;
    if (f && when <= (*f)[other]) return true;
  }
  return false;
}

bool Clocks::before_atomic(uint32_t other_group, uint32_t when, unsigned lane, const void *address) const {
  auto at = places.find(address);
  if (at == places.end()) return false;
  const Place &p = at->second;
  const auto &k = known[lane];
  if (p.index >= k.size()) return false;
  for (size_t i = 0; i < k[p.index]; i++)
    if (p.releases[i].group == other_group && p.releases[i].when >= when) return true;
  return false;
}

} // namespace emulator::check
#endif
