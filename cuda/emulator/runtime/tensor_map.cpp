// Tensor maps of the driver API: matrices of bf16 in boxes of lines of up to 128
// bytes in the 128-byte swizzle, and no other.
#include "tensor_map.h"

#include <string.h>

#include "driver.h"

using namespace emulator;

static_assert(sizeof(TensorMap) <= 128); // of a CUtensorMap

API cuTensorMapEncodeTiled(void *map, int type, u32 rank, void *address, const u64 *size, const u64 *stride, const u32 *box, const u32 *step, int interleave, int swizzle, int promotion, int fill) {
  ENTER;
  const char *what = "cuTensorMapEncodeTiled";
  constexpr int bf16 = 9, swizzle_128 = 3;
  constexpr u64 most_size = 1ull << 32, most_stride = 1ull << 40;
  int major, minor;
  capability(major, minor);
  if (major < 9) return refuse(NOT_SUPPORTED, "%s: tensor maps are for devices of 9.0 and later", what);
  if ((uintptr_t)map % 64) return refuse(INVALID_VALUE, "%s: the map at %p is not on 64 bytes", what, map);
  if (type != bf16 || rank != 2 || interleave || swizzle != swizzle_128 || fill) return refuse(INVALID_VALUE, "%s: type %d, rank %u, interleave %d, swizzle %d, fill %d: only matrices of bf16 (9) in the 128-byte swizzle (3) are emulated", what, type, rank, interleave, swizzle, fill);
  if (promotion < 0 || promotion > 3) return refuse(INVALID_VALUE, "%s: promotion %d", what, promotion);
  if ((uintptr_t)address % 16) return refuse(INVALID_VALUE, "%s: the address %p is not on 16 bytes", what, address);
  for (int i = 0; i < 2; i++) {
    if (!size[i] || size[i] > most_size) return refuse(INVALID_VALUE, "%s: size %d is %llu", what, i, (unsigned long long)size[i]);
    if (!box[i] || box[i] > 256) return refuse(INVALID_VALUE, "%s: size %d of the box is %u, not 1 to 256", what, i, box[i]);
    if (step[i] != 1) return refuse(INVALID_VALUE, "%s: step %d is %u: only 1 is emulated", what, i, step[i]);
  }
  if (stride[0] % 16 || stride[0] >= most_stride || stride[0] < size[0] * 2) return refuse(INVALID_VALUE, "%s: rows of %llu elements are %llu bytes apart, not a multiple of 16 that holds them", what, (unsigned long long)size[0], (unsigned long long)stride[0]);
  if (box[0] * 2 > 128 || box[0] * 2 % 16) return refuse(INVALID_VALUE, "%s: lines of a box of %u elements are no multiple of 16 bytes up to 128", what, box[0]);
  // The real one takes any address, and copies would fail later.
  if (int r = check_device_range(what, address, (size[1] - 1) * stride[0] + size[0] * 2)) return r;
  TensorMap m = {tensor_map_mark, (const unsigned char *)address, size[0], size[1], stride[0], box[0], box[1]};
  memset(map, 0, 128);
  memcpy(map, &m, sizeof m);
  return SUCCESS;
}
