// Heads of queries and keys in the registers of a warp: loaded, normed, rotated,
// and stored.
#pragma once
#include "gpu.cuh"

// Rows of a table of angles that lie in a block of their own: cosines, then sines.
static constexpr u32 POSITIONS = 256;

// A lane holds up to 4 runs of N pairs of elements of the head. The first pairs of a
// head are rotated: elements i and i + pairs, which lie dim/2 apart where all are.
// N is 2 where half a head and its rotated pairs are even numbers, so that the lane
// reads and writes 8 bytes at a time.
template <int N> struct Run { float v[N]; };
template <> struct alignas(8) Run<2> { float v[2]; };
template <int N> struct Narrow;
template <> struct Narrow<1> { u16 v[1]; };
template <> struct alignas(4) Narrow<2> { u16 v[2]; };
template <int N> struct Small;
template <> struct Small<1> { u8 v[1]; };
template <> struct alignas(2) Small<2> { u8 v[2]; };

template <int N> struct Head {
  Run<N> lo[4 / N], hi[4 / N]; // 32 lanes · 4 pairs reach a head dimension of 256
  u32 half, pairs, lane;
};

// place: the lane's first pair of run j.
template <int N> DEV u32 place(const Head<N> &x, u32 j) { return (j * 32 + x.lane) * N; }

// low, high: the elements of a pair.
template <int N> DEV u32 low(const Head<N> &x, u32 pair) { return pair < x.pairs ? pair : pair + x.pairs; }
template <int N> DEV u32 high(const Head<N> &x, u32 pair) { return pair < x.pairs ? pair + x.pairs : pair + x.half; }

template <int N> DEV void load(Head<N> &x, const float *from) {
  UNROLL for (u32 j = 0; j < 4 / N; j++) {
    const u32 e = place(x, j);
    if (e < x.half) {
      x.lo[j] = *(const Run<N> *)(from + low(x, e));
      x.hi[j] = *(const Run<N> *)(from + high(x, e));
    } else {
      UNROLL for (int i = 0; i < N; i++) x.lo[j].v[i] = x.hi[j].v[i] = 0;
    }
  }
}

// squares is what a lane adds to the sum of a head's squares.
template <int N> DEV float squares(const Head<N> &x) {
  float sum = 0;
  UNROLL for (u32 j = 0; j < 4 / N; j++)
    UNROLL for (int i = 0; i < N; i++) sum = fma(x.hi[j].v[i], x.hi[j].v[i], fma(x.lo[j].v[i], x.lo[j].v[i], sum));
  return sum;
}

// scale: x · inverse · weight, of lanes that have as much of either.
template <int N> DEV void scale(Head<N> &x, float inverse, const Head<N> &weight) {
  UNROLL for (u32 j = 0; j < 4 / N; j++)
    UNROLL for (int i = 0; i < N; i++) {
      x.lo[j].v[i] *= inverse * weight.lo[j].v[i];
      x.hi[j].v[i] *= inverse * weight.hi[j].v[i];
    }
}

// norm: x / sqrt(mean(x²) + eps) · weight.
template <int N> DEV void norm(Head<N> &x, const float *weight, float eps) {
  const float inverse = norm_scale(warp_sum(squares(x)), 2 * x.half, eps);
  Head<N> w;
  w.half = x.half;
  w.pairs = x.pairs;
  w.lane = x.lane;
  load(w, weight);
  scale(x, inverse, w);
}

// Turn is what the pairs of a head are turned by.
template <int N> struct Turn { Run<N> cos[4 / N], sin[4 / N]; };

template <int N> DEV void load(Turn<N> &t, const Head<N> &x, const float *cos, const float *sin) {
  UNROLL for (u32 j = 0; j < 4 / N; j++) {
    const u32 e = place(x, j);
    if (e >= x.pairs) continue;
    t.cos[j] = *(const Run<N> *)(cos + e);
    t.sin[j] = *(const Run<N> *)(sin + e);
  }
}

template <int N> DEV void rotate(Head<N> &x, const Turn<N> &t) {
  UNROLL for (u32 j = 0; j < 4 / N; j++) {
    if (place(x, j) >= x.pairs) continue;
    UNROLL for (int i = 0; i < N; i++) {
      const float a = x.lo[j].v[i], b = x.hi[j].v[i], c = t.cos[j].v[i], s = t.sin[j].v[i];
      x.lo[j].v[i] = fma(a, c, -(b * s));
      x.hi[j].v[i] = fma(b, c, a * s);
    }
  }
}

template <int N> DEV void rotate(Head<N> &x, const float *cos, const float *sin) {
  Turn<N> t;
  load(t, x, cos, sin);
  rotate(x, t);
}

template <int N> DEV void store_f32(const Head<N> &x, float *to) {
  UNROLL for (u32 j = 0; j < 4 / N; j++) {
    const u32 e = place(x, j);
    if (e >= x.half) continue;
    *(Run<N> *)(to + low(x, e)) = x.lo[j];
    *(Run<N> *)(to + high(x, e)) = x.hi[j];
  }
}

template <int N> DEV void store_bf16(const Head<N> &x, u16 *to) {
  UNROLL for (u32 j = 0; j < 4 / N; j++) {
    const u32 e = place(x, j);
    if (e >= x.half) continue;
    Narrow<N> a, b;
    UNROLL for (int i = 0; i < N; i++) {
      a.v[i] = (u16)pack_bf16(x.lo[j].v[i], 0);
      b.v[i] = (u16)pack_bf16(x.hi[j].v[i], 0);
    }
    *(Narrow<N> *)(to + low(x, e)) = a;
    *(Narrow<N> *)(to + high(x, e)) = b;
  }
}

template <int N> DEV void put_int8(u8 *to, const Run<N> &r, float inverse) {
  Small<N> s;
  UNROLL for (int i = 0; i < N; i++) s.v[i] = (u8)(i32)__builtin_fminf(__builtin_fmaxf(__builtin_rintf(r.v[i] * inverse), -127), 127);
  *(Small<N> *)to = s;
}

// store_int8: quant.Int8 of each group of 64 elements; scales has one f32 a
// group. With N = 2 a run never crosses a group, since half and pairs are even.
template <int N> DEV void store_int8(const Head<N> &x, u8 *to, float *scales) {
  for (u32 g = 0; g * 64 < 2 * x.half; g++) {
    float peak = 0;
    UNROLL for (u32 j = 0; j < 4 / N; j++) {
      const u32 e = place(x, j);
      UNROLL for (int i = 0; i < N; i++) {
        if (e < x.half && low(x, e) / 64 == g) peak = __builtin_fmaxf(peak, __builtin_fabsf(x.lo[j].v[i]));
        if (e < x.half && high(x, e) / 64 == g) peak = __builtin_fmaxf(peak, __builtin_fabsf(x.hi[j].v[i]));
      }
    }
    const float scale = warp_max(peak) / 127, inverse = scale == 0 ? 0 : 1 / scale;
    UNROLL for (u32 j = 0; j < 4 / N; j++) {
      const u32 e = place(x, j);
      if (e < x.half && low(x, e) / 64 == g) put_int8<N>(to + low(x, e), x.lo[j], inverse);
      if (e < x.half && high(x, e) / 64 == g) put_int8<N>(to + high(x, e), x.hi[j], inverse);
    }
    if (x.lane == 0) scales[g] = scale;
  }
}

// slot_of is backend.KVLayout.Slot.
DEV u32 slot_of(const Span &s, u32 index) {
  if (s.window == 0 || index < s.keep) return index;
  return s.keep + (index - s.keep) % (s.slots - s.keep);
}
