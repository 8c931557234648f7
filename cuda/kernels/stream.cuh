// Projections of few rows on tensor cores: dst[rows, out] = x[rows, in]·wᵀ.
//
// The weights are the A operand (a strip: 16 outputs), rows of x the columns of
// B, 8 a tile: every tile's arithmetic is the same whatever their number, and so
// a row's bits do not depend on the rows beside it.
//
// A block has some strips over all inputs: nothing is summed across blocks. Its
// warps (16 or 8, by format and device) split the inputs, each with a ring of its own in shared memory
// that needs no barrier: weights and inputs on their way. Where a block has more
// than G strips it takes them in passes of G. After a pass the warps' sums are
// added in the order of the inputs.
//
// The inputs of a launch of one row can lie whole in shared memory, as bf16 in
// units of 64; a block that has to norm them does so on the way there. Those are
// kernels of their own, of a third of the code: what a block goes through once
// comes from L2 (docs/adr/0055-kernels-are-translated-whole.md).
#pragma once
#include "norm.cuh"
#include "strips.cuh"

// alone: there is one row, and it lies whole in shared memory.
template <class W, u32 NT, u32 G, bool alone> struct Streamer {
  static constexpr bool packed = W::bytes != Rows::bytes;
  static constexpr u32 mostThreads = packed ? 512 : 256;
  // A unit is 64 inputs: of G strips, and of the rows.
  static constexpr u32 rowsTile = NT * 8, xBytes = rowsTile * 128;
  static constexpr u32 perGranule = W::inputs / 64, numberBytes = W::bytes / perGranule;

  const Projection &p;
  u32 warp, lane, g, t;
  u32 depth;        // granules of a strip
  u32 begin, units; // this warp's
  u32 first, end;   // this block's strips
  u32 rowFirst;     // of this block's slice
  u32 scaleBytes, unitBytes, stageBytes;
  u8 *ring;       // this warp's stages: G units, then inputs
  Shared ringAt;  // the same
  float *sums;    // [warps][2 strips][rowsTile][16]; of a whole row [warps][G][16]
  u8 *row;        // x, where it lies whole
  Shared rowAt;   // the same

  // What is loaded next.
  u32 loadPass, loadUnit;
  const u8 *source[G]; // this lane's part of each strip's first unit
  u32 there;           // a bit for each strip
  u32 left[packed ? 1 : G]; // outputs from a strip's first on

  // aim points source at the strips of loadPass.
  METHOD void aim() {
    there = 0;
    UNROLL for (u32 j = 0; j < G; j++) {
      u32 at = first + loadPass * G + j;
      Strip s = stripAt(p, at);
      const u8 *data = of(p.weights, s.weight);
      if (at < end && s.there) {
        there |= 1 << j;
        if constexpr (packed) data += (u64)(s.first / 16) * depth * p.granule + lane * 16;
        else {
          data += ((u64)(s.first + lane / 8) * p.in + lane % 8 * 8) * 2;
          left[j] = of(p.out, s.weight) - s.first;
        }
      }
      source[j] = data;
    }
  }

  // loadWeights starts the copies of a unit of each strip.
  METHOD void loadWeights(u32 slot) const {
    Shared to = ringAt + slot * stageBytes;
    u32 k = begin + loadUnit;
    if constexpr (packed) {
      u32 numbers = k / perGranule * p.granule + k % perGranule * numberBytes, scales = k / perGranule * p.granule + W::bytes;
      to += lane * 16;
      UNROLL for (u32 j = 0; j < G; j++) {
        if (!(there >> j & 1)) {
          allow_unwritten(ring + slot * stageBytes + j * unitBytes, unitBytes); // multiplied, and dropped
          continue;
        }
        constexpr u32 whole = numberBytes / 512;
        UNROLL for (u32 c = 0; c < whole; c++) copy_to(to + j * unitBytes + c * 512, source[j] + numbers + c * 512, true);
        if (numberBytes % 512 != 0 && lane < numberBytes % 512 / 16) copy_to(to + j * unitBytes + whole * 512, source[j] + numbers + whole * 512, true);
        if (lane * 16 < scaleBytes) copy_to(to + j * unitBytes + numberBytes, source[j] + scales, true);
      }
    } else {
      bool inside = k * 64 + lane % 8 * 8 < p.in;
      u64 row = (u64)p.in * 8; // bytes of four rows
      UNROLL for (u32 j = 0; j < G; j++) {
        if (!(there >> j & 1)) {
          allow_unwritten(ring + slot * stageBytes + j * unitBytes, unitBytes); // multiplied, and dropped
          continue;
        }
        const u8 *from = source[j] + k * 128;
        UNROLL for (u32 i = 0; i < 4; i++) {
          bool here = inside && i * 4 + lane / 8 < left[j];
          // 16-byte chunks are permuted by the row: rows 4 on change bit 2.
          copy_to(to + j * 2048 + (lane / 8) * 128 + ((lane % 8 ^ (lane / 8 + i * 4) % 8) << 4) + i * 512, here ? from + i * row : p.weights[0], here);
        }
      }
    }
  }

  // loadRows starts the copies of a unit's inputs.
  METHOD void loadRows(u32 slot) const {
    Shared to = ringAt + slot * stageBytes + G * unitBytes + (lane / 8) * 128;
    u32 k = (begin + loadUnit) * 64 + lane % 8 * 8;
    bool inside = k < p.in;
    const u16 *from = p.x + (u64)(rowFirst + lane / 8) * p.in + k;
    u64 row = (u64)p.in * 4; // elements of four rows
    UNROLL for (u32 i = 0; i < NT * 2; i++) {
      bool here = inside && rowFirst + i * 4 + lane / 8 < p.rows;
      copy_to(to + ((lane % 8 ^ (lane / 8 + i * 4) % 8) << 4) + i * 512, here ? from + i * row : p.x, here);
    }
  }

  METHOD void next() {
    if (++loadUnit == units) {
      loadUnit = 0;
      loadPass++;
      aim();
    }
  }

  // multiply adds a unit's products to total.
  METHOD void multiply(float (&total)[G][NT][4], u32 slot) const {
    const u8 *a = ring + slot * stageBytes;
    Shared at = ringAt + slot * stageBytes;
    // Two B operands of 32 inputs by 8 rows each.
    u32 b[NT][2][4];
    // The eight rows of a tile are one and the same where there is one.
    const Shared x = alone ? rowAt + (begin + unitOf) * 128 : at + G * unitBytes + lane % 8 * 128;
    UNROLL for (u32 nt = 0; nt < NT; nt++)
      UNROLL for (u32 half = 0; half < 2; half++)
        load_matrix_at(b[nt][half], x + nt * 8 * 128 + (alone ? half * 4 + lane / 8 : (half * 4 + lane / 8) ^ lane % 8) * 16);
    if constexpr (!packed) {
      UNROLL for (u32 j = 0; j < G; j++)
        UNROLL for (u32 k = 0; k < 4; k++) {
          u32 w[4], row = lane % 16, chunk = k * 2 + lane / 16;
          load_matrix_at(w, at + j * 2048 + row * 128 + ((chunk ^ row % 8) << 4));
          UNROLL for (u32 nt = 0; nt < NT; nt++) mma_bf16(total[j][nt], w, {b[nt][k / 2][k % 2 * 2], b[nt][k / 2][k % 2 * 2 + 1]});
        }
    } else if constexpr (W::rounds) {
      UNROLL for (u32 j = 0; j < G; j++) {
        const u8 *unit = a + j * unitBytes;
        u32 w[4][4];
        rounded<W>(w, W::load(unit, 0, lane), unit + numberBytes - W::bytes, (begin + unitOf) % perGranule, p.shift, g);
        UNROLL for (u32 k = 0; k < 4; k++)
          UNROLL for (u32 nt = 0; nt < NT; nt++) mma_bf16(total[j][nt], w[k], {b[nt][k / 2][k % 2 * 2], b[nt][k / 2][k % 2 * 2 + 1]});
      }
    } else {
      constexpr u32 parts = 64 / W::fold, steps = W::fold / 16;
      u32 block = (begin + unitOf) % perGranule;
      // Sums of x over a fold: products with ones, in every row of a result.
      f32x2 sum[parts][NT];
      if constexpr (W::sums) {
        UNROLL for (u32 f = 0; f < parts; f++)
          UNROLL for (u32 nt = 0; nt < NT; nt++) {
            float acc[4] = {};
            u32 one[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
            UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) mma_bf16(acc, one, {b[nt][k / 2][k % 2 * 2], b[nt][k / 2][k % 2 * 2 + 1]});
            sum[f][nt] = {acc[0], acc[1]};
          }
      }
      UNROLL for (u32 j = 0; j < G; j++) {
        const u8 *unit = a + j * unitBytes;
        typename W::Numbers numbers = W::load(unit, 0, lane);
        UNROLL for (u32 f = 0; f < parts; f++) {
          Affine scale = W::scales(unit + numberBytes - W::bytes, block * parts + f, p.shift, g);
          UNROLL for (u32 i = 0; i < 2; i++) scale.bias[i] = fma(scale.scale[i], -(float)W::offset, scale.bias[i]);
          float acc[NT][4] = {};
          UNROLL for (u32 k = f * steps; k < f * steps + steps; k++) {
            u32 w[4];
            W::decode(w, numbers, k);
            UNROLL for (u32 nt = 0; nt < NT; nt++) mma_bf16(acc[nt], w, {b[nt][k / 2][k % 2 * 2], b[nt][k / 2][k % 2 * 2 + 1]});
          }
          UNROLL for (u32 nt = 0; nt < NT; nt++)
            UNROLL for (u32 i = 0; i < 4; i++) {
              float &to = total[j][nt][i];
              to = fma(scale.scale[i / 2], acc[nt][i], to);
              if constexpr (W::sums) to = fma(scale.bias[i / 2], i % 2 ? sum[f][nt].y : sum[f][nt].x, to);
            }
        }
      }
    }
  }
  u32 unitOf; // the unit at work

  METHOD static float sum_of(float sum, u32 half) {
    if constexpr (packed) return whole_sum<W>(sum, half);
    return sum;
  }

  // finish adds up the warps' sums of a pass, two strips at a time, and stores
  // them.
  METHOD void finish(float (&total)[G][NT][4], u32 pass) const {
    if (mostThreads == 256 || bdim() == 256) finishOf<8>(total, pass);
    else finishOf<16>(total, pass);
  }

  // finishOne is that of one row, all strips at once.
  template <u32 warps> METHOD void finishOne(float (&total)[G][NT][4], u32 pass) const {
    // A thread has an output, or a gate's and that of its other half.
    const u32 each = p.gated ? 2 : 1, strip = tid() / 16 * each, index = first + pass * G + strip;
    const Strip s = stripAt(p, index);
    const u32 m = s.first + tid() % 16;
    const bool mine = strip < G && index < end && s.there && m < of(p.out, s.weight);
    const float before = mine && (p.add >> s.weight & 1) ? of(p.f32, s.weight)[m] : 0;
    if (t == 0)
      UNROLL for (u32 j = 0; j < G; j++) {
        sums[(warp * G + j) * 16 + g] = sum_of(total[j][0][0], 0);
        sums[(warp * G + j) * 16 + g + 8] = sum_of(total[j][0][2], 1);
      }
    sync();
    if (mine) store_output<warps>(p, s, m, sums + strip * 16 + tid() % 16, G * 16, before);
    sync();
  }

  // finishOf is that of so many warps.
  template <u32 warps> METHOD void finishOf(float (&total)[G][NT][4], u32 pass) const {
    if constexpr (alone) return finishOne<warps>(total, pass);
    constexpr u32 strip = 16 * rowsTile; // floats: [rowsTile][16]
    UNROLL for (u32 pair = 0; pair < G; pair += 2) {
      if (pass * G + pair >= end - first) break;
      float *mine = sums + warp * 2 * strip;
      UNROLL for (u32 j = 0; j < 2 && pair + j < G; j++)
        UNROLL for (u32 nt = 0; nt < NT; nt++)
          UNROLL for (u32 i = 0; i < 4; i++) mine[j * strip + (nt * 8 + t * 2 + i % 2) * 16 + g + i / 2 * 8] = sum_of(total[pair + j][nt][i], i / 2);
      sync();
      UNROLL for (u32 item = 0; item < strip; item += warps * 32) {
        u32 at = item + tid(); // of a strip
        if (strip % (warps * 32) != 0 && at >= strip) break;
        u32 row = rowFirst + at / 16;
        if (row >= p.rows) continue;
        float v[2];
        UNROLL for (u32 j = 0; j < 2; j++) {
          v[j] = sums[j * strip + at];
          UNROLL for (u32 w = 1; w < warps; w++) v[j] += sums[(w * 2 + j) * strip + at];
        }
        u32 index = first + pass * G + pair;
        if (p.gated) {
          Strip s = stripAt(p, index);
          u32 m = s.first + at % 16;
          if (m >= p.out[0]) continue;
          float gate = v[0] + (p.bias[0] ? p.bias[0][m] : 0), up = v[1] + (p.bias[1] ? p.bias[1][m] : 0);
          put(0, row, m, silu(gate) * up);
          continue;
        }
        UNROLL for (u32 j = 0; j < 2; j++) {
          if (pair + j >= G || index + j >= end) continue;
          Strip s = stripAt(p, index + j);
          u32 m = s.first + at % 16;
          if (!s.there || m >= of(p.out, s.weight)) continue;
          const float *bias = of(p.bias, s.weight);
          put(s.weight, row, m, bias ? v[j] + bias[m] : v[j]);
        }
      }
      sync();
    }
  }

  // put stores one output of a row.
  METHOD void put(u32 weight, u32 row, u32 m, float v) const {
    float *f = of(p.f32, weight);
    u16 *h = of(p.bf16, weight);
    u64 at = (u64)row * of(p.out, weight) + m;
    if (p.add >> weight & 1) v += f[at];
    if (f) f[at] = v;
    if (h) h[at] = (u16)pack_bf16(v, 0);
  }

  // takeRow brings the only row of x to shared memory, after the kernel before.
  METHOD void takeRow() const {
    if (!p.norm) {
      dependency_wait();
      const u32 last = (begin + units) * 8; // each warp its own, in eights
      for (u32 c = begin * 8 + lane; c < last; c += 4 * 32) {
        u32x4 v[4];
        UNROLL for (u32 i = 0; i < 4; i++) {
          if (c + i * 32 < last && (c + i * 32) * 8 < p.in) v[i] = ((const u32x4 *)p.x)[c + i * 32];
          else v[i] = {0, 0, 0, 0};
        }
        UNROLL for (u32 i = 0; i < 4; i++)
          if (c + i * 32 < last) ((u32x4 *)row)[c + i * 32] = v[i];
      }
      sync_warp();
      return;
    }
    // Fours of up to 4096 or 8192 inputs stay in registers between sum and product.
    constexpr u32 held = 4;
    const u32 threads = bdim(), fours = p.in / 4;
    const f32x4 *x = (const f32x4 *)p.x, *weight = (const f32x4 *)p.norm;
    f32x4 v[held], w[held];
    UNROLL for (u32 j = 0; j < held; j++)
      if (tid() + j * threads < fours) w[j] = weight[tid() + j * threads];
    dependency_wait();
    UNROLL for (u32 j = 0; j < held; j++)
      if (tid() + j * threads < fours) v[j] = x[tid() + j * threads];
    // Of 256 threads each is two lanes of normThreads.
    const bool two = threads < normThreads;
    float even = 0, odd = 0;
    auto square = [&](u32 j, f32x4 a) {
      if (two && j % 2) odd += squares(a);
      else even += squares(a);
    };
    UNROLL for (u32 j = 0; j < held; j++)
      if (tid() + j * threads < fours) square(j, v[j]);
    for (u32 j = held; tid() + j * threads < fours; j++) square(j, x[tid() + j * threads]);
    even = warp_sum(even);
    if (two) odd = warp_sum(odd);
    if (lane == 0) {
      sums[warp] = even;
      if (two) sums[threads / 32 + warp] = odd;
    }
    sync();
    const float scale = norm_scale(norm_total(sums), p.in, p.eps);
    u32x2 *to = (u32x2 *)row;
    UNROLL for (u32 j = 0; j < held; j++)
      if (tid() + j * threads < fours) to[tid() + j * threads] = pack_bf16_x4(normed(v[j], scale, w[j]));
    for (u32 i = tid() + held * threads; i < fours; i += threads) to[i] = pack_bf16_x4(normed(x[i], scale, weight[i]));
    for (u32 i = fours + tid(); i < depth * W::inputs / 4; i += threads) to[i] = {};
    sync();
  }

  // fill starts the first copies, and waits for the kernel before. Weights never
  // change: their copies need not wait.
  METHOD void fill(u32 all) {
    _Pragma("nounroll") for (u32 s = 0; s + 1 < p.stages; s++) {
      if (s < all) {
        loadWeights(s);
        next();
      }
      if (alone) copy_commit();
    }
    if constexpr (alone) {
      takeRow();
      return;
    }
    dependency_wait();
    u32 pass = loadPass, unit = loadUnit;
    loadUnit = 0;
    _Pragma("nounroll") for (u32 s = 0; s + 1 < p.stages; s++) {
      if (s < all) {
        loadRows(s);
        loadUnit = loadUnit + 1 == units ? 0 : loadUnit + 1;
      }
      copy_commit();
    }
    loadPass = pass;
    loadUnit = unit;
  }

  METHOD void run() {
    launch_dependents();
    u32 strips = stripCount(p), block = bid() / p.slices;
    rowFirst = bid() % p.slices * rowsTile;
    first = block * p.strips;
    end = first + p.strips < strips ? first + p.strips : strips;
    depth = (p.in + W::inputs - 1) / W::inputs;
    begin = warp * depth * perGranule / (bdim() / 32);
    units = (warp + 1) * depth * perGranule / (bdim() / 32) - begin;
    if (first >= end) return;
    u32 passes = (end - first + G - 1) / G, all = passes * units, stages = p.stages;
    loadPass = loadUnit = 0;
    aim();
    fill(all);
    u32 slot = 0, loaded = stages - 1;
    _Pragma("nounroll") for (u32 pass = 0; pass < passes; pass++) {
      float total[G][NT][4] = {};
      _Pragma("nounroll") for (unitOf = 0; unitOf < units; unitOf++) {
        wait_groups(stages - 2);
        sync_warp();
        if (loaded < all) {
          u32 free = slot == 0 ? stages - 1 : slot - 1;
          loadWeights(free);
          if constexpr (!alone) loadRows(free);
          next();
          loaded++;
        }
        copy_commit();
        multiply(total, slot);
        slot = slot + 1 == stages ? 0 : slot + 1;
      }
      finish(total, pass);
    }
  }
};

#define STREAM(name, W, NT, G, alone)                                                                                     \
  KERNEL((Streamer<W, NT, G, alone>::mostThreads))                                                                        \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1, u16 *h2,         \
            const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1, u32 out2, u32 add, u32 gated, \
            const u16 *x, u32 in, u32 rows, u32 granule, u32 shift, u32 stages, u32 strips, u32 slices,                   \
            const float *norm, float eps) {                                                                               \
    DYNAMIC_SHARED(name, shared);                                                                                         \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated,         \
                 x, in, rows, granule, shift, stages, strips, slices, norm, eps};                                         \
    stream<W, NT, G, alone>(p, shared);                                                                                   \
  }                                                                                                                       \
  REGISTER(name)

template <class W, u32 NT, u32 G, bool alone> DEV void stream(const Projection &p, u8 *shared) {
  using S = Streamer<W, NT, G, alone>;
  u32 lane = tid() % 32, warp = tid() / 32, warps = bdim() / 32;
  u32 scales = p.granule - W::bytes, unit = S::numberBytes + scales, stage = G * unit + (alone ? 0 : S::xBytes);
  S s{p, warp, lane, lane / 4, lane % 4};
  s.scaleBytes = scales;
  s.unitBytes = unit;
  s.stageBytes = stage;
  s.ring = shared + warp * p.stages * stage;
  s.ringAt = shared_at(s.ring);
  s.sums = (float *)(shared + warps * p.stages * stage);
  s.row = shared + warps * (p.stages * stage + G * 16 * 4);
  s.rowAt = shared_at(s.row);
  s.run();
}

#define STREAM_ALL(name, W)                \
  STREAM(name##_alone_2, W, 1, 2, true)    \
  STREAM(name##_alone_3, W, 1, 3, true)    \
  STREAM(name##_alone_6, W, 1, 6, true)    \
  STREAM(name##_1_2, W, 1, 2, false)       \
  STREAM(name##_1_3, W, 1, 3, false)       \
  STREAM(name##_1_6, W, 1, 6, false)       \
  STREAM(name##_2_2, W, 2, 2, false)       \
  STREAM(name##_2_3, W, 2, 3, false)       \
  STREAM(name##_2_6, W, 2, 6, false)

// Few warps have registers for more rows.
#define STREAM_FOUR(name, W)               \
  STREAM(name##_4_2, W, 4, 2, false)       \
  STREAM(name##_4_3, W, 4, 3, false)       \
  STREAM(name##_4_6, W, 4, 6, false)
