// A unit's products: 256 outputs by a granule of inputs, 32 outputs a warp.
#pragma once
#include "projection.cuh"

// Rows are bf16 weights as stored, [out, in]: 64 inputs of 16 rows are a
// "granule" of 128 bytes a row, 16-byte chunks permuted by the row's last bits.
struct Rows {
  static constexpr u32 inputs = 64, bytes = 2048, fold = 64;
  static constexpr bool sums = false;
  struct Numbers {};
};

// Wide multiplies by a warpgroup's instruction (project_wgmma.cuh).
template <u32 NT, u32 steps> struct Wide;

template <class W, u32 NT, bool wide> struct Multiplier {
  static constexpr u32 rowsTile = NT * 8;
  static constexpr u32 xBytes = rowsTile * W::inputs * 2; // of a unit
  static constexpr u32 folds = W::inputs / W::fold;       // of a unit
  static constexpr bool packed = W::bytes != Rows::bytes;
  // Inputs that are decoded at a time, and tiles of rows that are multiplied at
  // a time: chains of products side by side.
  static constexpr u32 span = packed && W::fold > 32 ? 64 : 32, pair = NT % 2 == 0 && NT < 16 ? 2 : 1;

  u32 warp, lane, g, t;
  u32 granule, shift;
  u8 *xRing, *aRing; // units of inputs, and of weights
  float *sums;       // [2][folds][rowsTile]

  // operand loads 32 inputs of 8 rows as two B operands: half of a block of 64.
  METHOD void operand(u32 (&b)[4], u32 slot, u32 block, u32 nt, u32 half) const {
    load_matrix(b, xRing + slot * xBytes + block * (rowsTile * 128) + (nt * 8 + lane % 8) * 128 + (((half * 4 + lane / 8) ^ lane % 8) << 4));
  }

  // sumRows puts the sums of x over each fold of a unit into shared memory:
  // products with ones, which a warp has in the columns of its results.
  METHOD void sumRows(u32 slot, u32 parity) const {
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
    const u8 *a = aRing + slot * (16 * granule) + warp * 2 * granule;
    _Pragma("nounroll") for (u32 block = 0; block < W::inputs / 64; block++) {
      if constexpr (packed) {
        typename W::Numbers numbers[2];
        UNROLL for (u32 j = 0; j < 2; j++) numbers[j] = W::load(a + j * granule, block, lane);
        UNROLL for (u32 k = 0; k < 64; k += span) multiplyPacked(total, numbers, a, slot, parity, block, k);
      } else {
        UNROLL for (u32 k = 0; k < 64; k += span) multiplyRows(total, a, slot, block, k);
      }
    }
  }

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

  // sum is what sumRows left of this lane's two columns.
  METHOD f32x2 sum(u32 parity, u32 index, u32 nt) const {
    if constexpr (W::sums) return *(const f32x2 *)(sums + (parity * folds + index) * rowsTile + nt * 8 + t * 2);
    return {};
  }

  // fold adds scale·products + bias·sum of x to four sums.
  METHOD void fold(float (&to)[4], const float (&acc)[4], const Affine &a, f32x2 x) const {
    UNROLL for (u32 i = 0; i < 4; i++) {
      to[i] = fma(a.scale[i / 2], acc[i], to[i]);
      if constexpr (W::sums) to[i] = fma(a.bias[i / 2], i % 2 ? x.y : x.x, to[i]);
    }
  }

  METHOD void multiplyPacked(float (&total)[2][NT][4], const typename W::Numbers (&numbers)[2], const u8 *a, u32 slot, u32 parity, u32 block, u32 k) const {
    constexpr u32 parts = span / W::fold, steps = W::fold / 16;
    u32 w[2][span / 16][4];
    Affine scale[2][parts];
    UNROLL for (u32 j = 0; j < 2; j++) {
      UNROLL for (u32 s = 0; s < span / 16; s++) W::decode(w[j][s], numbers[j], k / 16 + s);
      UNROLL for (u32 f = 0; f < parts; f++) {
        scale[j][f] = W::scales(a + j * granule, (block * 64 + k) / W::fold + f, shift, g);
        UNROLL for (u32 i = 0; i < 2; i++) scale[j][f].bias[i] = fma(scale[j][f].scale[i], -(float)W::offset, scale[j][f].bias[i]);
      }
    }
    if constexpr (wide) {
      UNROLL for (u32 f = 0; f < parts; f++)
        UNROLL for (u32 j = 0; j < 2; j++) {
          float acc[NT][4];
          Wide<NT, steps>::multiply(acc, &w[j][f * steps], xRing + slot * xBytes + block * (rowsTile * 128) + (k + f * W::fold) * 2);
          UNROLL for (u32 nt = 0; nt < NT; nt++) fold(total[j][nt], acc[nt], scale[j][f], sum(parity, (block * 64 + k) / W::fold + f, nt));
        }
      return;
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
          f32x2 x = sum(parity, (block * 64 + k) / W::fold + f, nt + n);
          UNROLL for (u32 j = 0; j < 2; j++) fold(total[j][nt + n], acc[n][j], scale[j][f], x);
        }
      }
    }
  }
};
