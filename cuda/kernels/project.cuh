// Projections of few rows on tensor cores: dst[rows, out] = x[rows, in]·wᵀ.
//
// The weights are the A operand (16 outputs), rows of x the columns of B, 8 a
// tile: every tile's arithmetic is the same whatever their number, and so a
// row's bits do not depend on the rows beside it.
//
// Work is a sequence of units, each 256 outputs by a granule of inputs; the
// units of a tile of 256 outputs lie side by side, and each block takes an
// equal range of them. Eight warps take 32 outputs each. A ring in shared memory
// holds units on their way: it is filled with weights before the kernel before
// this one has ended. A tile that more than one block has a part of is summed
// by the last to arrive, in the order of the parts.
#pragma once
#include "project_finish.cuh"
#include "project_multiply.cuh"

// wait_groups is copy_wait with a number known at run time.
DEV void wait_groups(u32 n) {
  if (n >= 6) copy_wait<6>();
  else if (n == 5) copy_wait<5>();
  else if (n == 4) copy_wait<4>();
  else if (n == 3) copy_wait<3>();
  else if (n == 2) copy_wait<2>();
  else if (n == 1) copy_wait<1>();
  else copy_wait<0>();
}

template <class W, u32 NT, bool wide> struct Projector {
  using M = Multiplier<W, NT, wide>;
  static constexpr u32 rowsTile = M::rowsTile, xBytes = M::xBytes;

  const Projection &p;
  M m;
  Finisher<NT> end;
  u32 depth; // units of a tile

  // The unit that is loaded next.
  u32 loadTile, loadUnit;
  const u8 *source[2]; // this lane's first chunk of either strip

  // strip is where strip j of this warp begins among the rows of its weight.
  METHOD u32 strip(Tile tile, u32 j) const { return p.gated ? tile.first + m.warp * 16 : tile.first + m.warp * 32 + j * 16; }
  METHOD u32 weightOf(Tile tile, u32 j) const { return p.gated ? j : tile.weight; }

  // aim points source at the strips of loadTile. Strips beyond the outputs read
  // the last one again; nobody stores what they give.
  METHOD void aim() {
    Tile tile = tileAt(p, loadTile);
    UNROLL for (u32 j = 0; j < 2; j++) {
      u32 w = weightOf(tile, j), out = of(p.out, w), at = strip(tile, j);
      const u8 *data = of(p.weights, w);
      if constexpr (M::packed) {
        u32 strips = (out + 15) / 16, s = at / 16;
        source[j] = data + (u64)(s < strips ? s : strips - 1) * depth * p.granule + m.lane * 16;
      } else {
        source[j] = data + ((u64)at * p.in + m.lane % 8 * 8) * 2;
      }
    }
  }

  // loadWeights starts the copy of a unit's weights: each warp its own.
  METHOD void loadWeights(u32 slot) {
    u8 *to = m.aRing + slot * (16 * p.granule) + m.warp * 2 * p.granule;
    if constexpr (M::packed) {
      u64 at = (u64)loadUnit * p.granule;
      u32 chunks = p.granule / 16;
      UNROLL for (u32 j = 0; j < 2; j++) {
        const u8 *from = source[j] + at;
        u8 *into = to + j * p.granule + m.lane * 16;
        UNROLL for (u32 c = 0; c < W::bytes / 512; c++) copy_async(into + c * 512, from + c * 512);
        constexpr u32 done = W::bytes / 512 * 32;
        if (done + m.lane < chunks) copy_async(into + done * 16, from + done * 16);
      }
    } else {
      Tile tile = tileAt(p, loadTile);
      u32 k = loadUnit * W::inputs + m.lane % 8 * 8;
      UNROLL for (u32 j = 0; j < 2; j++) {
        u32 left = of(p.out, weightOf(tile, j)) - 1 - strip(tile, j); // wraps where the strip is beyond
        bool beyond = strip(tile, j) >= of(p.out, weightOf(tile, j));
        UNROLL for (u32 i = 0; i < 4; i++) {
          u32 row = i * 4 + m.lane / 8;
          bool there = !beyond && row <= left && k < p.in;
          const u8 *from = there ? source[j] + ((u64)row * p.in + loadUnit * W::inputs) * 2 : of(p.weights, 0);
          copy_async(to + (j * 16 + row) * 128 + ((m.lane % 8 ^ row % 8) << 4), from, there ? 16 : 0);
        }
      }
    }
  }

  // loadRows starts the copy of a unit's inputs, for all warps: 64 inputs of
  // each row are 128 bytes, permuted as Rows are.
  METHOD void loadRows(u32 slot, u32 unit) {
    constexpr u32 chunks = xBytes / 16, perRow = W::inputs / 8;
    UNROLL for (u32 i = 0; i < chunks; i += projectThreads) {
      u32 c = i + tid();
      if (chunks % projectThreads != 0 && c >= chunks) break;
      u32 row = c / perRow, chunk = c % perRow, k = unit * W::inputs + chunk * 8;
      bool there = row < p.rows && k < p.in;
      copy_async(m.xRing + slot * xBytes + chunk / 8 * (rowsTile * 128) + row * 128 + ((chunk % 8 ^ row % 8) << 4),
                 there ? p.x + (u64)row * p.in + k : p.x, there ? 16 : 0);
    }
  }

  METHOD void run() {
    launch_dependents();
    u32 units = tileCount(p) * depth, stages = p.stages;
    u32 first = bid() * units / gdim(), last = (bid() + 1) * units / gdim();
    if (first == last) return;
    u32 tile = first / depth, unit = first % depth; // at work
    loadTile = tile;
    loadUnit = unit;
    float total[2][NT][4] = {};
    // In each round one unit is loaded, and the one stages-1 before it multiplied.
    u32 load = first, loadSlot = 0, slot = 0;
    _Pragma("nounroll") for (i32 round = 1 - (i32)stages; first + round != last; round++) {
      if (round == 0) {
        // Weights never change: their copies did not wait for the kernel before.
        dependency_wait();
        _Pragma("nounroll") for (u32 s = 0, u = unit; s + 1 < stages; s++) {
          if (first + s < last) loadRows(s, u);
          copy_commit();
          u = u + 1 == depth ? 0 : u + 1;
        }
        if constexpr (W::sums) {
          wait_groups(stages - 2);
          sync();
          m.sumRows(0, 0);
        }
      }
      if (round >= 0) {
        // The next unit's sums are made beside this one's products.
        wait_groups(W::sums ? stages - 3 : stages - 2);
        if constexpr (wide) Wide<NT, 1>::fence();
        sync();
      }
      if (load != last) {
        if (load == first || loadUnit == 0) aim();
        loadWeights(loadSlot);
        if (round >= 0) loadRows(loadSlot, loadUnit);
        load++;
        if (++loadUnit == depth) loadUnit = 0, loadTile++;
      }
      if (++loadSlot == stages) loadSlot = 0;
      if (round < 0) continue;
      copy_commit();
      u32 next = slot + 1 == stages ? 0 : slot + 1;
      if constexpr (W::sums)
        if (first + round + 1 != last) m.sumRows(next, (round + 1) % 2);
      m.multiply(total, slot, round % 2);
      slot = next;
      if (++unit == depth || first + round + 1 == last) {
        end.finish(total, tile, units);
        UNROLL for (u32 j = 0; j < 2; j++)
          UNROLL for (u32 nt = 0; nt < NT; nt++)
            UNROLL for (u32 i = 0; i < 4; i++) total[j][nt][i] = 0;
        unit = 0;
        tile++;
      }
    }
  }
};

// Two blocks share a multiprocessor where rows are few: this kernel's and the
// next one's, whose weights are then already on their way.
#ifdef __NVPTX__
#define PROJECT_KERNEL(blocks) extern "C" __attribute__((global, launch_bounds(256, blocks)))
#else
#define PROJECT_KERNEL(blocks) KERNEL(256)
#endif

#define PROJECT(name, W, NT, wide)                                                                                        \
  PROJECT_KERNEL(NT <= 4 ? 2 : 1)                                                                                         \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1, u16 *h2,         \
            const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1, u32 out2, u32 add, u32 gated, \
            const u16 *x, u32 in, u32 rows, u32 granule, u32 shift, u32 stages, float *partials, u32 *tickets) {          \
    DYNAMIC_SHARED(name, shared);                                                                                         \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated,         \
                 x, in, rows, granule, shift, stages, partials, tickets};                                                 \
    project<W, NT, wide>(p, shared);                                                                                      \
  }                                                                                                                       \
  REGISTER(name)

template <class W, u32 NT, bool wide> DEV void project(const Projection &p, u8 *shared) {
  using M = Multiplier<W, NT, wide>;
  if constexpr (wide) shared += -shared_address(shared) & 1023; // the lines that the warpgroup's instruction permutes
  u8 *a = shared + p.stages * M::xBytes;
  float *sums = (float *)(a + p.stages * 16 * p.granule);
  u32 *ticket = (u32 *)(sums + (W::sums ? 2 * M::folds * M::rowsTile : 0));
  u32 lane = tid() % 32, depth = (p.in + W::inputs - 1) / W::inputs;
  Projector<W, NT, wide> projector{p, {tid() / 32, lane, lane / 4, lane % 4, p.granule, p.shift, shared, a, sums}, {p, depth, ticket}, depth, 0, 0, {}};
  projector.run();
}

#define PROJECT_ALL(name, W)       \
  PROJECT(name##_1, W, 1, false)   \
  PROJECT(name##_2, W, 2, false)   \
  PROJECT(name##_3, W, 3, false)   \
  PROJECT(name##_4, W, 4, false)   \
  PROJECT(name##_6, W, 6, false)   \
  PROJECT(name##_8, W, 8, false)   \
  PROJECT(name##_16, W, 16, false)
