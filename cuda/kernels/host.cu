// Rows on their way to experts in the host's memory, and what these made of them.
#include "gpu.cuh"

// The step's rows of h [bucket, width] and of their routing [bucket, line], line ≤ 256, to
// memory of the host; 4 elements a thread, a row of blocks for each.
KERNEL(256) void rows_leave(float *to, float *to_routing, const float *h, const float *routing, u32 width, u32 line, const Step *step) {
  launch_dependents();
  dependency_wait();
  const u32 row = bid_y(), c = (bid() * 256 + tid()) * 4;
  if (row >= step->rows) return;
  if (bid() == 0 && tid() < line) to_routing[(u64)row * line + tid()] = routing[(u64)row * line + tid()];
  const u64 at = (u64)row * width + c;
  if (width % 4 == 0) {
    if (c < width) *(f32x4 *)(to + at) = *(const f32x4 *)(h + at);
    return;
  }
  for (u32 j = 0; j < 4 && c + j < width; j++) to[at + j] = h[at + j];
}

// dst += made, the step's rows of both [bucket, width]; made is memory of the host.
KERNEL(256) void rows_return(float *dst, const float *made, u32 width, const Step *step) {
  launch_dependents();
  dependency_wait();
  const u32 row = bid_y(), c = (bid() * 256 + tid()) * 4;
  if (row >= step->rows || c >= width) return;
  const u64 at = (u64)row * width + c;
  if (width % 4 == 0) {
    const f32x4 x = *(const f32x4 *)(dst + at), y = *(const f32x4 *)(made + at);
    *(f32x4 *)(dst + at) = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
    return;
  }
  for (u32 j = 0; j < 4 && c + j < width; j++) dst[at + j] += made[at + j];
}

REGISTER(rows_leave)
REGISTER(rows_return)
