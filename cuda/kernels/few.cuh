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
#include "finish.cuh"
#include "strip_copies.cuh"

constexpr u32 fewStrips = 2; // of a warp at a time

template <class W, u32 NT, u32 C> struct Few {
  using Sums = Finisher<W, NT, C>;
  static constexpr u32 team = Sums::team; // warps of a block that make a strip
  static constexpr u32 part = Sums::part, place = Sums::place;

  const Projection &p;
  StripCopies<W, fewStrips> &weights;
  u32 warp, lane, rank;
  u8 *x;               // rows: the block's part of the inputs
  u32 line;            // bytes of one
  u32 begin;           // its first unit
  float *places;       // [fewPlaces, fewWorkers, NT, fewPart]
  u32 full, empty; // as the finishers have them
  u32 taken;       // barriers of each warp's rows

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
    _Pragma("nounroll") for (u32 strip = 0; strip < weights.strips.count; strip += fewStrips) {
      float total[fewStrips][NT][4] = {};
      weights.each(at, [&](const u8 *granules, u32 block, u32 unit) INLINE {
        u32 b[NT][2][4];
        UNROLL for (u32 n = 0; n < NT; n++)
          UNROLL for (u32 i = 0; i < 2; i++) load_matrix_at(b[n][i], row[n] + ((unit * 8 + i * 4 + lane / 8) << 4));
        UNROLL for (u32 j = 0; j < fewStrips; j++) {
          if (j > 0 && strip + j >= weights.strips.count) break;
          u32 w[4][4];
          rounded<W>(w, granules + j * p.granule, block, p.shift, lane);
          UNROLL for (u32 k = 0; k < 4; k++)
            UNROLL for (u32 n = 0; n < NT; n++) mma_bf16(total[j][n], w[k], {b[n][k / 2][k % 2 * 2], b[n][k / 2][k % 2 * 2 + 1]});
        }
      });
      UNROLL for (u32 j = 0; j < fewStrips; j++) {
        if (j > 0 && strip + j >= weights.strips.count) break;
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
  weights.strips = {(cluster * (p.strips / each) + (cluster < more ? cluster : more) + owner) * each, all > owner ? (all - owner + C - 1) / C * each : 0, C};
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
  else Finisher<W, NT, C>{p, weights.strips, lane, rank, s.places, s.full, s.empty}.finish();
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
