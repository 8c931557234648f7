// Initialisation, devices, contexts and error texts of the driver API.
#include "driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <set>

using namespace emulator;

namespace emulator {

std::recursive_mutex lock;
static bool initialised;
static int retained;
static thread_local int last_code;
static thread_local char last_text[2400];
static thread_local void *context; // current on the thread
static std::set<std::pair<void *, void *>> reached; // contexts, and those whose memory they reach

int refuse(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(last_text, sizeof last_text, format, list);
  va_end(list);
  last_code = code;
  return code;
}

int need_context(const char *function) {
  if (!context) return refuse(INVALID_CONTEXT, "%s: no context is current on this thread", function);
  if (!retained) return refuse(INVALID_CONTEXT, "%s: the context was released", function);
  return SUCCESS;
}

int current_device() { return context ? int((uintptr_t)context - 0x1000) : -1; }

u64 setting(const char *name, u64 otherwise) {
  const char *v = getenv(name);
  return v && *v ? strtoull(v, nullptr, 10) : otherwise;
}

void capability(int &major, int &minor) {
  major = 8;
  minor = 0;
  if (const char *v = getenv("WINDROW_EMULATED_CC")) sscanf(v, "%d.%d", &major, &minor);
}

u64 shared_limit() {
  int major, minor;
  capability(major, minor);
  if (major == 8 && minor) return 99 << 10;
  return (major >= 9 ? 227 : 163) << 10;
}

int driver_version() { return int(setting("WINDROW_EMULATED_DRIVER", 13000)); }

} // namespace emulator

static int device_count() { return int(setting("WINDROW_EMULATED_DEVICES", 1)); }

API cuDriverGetVersion(int *version) {
  *version = driver_version();
  return SUCCESS;
}

API cuInit(unsigned flags) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (flags) return refuse(INVALID_VALUE, "cuInit: flags");
  if (!device_count()) return refuse(NO_DEVICE, "no device");
  initialised = true;
  return SUCCESS;
}

API cuDeviceGetCount(int *count) {
  if (!initialised) return device_count() ? refuse(NOT_INITIALIZED, "cuInit was not called") : refuse(NO_DEVICE, "no device");
  *count = device_count();
  return SUCCESS;
}

API cuDeviceGet(int *device, int ordinal) {
  if (!initialised) return refuse(NOT_INITIALIZED, "cuInit was not called");
  if (ordinal < 0 || ordinal >= device_count()) return refuse(INVALID_DEVICE, "no device %d", ordinal);
  *device = ordinal;
  return SUCCESS;
}

API cuDeviceGetName(char *name, int size, int) {
  snprintf(name, size_t(size), "Emulated GPU");
  return SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = setting("WINDROW_EMULATED_MEMORY", 8ull << 30);
  return SUCCESS;
}

API cuDeviceGetAttribute(int *value, int attribute, int) {
  int major, minor;
  capability(major, minor);
  static const struct { int attribute, value; } fixed[] = {
      {1, 1024}, {2, 1024}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 48 << 10}, {10, 32}, {12, 65536}, {13, 1410000},
      {36, 1215000}, {37, 5120}, {38, 40 << 20}, {39, 2048}, {40, 3}, {41, 1}, {113, 1}};
  *value = 0;
  for (auto &f : fixed)
    if (f.attribute == attribute) *value = f.value;
  if (attribute == 16) *value = int(setting("WINDROW_EMULATED_SMS", 6));
  if (attribute == 75) *value = major;
  if (attribute == 76) *value = minor;
  if (attribute == 81) *value = int(shared_limit()) + 1024;
  if (attribute == 97) *value = int(shared_limit());
  return SUCCESS;
}

API cuDevicePrimaryCtxRetain(void **handle, int device) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (!initialised) return refuse(NOT_INITIALIZED, "cuInit was not called");
  if (device < 0 || device >= device_count()) return refuse(INVALID_DEVICE, "no device %d", device);
  retained++;
  *handle = (void *)(uintptr_t)(0x1000 + device);
  return SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(int) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (!retained) return refuse(INVALID_CONTEXT, "cuDevicePrimaryCtxRelease: not retained");
  if (!--retained) reached.clear();
  return SUCCESS;
}

API cuCtxSetCurrent(void *handle) {
  context = handle;
  return SUCCESS;
}

API cuCtxGetCurrent(void **handle) {
  *handle = context;
  return SUCCESS;
}

// Devices reach each other's memory; WINDROW_EMULATED_PEERS=0: they do not.
API cuDeviceCanAccessPeer(int *can, int device, int peer) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (device < 0 || peer < 0 || device >= device_count() || peer >= device_count()) return refuse(INVALID_DEVICE, "cuDeviceCanAccessPeer: no device %d or %d", device, peer);
  *can = device != peer && setting("WINDROW_EMULATED_PEERS", 1);
  return SUCCESS;
}

API cuCtxEnablePeerAccess(void *peer, unsigned flags) {
  ENTER;
  if (flags) return refuse(INVALID_VALUE, "cuCtxEnablePeerAccess: flags");
  if (peer == context || !setting("WINDROW_EMULATED_PEERS", 1)) return refuse(PEER_ACCESS_UNSUPPORTED, "cuCtxEnablePeerAccess");
  return reached.insert({context, peer}).second ? SUCCESS : refuse(PEER_ACCESS_ALREADY_ENABLED, "cuCtxEnablePeerAccess: it is");
}

API cuCtxGetDevice(int *device) {
  ENTER;
  *device = current_device();
  return SUCCESS;
}

API cuCtxSynchronize() {
  ENTER;
  if (int r = refuse_in_capture("cuCtxSynchronize")) return r;
  return finish_all();
}

static const struct { int code; const char *name, *text; } errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
};

API cuGetErrorName(int code, const char **name) {
  *name = nullptr;
  for (auto &e : errors)
    if (e.code == code) *name = e.name;
  return *name ? SUCCESS : INVALID_VALUE;
}

// The text of the thread's last error says what was wrong, not only its kind.
API cuGetErrorString(int code, const char **text) {
  *text = nullptr;
  for (auto &e : errors)
    if (e.code == code) *text = e.text;
  if (code && code == last_code) *text = last_text;
  return *text ? SUCCESS : INVALID_VALUE;
}
