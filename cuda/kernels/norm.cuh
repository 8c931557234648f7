// RMSNorm: the order of a row's sums and the rounding of its products, shared by
// rows.cu, which norms rows a block each, and by stream.cuh, where each block
// norms the one row that it multiplies.
#pragma once
#include "gpu.cuh"

// normThreads lanes of 4 elements at a time add up a row's squares: lane t those
// at 4·(t + 512·j), in the order of j; then each warp its lanes, then all warps.
constexpr u32 normThreads = 512;

DEV float squares(f32x4 a) { return (a.x * a.x + a.y * a.y) + (a.z * a.z + a.w * a.w); }

// norm_total adds up the warps' sums; every lane gets it.
DEV float norm_total(const float *partials) {
  u32 lane = tid() % 32;
  return warp_sum(lane < normThreads / 32 ? partials[lane] : 0);
}

DEV f32x4 normed(f32x4 a, float scale, f32x4 weight) { return {a.x * scale * weight.x, a.y * scale * weight.y, a.z * scale * weight.z, a.w * scale * weight.w}; }

DEV u32x2 pack_bf16_x4(f32x4 v) { return {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)}; }

// norm_row norms a row with the bits of rms_norm, by the normThreads threads that meet() is a barrier of: t is this
// one's number. put takes fours by their number. The first `held` fours of a thread stay in registers
// between sum and product; their weights are w.
template <u32 held, class Meet, class Put>
DEV void norm_row(const f32x4 *x, const f32x4 *weight, const f32x4 (&w)[held], u32 t, u32 width, float eps, float *partials, Meet meet, Put put) {
  const u32 fours = width / 4;
  f32x4 v[held];
  UNROLL for (u32 j = 0; j < held; j++)
    if (t + j * normThreads < fours) v[j] = x[t + j * normThreads];
  float sum = 0;
  UNROLL for (u32 j = 0; j < held; j++)
    if (t + j * normThreads < fours) sum += squares(v[j]);
  for (u32 i = t + held * normThreads; i < fours; i += normThreads) sum += squares(x[i]);
  sum = warp_sum(sum);
  if (t % 32 == 0) partials[t / 32] = sum;
  meet();
  const float scale = norm_scale(norm_total(partials), width, eps);
  UNROLL for (u32 j = 0; j < held; j++)
    if (t + j * normThreads < fours) put(t + j * normThreads, normed(v[j], scale, w[j]));
  for (u32 i = t + held * normThreads; i < fours; i += normThreads) put(i, normed(x[i], scale, weight[i]));
}

// norm_weights loads the weights of a thread's first fours: they never change.
template <u32 held> DEV void norm_weights(f32x4 (&w)[held], const f32x4 *weight, u32 t, u32 width) {
  UNROLL for (u32 j = 0; j < held; j++)
    if (t + j * normThreads < width / 4) w[j] = weight[t + j * normThreads];
}
