// Experts' projections of many rows on tensor cores: a block makes some outputs of an
// expert by up to 64 of the rows that chose it. Weights become bf16 in registers, as
// dequantise rounds them, and are the A operands; rows are gathered into shared memory.
#pragma once
#include "experts.cuh"
#include "rounded.cuh"

constexpr u32 groupedWarps = 8, groupedRows = 64, groupedTiles = groupedRows / 8;

// Grouped multiplies 2 strips a warp: of gate and of up, or two of down.
template <class W, bool gated> struct Grouped {
  static constexpr bool packed = W::bytes != Rows::bytes;
  static constexpr u32 blocks = W::inputs / 64; // of a stage, which has a granule's inputs

  const Mixture &p;
  u8 *shared;
  Shared at;
  u32 lane, warp;
  u32 rows;     // of this tile
  u32 depth;
  const u8 *source[2];    // this warp's strips
  u32 left[packed ? 1 : 2];   // outputs from a strip's first on
  const u16 *from[groupedRows / 32];     // the rows that this thread copies, from its eighth on; null: none

  METHOD u32 stageBytes() const { return groupedRows * blocks * 128 + groupedWarps * 2 * p.granule; }

  // load starts the copies of a granule's inputs: of the rows, and of this warp's strips.
  METHOD void load(u32 granule, u32 stage) const {
    const Shared to = at + stage * stageBytes();
    const u32 line = tid() / 8, chunk = tid() % 8;
    UNROLL for (u32 j = 0; j < groupedRows / 32; j++) {
      const u32 row = line + j * 32;
      if (row >= (rows + 15) / 16 * 16) break;
      UNROLL for (u32 b = 0; b < blocks; b++) {
        const u32 k = granule * W::inputs + b * 64;
        const bool here = from[j] && k + chunk * 8 < p.in;
        copy_to(to + (b * groupedRows + row) * 128 + ((chunk ^ row % 8) << 4), here ? from[j] + k : p.x, here);
      }
    }
    const Shared weights = to + groupedRows * blocks * 128 + warp * 2 * p.granule;
    UNROLL for (u32 j = 0; j < 2; j++) {
      if constexpr (packed) {
        const u8 *data = source[j] + (u64)granule * p.granule;
        for (u32 c = lane * 16; c < p.granule; c += 512) copy_to(weights + j * p.granule + c, data + c, true);
      } else {
        const u32 k = granule * 64 + lane % 8 * 8;
        UNROLL for (u32 i = 0; i < 4; i++) {
          const u32 row = i * 4 + lane / 8;
          const bool here = k < p.in && row < left[j];
          copy_to(weights + j * 2048 + row * 128 + ((lane % 8 ^ row % 8) << 4), here ? source[j] + ((u64)row * p.in + k) * 2 : source[j], here);
        }
      }
    }
  }

  // multiply adds the products of a stage.
  METHOD void multiply(float (&total)[2][groupedTiles][4], u32 stage) const {
    const Shared to = at + stage * stageBytes();
    const u32 offset = stage * stageBytes() + groupedRows * blocks * 128 + warp * 2 * p.granule;
    UNROLL for (u32 b = 0; b < blocks; b++) {
      u32 a[2][4][4];
      UNROLL for (u32 j = 0; j < 2; j++) {
        if constexpr (packed) rounded<W, true>(a[j], shared + offset + j * p.granule, b, p.shift, lane);
        else
          UNROLL for (u32 k = 0; k < 4; k++) {
            const u32 row = lane % 16, chunk = k * 2 + lane / 16;
            load_matrix_at(a[j][k], at + offset + j * 2048 + row * 128 + ((chunk ^ row % 8) << 4));
          }
      }
      const u32 row = lane / 16 * 8 + lane % 8;
      UNROLL for (u32 two = 0; two < groupedTiles / 2; two++) {
        if (two * 16 >= rows) break;
        UNROLL for (u32 k = 0; k < 4; k++) {
          u32 x[4];
          load_matrix_at(x, to + (b * groupedRows + two * 16 + row) * 128 + (((k * 2 + lane / 8 % 2) ^ row % 8) << 4));
          UNROLL for (u32 j = 0; j < 2; j++) {
            mma_bf16(total[j][two * 2], a[j][k], {x[0], x[1]});
            mma_bf16(total[j][two * 2 + 1], a[j][k], {x[2], x[3]});
          }
        }
      }
    }
  }

  // run makes a tile of rows, whose first pair is given; stages is the depth of the ring.
  METHOD void run(const u32x4 &tile) {
    const u32 first = (bid() * groupedWarps + warp) * (gated ? 1 : 2), strips = (p.out + 15) / 16;
    rows = tile.z;
    depth = (p.in + W::inputs - 1) / W::inputs;
    UNROLL for (u32 j = 0; j < 2; j++) {
      u32 strip = first + (gated ? 0 : j);
      if (strip >= strips) strip = strips - 1; // multiplied, and dropped
      source[j] = (const u8 *)p.weights[j][tile.x] + (packed ? (u64)strip * depth * p.granule : (u64)strip * 16 * p.in * 2);
      if constexpr (!packed) left[j] = p.out - strip * 16;
    }
    UNROLL for (u32 j = 0; j < groupedRows / 32; j++) {
      const u32 row = tid() / 8 + j * 32;
      from[j] = row < rows ? p.x + (u64)(p.pairs[tile.y + row] / p.k) * p.in + tid() % 8 * 8 : nullptr;
    }
    _Pragma("nounroll") for (u32 i = 0; i + 1 < p.stages; i++) {
      if (i < depth) load(i, i);
      copy_commit();
    }
    float total[2][groupedTiles][4] = {};
    u32 stage = 0;
    _Pragma("nounroll") for (u32 i = 0; i < depth; i++) {
      wait_groups(p.stages - 2);
      sync();
      if (i + p.stages - 1 < depth) load(i + p.stages - 1, stage == 0 ? p.stages - 1 : stage - 1);
      copy_commit();
      multiply(total, stage);
      stage = stage + 1 == p.stages ? 0 : stage + 1;
    }
    const u32 g = lane / 4, t = lane % 4;
    UNROLL for (u32 nt = 0; nt < groupedTiles; nt++) {
      UNROLL for (u32 column = 0; column < 2; column++) {
        const u32 row = nt * 8 + t * 2 + column;
        if (row >= rows) continue;
        const u64 to = (u64)p.pairs[tile.y + row] * p.out;
        UNROLL for (u32 half = 0; half < 2; half++) {
          const u32 i = half * 2 + column, m = first * 16 + g + half * 8;
          if constexpr (gated) {
            if (m < p.out) p.bf16[to + m] = (u16)pack_bf16(silu(total[0][nt][i]) * total[1][nt][i], 0);
          } else {
            if (m < p.out) p.f32[to + m] = total[0][nt][i];
            if (m + 16 < p.out) p.f32[to + m + 16] = total[1][nt][i];
          }
        }
      }
    }
  }
};

template <class W, bool gated> DEV void grouped(const Mixture &p, u8 *shared, u32 tiles) {
  launch_dependents();
  dependency_wait();
  if (bid_y() >= p.tables[1]) return;
  Grouped<W, gated> y{p, shared, shared_at(shared), tid() % 32, tid() / 32};
  y.run(*(const u32x4 *)(p.tables + tiles + bid_y() * 4));
}

#define GROUPED(name, W)                                                                                                                            \
  KERNEL(groupedWarps * 32, 2) void grouped_gated_##name(const u64 *gate, const u64 *up, const u16 *x, u16 *dst, const u32 *tables,                 \
                                                         const u32 *pairs, u32 in, u32 out, u32 granule, u32 shift, u32 stages, u32 k, u32 tiles) { \
    DYNAMIC_SHARED(grouped_gated_##name, shared);                                                                                                   \
    const Mixture p{{gate, up}, x, dst, nullptr, tables, pairs, in, out, granule, shift, stages, 1, k};                                            \
    grouped<W, true>(p, shared, tiles);                                                                                                             \
  }                                                                                                                                                 \
  REGISTER(grouped_gated_##name)                                                                                                                    \
  KERNEL(groupedWarps * 32, 2) void grouped_down_##name(const u64 *down, const u16 *x, float *dst, const u32 *tables, const u32 *pairs, u32 in,     \
                                                        u32 out, u32 granule, u32 shift, u32 stages, u32 tiles) {                                   \
    DYNAMIC_SHARED(grouped_down_##name, shared);                                                                                                    \
    const Mixture p{{down, down}, x, nullptr, dst, tables, pairs, in, out, granule, shift, stages, 1, 1};                                           \
    grouped<W, false>(p, shared, tiles);                                                                                                            \
  }                                                                                                                                                 \
  REGISTER(grouped_down_##name)
