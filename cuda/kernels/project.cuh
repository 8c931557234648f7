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
#include "packed.cuh"

constexpr u32 projectThreads = 256, tileOutputs = 256;

// Rows are bf16 weights as stored, [out, in]: 64 inputs of 16 rows are a
// "granule" of 128 bytes a row, 16-byte chunks permuted by the row's last bits.
struct Rows {
  static constexpr u32 inputs = 64, bytes = 2048, fold = 64;
  static constexpr bool sums = false;
  struct Numbers {};
};

// Projection is what a launch computes; the same for every block.
struct Projection {
  const u8 *weights[3];
  float *f32[3];
  u16 *bf16[3];
  const float *bias[3];
  u32 out[3];
  u32 add;   // bit i: add to f32[i]
  u32 gated; // weights 0 and 1 are gate and up of one result
  const u16 *x;
  u32 in, rows, granule, shift, stages;
  float *partials;
  u32 *tickets;
};

// Tile is 256 outputs: of one weight, or 128 of each of gate and up.
struct Tile {
  u32 weight, first; // first output
};

DEV u32 tilesOf(const Projection &p, u32 i) { return (p.out[i] + tileOutputs - 1) / tileOutputs; }
DEV u32 tileCount(const Projection &p) {
  return p.gated ? (p.out[0] + tileOutputs / 2 - 1) / (tileOutputs / 2) : tilesOf(p, 0) + tilesOf(p, 1) + tilesOf(p, 2);
}
DEV Tile tileAt(const Projection &p, u32 tile) {
  if (p.gated) return {0, tile * (tileOutputs / 2)};
  u32 a = tilesOf(p, 0), b = a + tilesOf(p, 1);
  if (tile < a) return {0, tile * tileOutputs};
  if (tile < b) return {1, (tile - a) * tileOutputs};
  return {2, (tile - b) * tileOutputs};
}
// of picks without indexing, which would put the arrays into memory.
template <class T> DEV T of(const T (&v)[3], u32 i) { return i == 0 ? v[0] : i == 1 ? v[1] : v[2]; }

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

template <class W, u32 NT> struct Projector {
  static constexpr u32 rowsTile = NT * 8;
  static constexpr u32 xBytes = rowsTile * W::inputs * 2; // of a stage
  static constexpr u32 folds = W::inputs / W::fold;       // of a unit
  static constexpr bool packed = W::bytes != Rows::bytes;

  const Projection &p;
  u32 warp, lane, g, t;
  u32 depth; // units of a tile
  u32 aBytes;
  u8 *xRing, *aRing;
  float *sums; // [2][folds][rowsTile]
  u32 *ticket;

  // The unit that is loaded next.
  u32 loadTile, loadUnit;
  const u8 *source[2]; // this lane's first chunk of either strip

  // strip is where strip j of this warp begins among the rows of its weight.
  METHOD u32 strip(Tile tile, u32 j) const { return p.gated ? tile.first + warp * 16 : tile.first + warp * 32 + j * 16; }
  METHOD u32 weightOf(Tile tile, u32 j) const { return p.gated ? j : tile.weight; }

  // aim points source at the strips of loadTile. Strips beyond the outputs read
  // the last one again; nobody stores what they give.
  METHOD void aim() {
    Tile tile = tileAt(p, loadTile);
    UNROLL for (u32 j = 0; j < 2; j++) {
      u32 w = weightOf(tile, j), out = of(p.out, w), at = strip(tile, j);
      const u8 *data = of(p.weights, w);
      if constexpr (packed) {
        u32 strips = (out + 15) / 16, s = at / 16;
        source[j] = data + (u64)(s < strips ? s : strips - 1) * depth * p.granule + lane * 16;
      } else {
        source[j] = data + ((u64)at * p.in + lane % 8 * 8) * 2;
      }
    }
  }

  // loadWeights starts the copy of a unit's weights: each warp its own.
  METHOD void loadWeights(u32 slot) {
    u8 *to = aRing + slot * aBytes + warp * 2 * p.granule;
    if constexpr (packed) {
      u64 at = (u64)loadUnit * p.granule;
      u32 chunks = p.granule / 16;
      UNROLL for (u32 j = 0; j < 2; j++) {
        const u8 *from = source[j] + at;
        u8 *into = to + j * p.granule + lane * 16;
        UNROLL for (u32 c = 0; c < W::bytes / 512; c++) copy_async(into + c * 512, from + c * 512);
        constexpr u32 done = W::bytes / 512 * 32;
        if (done + lane < chunks) copy_async(into + done * 16, from + done * 16);
      }
    } else {
      Tile tile = tileAt(p, loadTile);
      u32 k = loadUnit * W::inputs + lane % 8 * 8;
      UNROLL for (u32 j = 0; j < 2; j++) {
        u32 left = of(p.out, weightOf(tile, j)) - 1 - strip(tile, j); // wraps where the strip is beyond
        bool beyond = strip(tile, j) >= of(p.out, weightOf(tile, j));
        UNROLL for (u32 i = 0; i < 4; i++) {
          u32 row = i * 4 + lane / 8;
          bool there = !beyond && row <= left && k < p.in;
          const u8 *from = there ? source[j] + ((u64)row * p.in + loadUnit * W::inputs) * 2 : of(p.weights, 0);
          copy_async(to + (j * 16 + row) * 128 + ((lane % 8 ^ row % 8) << 4), from, there ? 16 : 0);
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
      copy_async(xRing + slot * xBytes + chunk / 8 * (rowsTile * 128) + row * 128 + ((chunk % 8 ^ row % 8) << 4),
                 there ? p.x + (u64)row * p.in + k : p.x, there ? 16 : 0);
    }
  }

  // operand loads 32 inputs of 8 rows as two B operands: half of a block of 64.
  METHOD void operand(u32 (&b)[4], u32 slot, u32 block, u32 nt, u32 half) const {
    load_matrix(b, xRing + slot * xBytes + block * (rowsTile * 128) + (nt * 8 + lane % 8) * 128 + (((half * 4 + lane / 8) ^ lane % 8) << 4));
  }

  // sumRows puts the sums of x over each fold of a unit into shared memory:
  // products with ones, which a warp has in the columns of its results.
  METHOD void sumRows(u32 slot, u32 parity) {
    constexpr u32 steps = W::fold / 16; // of 16 inputs
    for (u32 task = warp; task < NT * folds; task += 8) {
      u32 nt = task % NT, f = task / NT, k = f * W::fold;
      float acc[4] = {};
      UNROLL for (u32 s = 0; s < steps; s += 2) {
        u32 b[4], one[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
        operand(b, slot, (k + s * 16) / 64, nt, (k + s * 16) % 64 / 32);
        mma_bf16(acc, one, {b[0], b[1]});
        mma_bf16(acc, one, {b[2], b[3]});
      }
      if (lane < 4) *(f32x2 *)(sums + (parity * folds + f) * rowsTile + nt * 8 + t * 2) = {acc[0], acc[1]};
    }
  }

  // multiply adds a unit's products to total.
  METHOD void multiply(float (&total)[2][NT][4], u32 slot, u32 parity) const {
    const u8 *a = aRing + slot * aBytes + warp * 2 * p.granule;
    _Pragma("nounroll") for (u32 block = 0; block < W::inputs / 64; block++) {
      if constexpr (packed) {
        typename W::Numbers numbers[2];
        UNROLL for (u32 j = 0; j < 2; j++) numbers[j] = W::load(a + j * p.granule, block, lane);
        UNROLL for (u32 k = 0; k < 64; k += span) multiplyPacked(total, numbers, a, slot, parity, block, k);
      } else {
        UNROLL for (u32 k = 0; k < 64; k += span) multiplyRows(total, a, slot, block, k);
      }
    }
  }

  // Inputs that are decoded at a time, and tiles of rows that are multiplied at
  // a time: chains of products side by side.
  static constexpr u32 span = packed && W::fold > 32 ? 64 : 32, pair = NT % 2 == 0 && NT < 16 ? 2 : 1;

  METHOD void multiplyRows(float (&total)[2][NT][4], const u8 *a, u32 slot, u32 block, u32 k) const {
    u32 w[2][span / 16][4];
    UNROLL for (u32 j = 0; j < 2; j++)
      UNROLL for (u32 s = 0; s < span / 16; s++) {
        u32 row = lane % 16, chunk = k / 8 + s * 2 + lane / 16;
        load_matrix(w[j][s], a + (j * 16 + row) * 128 + ((chunk ^ row % 8) << 4));
      }
    UNROLL for (u32 nt = 0; nt < NT; nt += pair) {
      u32 b[pair][4];
      UNROLL for (u32 n = 0; n < pair; n++) operand(b[n], slot, block, nt + n, k / 32);
      UNROLL for (u32 s = 0; s < 2; s++)
        UNROLL for (u32 n = 0; n < pair; n++)
          UNROLL for (u32 j = 0; j < 2; j++) mma_bf16(total[j][nt + n], w[j][s], {b[n][s * 2], b[n][s * 2 + 1]});
    }
  }

  METHOD void multiplyPacked(float (&total)[2][NT][4], const typename W::Numbers (&numbers)[2], const u8 *a, u32 slot, u32 parity, u32 block, u32 k) const {
    constexpr u32 parts = span / W::fold, steps = W::fold / 16;
    u32 w[2][span / 16][4];
    Affine scale[2][parts];
    UNROLL for (u32 j = 0; j < 2; j++) {
      UNROLL for (u32 s = 0; s < span / 16; s++) W::decode(w[j][s], numbers[j], k / 16 + s);
      UNROLL for (u32 f = 0; f < parts; f++) {
        scale[j][f] = W::scales(a + j * p.granule, (block * 64 + k) / W::fold + f, p.shift, g);
        UNROLL for (u32 i = 0; i < 2; i++) scale[j][f].bias[i] = fma(scale[j][f].scale[i], -(float)W::offset, scale[j][f].bias[i]);
      }
    }
    UNROLL for (u32 nt = 0; nt < NT; nt += pair) {
      u32 b[pair][span / 32][4];
      UNROLL for (u32 n = 0; n < pair; n++)
        UNROLL for (u32 half = 0; half < span / 32; half++) operand(b[n][half], slot, block, nt + n, k / 32 + half);
      UNROLL for (u32 f = 0; f < parts; f++) {
        float acc[pair][2][4] = {};
        UNROLL for (u32 s = f * steps; s < f * steps + steps; s++)
          UNROLL for (u32 n = 0; n < pair; n++)
            UNROLL for (u32 j = 0; j < 2; j++) mma_bf16(acc[n][j], w[j][s], {b[n][s / 2][s % 2 * 2], b[n][s / 2][s % 2 * 2 + 1]});
        UNROLL for (u32 n = 0; n < pair; n++) {
          f32x2 sum = {};
          if constexpr (W::sums) sum = *(const f32x2 *)(sums + (parity * folds + (block * 64 + k) / W::fold + f) * rowsTile + (nt + n) * 8 + t * 2);
          UNROLL for (u32 j = 0; j < 2; j++)
            UNROLL for (u32 i = 0; i < 4; i++) {
              float &to = total[j][nt + n][i];
              to = fma(scale[j][f].scale[i / 2], acc[n][j][i], to);
              if constexpr (W::sums) to = fma(scale[j][f].bias[i / 2], i % 2 ? sum.y : sum.x, to);
            }
        }
      }
    }
  }

  METHOD float *partial(u32 slot) const { return p.partials + (u64)slot * (tileOutputs * rowsTile); }

  // finish gives this block's part of a tile to the workspace, [rows][256]. The
  // last of the tile's blocks sums the parts in their order and stores the tile.
  METHOD void finish(float (&total)[2][NT][4], u32 index, u32 units) const {
    // Block b has the units from b·units/blocks on, and at most two parts of
    // tiles that it shares: the tile it begins in is slot 2b, another one 2b+1.
    u32 blocks = gdim(), begin = index * depth;
    u32 from = ((begin + 1) * blocks - 1) / units, to = ((begin + depth) * blocks - 1) / units;
    u32 fromSlot = 2 * from + (from == to || from * units / blocks < begin ? 1 : 0);
    float *mine = partial(bid() == from ? fromSlot : 2 * bid()) + t * 2 * tileOutputs + g + (p.gated ? warp * 16 : warp * 32);
    u32 next = p.gated ? tileOutputs / 2 : 16; // strip 1
    UNROLL for (u32 nt = 0; nt < NT; nt++)
      UNROLL for (u32 j = 0; j < 2; j++)
        UNROLL for (u32 i = 0; i < 4; i++) mine[(nt * 8 + i % 2) * tileOutputs + i / 2 * 8 + j * next] = total[j][nt][i];
    sync();
    if (from != to) {
      if (tid() == 0) {
        fence();
        *ticket = atomic_add(p.tickets + index, 1);
        fence();
      }
      sync();
      if (*ticket != to - from) return;
      if (tid() == 0) p.tickets[index] = 0;
    }
    Tile tile = tileAt(p, index);
    // An item is four outputs of a row: items at a time by parts at a time are
    // on their way together.
    constexpr u32 items = NT == 1 ? 2 : 4, parts = 16 / items;
    u32 columns = p.gated ? 5 : 6, count = p.rows << columns; // log2 of the items of a row
    _Pragma("nounroll") for (u32 first = tid(); first < count; first += items * projectThreads) {
      f32x4 v[items] = {}, gates[items];
      _Pragma("nounroll") for (u32 half = 0; half <= p.gated; half++) {
        UNROLL for (u32 n = 0; n < items; n++) gates[n] = v[n], v[n] = {};
        sum<items, parts>(v, first, columns, from, to, fromSlot, half * (tileOutputs / 2));
      }
      if (p.gated) UNROLL for (u32 n = 0; n < items; n++) v[n] = gate(gates[n], v[n], tile, first + n * projectThreads);
      UNROLL for (u32 n = 0; n < items; n++)
        if (u32 item = first + n * projectThreads; item < count) store(v[n], tile, item >> columns, tile.first + (item & ((1 << columns) - 1)) * 4);
    }
  }

  // sum adds up the parts of some items, in the order of the blocks.
  template <u32 items, u32 parts> METHOD void sum(f32x4 (&v)[items], u32 first, u32 columns, u32 from, u32 to, u32 fromSlot, u32 shift) const {
    _Pragma("nounroll") for (u32 b = from; b <= to; b += parts) {
      f32x4 part[parts][items];
      UNROLL for (u32 c = 0; c < parts; c++) {
        if (b + c > to) continue;
        const float *at = partial(b + c == from ? fromSlot : 2 * (b + c)) + shift;
        UNROLL for (u32 n = 0; n < items; n++) {
          u32 item = first + n * projectThreads;
          if (item < p.rows << columns) part[c][n] = load_l2_x4(at + (item >> columns) * tileOutputs + (item & ((1 << columns) - 1)) * 4);
        }
      }
      UNROLL for (u32 c = 0; c < parts; c++) {
        if (b + c > to) continue;
        UNROLL for (u32 n = 0; n < items; n++) {
          v[n].x += part[c][n].x;
          v[n].y += part[c][n].y;
          v[n].z += part[c][n].z;
          v[n].w += part[c][n].w;
        }
      }
    }
  }

  // biased is v with the biases of four outputs from m on, of which some may not exist.
  METHOD f32x4 biased(f32x4 v, const float *bias, u32 m, u32 out) const {
    if (!bias) return v;
    if (m < out) v.x += bias[m];
    if (m + 1 < out) v.y += bias[m + 1];
    if (m + 2 < out) v.z += bias[m + 2];
    if (m + 3 < out) v.w += bias[m + 3];
    return v;
  }

  // gate is silu(v)·up.
  METHOD f32x4 gate(f32x4 v, f32x4 up, Tile tile, u32 item) const {
    u32 m = tile.first + item % (tileOutputs / 8) * 4;
    v = biased(v, p.bias[0], m, p.out[0]);
    up = biased(up, p.bias[1], m, p.out[0]);
    return {v.x / (1 + exp(-v.x)) * up.x, v.y / (1 + exp(-v.y)) * up.y, v.z / (1 + exp(-v.z)) * up.z, v.w / (1 + exp(-v.w)) * up.w};
  }

  // store writes four outputs of a row.
  METHOD void store(f32x4 v, Tile tile, u32 row, u32 m) const {
    u32 out = of(p.out, tile.weight);
    if (m >= out) return;
    float *f = of(p.f32, tile.weight);
    u16 *h = of(p.bf16, tile.weight);
    bool add = p.add >> tile.weight & 1;
    u64 at = (u64)row * out + m;
    if (!p.gated) v = biased(v, of(p.bias, tile.weight), m, out);
    if (out % 4 == 0) {
      if (add) {
        f32x4 before = *(f32x4 *)(f + at);
        v = {before.x + v.x, before.y + v.y, before.z + v.z, before.w + v.w};
      }
      if (f) *(f32x4 *)(f + at) = v;
      if (h) *(u32x2 *)(h + at) = {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)};
      return;
    }
    _Pragma("nounroll") for (u32 i = 0; i < 4 && m + i < out; i++) {
      float one = i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
      if (add) one += f[at + i];
      if (f) f[at + i] = one;
      if (h) h[at + i] = (u16)pack_bf16(one, 0);
    }
  }

  METHOD void run() {
    launch_dependents();
    u32 units = tileCount(p) * depth, stages = p.stages;
    u32 first = bid() * units / gdim(), end = (bid() + 1) * units / gdim();
    if (first == end) return;
    u32 tile = first / depth, unit = first % depth; // at work
    loadTile = tile;
    loadUnit = unit;
    float total[2][NT][4] = {};
    // In each round one unit is loaded, and the one stages-1 before it multiplied.
    u32 load = first, loadSlot = 0, slot = 0;
    _Pragma("nounroll") for (i32 round = 1 - (i32)stages; first + round != end; round++) {
      if (round == 0) {
        // Weights never change: their copies did not wait for the kernel before.
        dependency_wait();
        _Pragma("nounroll") for (u32 s = 0, u = unit; s + 1 < stages; s++) {
          if (first + s < end) loadRows(s, u);
          copy_commit();
          u = u + 1 == depth ? 0 : u + 1;
        }
        if constexpr (W::sums) {
          wait_groups(stages - 2);
          sync();
          sumRows(0, 0);
        }
      }
      if (round >= 0) {
        // The next unit's sums are made beside this one's products.
        wait_groups(W::sums ? stages - 3 : stages - 2);
        sync();
      }
      if (load != end) {
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
        if (first + round + 1 != end) sumRows(next, (round + 1) % 2);
      multiply(total, slot, round % 2);
      slot = next;
      if (++unit == depth || first + round + 1 == end) {
        finish(total, tile, units);
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

#define PROJECT(name, W, NT)                                                                                              \
  PROJECT_KERNEL(NT <= 4 ? 2 : 1)                                                                                         \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1, u16 *h2,         \
            const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1, u32 out2, u32 add, u32 gated, \
            const u16 *x, u32 in, u32 rows, u32 granule, u32 shift, u32 stages, float *partials, u32 *tickets) {          \
    DYNAMIC_SHARED(name, shared);                                                                                         \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated,         \
                 x, in, rows, granule, shift, stages, partials, tickets};                                                 \
    project<W, NT>(p, shared);                                                                                            \
  }                                                                                                                       \
  REGISTER(name)

template <class W, u32 NT> DEV void project(const Projection &p, u8 *shared) {
  using P = Projector<W, NT>;
  u32 aBytes = 16 * p.granule;
  u8 *a = shared + p.stages * P::xBytes;
  float *sums = (float *)(a + p.stages * aBytes);
  u32 lane = tid() % 32;
  P projector{p, tid() / 32, lane, lane / 4, lane % 4, (p.in + W::inputs - 1) / W::inputs, aBytes, shared, a, sums,
              (u32 *)(sums + (W::sums ? 2 * P::folds * P::rowsTile : 0)), 0, 0, {}};
  projector.run();
}

#define PROJECT_ALL(name, W) \
  PROJECT(name##_1, W, 1)    \
  PROJECT(name##_2, W, 2)    \
  PROJECT(name##_3, W, 3)    \
  PROJECT(name##_4, W, 4)    \
  PROJECT(name##_6, W, 6)    \
  PROJECT(name##_8, W, 8)    \
  PROJECT(name##_16, W, 16)
