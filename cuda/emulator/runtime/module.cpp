// Modules of the driver API: PTX is read for what it declares of its kernels,
// and the CPU build of the same kernels, which lies beside this library, runs.
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "driver.h"

using namespace emulator;

namespace {

struct Entry {
  std::vector<u8> sizes; // bytes of each parameter
  u32 most_lanes = 1024, shared = 0, cluster = 1;
  bool any_lanes = false, together = false;
};

struct Module {
  std::map<std::string, Entry> entries;
  std::map<std::string, Function> functions;
};

std::string broken;   // what the compiler said of files that did not compile
std::string left_out; // files that were not built

std::string folder() {
  Dl_info info;
  dladdr((void *)folder, &info);
  std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

// load_kernels opens the CPU builds of all kernels, once.
int load_kernels() {
  static bool loaded;
  if (loaded) return SUCCESS;
  std::string where = folder() + "/kernels";
  DIR *d = opendir(where.c_str());
  if (!d) return refuse(NOT_FOUND, "no folder %s", where.c_str());
  std::vector<std::string> names;
  while (dirent *e = readdir(d)) names.push_back(e->d_name);
  closedir(d);
  std::sort(names.begin(), names.end());
  for (auto &n : names) {
    std::string path = where + "/" + n;
    if (n.ends_with(".so") && !dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return refuse(NOT_FOUND, "%s", dlerror());
    if (n.ends_with(".error") || n == "left-out") {
      std::stringstream text;
      text << std::ifstream(path).rdbuf();
      (n == "left-out" ? left_out : broken) += text.str();
    }
  }
  loaded = true;
  return SUCCESS;
}

u32 width(const std::string &type) {
  size_t digits = type.find_first_of("0123456789");
  return digits == std::string::npos ? 0 : u32(atoi(type.c_str() + digits)) / 8;
}

// parse reads the entries of PTX; it returns a complaint, or "".
std::string parse(const std::string &ptx, Module &m) {
  for (size_t at = 0; (at = ptx.find(".entry ", at)) != std::string::npos;) {
    at += 7;
    size_t open = ptx.find('(', at), close = ptx.find(')', at), body = ptx.find('{', at);
    size_t end = body == std::string::npos ? body : ptx.find("\n}", body);
    if (open == std::string::npos || close == std::string::npos || end == std::string::npos) return "an entry does not end";
    std::string name = ptx.substr(at, std::min(open, ptx.find_first_of(" \n\t(", at)) - at);
    Entry e;
    for (size_t p = open; (p = ptx.find(".param .", p)) < close;) {
      p += 7;
      e.sizes.push_back(u8(width(ptx.substr(p, ptx.find(' ', p) - p))));
    }
    size_t most = ptx.find(".maxntid ", close), cluster = ptx.find(".reqnctapercluster ", close);
    if (most < body) e.most_lanes = u32(atoi(ptx.c_str() + most + 9));
    if (cluster < body) {
      u32 y = 1, z = 1;
      sscanf(ptx.c_str() + cluster + 19, "%u, %u, %u", &e.cluster, &y, &z);
      if (!e.cluster || e.cluster > 8 || y != 1 || z != 1) return "entry " + name + ": clusters of 1 to 8 blocks along x are emulated";
    }
    for (size_t s = body; (s = ptx.find("\t.shared ", s)) < end;) {
      size_t line = ptx.find('\n', s), type = ptx.find(" .", ptx.find(".align", s)), count = ptx.find('[', s);
      u32 bytes = width(ptx.substr(type + 2, ptx.find(' ', type + 2) - type - 2));
      if (count < line) bytes *= u32(atoi(ptx.c_str() + count + 1));
      e.shared += bytes;
      s = line;
    }
    std::string code = ptx.substr(body, end - body);
    e.any_lanes = code.find("%ntid") != std::string::npos;
    e.together = code.find("ld.acquire.gpu") != std::string::npos || code.find("ld.relaxed.gpu") != std::string::npos;
    m.entries[name] = e;
    at = end;
  }
  return "";
}

// version of the driver that a PTX version needs.
int needs(int major, int minor) { return major == 8 ? 12000 + minor * 10 : major == 7 ? 11000 + minor * 10 : major > 8 ? 13000 : 0; }

} // namespace

// Libraries are loaded and unloaded without a context, and translated when they are loaded.
API cuLibraryLoadData(Module **module, const char *image, const int *keys, void **values, unsigned options, const int *, void **, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  std::string ptx = image, complaint;
  Module m;
  int code = INVALID_PTX, major = 0, minor = 0, device_major, device_minor;
  capability(device_major, device_minor);
  size_t version = ptx.find(".version "), target = ptx.find(".target sm_");
  if (version == std::string::npos || target == std::string::npos) {
    complaint = "no .version or no .target";
  } else {
    sscanf(ptx.c_str() + version + 9, "%d.%d", &major, &minor);
    int sm = atoi(ptx.c_str() + target + 11);
    bool specific = ptx[target + 11 + (sm >= 100 ? 3 : 2)] == 'a';
    int own = device_major * 10 + device_minor;
    if (needs(major, minor) > driver_version()) {
      code = UNSUPPORTED_PTX_VERSION;
      complaint = "PTX " + std::to_string(major) + "." + std::to_string(minor) + " needs a newer driver";
    } else if (sm > own || (specific && sm != own)) {
      code = NO_BINARY_FOR_GPU;
      complaint = "PTX for sm_" + std::to_string(sm) + (specific ? "a" : "") + " on a device sm_" + std::to_string(own);
    } else {
      complaint = parse(ptx, m);
    }
  }
  if (!complaint.empty()) {
    char *log = nullptr;
    size_t size = 0;
    for (unsigned i = 0; i < options; i++) {
      if (keys[i] == 5) log = (char *)values[i];
      if (keys[i] == 6) size = (size_t)values[i];
    }
    if (log && size) snprintf(log, size, "ptxas fatal: %s", complaint.c_str());
    return refuse(code, "%s", complaint.c_str());
  }
  *module = new Module(std::move(m));
  return SUCCESS;
}

// A kernel of a library is its function: there is one context.
API cuLibraryGetKernel(const Function **function, Module *m, const char *name) {
  ENTER;
  if (int r = load_kernels()) return r;
  auto e = m->entries.find(name);
  if (e == m->entries.end()) return refuse(NOT_FOUND, "the module has no kernel %s", name);
  const Kernel *k = find(name);
  if (!k) return refuse(NOT_FOUND, "kernel %s has no CPU build: is there REGISTER(%s), and did the test ask for its file? Left out: %s. %s", name, name, left_out.empty() ? "none" : left_out.c_str(), broken.c_str());
  if (std::vector<u8>(k->sizes, k->sizes + k->parameters) != e->second.sizes) return refuse(INVALID_VALUE, "kernel %s: its PTX is of another version: other parameters (run cuda/kernels/build.sh)", name);
  Function &f = m->functions[name];
  f = {k, e->second.most_lanes, e->second.shared, (48 << 10) - std::min(e->second.shared, 48u << 10), e->second.any_lanes, e->second.cluster, e->second.together};
  if (e->second.shared > 48 << 10) return refuse(INVALID_PTX, "kernel %s: %u bytes of static shared memory, over 48 KiB", name, e->second.shared);
  *function = &f;
  return SUCCESS;
}

API cuKernelGetFunction(const Function **function, const Function *kernel) {
  ENTER;
  *function = kernel;
  return SUCCESS;
}

API cuLibraryUnload(Module *m) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  int r = current_device() < 0 ? SUCCESS : finish_all();
  delete m;
  return r;
}

API cuFuncSetAttribute(Function *f, int attribute, int value) {
  ENTER;
  if (attribute == 9) { // what of L1 is to be shared memory, in percent
    if (value < -1 || value > 100) return refuse(INVALID_VALUE, "kernel %s: %d percent of L1 as shared memory", f->kernel->name, value);
    f->carveout = value;
    return SUCCESS;
  }
  if (attribute != 8) return SUCCESS;
  if (value < 0 || u64(value) + f->static_shared > shared_limit()) return refuse(INVALID_VALUE, "kernel %s: %d bytes of dynamic shared memory and %u static, the device gives a block %llu", f->kernel->name, value, f->static_shared, (unsigned long long)shared_limit());
  f->most_dynamic = u32(value);
  return SUCCESS;
}

API cuFuncGetAttribute(int *value, int attribute, const Function *f) {
  ENTER;
  *value = attribute == 0 ? int(f->most_lanes) : attribute == 1 ? int(f->static_shared) : attribute == 4 ? 32 : attribute == 8 ? int(f->most_dynamic) : attribute == 9 ? f->carveout : 0;
  return SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const Function *f, int lanes, size_t shared) {
  ENTER;
  u64 bytes = f->static_shared + shared + 1024;
  *blocks = int(std::min<u64>(2048 / u64(std::max(lanes, 32)), (shared_limit() + 1024) / bytes));
  return SUCCESS;
}
