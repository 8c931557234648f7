// Copies of strips whose inputs are split among warps, on compute capability 9.0: a warp's part of a
// strip lies in one piece, which the copy unit brings, a granule of each of G strips a stage.
#pragma once
#include "hopper.cuh"
#include "strips.cuh"

template <class W, u32 G> struct StripCopies {
  static constexpr u32 perGranule = W::inputs / 64;

  const Projection &p;
  u32 depth;           // granules of a strip
  u32 begin, stop;     // units of 64 inputs, of this warp
  u32 granule, pieces; // the first granule, and how many
  StripList strips;    // that it goes through
  u8 *ring;            // this warp's stages
  u32 ringAt, barriers;

  // What is copied next: G strips from the i-th on.
  u32 nextStrip, nextPiece;
  const u8 *source[G];

  // share gives this warp of so many its part of the inputs.
  METHOD void share(u32 warp, u32 warps) {
    depth = (p.in + W::inputs - 1) / W::inputs;
    const u32 units = depth * perGranule;
    begin = warp * units / warps;
    stop = (warp + 1) * units / warps;
    granule = begin / perGranule;
    pieces = begin == stop ? 0 : (stop + perGranule - 1) / perGranule - granule;
  }

  METHOD void aim() {
    UNROLL for (u32 j = 0; j < G; j++) {
      const Strip s = stripAt(p, strips.at(p, nextStrip + j));
      source[j] = of(p.weights, s.weight) + ((u64)(s.first / 16) * depth + granule) * p.granule;
    }
  }

  // start makes the barriers, and starts as many copies as there are stages. Weights never
  // change: these need not wait for the kernel before.
  METHOD void start() {
    nextStrip = 0, nextPiece = 0;
    if (elected()) {
      _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) barrier_init(barriers + i * 8, 1);
      barriers_made();
    }
    sync_warp();
    if (pieces > 0)
      _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) copy(i);
  }

  // copy starts the next copies, where there are any.
  METHOD void copy(u32 stage) {
    if (nextStrip >= strips.count) return;
    if (nextPiece == 0) aim();
    const u32 barrier = barriers + stage * 8, half = W::bytes / 2;
    const bool later = perGranule == 2 && nextPiece == 0 && begin % 2, sooner = perGranule == 2 && nextPiece + 1 == pieces && stop % 2;
    const u32 each = later || sooner ? p.granule - half : p.granule, all = nextStrip + G <= strips.count ? G * each : each;
    // Of a granule of two units that two warps share each copies its own, and all scales.
    const u32 skip = later ? half : 0, bytes = later ? p.granule - half : sooner ? half : p.granule;
    static_assert(G <= 2);
    UNROLL for (u32 j = 0; j < G; j++) {
      if (j > 0 && nextStrip + j >= strips.count) break;
      const u32 to = ringAt + (stage * G + j) * p.granule;
      const u8 *from = source[j];
      put(j, to + skip, from + skip, bytes, barrier, all);
      if (sooner) copy_more(to + 2 * half, from + 2 * half, p.granule - 2 * half, barrier);
      source[j] += p.granule;
    }
    if (++nextPiece == pieces) {
      nextPiece = 0;
      nextStrip += G;
    }
  }
  // For one row (G is 1) the hint costs more than it gains.
  METHOD static void put(u32 j, u32 to, const u8 *from, u32 bytes, u32 barrier, u32 all) {
    if (G == 1) copy_bulk(to, from, bytes, barrier, all);
    else if (j == 0) copy_bulk_once(to, from, bytes, barrier, all);
    else copy_more_once(to, from, bytes, barrier);
  }

  // each calls f(granules, block of them, unit) for the warp's units of the strips that are there next.
  template <class F> METHOD void each(Ring &at, F f) {
    _Pragma("nounroll") for (u32 i = 0; i < pieces; i++) {
      wait_phase(barriers + at.stage * 8, at.phase);
      const u8 *from = ring + at.stage * G * p.granule;
      const u32 unit = (granule + i) * perGranule;
      if (perGranule == 1) f(from, 0, unit);
      else if (unit >= begin && unit + 1 < stop) {
        UNROLL for (u32 block = 0; block < perGranule; block++) f(from, block, unit + block);
      } else {
        const u32 block = unit < begin; // one half is another warp's
        f(from, block, unit + block);
      }
      sync_warp();
      copy(at.stage);
      at.next();
    }
  }
};
