// The sum of parts that several devices made.
#include "gpu.cuh"

// dst += part 0 + part 1 + …, one after the other, each n long; 4 elements a thread.
KERNEL(256) void add_partials(float *dst, const float *parts, u32 count, u32 n) {
  launch_dependents();
  dependency_wait();
  const u32 i = (bid() * 256 + tid()) * 4;
  if (n % 4 == 0) {
    if (i >= n) return;
    f32x4 sum = *(const f32x4 *)(dst + i);
    for (u32 p = 0; p < count; p++) {
      f32x4 v = *(const f32x4 *)(parts + (u64)p * n + i);
      sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
    }
    *(f32x4 *)(dst + i) = sum;
    return;
  }
  for (u32 j = i; j < i + 4 && j < n; j++) {
    float sum = dst[j];
    for (u32 p = 0; p < count; p++) sum += parts[(u64)p * n + j];
    dst[j] = sum;
  }
}

// part = 0, n long; 4 elements a thread.
KERNEL(256) void clear_partials(float *part, u32 n) {
  launch_dependents();
  dependency_wait();
  const u32 i = (bid() * 256 + tid()) * 4;
  if (n % 4 == 0) {
    if (i < n) *(f32x4 *)(part + i) = {0, 0, 0, 0};
    return;
  }
  for (u32 j = i; j < i + 4 && j < n; j++) part[j] = 0;
}

REGISTER(add_partials)
REGISTER(clear_partials)
