// Packed weights rounded to bf16 in registers, as A operands: what prefill multiplies, and
// where a type rounds, passes of few rows too.
#pragma once
#include "packed.cuh"

// both_low and both_high give a half of a word twice.
#ifdef __NVPTX__
DEV u32 both_low(u32 v) { u32 r; asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l}; }" : "=r"(r) : "r"(v)); return r; }
DEV u32 both_high(u32 v) { u32 r; asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h}; }" : "=r"(r) : "r"(v)); return r; }
#else
DEV u32 both_low(u32 v) { return (v & 0xffff) * 0x10001; }
DEV u32 both_high(u32 v) { return (v >> 16) * 0x10001; }
#endif

// TinyScales are those of a lane's two rows, for numbers of W::tiny.
struct TinyScales {
  u32 scale2[2], bias2[2];
  METHOD void set(u32x2 v) { scale2[0] = large(both_low(v.x)), bias2[0] = sixteenth(both_high(v.x)), scale2[1] = large(both_low(v.y)), bias2[1] = both_high(v.y); }
  METHOD void apply(u32 (&a)[4]) const {
    UNROLL for (u32 i = 0; i < 4; i++) a[i] = fma_bf16x2(a[i], scale2[i % 2], bias2[i % 2]);
  }
};

// rounded makes the operands of 64 inputs in bf16, those of a granule from 64·block
// on, of which a lane has loaded the numbers. Narrow types are rounded once, by
// dequantise to f32 first: that is another number only where a bias is under 2^-12 of
// the rest, and the rest lies between two. Where a type rounds and scales are not any,
// they are under 1/2, and rows 0 to 7 are a 16th, as their sums are (whole_sum).
template <class W, bool any = false> DEV void rounded(u32 (&a)[4][4], const typename W::Numbers &numbers, const u8 *granule, u32 block, u32 shift, u32 g) {
  u32 scale2[2], bias2[2];
  Affine s;
  TinyScales tiny;
  UNROLL for (u32 k = 0; k < 4; k++) {
    u32 index = (block * 64 + k * 16) / W::fold;
    if constexpr (W::rounds && !any) {
      if (k * 16 % W::fold == 0) tiny.set(W::words(granule, index, shift, g));
      W::tiny(a[k], numbers, k);
      tiny.apply(a[k]);
      continue;
    }
    W::decode(a[k], numbers, k);
    if constexpr (W::narrow) {
      if (k * 16 % W::fold == 0) {
        u32x2 v = W::words(granule, index, shift, g);
        scale2[0] = both_low(v.x), bias2[0] = both_high(v.x), scale2[1] = both_low(v.y), bias2[1] = both_high(v.y);
      }
      // 128 as a number of bf16, of the sign that takes the offset away
      constexpr u32 away = W::offset > 0 ? 0xc300c300 : 0x43004300;
      UNROLL for (u32 i = 0; i < 4; i++) a[k][i] = fma_bf16x2(fma_bf16x2(a[k][i], 0x3f803f80, away), scale2[i % 2], bias2[i % 2]);
    } else {
      if (k * 16 % W::fold == 0) s = W::scales(granule, index, shift, g);
      UNROLL for (u32 i = 0; i < 4; i++) {
        float scale = s.scale[i % 2], bias = s.bias[i % 2];
        a[k][i] = pack_bf16(fma(low_bf16(a[k][i]) - W::offset, scale, bias), fma(high_bf16(a[k][i]) - W::offset, scale, bias));
      }
    }
  }
}
template <class W, bool any = false> DEV void rounded(u32 (&a)[4][4], const u8 *granule, u32 block, u32 shift, u32 lane) {
  rounded<W, any>(a, W::load(granule, block, lane), granule, block, shift, lane / 4);
}

// whole_sum is a sum of rounded's weights, of rows 0 to 7 of a strip or (half 1) 8 to 15.
// Powers of two leave the bits of what was added.
template <class W> DEV float whole_sum(float sum, u32 half) { return W::rounds && half == 0 ? sum * 16 : sum; }
