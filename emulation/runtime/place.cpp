#ifdef CHECKED
#include "place.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

namespace emulator::check {

Range image_of(const void *symbol) {
  struct Search {
    uintptr_t address;
    Range found;
  } s{uintptr_t(symbol), {}};
  dl_iterate_phdr(
      [](dl_phdr_info *i, size_t, void *arg) {
        auto &s = *(Search *)arg;
        uintptr_t low = ~uintptr_t(0), high = 0;
        bool mine = false;
        for (int k = 0; k < i->dlpi_phnum; k++) {
          const auto &p = i->dlpi_phdr[k];
          if (p.p_type != PT_LOAD) continue;
          uintptr_t b = i->dlpi_addr + p.p_vaddr;
          low = std::min(low, b);
          high = std::max(high, b + p.p_memsz);
          mine |= s.address >= b && s.address < b + p.p_memsz;
        }
        if (mine) s.found = {(uint8_t *)low, (uint8_t *)high};
        return int(mine);
      },
      &s);
  return s.found;
}

namespace {

// Site is a place in the source that an operation has told itself; a pointer to
// it stands where others have their instruction.
struct Site {
  const char *file;
  int line;
};
constexpr size_t most_sites = 4096;
Site sites[most_sites];

} // namespace

const void *here() {
  const char *file = current->file ? current->file : "?"; // null: the lane has not waited yet
  size_t at = ((uintptr_t)file + size_t(current->line) * 0x9E3779B1) % most_sites;
  for (size_t i = 0; i < most_sites; i++, at = (at + 1) % most_sites) {
    Site &s = sites[at];
    if (!s.file) s = {file, current->line};
    if (s.file == file && s.line == current->line) return &s;
  }
  return nullptr;
}

std::string place(const void *from) {
  char text[400];
  if (from >= sites && from < sites + most_sites) {
    auto *s = (const Site *)from;
    const char *slash = strrchr(s->file, '/');
    snprintf(text, sizeof text, "%s:%d", slash ? slash + 1 : s->file, s->line);
    return text;
  }
  Dl_info info;
  if (!dladdr(from, &info)) return "?";
  snprintf(text, sizeof text, "addr2line -i -e '%s' 0x%lx 2>/dev/null", info.dli_fname, (unsigned long)((uintptr_t)from - (uintptr_t)info.dli_fbase - 1));
  std::string found = "an unknown line";
  if (FILE *f = popen(text, "r")) {
    bool own = true; // an intrinsic or a vector type: its user says more
    while (own && fgets(text, sizeof text, f)) {
      std::string line = text;
      line = line.substr(0, line.find('\n'));
      line = line.substr(0, line.find(" ("));
      if (line.empty() || line[0] == '?') break;
      found = line.substr(line.rfind('/') + 1);
      own = false;
      for (auto *h = dialect.headers; *h; h++) own |= found.starts_with(std::string(*h) + ":");
    }
    pclose(f);
  }
  return found;
}

} // namespace emulator::check
#endif
