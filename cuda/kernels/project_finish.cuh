// The end of a tile: parts of several blocks are summed, and stored.
#pragma once
#include "projection.cuh"

template <u32 NT> struct Finisher {
  static constexpr u32 rowsTile = NT * 8;

  const Projection &p;
  u32 depth;   // units of a tile
  u32 *ticket; // in shared memory

  METHOD float *partial(u32 slot) const { return p.partials + (u64)slot * (tileOutputs * rowsTile); }

  // finish gives this block's part of a tile to the workspace, [rows][256]. The
  // last of the tile's blocks sums the parts in their order and stores the tile.
  METHOD void finish(float (&total)[2][NT][4], u32 index, u32 units) const {
    // Block b has the units from b·units/blocks on, and at most two parts of
    // tiles that it shares: the tile it begins in is slot 2b, another one 2b+1.
    u32 blocks = gdim(), begin = index * depth;
    u32 from = ((begin + 1) * blocks - 1) / units, to = ((begin + depth) * blocks - 1) / units;
    u32 warp = tid() / 32, g = tid() % 32 / 4, t = tid() % 4;
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
};
