// What a launch of stream.cuh or tiled.cuh computes, and how its outputs are cut
// into strips of 16.
#pragma once
#include "rounded.cuh"

// Rows are bf16 weights as stored, [out, in]: 64 inputs of 16 rows are a
// granule of 128 bytes a row, 16-byte chunks permuted by the row's last bits.
struct Rows {
  static constexpr u32 inputs = 64, bytes = 2048, fold = 64;
  static constexpr bool sums = false, rounds = false;
};

// Projection is what a launch computes; the same for every block.
struct Projection {
  const u8 *weights[3];
  float *f32[3];
  u16 *bf16[3];
  const float *bias[3];
  u32 out[3];
  u32 add;   // bit i: add to f32[i]
  u32 gated; // weights 0 and 1 are gate and up of one result: strips take turns
  const u16 *x;
  u32 in, rows, granule, shift, stages;
  u32 strips; // of a block
  u32 slices; // of rows: NT·8 each
  const float *norm; // where not null, x is f32 and is normed by these weights
  float eps;
};

// wait_groups is copy_wait with a number known at run time.
DEV void wait_groups(u32 n) {
  if (n < 2) {
    if (n == 0) copy_wait<0>();
    else copy_wait<1>();
  } else if (n < 4) {
    if (n == 2) copy_wait<2>();
    else copy_wait<3>();
  } else if (n == 4) copy_wait<4>();
  else if (n == 5) copy_wait<5>();
  else copy_wait<6>();
}

// of picks without indexing, which would put the arrays into memory.
template <class T> DEV T of(const T (&v)[3], u32 i) { return i == 0 ? v[0] : i == 1 ? v[1] : v[2]; }

// Strip says where 16 outputs belong.
struct Strip {
  u32 weight, first; // first output
  bool there;
};

DEV u32 stripsOf(const Projection &p, u32 i) { return (p.out[i] + 15) / 16; }
DEV u32 stripCount(const Projection &p) { return p.gated ? 2 * stripsOf(p, 0) : stripsOf(p, 0) + stripsOf(p, 1) + stripsOf(p, 2); }
DEV Strip stripAt(const Projection &p, u32 i) {
  u32 a = stripsOf(p, 0);
  if (p.gated) return {i & 1, i / 2 * 16, i < 2 * a};
  u32 b = a + stripsOf(p, 1);
  if (i < a) return {0, i * 16, true};
  if (i < b) return {1, (i - a) * 16, true};
  return {2, (i - b) * 16, i < b + stripsOf(p, 2)};
}

// StripList is strips that are a part's of a launch, each so many after the one before; gates and ups go in pairs.
struct StripList {
  u32 first, count, apart;
  METHOD u32 at(const Projection &p, u32 i) const { return p.gated ? first + i / 2 * 2 * apart + i % 2 : first + i * apart; }
};

// store_output is output m of a strip's weight for one row: from[0] and the sums of the
// other warps, each stride floats behind the one before; of a gate with that of its other
// half, 16 floats behind. before is what it is added to.
template <u32 warps> DEV void store_output(const Projection &p, const Strip &s, u32 m, const float *from, u32 stride, float before) {
  float v = from[0], up = p.gated ? from[16] : 0;
  UNROLL for (u32 w = 1; w < warps; w++) {
    v += from[w * stride];
    if (p.gated) up += from[w * stride + 16];
  }
  const float *bias = of(p.bias, s.weight);
  if (bias) v += bias[m];
  if (p.gated) {
    if (p.bias[1]) up += p.bias[1][m];
    v = silu(v) * up;
  }
  if (p.add >> s.weight & 1) v += before;
  if (float *f = of(p.f32, s.weight)) f[m] = v;
  if (u16 *h = of(p.bf16, s.weight)) h[m] = (u16)pack_bf16(v, 0);
}
