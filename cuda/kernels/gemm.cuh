// What gemm.cu and gemm_hopper.cu share: where sums go, and in which order
// tiles are made. Sums lie as mma and wgmma leave them: of 16 rows by 8·n
// columns, c[j][2h + e] is row (lane/4 + 8h), column (8j + 2·(lane%4) + e).
#pragma once
#include "gpu.cuh"

// Output is where one weight's columns go: f32 (added to what is there where
// add is set) and/or bf16. bias is f32[out], or null.
struct Output {
  float *f32;
  bf16 *half;
  const float *bias;
  u32 add;
};

// transpose4 exchanges 4×4 words among the 4 lanes of a quad: lane t gets word t of each.
DEV void transpose4(u32 (&v)[4], u32 lane) {
  const bool odd = lane & 1, upper = lane & 2;
  UNROLL for (int i = 0; i < 4; i += 2) {
    const u32 got = shfl_xor(odd ? v[i] : v[i + 1], 1);
    (odd ? v[i] : v[i + 1]) = got;
  }
  UNROLL for (int i = 0; i < 2; i++) {
    const u32 got = shfl_xor(upper ? v[i] : v[i + 2], 2);
    (upper ? v[i] : v[i + 2]) = got;
  }
}

// add_bias adds bias[col0...] to the columns that exist; loads past them repeat the first.
template <int tiles, int n> DEV void add_bias(float (&c)[n][4], const float *bias, u32 col0, u32 out) {
  const u32 quad = tid() % 4;
  UNROLL for (int j = 0; j < tiles; j++) {
    const f32x2 b = *(const f32x2 *)(bias + (col0 + j * 8 < out ? col0 + j * 8 : 0) + quad * 2);
    c[j][0] += b.x, c[j][1] += b.y, c[j][2] += b.x, c[j][3] += b.y;
  }
}

// store writes the first tiles·8 columns of 16 rows, where rows and columns
// exist. Lanes exchange bf16 values so that each writes 16 bytes.
template <int tiles, int n> DEV void store(float (&c)[n][4], const Output &d, u32 row0, u32 col0, u32 rows, u32 out) {
  const u32 lane = tid() % 32, quad = lane % 4;
  if (col0 >= out) return;
  if (d.bias) add_bias<tiles>(c, d.bias, col0, out);
  if (d.f32) {
    constexpr int batch = tiles < 16 ? tiles : 16; // loads in flight
    UNROLL for (int h = 0; h < 2; h++) {
      const u32 row = row0 + lane / 4 + h * 8;
      if (row >= rows) continue;
      float *to = d.f32 + (u64)row * out + col0 + quad * 2;
      UNROLL for (int j = 0; j < tiles; j += batch) {
        if (d.add) {
          f32x2 old[batch];
          UNROLL for (int i = 0; i < batch; i++) old[i] = *(const f32x2 *)(to + (col0 + (j + i) * 8 < out ? (j + i) * 8 : 0));
          UNROLL for (int i = 0; i < batch; i++) c[j + i][2 * h] += old[i].x, c[j + i][2 * h + 1] += old[i].y;
        }
        UNROLL for (int i = 0; i < batch; i++) {
          if (col0 + (j + i) * 8 < out) *(f32x2 *)(to + (j + i) * 8) = f32x2{c[j + i][2 * h], c[j + i][2 * h + 1]};
        }
      }
    }
  }
  if (d.half) {
    // A quad exchanges 4 words each: 4 tiles of a row, or 2 tiles of 2 rows.
    UNROLL for (int g = 0; g < tiles / 2; g++) {
      u32 v[4];
      UNROLL for (int s = 0; s < 4; s++) {
        const int j = (g * 4 + s) % tiles, h = (g * 4 + s) / tiles;
        v[s] = pack_bf16(c[j][2 * h], c[j][2 * h + 1]);
      }
      transpose4(v, lane);
      const u32 at = g * 4 + quad, row = row0 + lane / 4 + at / tiles * 8, col = col0 + at % tiles * 8;
      if (row < rows && col < out) *(u32x4 *)(d.half + (u64)row * out + col) = u32x4{v[0], v[1], v[2], v[3]};
    }
  }
}

// activate makes silu(gate)·up of the first tiles tiles (gate) and the next ones (up).
template <int tiles, int n> DEV void activate(float (&c)[n][4], const float *gate_bias, const float *up_bias, u32 col0, u32 out) {
  static_assert(n == 2 * tiles);
  if (gate_bias && col0 < out) add_bias<tiles>(c, gate_bias, col0, out);
  if (up_bias && col0 < out) {
    float(&up)[tiles][4] = *(float(*)[tiles][4])c[tiles];
    add_bias<tiles>(up, up_bias, col0, out);
  }
  UNROLL for (int j = 0; j < tiles; j++) {
    UNROLL for (int e = 0; e < 4; e++) c[j][e] = silu(c[j][e]) * c[tiles + j][e];
  }
}

// place finds the tile of a number: groups of rows run through all columns
// before the next rows, so that one group's x and each tile of w stay in L2.
template <u32 group> DEV void place(u32 number, u32 tiles_r, u32 tiles_c, u32 &r, u32 &c) {
  const u32 first = number / (group * tiles_c) * group, size = tiles_r - first < group ? tiles_r - first : group;
  const u32 at = number - first * tiles_c;
  r = first + at % size;
  c = at / size;
}
