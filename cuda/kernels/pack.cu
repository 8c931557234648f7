// Packing of quantised weights at load, and their way back to bf16 rows.
#include "packed.cuh"

// Sources: weights as checkpoints store them. number is the number of a weight
// as its packed form stores it; scales writes those of a granule, a lane each.
struct Source {
  const u8 *data;
  const u16 *scale, *bias;
  u32 out, in, group;
  METHOD bool has(u32 row, u32 k) const { return row < out && k < in; }
  METHOD u32 half(const u8 *p) const { return *(const u16 *)p; }
};

template <class N> struct AffineSource : Source {
  using Packed = AffineGroups<N, 64>;
  METHOD u32 number(u32 row, u32 k) const {
    u64 at = (u64)row * in + k;
    return N::inputs == 64 ? data[at] : data[at / 2] >> k % 2 * 4 & 15;
  }
  METHOD void scales(u8 *to, u32 row, u32 k, u32 lane) const {
    u32 span = group < N::inputs ? group : N::inputs, r = row + lane / 2 + lane % 2 * 8;
    if (lane >= 16) return;
    for (u32 i = 0; i < N::inputs / span; i++) {
      u64 at = (u64)r * (in / group) + (k + i * span) / group;
      ((u32 *)to)[i * 16 + lane] = has(r, k + i * span) ? scale[at] | (u32)bias[at] << 16 : 0;
    }
  }
};

struct SourceQ4_0 : Source {
  using Packed = PackedQ4_0;
  METHOD const u8 *block(u32 row, u32 k) const { return data + ((u64)row * (in / 32) + k / 32) * 18; }
  METHOD u32 number(u32 row, u32 k) const { return block(row, k)[2 + k % 16] >> k % 32 / 16 * 4 & 15; }
  METHOD void scales(u8 *to, u32 row, u32 k, u32 lane) const {
    for (u32 i = lane; i < 64; i += 32) {
      u32 r = row + i % 16 / 2 + i % 2 * 8, at = k + i / 16 * 32;
      ((u16 *)to)[i] = has(r, at) ? half(block(r, at)) : 0;
    }
  }
};

struct SourceQ8_0 : Source {
  using Packed = PackedQ8_0;
  METHOD const u8 *block(u32 row, u32 k) const { return data + ((u64)row * (in / 32) + k / 32) * 34; }
  METHOD u32 number(u32 row, u32 k) const { return block(row, k)[2 + k % 32] ^ 128; }
  METHOD void scales(u8 *to, u32 row, u32 k, u32 lane) const {
    u32 r = row + lane % 16 / 2 + lane % 2 * 8, at = k + lane / 16 * 32;
    ((u16 *)to)[lane] = has(r, at) ? half(block(r, at)) : 0;
  }
};

struct SourceQ4_K : Source {
  using Packed = PackedQ4_K;
  METHOD const u8 *block(u32 row, u32 k) const { return data + ((u64)row * (in / 256) + k / 256) * 144; }
  METHOD u32 number(u32 row, u32 k) const { return block(row, k)[16 + k % 256 / 64 * 32 + k % 32] >> k % 64 / 32 * 4 & 15; }
  METHOD void scales(u8 *to, u32 row, u32 k, u32 lane) const {
    for (u32 i = lane; i < 64; i += 32) { // of 4 sub-blocks: scale and minimum of 16 rows
      u32 r = row + i % 16 / 2 + i % 2 * 8, at = k + i / 16 * 32, both = 0;
      if (has(r, at)) {
        const u8 *p = block(r, at) + 4;
        u32 j = at % 256 / 32;
        both = j < 4 ? (p[j] & 63) | (p[j + 4] & 63) << 8
                     : (p[j + 4] & 15) | (u32)p[j - 4] >> 6 << 4 | ((u32)p[j + 4] >> 4 | (u32)p[j] >> 6 << 4) << 8;
      }
      ((u16 *)to)[i] = (u16)both;
    }
    u32 r = row + lane % 16 / 2 + lane % 2 * 8;
    if (lane < 16) ((u32 *)(to + 128))[lane] = has(r, k) ? half(block(r, k)) | half(block(r, k) + 2) << 16 : 0;
  }
};

struct SourceQ6_K : Source {
  using Packed = PackedQ6_K;
  METHOD const u8 *block(u32 row, u32 k) const { return data + ((u64)row * (in / 256) + k / 256) * 210; }
  METHOD u32 number(u32 row, u32 k) const {
    const u8 *b = block(row, k);
    u32 half = k % 256 / 128, quarter = k % 128 / 32, i = k % 32;
    return (b[half * 64 + quarter % 2 * 32 + i] >> quarter / 2 * 4 & 15) | (b[128 + half * 32 + i] >> quarter * 2 & 3) << 4;
  }
  METHOD void scales(u8 *to, u32 row, u32 k, u32 lane) const {
    for (u32 i = lane; i < 64; i += 32) { // of 4 groups of 16
      u32 r = row + i % 16 / 2 + i % 2 * 8, at = k + i / 16 * 16;
      to[i] = has(r, at) ? block(r, at)[192 + at % 256 / 16] : 0;
    }
    u32 r = row + lane % 16 / 2 + lane % 2 * 8;
    if (lane < 16) ((u16 *)(to + 64))[lane] = has(r, k) ? half(block(r, k) + 208) : 0;
  }
};

// numbers writes a lane's numbers of a granule.
template <class S> DEV void numbers(const S &s, u8 *to, u32 row, u32 k, u32 lane) {
  u32 g = lane / 4, t = lane % 4;
  auto number = [&](u32 i, u32 at) { // register i of the 16 inputs from at on, both halves
    u32 r = row + g + i % 2 * 8, c = at + t * 2 + i / 2 * 8;
    return (s.has(r, c) ? s.number(r, c) : 0) | (s.has(r, c + 1) ? s.number(r, c + 1) : 0) << 16;
  };
  constexpr u32 inputs = S::Packed::inputs, bytes = S::Packed::bytes;
  if constexpr (bytes == inputs * 16) {
    for (u32 half = 0; half < 2; half++) {
      u32 w[4];
      for (u32 i = 0; i < 4; i++) {
        u32 at = k + half * 32 + i / 2 * 16;
        w[i] = number(i % 2 * 2, at) | number(i % 2 * 2 + 1, at) << 8;
      }
      *(u32x4 *)(to + (half * 32 + lane) * 16) = {w[0], w[1], w[2], w[3]};
    }
  } else {
    u32 high[2] = {};
    for (u32 block = 0; block < inputs / 64; block++) {
      u32 w[4] = {};
      for (u32 step = 0; step < 4; step++)
        for (u32 i = 0; i < 4; i++) {
          u32 n = number(i, k + block * 64 + step * 16);
          w[step] |= (n & 0x000f000f) << 4 * i;
          high[step / 2] |= (n >> 4 & 0x00030003) << (step % 2 * 8 + i * 2);
        }
      *(u32x4 *)(to + (block * 32 + lane) * 16) = {w[0], w[1], w[2], w[3]};
    }
    if constexpr (bytes == 768) *(u32x2 *)(to + 512 + lane * 8) = {high[0], high[1]};
  }
}

// pack makes a granule a warp: [strips][granules of a row][granule bytes].
template <class S> DEV void pack(const S &s, u8 *dst, u32 granule) {
  launch_dependents();
  dependency_wait();
  using Packed = typename S::Packed;
  u32 depth = (s.in + Packed::inputs - 1) / Packed::inputs, strips = (s.out + 15) / 16;
  u32 index = bid() * 8 + tid() / 32, lane = tid() % 32;
  if (index >= strips * depth) return;
  u8 *to = dst + (u64)index * granule;
  u32 row = index / depth * 16, k = index % depth * Packed::inputs;
  numbers(s, to, row, k, lane);
  s.scales(to + Packed::bytes, row, k, lane);
}

// dequantise writes bf16 rows [out, in], rounded, a granule a warp.
template <class W> DEV void dequantise(u16 *dst, const u8 *src, u8 *shared, u32 out, u32 in, u32 granule, u32 shift) {
  launch_dependents();
  dependency_wait();
  constexpr u32 stride = W::inputs * 2 + 16; // of a row in shared memory, apart from its neighbours' banks
  u32 depth = (in + W::inputs - 1) / W::inputs, strips = (out + 15) / 16;
  u32 warp = tid() / 32, lane = tid() % 32, g = lane / 4, t = lane % 4, index = bid() * 8 + warp;
  if (index >= strips * depth) return;
  const u8 *from = src + (u64)index * granule;
  u8 *rows = shared + warp * 16 * stride;
  for (u32 block = 0; block < W::inputs / 64; block++) {
    auto loaded = W::load(from, block, lane);
    UNROLL for (u32 step = 0; step < 4; step++) {
      u32 a[4];
      W::decode(a, loaded, step);
      Affine s = W::scales(from, (block * 64 + step * 16) / W::fold, shift, g);
      UNROLL for (u32 i = 0; i < 4; i++) {
        float scale = s.scale[i % 2], bias = s.bias[i % 2];
        float low = fma(low_bf16(a[i]) - W::offset, scale, bias), high = fma(high_bf16(a[i]) - W::offset, scale, bias);
        *(u32 *)(rows + (g + i % 2 * 8) * stride + (block * 64 + step * 16 + t * 2 + i / 2 * 8) * 2) = pack_bf16(low, high);
      }
    }
  }
  sync_warp();
  constexpr u32 chunks = W::inputs / 8; // of 16 bytes a row
  u32 row = index / depth * 16, k = index % depth * W::inputs;
  for (u32 i = lane; i < 16 * chunks; i += 32) {
    u32 r = row + i / chunks, c = k + i % chunks * 8;
    if (r < out && c < in) *(u32x4 *)(dst + (u64)r * in + c) = *(const u32x4 *)(rows + i / chunks * stride + i % chunks * 16);
  }
}

#define PACK(name, S)                                                                                                                          \
  KERNEL(256) void pack_##name(u8 *dst, const u8 *data, const u16 *scales, const u16 *biases, u32 out, u32 in, u32 group, u32 granule) {        \
    S s;                                                                                                                                       \
    s.data = data, s.scale = scales, s.bias = biases, s.out = out, s.in = in, s.group = group;                                                 \
    pack(s, dst, granule);                                                                                                                     \
  }                                                                                                                                            \
  REGISTER(pack_##name)

#define DEQUANTISE(name, W)                                                                                              \
  KERNEL(256) void dequantise_##name(u16 *dst, const u8 *src, u32 out, u32 in, u32 granule, u32 shift) {                  \
    DYNAMIC_SHARED(dequantise_##name, rows);                                                                              \
    dequantise<W>(dst, src, rows, out, in, granule, shift);                                                              \
  }                                                                                                                      \
  REGISTER(dequantise_##name)

using SourceAffine4 = AffineSource<Nibbles>;
using SourceAffine8 = AffineSource<Bytes>;
using PackedAffine4 = AffineGroups<Nibbles, 32>;
using PackedAffine8 = AffineGroups<Bytes, 32>;
PACK(affine4, SourceAffine4)
PACK(affine8, SourceAffine8)
PACK(q4_0, SourceQ4_0)
PACK(q8_0, SourceQ8_0)
PACK(q4_k, SourceQ4_K)
PACK(q6_k, SourceQ6_K)
DEQUANTISE(affine4, PackedAffine4)
DEQUANTISE(affine8, PackedAffine8)
DEQUANTISE(q4_0, PackedQ4_0)
DEQUANTISE(q8_0, PackedQ8_0)
DEQUANTISE(q4_k, PackedQ4_K)
DEQUANTISE(q6_k, PackedQ6_K)
