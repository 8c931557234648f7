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
}

void Clocks::join(const uint32_t *masks, unsigned waves, bool everyone) {
  std::vector<unsigned> lanes;
  for (unsigned w = 0; w < waves; w++)
    for (uint32_t m = masks[w]; m; m &= m - 1) lanes.push_back(w * wave_lanes + unsigned(__builtin_ctz(m)));
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

void Clocks::atomic(unsigned lane, const void *address) {
  auto [at, added] = places.try_emplace(address);
  Place &p = at->second;
  if (added) {
    p.index = unsigned(place_list.size());
    place_list.push_back(&p);
  }
  auto &k = known[lane];
  if (k.size() <= p.index) k.resize(p.index + 1);
  for (size_t i = k[p.index]; i < p.releases.size(); i++) {
    std::vector<uint32_t> more = p.releases[i].known;
    take(k, more);
  }
  k[p.index] = uint32_t(p.releases.size());
  Release r{group, time, nullptr, k};
  if (!fenced[lane].empty()) r.fenced = std::make_shared<Times>(fenced[lane]);
  by_group[group].push_back({p.index, unsigned(p.releases.size())});
  p.releases.push_back(std::move(r));
  k[p.index]++;
  time++;
}

bool Clocks::before(uint32_t other_group, unsigned other, uint32_t when, unsigned lane, bool plain) const {
  if (other_group == group && (other == lane || when < floor || (seen[lane] && when <= (*seen[lane])[other]))) return true;
  auto list = by_group.find(other_group);
  if (list == by_group.end()) return false;
  auto &k = plain && other_group != group ? known_plain[lane] : known[lane];
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
