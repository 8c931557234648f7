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

DEV float norm_scale(float total, u32 width, float eps) { return 1 / sqrt_exact(total / (float)width + eps); }

DEV f32x4 normed(f32x4 a, float scale, f32x4 weight) { return {a.x * scale * weight.x, a.y * scale * weight.y, a.z * scale * weight.z, a.w * scale * weight.w}; }

DEV u32x2 pack_bf16_x4(f32x4 v) { return {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)}; }
