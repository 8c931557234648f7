// Projections of one row by 4-bit weights on compute capability 9.0, with the bits
// of stream.cuh: the same strips, the same warps over slices of the inputs, the same
// products and order of sums.
//
// What differs is how weights come, and how many warps there are. A warp's part of a
// strip lies in one piece, which the copy unit brings, a granule a stage. A block takes
// no more than half of a multiprocessor's registers, and less than half of its shared
// memory, so that two of them work there: one alone does not decode as fast as an H200
// reads.
//
// The row lies whole in shared memory, in the order in which lanes take it as B
// operands: of 64 inputs lane t's 16 one after the other.
#pragma once
#include "norm.cuh"
#include "strip_copies.cuh"

template <class W> struct One {
  static constexpr u32 perGranule = W::inputs / 64, parts = 64 / W::fold, steps = W::fold / 16;

  const Projection &p;
  u32 warp, lane, g, t;
  u32 first, end;  // this block's strips
  u32 pass;        // strips whose sums have room
  StripCopies<W, 1> weights;
  u32 *row;     // x
  float *folds; // sums of x over each fold
  float *sums;  // [warps][pass][16]

  // putPair is where inputs 2·pair and 2·pair + 1 lie.
  METHOD static u32 placeOf(u32 pair) { return pair / 32 * 32 + pair % 4 * 8 + pair % 32 / 8 * 2 + pair % 8 / 4; }

  METHOD void putFour(u32 i, const u32x2 &v) const {
    row[placeOf(2 * i)] = v.x;
    row[placeOf(2 * i + 1)] = v.y;
  }

  // takeRow brings x to shared memory, after the kernel before.
  METHOD void takeRow() const {
    if (!p.norm) {
      dependency_wait();
      const u32 last = weights.stop * 8; // each warp its own, in eights
      for (u32 c = weights.begin * 8 + lane; c < last; c += 2 * 32) {
        u32x4 v[2];
        UNROLL for (u32 i = 0; i < 2; i++) {
          if (c + i * 32 < last && (c + i * 32) * 8 < p.in) v[i] = ((const u32x4 *)p.x)[c + i * 32];
          else v[i] = {0, 0, 0, 0};
        }
        UNROLL for (u32 i = 0; i < 2; i++)
          if (c + i * 32 < last) {
            putFour((c + i * 32) * 2, {v[i].x, v[i].y});
            putFour((c + i * 32) * 2 + 1, {v[i].z, v[i].w});
          }
      }
      sync_warp();
      return;
    }
    // Fours of up to 4096 inputs stay in registers between sum and product.
    constexpr u32 held = 2;
    const f32x4 *weight = (const f32x4 *)p.norm;
    f32x4 w[held];
    norm_weights(w, weight, tid(), p.in);
    dependency_wait();
    norm_row(
        (const f32x4 *)p.x, weight, w, tid(), p.in, p.eps, sums, []() INLINE { sync(); }, [&](u32 i, const f32x4 &v) INLINE { putFour(i, pack_bf16_x4(v)); });
    for (u32 i = p.in / 4 + tid(); i < weights.depth * W::inputs / 4; i += normThreads) putFour(i, {0, 0});
    sync();
  }

  METHOD void operands(u32 (&b)[8], u32 unit) const {
    const u32x4 *from = (const u32x4 *)(row + unit * 32 + t * 8), v = from[0], w = from[1];
    b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    b[4] = w.x, b[5] = w.y, b[6] = w.z, b[7] = w.w;
  }

  // sumFolds makes the sums of x over each fold of the warp's: products with ones.
  METHOD void sumFolds() const {
    if constexpr (!W::sums || W::rounds) return;
    _Pragma("nounroll") for (u32 unit = weights.begin; unit < weights.stop; unit++) {
      u32 b[8], one[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
      operands(b, unit);
      UNROLL for (u32 f = 0; f < parts; f++) {
        float acc[4] = {};
        UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) mma_bf16(acc, one, {b[2 * k], b[2 * k + 1]});
        if (lane == 0) folds[unit * parts + f] = acc[0];
      }
    }
    sync_warp();
  }

  // multiply adds the products of the unit that is a granule's block-th to total:
  // the eight columns of a product are one and the same.
  METHOD void multiply(float (&total)[4], const u8 *from, u32 block, u32 unit) const {
    u32 b[8];
    operands(b, unit);
    if constexpr (W::rounds) {
      u32 w[4][4];
      rounded<W>(w, from, block, p.shift, lane);
      UNROLL for (u32 k = 0; k < 4; k++) mma_bf16(total, w[k], {b[2 * k], b[2 * k + 1]});
      return;
    }
    typename W::Numbers numbers = W::load(from, block, lane);
    UNROLL for (u32 f = 0; f < parts; f++) {
      Affine scale = W::scales(from, block * parts + f, p.shift, g);
      float acc[4] = {}, sum = 0;
      if constexpr (W::sums) sum = folds[unit * parts + f];
      UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) {
        u32 w[4];
        W::decode(w, numbers, k);
        mma_bf16(acc, w, {b[2 * k], b[2 * k + 1]});
      }
      UNROLL for (u32 i = 0; i < 2; i++) {
        float &to = total[2 * i];
        to = fma(scale.scale[i], acc[2 * i], to);
        if constexpr (W::sums) to = fma(fma(scale.scale[i], -(float)W::offset, scale.bias[i]), sum, to);
      }
    }
  }

  // finish adds up the warps' sums of the strips from index on, a thread an output,
  // or a gate's and that of its other half. before is what they are added to.
  METHOD void finish(u32 index, u32 last, float before) const {
    const u32 each = p.gated ? 2 : 1, strip = tid() / 16 * each;
    const Strip s = stripAt(p, index + strip);
    const u32 m = s.first + tid() % 16;
    sync();
    if (index + strip < last && m < of(p.out, s.weight)) store_output<normThreads / 32>(p, s, m, sums + strip * 16 + tid() % 16, pass * 16, before);
    sync();
  }

  // beforeOf is what a thread's output of finish is added to.
  METHOD float beforeOf(u32 index, u32 last) const {
    if (p.add == 0) return 0;
    const u32 strip = index + tid() / 16 * (p.gated ? 2 : 1);
    const Strip s = stripAt(p, strip);
    const u32 m = s.first + tid() % 16;
    return strip < last && m < of(p.out, s.weight) && (p.add >> s.weight & 1) ? of(p.f32, s.weight)[m] : 0;
  }

  METHOD void run() {
    weights.start();
    takeRow();
    sumFolds();
    Ring at{p.stages};
    _Pragma("nounroll") for (u32 index = first; index < end; index += pass) {
      const u32 last = index + pass < end ? index + pass : end;
      const float before = beforeOf(index, last);
      _Pragma("nounroll") for (u32 strip = index; strip < last; strip++) {
        float total[4] = {};
        weights.each(at, [&](const u8 *from, u32 block, u32 unit) INLINE { multiply(total, from, block, unit); });
        if (t == 0) {
          float *to = sums + (warp * pass + strip - index) * 16 + g;
          to[0] = whole_sum<W>(total[0], 0);
          to[8] = whole_sum<W>(total[2], 1);
        }
      }
      finish(index, last, before);
    }
  }
};

// The first blocks, more of them, have a strip more than the others, or a gate's and an up's.
template <class W> DEV void one(const Projection &p, u32 pass, u32 more, u8 *shared) {
  using O = One<W>;
  launch_dependents();
  const u32 lane = tid() % 32, warp = shfl(tid() / 32, 0), warps = normThreads / 32, strips = stripCount(p);
  O s{p, warp, lane, lane / 4, lane % 4, 0, 0, 0, {p}};
  const u32 each = p.gated ? 2 : 1;
  s.first = bid() * p.strips + (bid() < more ? bid() : more) * each;
  s.end = s.first + p.strips + (bid() < more ? each : 0);
  if (s.end > strips) s.end = strips;
  s.pass = pass;
  s.weights.share(warp, warps);
  s.weights.strips = {s.first, s.end > s.first ? s.end - s.first : 0, 1};
  const u32 units = s.weights.depth * O::perGranule;
  // Rings, the row, sums of its folds, barriers, sums.
  s.weights.ring = shared + warp * p.stages * p.granule;
  s.weights.ringAt = shared_address(s.weights.ring);
  u8 *at = shared + warps * p.stages * p.granule;
  s.row = (u32 *)at;
  at += units * 128;
  s.folds = (float *)at;
  at += units * O::parts * 4;
  at += (16 - (units * O::parts * 4) % 16) % 16;
  s.weights.barriers = shared_address(at) + warp * p.stages * 8;
  at += warps * p.stages * 8;
  s.sums = (float *)at;
  s.run();
}

#ifdef __NVPTX__
// Two blocks share a multiprocessor.
#define ONE_KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads, 2)))
#else
#define ONE_KERNEL(threads) KERNEL(threads)
#endif

#define ONE(name, W)                                                                                                      \
  ONE_KERNEL(normThreads)                                                                                                 \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1, u16 *h2,         \
            const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1, u32 out2, u32 add, u32 gated, \
            const u16 *x, u32 in, u32 rows, u32 granule, u32 shift, u32 stages, u32 strips, u32 pass, u32 more,           \
            const float *norm, float eps) {                                                                               \
    DYNAMIC_SHARED(name, shared);                                                                                         \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated,         \
                 x, in, rows, granule, shift, stages, strips, 1, norm, eps};                                              \
    one<W>(p, pass, more, shared);                                                                                        \
  }                                                                                                                       \
  REGISTER(name)
