// Projections of 2 to 16 rows by 4-bit weights that round, on compute capability 9.0, with the bits of
// stream.cuh: the same strips, the same 16 warps over slices of the inputs, the same products
// and order of sums.
//
// What differs is that a block stays on its multiprocessor, and that nobody waits for a strip to be
// added up: weights and rows come by the copy unit, rows once, to stay in shared memory,
// and four more warps take the sums of the sixteen out of places in turn.
//
// Where a block has no room for whole rows, a cluster of C shares their inputs. Then a strip is made
// by 16 / C warps of each block, and added up in one of them: the C strips that are at work at
// a time are each another one's.
//
// Rows go 8 a tile, of which there are NT.
#pragma once
#include "finish.cuh"

template <class W, u32 NT, u32 C> struct Few {
  using Sums = Finisher<W, NT, C>;
  static constexpr u32 team = Sums::team; // warps of a block that make a strip
  static constexpr u32 part = Sums::part, place = Sums::place, half = W::bytes / 2;
  static_assert(W::inputs == 128);

  const Projection &p;
  StripList strips; // of this team
  u32 warp, lane, rank;
  u32 begin, stop; // units of 64 inputs, of this warp
  u32 granule, pieces; // the first granule that they lie in, and how many
  u32 chunk, slot, ring, barriers; // granules, and bytes, of a stage; this warp's stages; their barriers
  u8 *x;               // rows: the block's part of the inputs
  u32 line;            // bytes of one
  u32 first;           // its first unit
  float *places;       // [fewPlaces, fewWorkers, NT, fewPart]
  u32 full, empty; // as the finishers have them
  u32 taken;       // barriers of each warp's rows

  // What is copied next: a chunk of a strip, from a granule of the warp's on.
  u32 next, piece;
  const u8 *source;

  METHOD void aim() {
    const Strip s = stripAt(p, strips.at(p, next));
    source = of(p.weights, s.weight) + ((u64)(s.first / 16) * (p.in / W::inputs) + granule) * p.granule;
  }

  // copy starts the next copies, where there are any. Of a granule that two warps share each copies its own
  // numbers, and all scales.
  METHOD void copy(u32 stage) {
    if (next >= strips.count) return;
    if (piece == 0) aim();
    const u32 rest = pieces - piece, n = rest < chunk ? rest : chunk, skip = piece == 0 && begin % 2 ? half : 0, scales = n == rest && stop % 2 ? p.granule - W::bytes : 0;
    const u32 all = n * p.granule - skip - (scales ? half : 0), bytes = all - scales;
    const u32 to = ring + stage * slot, barrier = barriers + stage * 8;
    copy_bulk_once(to + skip, source + skip, bytes, barrier, all);
    if (scales) copy_more_once(to + n * p.granule - scales, source + n * p.granule - scales, scales, barrier);
    source += n * p.granule;
    piece += n;
    if (n == rest) piece = 0, next++;
  }

  // work is one of the sixteen.
  METHOD void work() {
    const u32 owner = warp / team, mine = taken + warp % team * 8;
    if (elected()) {
      _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) barrier_init(barriers + i * 8, 1);
      barriers_made();
    }
    sync_warp();
    next = 0, piece = 0;
    // Weights never change: these need not wait for the kernel before.
    if (pieces > 0)
      _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) copy(i);
    dependency_wait();
    const u32 from = begin * 128, bytes = (stop - begin) * 128; // of a row
    if (bytes) {
      if (owner == 0) { // teams share the inputs
        if (lane == 0) expect(mine, p.rows * bytes);
        sync_warp();
        copy_if(lane < p.rows, shared_address(x) + lane * line + from - first * 128, (const u8 *)p.x + (u64)lane * p.in * 2 + from, bytes, mine);
      }
      wait_phase(mine, 0);
    }
    u32 row[NT]; // of rows that are not there the first one
    UNROLL for (u32 n = 0; n < NT; n++) row[n] = shared_address(x) + (n * 8 + lane % 8 < p.rows ? n * 8 + lane % 8 : 0) * line + (granule * 2 - first) * 128 + lane / 8 * 16;
    const u32 to = shared_address(places + (rank * team + warp % team) * part + lane * 4), apart = (64 / W::fold >> p.shift) * 64;
    Ring at{p.stages};
    u32 turn = 0, phase = 1; // of the place's being empty: at first it is
    _Pragma("nounroll") for (u32 strip = 0; strip < strips.count; strip++) {
      float total[NT][4] = {};
      auto unit = [&](u32 from, u32 inputs, u32 block) INLINE { // a half of a granule, by a unit of the rows
        const typename W::Numbers numbers{get_x4(from + block * half + lane * 16)};
        const u32 words = from + W::bytes + block * apart + lane / 4 * 8;
        u32 b[NT][2][4];
        UNROLL for (u32 n = 0; n < NT; n++)
          UNROLL for (u32 i = 0; i < 2; i++) load_matrix_at(b[n][i], row[n] + inputs + block * 128 + i * 64);
        TinyScales of;
        UNROLL for (u32 k = 0; k < 4; k++) {
          if (k * 16 % W::fold == 0) of.set(get_x2(words + (k * 16 / W::fold >> p.shift) * 64));
          u32 w[4];
          W::tiny(w, numbers, k);
          of.apply(w);
          UNROLL for (u32 n = 0; n < NT; n++) mma_bf16(total[n], w, {b[n][k / 2][k % 2 * 2], b[n][k / 2][k % 2 * 2 + 1]});
        }
      };
      _Pragma("nounroll") for (u32 i = 0; i < pieces; i += chunk) {
        wait_phase(barriers + at.stage * 8, at.phase);
        const u32 rest = pieces - i, n = rest < chunk ? rest : chunk;
        u32 from = ring + at.stage * slot, inputs = i * 256;
        _Pragma("nounroll") for (u32 j = i; j < i + n; j++, from += p.granule, inputs += 256) {
          const bool later = j == 0 && begin % 2, sooner = j + 1 == pieces && stop % 2; // one half is another warp's
          if (!later && !sooner) {
            UNROLL for (u32 block = 0; block < 2; block++) unit(from, inputs, block);
          } else {
            unit(from, inputs, later);
          }
        }
        sync_warp();
        copy(at.stage);
        at.next();
      }
      wait_phase(empty + (owner * fewPlaces + turn) * 8, phase);
      const bool own = C == 1 || owner == rank;
      UNROLL for (u32 n = 0; n < NT; n++) {
        const float(&of)[4] = total[n];
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
};

// The first clusters, more of them, have a strip more than the others, or a gate's and an up's.
template <class W, u32 NT, u32 C> DEV void few(const Projection &p, u32 more, u32 chunk, u8 *shared) {
  using F = Few<W, NT, C>;
  launch_dependents();
  const u32 lane = tid() % 32, warp = shfl(tid() / 32, 0), each = p.gated ? 2 : 1, cluster = bid() / C, rank = C > 1 ? cluster_rank() : 0;
  // The strips of a team, or of the one that this block's finishers finish; gates and ups go in pairs.
  const u32 owner = warp < fewWorkers ? warp / F::team : rank, all = p.strips / each + (cluster < more);
  const StripList strips{(cluster * (p.strips / each) + (cluster < more ? cluster : more) + owner) * each, all > owner ? (all - owner + C - 1) / C * each : 0, C};
  const u32 units = p.in / 64, slice = rank * F::team + warp % F::team, slot = chunk * p.granule;
  F s{p, strips, warp, lane, rank, slice * units / fewWorkers, (slice + 1) * units / fewWorkers};
  s.granule = s.begin / 2, s.pieces = s.begin == s.stop ? 0 : (s.stop + 1) / 2 - s.granule;
  s.chunk = chunk, s.slot = slot;
  s.first = rank * F::team * units / fewWorkers;
  // Rings, places, rows, barriers.
  s.places = (float *)(shared + fewWorkers * p.stages * slot);
  s.line = ((rank + 1) * F::team * units / fewWorkers - s.first) * 128 + 16; // so that eight of them are read without conflicts
  s.x = (u8 *)(s.places + fewPlaces * F::place);
  const u32 fixed = shared_address(shared) + fewWorkers * p.stages * slot + fewPlaces * F::place * 4 + p.rows * ((units + C - 1) / C * 128 + 16 + (C > 1) * 128);
  s.full = fixed, s.empty = s.full + fewPlaces * 8, s.taken = s.empty + C * fewPlaces * 8;
  s.ring = shared_address(shared) + warp % fewWorkers * p.stages * slot; // finishers have none
  s.barriers = s.taken + fewWorkers * 8 + warp * p.stages * 8;
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
  else Finisher<W, NT, C>{p, strips, lane, rank, s.places, s.full, s.empty}.finish();
}

#define FEW(name, W, NT, C)                                                                                               \
  HOPPER_KERNEL((fewWorkers + fewFinishers) * 32)                                                                         \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1, u16 *h2,         \
            const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1, u32 out2, u32 add, u32 gated, \
            const u16 *x, u32 in, u32 rows, u32 granule, u32 shift, u32 stages, u32 strips, u32 more, u32 chunk) {        \
    DYNAMIC_SHARED(name, shared);                                                                                         \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated,         \
                 x, in, rows, granule, shift, stages, strips, 1, nullptr, 0};                                             \
    few<W, NT, C>(p, more, chunk, shared);                                                                                 \
  }                                                                                                                       \
  REGISTER(name)
#define FEW_TILES(name, W, NT)    \
  FEW(name##_##NT, W, NT, 1)      \
  FEW(name##_##NT##_c2, W, NT, 2) \
  FEW(name##_##NT##_c4, W, NT, 4) \
  FEW(name##_##NT##_c8, W, NT, 8)
#define FEW_ALL(name, W) \
  FEW_TILES(name, W, 1)  \
  FEW_TILES(name, W, 2)
