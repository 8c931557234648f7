// The exact arithmetic: activations in f32, weights of every format decoded to
// f32 as quant.Row does, f32 fused multiply-adds, without tensor cores.
#pragma once
#include "gpu.cuh"

DEV float f16_value(u32 bits) { return (float)__builtin_bit_cast(f16, (u16)bits); }
DEV float bf16_value(u32 bits) { return __builtin_bit_cast(float, bits << 16); }
DEV float byte_value(u32 v, u32 i) { return (float)(v >> (8 * i) & 255); }
// load_bytes reads 8 bytes of which only the first is known to lie at a multiple of 2.
DEV u32x2 load_bytes(const u8 *p) {
  const u16 *q = (const u16 *)p;
  return {q[0] | (u32)q[1] << 16, q[2] | (u32)q[3] << 16};
}
DEV u32x2 swapped(u32x2 v, bool swap) { return {swap ? v.y : v.x, swap ? v.x : v.y}; }

// Row is one output's weights. A format is how they are stored: a Raw is what
// it loads of one octet (8 weights along in), decode makes numbers of it, and
// depth is how many octets ahead loads are issued. Where swap is set the second
// half of an octet comes first (see project).
struct Row {
  const u8 *data;
  const u16 *scales, *biases; // of affine groups
  u32 in, group, kind;
};

struct FormatF32 {
  struct Raw { u32x4 a, b; };
  static constexpr int depth = 1;
  static constexpr bool whole = true;
  DEV u64 bytes(u32 in, u32) { return (u64)in * 4; }
  DEV Raw load(const Row &w, u32 k, bool swap) { return {load_stream(w.data + k * 32 + swap * 16), load_stream(w.data + k * 32 + !swap * 16)}; }
  DEV void decode(const Raw &r, u32, float (&w)[8]) {
    const u32 v[8] = {r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w};
    UNROLL for (int i = 0; i < 8; i++) w[i] = __builtin_bit_cast(float, v[i]);
  }
};

struct FormatF16 {
  typedef u32x4 Raw;
  static constexpr int depth = 2;
  static constexpr bool whole = true;
  DEV u64 bytes(u32 in, u32) { return (u64)in * 2; }
  DEV Raw load(const Row &w, u32 k, bool swap) {
    const u32x4 v = load_stream(w.data + k * 16);
    return {swap ? v.z : v.x, swap ? v.w : v.y, swap ? v.x : v.z, swap ? v.y : v.w};
  }
  DEV void decode(const Raw &r, u32, float (&w)[8]) {
    const u32 v[4] = {r.x, r.y, r.z, r.w};
    UNROLL for (int i = 0; i < 4; i++) w[2 * i] = f16_value(v[i]), w[2 * i + 1] = f16_value(v[i] >> 16);
  }
};

struct FormatBF16 : FormatF16 {
  DEV void decode(const Raw &r, u32, float (&w)[8]) {
    const u32 v[4] = {r.x, r.y, r.z, r.w};
    UNROLL for (int i = 0; i < 4; i++) w[2 * i] = low_bf16(v[i]), w[2 * i + 1] = high_bf16(v[i]);
  }
};

// FormatOdd is floats whose rows are no multiple of 8: kind 0 (f32), 1 (f16) or 2 (bf16).
struct FormatOdd {
  struct Raw { float v[8]; };
  static constexpr int depth = 1;
  static constexpr bool whole = false;
  DEV u64 bytes(u32 in, u32 kind) { return (u64)in * (kind ? 2 : 4); }
  DEV Raw load(const Row &w, u32 k, bool) {
    Raw r;
    UNROLL for (u32 i = 0; i < 8; i++) {
      u32 at = k * 8 + i;
      if (at >= w.in) r.v[i] = 0;
      else if (w.kind == 0) r.v[i] = ((const float *)w.data)[at];
      else {
        u32 b = ((const u16 *)w.data)[at];
        r.v[i] = w.kind == 1 ? f16_value(b) : bf16_value(b);
      }
    }
    return r;
  }
  DEV void decode(const Raw &r, u32, float (&w)[8]) { UNROLL for (int i = 0; i < 8; i++) w[i] = r.v[i]; }
};

struct FormatAffine4 {
  struct Raw { u32 q; u16 scale, bias; };
  static constexpr int depth = 3;
  static constexpr bool whole = true;
  DEV u64 bytes(u32 in, u32) { return in / 2; }
  DEV Raw load(const Row &w, u32 k, bool swap) {
    u32 g = k * 8 / w.group;
    const u32 q = ((const u32 *)w.data)[k];
    return {swap ? q << 16 | q >> 16 : q, w.scales[g], w.biases[g]};
  }
  DEV void decode(const Raw &r, u32, float (&w)[8]) {
    const float s = bf16_value(r.scale), b = bf16_value(r.bias);
    UNROLL for (int i = 0; i < 8; i++) w[i] = fma((float)(r.q >> (4 * i) & 15), s, b);
  }
};

struct FormatAffine8 {
  struct Raw { u32x2 q; u16 scale, bias; };
  static constexpr int depth = 2;
  static constexpr bool whole = true;
  DEV u64 bytes(u32 in, u32) { return in; }
  DEV Raw load(const Row &w, u32 k, bool swap) {
    u32 g = k * 8 / w.group;
    return {swapped(((const u32x2 *)w.data)[k], swap), w.scales[g], w.biases[g]};
  }
  DEV void decode(const Raw &r, u32, float (&w)[8]) {
    const float s = bf16_value(r.scale), b = bf16_value(r.bias);
    UNROLL for (int i = 0; i < 4; i++) w[i] = fma(byte_value(r.q.x, i), s, b), w[4 + i] = fma(byte_value(r.q.y, i), s, b);
  }
};

// Blocks of 32 in 34 bytes: an f16 scale, 32 int8.
struct FormatQ8_0 {
  struct Raw { u32x2 q; u16 d; };
  static constexpr int depth = 2;
  static constexpr bool whole = true;
  DEV u64 bytes(u32 in, u32) { return (u64)(in / 32) * 34; }
  DEV Raw load(const Row &w, u32 k, bool swap) {
    const u8 *p = w.data + k / 4 * 34;
    return {swapped(load_bytes(p + 2 + k % 4 * 8), swap), *(const u16 *)p};
  }
  DEV void decode(const Raw &r, u32, float (&w)[8]) {
    const float d = f16_value(r.d);
    UNROLL for (int i = 0; i < 4; i++) w[i] = (float)(i8)(r.q.x >> (8 * i)) * d, w[4 + i] = (float)(i8)(r.q.y >> (8 * i)) * d;
  }
};

// Blocks of 32 in 18 bytes: an f16 scale, 16 bytes with elements 0 to 15 in the low halves, 16 to 31 in the high ones.
struct FormatQ4_0 {
  struct Raw { u32x2 q; u16 d; };
  static constexpr int depth = 2;
  static constexpr bool whole = true;
  DEV u64 bytes(u32 in, u32) { return (u64)(in / 32) * 18; }
  DEV Raw load(const Row &w, u32 k, bool swap) {
    const u8 *p = w.data + k / 4 * 18;
    return {swapped(load_bytes(p + 2 + k % 2 * 8), swap), *(const u16 *)p};
  }
  DEV void decode(const Raw &r, u32 k, float (&w)[8]) {
    const float d = f16_value(r.d);
    const u32 shift = k % 4 / 2 * 4, a = r.q.x >> shift & 0x0f0f0f0f, b = r.q.y >> shift & 0x0f0f0f0f;
    UNROLL for (int i = 0; i < 4; i++) w[i] = (byte_value(a, i) - 8) * d, w[4 + i] = (byte_value(b, i) - 8) * d;
  }
};

// Blocks of 256 in 144 bytes (quant.Q4_KToF32).
struct FormatQ4_K {
  struct Raw { u32x2 q; u32 d; u8 a, b, c; };
  static constexpr int depth = 2;
  static constexpr bool whole = true;
  DEV u64 bytes(u32 in, u32) { return (u64)(in / 256) * 144; }
  DEV Raw load(const Row &w, u32 k, bool swap) {
    const u8 *p = w.data + k / 32 * 144;
    const u32 j = k % 32 / 4; // sub-block
    return {swapped(*(const u32x2 *)(p + 16 + j / 2 * 32 + k % 4 * 8), swap), *(const u32 *)p, p[4 + j], p[8 + j], p[j < 4 ? 4 + j : j]};
  }
  DEV void decode(const Raw &r, u32 k, float (&w)[8]) {
    const u32 j = k % 32 / 4;
    const u32 scale = j < 4 ? r.a & 63 : (r.b & 15) | r.c >> 6 << 4, minimum = j < 4 ? r.b & 63 : r.b >> 4 | r.a >> 6 << 4;
    const float s = f16_value(r.d) * (float)scale, low = f16_value(r.d >> 16) * (float)minimum;
    const u32 shift = j % 2 * 4, a = r.q.x >> shift & 0x0f0f0f0f, b = r.q.y >> shift & 0x0f0f0f0f;
    UNROLL for (int i = 0; i < 4; i++) w[i] = s * byte_value(a, i) - low, w[4 + i] = s * byte_value(b, i) - low;
  }
};

// Blocks of 256 in 210 bytes (quant.Q6_KToF32).
struct FormatQ6_K {
  struct Raw { u32x2 low, high; u16 d; i8 scale; };
  static constexpr int depth = 1;
  static constexpr bool whole = true;
  DEV u64 bytes(u32 in, u32) { return (u64)(in / 256) * 210; }
  DEV Raw load(const Row &w, u32 k, bool swap) {
    const u8 *p = w.data + k / 32 * 210;
    const u32 half = k % 32 / 16, run = k % 16 / 4, at = k % 4 * 8; // 32 numbers a run
    return {swapped(load_bytes(p + half * 64 + run % 2 * 32 + at), swap), swapped(load_bytes(p + 128 + half * 32 + at), swap), *(const u16 *)(p + 208), (i8)p[192 + half * 8 + run * 2 + at / 16]};
  }
  DEV void decode(const Raw &r, u32 k, float (&w)[8]) {
    const u32 run = k % 16 / 4, shift = run / 2 * 4;
    const float s = f16_value(r.d) * (float)r.scale;
    const u32 a = (r.low.x >> shift & 0x0f0f0f0f) | (r.high.x >> (2 * run) & 0x03030303) << 4;
    const u32 b = (r.low.y >> shift & 0x0f0f0f0f) | (r.high.y >> (2 * run) & 0x03030303) << 4;
    UNROLL for (int i = 0; i < 4; i++) w[i] = s * (byte_value(a, i) - 32), w[4 + i] = s * (byte_value(b, i) - 32);
  }
};

constexpr int projectWarps = 2; // of a block, 4 outputs each
constexpr int outputs = 4, tileRows = 8;

// fold adds up each of n numbers over groups of 2·m lanes, in the tree of
// warp_sum: a lane keeps half of them and hands over the other half, and ends
// up with the sum of number lane % (2·m) / (2·m / n) in v[0].
template <u32 m, u32 n = 2 * m> DEV void fold(float *v) {
  if constexpr (n == 1) {
    v[0] += shfl_xor(v[0], (int)m);
  } else {
    const bool upper = tid() & m;
    UNROLL for (u32 i = 0; i < n / 2; i++) {
      const float keep = upper ? v[i + n / 2] : v[i], give = upper ? v[i] : v[i + n / 2];
      v[i] = keep + shfl_xor(give, (int)m);
    }
  }
  if constexpr (m > 1) fold<m / 2, n == 1 ? 1 : n / 2>(v);
}

// Ahead holds what is loaded of the octets to come.
template <class F> struct Ahead { typename F::Raw octets[F::depth][outputs]; };

// sum_rows adds n rows' products to sum[row · outputs + output].
template <class F, int n>
DEV void sum_rows(float (&sum)[tileRows * outputs], Ahead<F> &ahead, const Row (&w)[outputs], const float *x, u32 rows, bool swap) {
  const u32 in = w[0].in, octets = (in + 7) / 8;
  const float *row[n];
  UNROLL for (u32 r = 0; r < n; r++) row[r] = x + (u64)(r < rows ? r : rows - 1) * in;
  for (u32 k = tid() % 32; k < octets; k += 32) {
    float v[outputs][8];
    UNROLL for (int j = 0; j < outputs; j++) F::decode(ahead.octets[0][j], k, v[j]);
    UNROLL for (int s = 1; s < F::depth; s++) UNROLL for (int j = 0; j < outputs; j++) ahead.octets[s - 1][j] = ahead.octets[s][j];
    if (k + F::depth * 32 < octets) UNROLL for (int j = 0; j < outputs; j++) ahead.octets[F::depth - 1][j] = F::load(w[j], k + F::depth * 32, swap);
    UNROLL for (int r = 0; r < n; r++) {
      float a[8];
      if (F::whole) {
        const f32x4 p = *(const f32x4 *)(row[r] + k * 8 + swap * 4), q = *(const f32x4 *)(row[r] + k * 8 + !swap * 4);
        a[0] = p.x, a[1] = p.y, a[2] = p.z, a[3] = p.w, a[4] = q.x, a[5] = q.y, a[6] = q.z, a[7] = q.w;
      } else {
        UNROLL for (u32 i = 0; i < 8; i++) a[i] = k * 8 + i < in ? row[r][k * 8 + i] : 0;
      }
      UNROLL for (int j = 0; j < outputs; j++) UNROLL for (int i = 0; i < 8; i++) sum[r * outputs + j] = fma(a[i], v[j][i], sum[r * outputs + j]);
    }
  }
}

