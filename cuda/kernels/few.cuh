// Projections of 2 to 16 rows by 4-bit weights that round, on compute capability 9.0, with the bits of
// stream.cuh: the same strips, the same 16 warps over slices of the inputs, the same products
// and order of sums.
//
// What differs is that a block stays on its multiprocessor, and that nobody waits for a strip to be
// added up: weights and rows come by the copy unit, rows once, to stay in shared memory,
// and four more warps take the sums of the sixteen out of places in turn. A warp has two strips at
// work at a time, so that rows are read from shared memory once for both.
//
// Where a block has no room for whole rows, a cluster of C shares their inputs. Then a strip is made
// by 16 / C warps of each block, and added up in one of them: the C strips that are at work at
// a time are each another one's.
//
// Rows go 8 a tile, of which there are NT.
#pragma once
#include "strip_copies.cuh"

constexpr u32 fewWorkers = 16, fewFinishers = 4, fewPlaces = 2, fewStrips = 2;
constexpr u32 fewPart = 32 * 4; // floats that a warp leaves of a strip and 8 rows: four a lane

template <class W, u32 NT, u32 C> struct Few {
  static constexpr u32 team = fewWorkers / C; // warps of a block that make a strip
  static constexpr u32 part = NT * fewPart, place = fewWorkers * part; // floats of a strip: a warp's; all warps'

  const Projection &p;
  StripCopies<W, fewStrips> &weights; // of a finisher all but the copies
  u32 warp, lane, rank;
  u8 *x;               // rows: the block's part of the inputs
  u32 line;            // bytes of one
  u32 begin;           // its first unit
  float *places;       // [fewPlaces, fewWorkers, NT, fewPart]
  u32 full, empty, taken; // barriers of the places; [C, fewPlaces] of teams' places being empty; of each warp's rows

  // work is one of the sixteen.
  METHOD void work() const {
    const u32 owner = warp / team, mine = taken + warp % team * 8;
    weights.start();
    dependency_wait();
    const u32 from = weights.begin * 128, bytes = (weights.stop - weights.begin) * 128; // of a row
    if (bytes) {
      if (owner == 0) { // teams share the inputs
        if (lane == 0) expect(mine, p.rows * bytes);
        sync_warp();
        copy_if(lane < p.rows, shared_address(x) + lane * line + from - begin * 128, (const u8 *)p.x + (u64)lane * p.in * 2 + from, bytes, mine);
      }
      wait_phase(mine, 0);
    }
    Shared row[NT]; // of rows that are not there the first one
    UNROLL for (u32 n = 0; n < NT; n++) row[n] = shared_at(x) + (n * 8 + lane % 8 < p.rows ? n * 8 + lane % 8 : 0) * line - begin * 128;
    const u32 to = shared_address(places + (rank * team + warp % team) * part + lane * 4);
    Ring at{p.stages};
    u32 turn = 0, phase = 1; // of the place's being empty: at first it is
    _Pragma("nounroll") for (u32 strip = 0; strip < weights.count; strip += fewStrips) {
      float total[fewStrips][NT][4] = {};
      weights.each(at, [&](const u8 *granules, u32 block, u32 unit) INLINE {
        u32 b[NT][2][4];
        UNROLL for (u32 n = 0; n < NT; n++)
          UNROLL for (u32 i = 0; i < 2; i++) load_matrix_at(b[n][i], row[n] + ((unit * 8 + i * 4 + lane / 8) << 4));
        UNROLL for (u32 j = 0; j < fewStrips; j++) {
          if (j > 0 && strip + j >= weights.count) break;
          u32 w[4][4];
          rounded<W>(w, granules + j * p.granule, block, p.shift, lane);
          UNROLL for (u32 k = 0; k < 4; k++)
            UNROLL for (u32 n = 0; n < NT; n++) mma_bf16(total[j][n], w[k], {b[n][k / 2][k % 2 * 2], b[n][k / 2][k % 2 * 2 + 1]});
        }
      });
      UNROLL for (u32 j = 0; j < fewStrips; j++) {
        if (j > 0 && strip + j >= weights.count) break;
        wait_phase(empty + (owner * fewPlaces + turn) * 8, phase);
        const bool own = C == 1 || owner == rank;
        UNROLL for (u32 n = 0; n < NT; n++) {
          const float(&of)[4] = total[j][n];
          const float sum[4] = {whole_sum<W>(of[0], 0), whole_sum<W>(of[1], 0), whole_sum<W>(of[2], 1), whole_sum<W>(of[3], 1)};
          const u32 here = to + (turn * place + n * fewPart) * 4;
          if (own) put_at(here, sum);
          else give(in_block(here, owner), sum, in_block(full + turn * 8, owner));
        }
        if (own) {
          sync_warp();
          arrive(full + turn * 8, lane == 0);
        }
        if (++turn == fewPlaces) turn = 0, phase ^= 1;
      }
    }
  }

  // finish is one of the four: a thread has an output of a row of each tile, and of gates that of its other half.
  METHOD void finish() const {
    dependency_wait();
    const u32 t = tid() - fewWorkers * 32, first = t / 4 % 4 * 2 + t % 2, output = t / 16 + t % 4 / 2 * 8; // as a lane has them
    const float *from = places + t;
    u32 turn = 0, phase = 0;
    float gate[NT];
    _Pragma("nounroll") for (u32 strip = 0; strip < weights.count; strip++) {
      const Strip s = stripAt(p, weights.strip(strip));
      const u32 m = s.first + output;
      const bool made = m < of(p.out, s.weight); // or the strip's end is beyond
      const u64 at = (u64)first * of(p.out, s.weight) + m, below = 8 * (u64)of(p.out, s.weight);
      if (C > 1 && t == 0) expect(full + turn * 8, (fewWorkers - team) * part * 4); // some of it may be there
      float before[NT], v[NT];
      UNROLL for (u32 n = 0; n < NT; n++) before[n] = made && n * 8 + first < p.rows && p.add >> s.weight & 1 ? of(p.f32, s.weight)[at + n * below] : 0;
      const float bias = made && of(p.bias, s.weight) ? of(p.bias, s.weight)[m] : 0;
      if constexpr (C == 1) wait_phase(full + turn * 8, phase);
      else wait_with(full + turn * 8, phase);
      const float *parts = from + turn * place;
      UNROLL for (u32 n = 0; n < NT; n++) {
        v[n] = parts[n * fewPart];
        UNROLL for (u32 w = 1; w < fewWorkers; w++) v[n] += parts[w * part + n * fewPart];
      }
      sync_warp();
      if constexpr (C == 1) arrive(empty + turn * 8, lane == 0);
      else arrive_at(empty + (rank * fewPlaces + turn) * 8, lane % C, lane < C);
      if (++turn == fewPlaces) turn = 0, phase ^= 1;
      UNROLL for (u32 n = 0; n < NT; n++) {
        if (of(p.bias, s.weight)) v[n] += bias;
        if (!p.gated) continue;
        if (s.weight == 0) gate[n] = v[n];
        else v[n] = gate[n] / (1 + exp(-gate[n])) * v[n];
      }
      if (p.gated && s.weight == 0) continue;
      const u32 to = p.gated ? 0 : s.weight;
      UNROLL for (u32 n = 0; n < NT; n++) {
        if (!made || n * 8 + first >= p.rows) continue;
        if (p.add >> to & 1) v[n] += before[n];
        if (float *f = of(p.f32, to)) f[at + n * below] = v[n];
        if (u16 *h = of(p.bf16, to)) h[at + n * below] = (u16)pack_bf16(v[n], 0);
      }
    }
  }
};

// The first clusters, more of them, have a strip more than the others, or a gate's and an up's.
template <class W, u32 NT, u32 C> DEV void few(const Projection &p, u32 more, u8 *shared) {
  using F = Few<W, NT, C>;
  launch_dependents();
  const u32 lane = tid() % 32, warp = shfl(tid() / 32, 0), each = p.gated ? 2 : 1, cluster = bid() / C, rank = C > 1 ? cluster_rank() : 0;
  StripCopies<W, fewStrips> weights{p};
  F s{p, weights, warp, lane, rank};
  // The strips of a team, or of the one that this block's finishers finish; gates and ups go in pairs.
  const u32 owner = warp < fewWorkers ? warp / F::team : rank, all = p.strips / each + (cluster < more);
  weights.first = (cluster * (p.strips / each) + (cluster < more ? cluster : more) + owner) * each;
  weights.count = all > owner ? (all - owner + C - 1) / C * each : 0, weights.apart = C;
  weights.share(rank * F::team + warp % F::team, fewWorkers);
  const u32 units = weights.depth * StripCopies<W, fewStrips>::perGranule;
  s.begin = rank * F::team * units / fewWorkers;
  // Rings, places, rows, barriers.
  s.places = (float *)(shared + fewWorkers * p.stages * fewStrips * p.granule);
  s.line = ((rank + 1) * F::team * units / fewWorkers - s.begin) * 128 + 16; // so that eight of them are read without conflicts
  s.x = (u8 *)(s.places + fewPlaces * F::place);
  const u32 barriers = shared_address(shared) + fewWorkers * p.stages * fewStrips * p.granule + fewPlaces * F::place * 4 + p.rows * ((units + C - 1) / C * 128 + 16 + (C > 1) * 128);
  s.full = barriers, s.empty = s.full + fewPlaces * 8, s.taken = s.empty + C * fewPlaces * 8;
  weights.ring = shared + warp % fewWorkers * p.stages * fewStrips * p.granule; // finishers have none
  weights.ringAt = shared_address(weights.ring);
  weights.barriers = s.taken + fewWorkers * 8 + warp * p.stages * 8;
  if (tid() < 32) {
    static_assert(F::team <= 32 && C * fewPlaces <= 32);
    if (lane < fewPlaces) barrier_init(s.full + lane * 8, C == 1 ? fewWorkers : F::team + 1); // what others give comes by bytes
    if (lane < C * fewPlaces) barrier_init(s.empty + lane * 8, fewFinishers);
    if (lane < F::team) barrier_init(s.taken + lane * 8, 1);
    barriers_made();
  }
  if constexpr (C > 1) {
    sync_warp();
    cluster_arrive();
    cluster_wait();
  } else {
    sync();
  }
  if (warp < fewWorkers) s.work();
  else s.finish();
  if constexpr (C > 1) { // nobody leaves while others may tell it that a place is empty
    cluster_arrive();
    cluster_wait();
  }
}

#define FEW(name, W, NT, C)                                                                                               \
  HOPPER_KERNEL((fewWorkers + fewFinishers) * 32)                                                                         \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1, u16 *h2,         \
            const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1, u32 out2, u32 add, u32 gated, \
            const u16 *x, u32 in, u32 rows, u32 granule, u32 shift, u32 stages, u32 strips, u32 more) {                   \
    DYNAMIC_SHARED(name, shared);                                                                                         \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated,         \
                 x, in, rows, granule, shift, stages, strips, 1, 0, nullptr, 0};                                          \
    few<W, NT, C>(p, more, shared);                                                                                       \
  }                                                                                                                       \
  REGISTER(name)
#define FEW_TILES(name, W, NT)    \
  FEW(name##_##NT, W, NT, 1)      \
  FEW(name##_##NT##_c2, W, NT, 2) \
  FEW(name##_##NT##_c4, W, NT, 4)
#define FEW_ALL(name, W) \
  FEW_TILES(name, W, 1)  \
  FEW_TILES(name, W, 2)
