// Projections x·wᵀ by 8×8 matrices, for rows of x in bf16 (X = bfloat) or f32.
//
// A tile is 32 outputs × 8T rows, the product w·xᵀ: w is the left operand. Lane
// l of a simdgroup holds of each 8×8 matrix row r = (l/4 & 4) + l/2 % 4 and columns
// c = (l/4 & 2)·2 + l%2·2 and c+1 (the layout of thread_elements() on Apple 7 and
// later). So a lane's part of the left operand is two inputs of one output, and
// over the matrices of a strip the piece of a row that one lane can load and
// decode by itself; its part of the right operand is one run of inputs of two
// rows. Both come straight from device memory into registers, weights once,
// and no threadgroup memory or barrier is in the loop: which input is which
// column of a matrix is free, so long as both operands agree.
//
// What a core reads, in bytes, for 32 outputs × 128 inputs of affine4 (2304
// of weights), and the f32 multiply-adds of its 128 lanes in cycles:
//
//   rows   x from L2   decoding   matrices   bytes a cycle   of weights
//   8      2048        96         256        12              6.5
//   16     4096        96         512        11              3.8
//   32     8192        96         1024       9               2.1
//
// A core's share of the memory's bandwidth is 6.6 bytes a cycle on M1, 7 to 10 on
// later ones: windows of 16 rows are bound by the multiply-adds.
//
// Staging the weights in threadgroup memory as bf16 would add 8192 bytes written
// and 8192 read, a barrier a strip, and the rounding, which costs five integer
// operations a weight where bf16 is not native (M1, M2). x would gain nothing from
// it: the simdgroups of a group read different inputs of it. f32 matrices multiply
// as fast as 16-bit ones on M1 to M4, so that operands are widened: weights are
// exact, whatever their format.
#include "weights.h.metal"
#include <metal_simdgroup_matrix>

struct ProjectParams {
  uint rows, in, group;
  uint out0, out1, out2;
  uint end0, end1, end2; // blocks of outputs of weight 0, of weights 0 and 1, of all
  uint gated;            // silu(x·w0ᵀ) ⊙ (x·w1ᵀ) goes to dst 0
  uint add;              // to what dst holds
  uint halves;           // dst is bf16, else f32
  uint biased;           // bit i: weight i has a bias
};

#define PROJECT_BUFFERS                                                                                                   \
  device const X* x [[buffer(0)]], device const uchar* data0 [[buffer(1)]], device const uchar* data1 [[buffer(2)]],       \
  device const uchar* data2 [[buffer(3)]], device const ushort* scales0 [[buffer(4)]],                                     \
  device const ushort* scales1 [[buffer(5)]], device const ushort* scales2 [[buffer(6)]],                                  \
  device const ushort* biases0 [[buffer(7)]], device const ushort* biases1 [[buffer(8)]],                                  \
  device const ushort* biases2 [[buffer(9)]], device const float* bias0 [[buffer(10)]],                                    \
  device const float* bias1 [[buffer(11)]], device const float* bias2 [[buffer(12)]], device float* dst0 [[buffer(13)]],   \
  device float* dst1 [[buffer(14)]], device float* dst2 [[buffer(15)]], constant ProjectParams& p [[buffer(16)]]

#define PROJECT_ARGUMENTS \
  data0, data1, data2, scales0, scales1, scales2, biases0, biases1, biases2, bias0, bias1, bias2, dst0, dst1, dst2, p

// Block is a run of outputs: of one weight, or half of it of a gate and half of
// the up projection beside it.
struct Block {
  Weights w, up; // the same where nothing is gated
  device const float* bias;
  device const float* up_bias; // null: none
  device float* dst;
  uint out, first; // outputs of the weight, and the block's first
};

// find_block gives block b of blocks of unit outputs.
template <bool wide> inline Block find_block(uint b, uint unit, device const uchar* data0, device const uchar* data1, device const uchar* data2,
                        device const ushort* scales0, device const ushort* scales1, device const ushort* scales2,
                        device const ushort* biases0, device const ushort* biases1, device const ushort* biases2,
                        device const float* bias0, device const float* bias1, device const float* bias2, device float* dst0,
                        device float* dst1, device float* dst2, constant ProjectParams& p) {
  Block v;
  if (b < p.end0) {
    v.w = Weights{data0, scales0, biases0, p.in, p.group, wide};
    v.bias = p.biased & 1u ? bias0 : nullptr;
    v.dst = dst0, v.out = p.out0, v.first = b * unit;
  } else if (b < p.end1) {
    v.w = Weights{data1, scales1, biases1, p.in, p.group, wide};
    v.bias = p.biased & 2u ? bias1 : nullptr;
    v.dst = dst1, v.out = p.out1, v.first = (b - p.end0) * unit;
  } else {
    v.w = Weights{data2, scales2, biases2, p.in, p.group, wide};
    v.bias = p.biased & 4u ? bias2 : nullptr;
    v.dst = dst2, v.out = p.out2, v.first = (b - p.end1) * unit;
  }
  v.up = v.w, v.up_bias = nullptr;
  if (p.gated != 0) {
    v.up = Weights{data1, scales1, biases1, p.in, p.group, wide};
    v.up_bias = p.biased & 2u ? bias1 : nullptr;
    v.first = b * (unit / 2);
  }
  return v;
}

// finish writes an output of a row: sum, or silu(sum) · up.
inline void finish(thread const Block& b, constant ProjectParams& p, uint row, uint o, float sum, float up) {
  if (b.bias != nullptr) sum += b.bias[o];
  if (p.gated != 0) {
    if (b.up_bias != nullptr) up += b.up_bias[o];
    sum = sum / (1.0f + exp(min(-sum, 80.0f))) * up; // finite: e⁸⁰ leaves nothing of sum
  }
  const ulong at = (ulong)row * b.out + o;
  if (p.halves != 0) {
    ((device bfloat*)b.dst)[at] = bfloat(sum);
    return;
  }
  b.dst[at] = p.add != 0 ? b.dst[at] + sum : sum;
}

// Inputs are 16 bytes of a row of x: 8 in bf16, 4 in f32.
template <typename X> struct Inputs;

template <> struct Inputs<bfloat> {
  static constant constexpr uint count = 8;
  uint4 v;
  template <bool wide> static Inputs<bfloat> load(device const bfloat* x, ulong row, uint k, uint in) {
    Inputs<bfloat> to = {uint4(0u)};
    device const ushort* at = (device const ushort*)x + row * in + k;
    if (wide) {
      if (k < in) to.v = *(device const uint4*)at;
    } else {
      UNROLL for (uint i = 0; i < 8; i++)
        if (k + i < in) to.v[i / 2] |= uint(at[i]) << (16 * (i % 2));
    }
    return to;
  }
  static float at(thread const Inputs<bfloat>& from, uint i) { return bfloat_bits(half_of(from.v, i)); }
};

template <> struct Inputs<float> {
  static constant constexpr uint count = 4;
  float4 v;
  template <bool wide> static Inputs<float> load(device const float* x, ulong row, uint k, uint in) {
    Inputs<float> to = {float4(0.0f)};
    device const float* at = x + row * in + k;
    if (wide) {
      if (k < in) to.v = *(device const float4*)at;
    } else {
      UNROLL for (uint i = 0; i < 4; i++)
        if (k + i < in) to.v[i] = at[i];
    }
    return to;
  }
  static float at(thread const Inputs<float>& from, uint i) { return from.v[i]; }
};

// Tile is a simdgroup's sums: 4 times 8 outputs, T times 8 rows.
template <uint T> struct Tile {
  simdgroup_float8x8 sums[4][T];
};

template <uint T> inline void clear_tile(thread Tile<T>& tile) {
  UNROLL for (uint j = 0; j < 4; j++)
    UNROLL for (uint t = 0; t < T; t++) tile.sums[j][t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// tile_product adds w·xᵀ over strips first, first + step, … to a tile of
// rows from row on. Rows and outputs past the end repeat the last ones, and
// nobody takes their sums. A sum's order is that of the inputs in its strips,
// whatever T.
template <typename F, typename X, uint T, bool wide>
inline void tile_product(thread Tile<T>& tile, thread const Block& b, device const X* x, constant ProjectParams& p,
                         uint row, uint first, uint step, uint lane) {
  constexpr uint count = Inputs<X>::count;
  const uint r = (lane / 4 & 4) + lane / 2 % 4, c = (lane / 4 & 2) * 2 + lane % 2 * 2;
  const uint strips = (p.in + 8 * F::depth - 1) / (8 * F::depth);
  for (uint strip = first; strip < strips; strip += step) {
    typename F::Piece pieces[4];
    UNROLL for (uint j = 0; j < 4; j++) {
      const bool up = p.gated != 0 && j >= 2;
      const uint o = b.first + (up ? j - 2 : j) * 8 + r;
      pieces[j] = F::load(up ? b.up : b.w, min(o, b.out - 1), strip * 4 + c / 2);
    }
    const uint k = strip * (8 * F::depth) + F::run(r);
    UNROLL for (uint f = 0; f < F::depth; f += count) {
      Inputs<X> inputs[T][2];
      UNROLL for (uint t = 0; t < T; t++)
        UNROLL for (uint i = 0; i < 2; i++)
          inputs[t][i] = Inputs<X>::template load<wide>(x, min(row + t * 8 + c + i, p.rows - 1), k + f, p.in);
      UNROLL for (uint i = 0; i < count; i++) {
        simdgroup_float8x8 right[T];
        UNROLL for (uint t = 0; t < T; t++) {
          right[t].thread_elements()[0] = Inputs<X>::at(inputs[t][0], i);
          right[t].thread_elements()[1] = Inputs<X>::at(inputs[t][1], i);
        }
        UNROLL for (uint j = 0; j < 4; j++) {
          const float2 pair = F::decode(pieces[j], f + i);
          simdgroup_float8x8 left;
          left.thread_elements()[0] = pair.x;
          left.thread_elements()[1] = pair.y;
          UNROLL for (uint t = 0; t < T; t++) simdgroup_multiply_accumulate(tile.sums[j][t], left, right[t], tile.sums[j][t]);
        }
      }
    }
  }
}

// A simdgroup's sums of 8 rows in threadgroup memory: [rows][outputs].
constant constexpr uint tile_floats = 8 * 32;

template <uint T>
inline void keep_sums(threadgroup float* to, thread Tile<T>& tile, uint t, uint lane) {
  const uint r = (lane / 4 & 4) + lane / 2 % 4, c = (lane / 4 & 2) * 2 + lane % 2 * 2;
  UNROLL for (uint j = 0; j < 4; j++)
    UNROLL for (uint i = 0; i < 2; i++) to[(c + i) * 32 + j * 8 + r] = tile.sums[j][t].thread_elements()[i];
}

// finish_sums writes 8 rows of a block, by threads threads of which this is
// number index: a sum of parts sums in their order each.
inline void finish_sums(thread const Block& b, constant ProjectParams& p, threadgroup const float* kept, uint parts, uint row,
                        uint index, uint threads) {
  const uint bits = p.gated != 0 ? 4 : 5; // of the outputs of a block
  for (uint i = index; i < 8u << bits; i += threads) {
    const uint line = i >> bits, column = i - (line << bits);
    if (row + line >= p.rows || b.first + column >= b.out) continue;
    float sum = 0.0f, up = 0.0f;
    for (uint part = 0; part < parts; part++) {
      threadgroup const float* from = kept + part * tile_floats + line * 32 + column;
      sum += from[0];
      if (p.gated != 0) up += from[16];
    }
    finish(b, p, row + line, b.first + column, sum, up);
  }
}

// Where wide is set, rows of x and of floats are whole multiples of 8 and begin
// at multiples of 16 bytes (x) and of 4; kernels for other rows are another
// instance, so that their guards are in nobody else's code.

// project takes 8T rows from row 8T·y on, a threadgroup a block of outputs: its
// simdgroups split the strips among them. How many they are depends on the
// weights' shape alone, so that a row's bits do not depend on other rows.
template <typename F, typename X, uint T, bool wide>
kernel void project(PROJECT_BUFFERS, threadgroup float* kept [[threadgroup(0)]], uint3 at [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint simdgroups [[simdgroups_per_threadgroup]]) {
  const Block b = find_block<wide>(at.y, 32, PROJECT_ARGUMENTS);
  const uint row = at.x * (8 * T);
  Tile<T> tile;
  clear_tile(tile);
  tile_product<F, X, T, wide>(tile, b, x, p, row, simdgroup, simdgroups, lane);
  UNROLL for (uint t = 0; t < T; t++) {
    keep_sums(kept + simdgroup * tile_floats, tile, t, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    finish_sums(b, p, kept, simdgroups, row + t * 8, simdgroup * 32 + lane, simdgroups * 32);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// prefill takes 64 rows × 64 outputs a threadgroup: each of its four simdgroups
// a tile of 32 × 32, all inputs. Those that share rows or outputs read them at
// about the same time, from a cache.
template <typename F, typename X>
kernel void prefill(PROJECT_BUFFERS, threadgroup float* kept [[threadgroup(0)]], uint3 at [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = at.x * 64 + simdgroup / 2 * 32, block = at.y * 2 + simdgroup % 2;
  if (row >= p.rows || block >= p.end2) return;
  const Block b = find_block<true>(block, 32, PROJECT_ARGUMENTS);
  Tile<4> tile;
  clear_tile(tile);
  tile_product<F, X, 4, true>(tile, b, x, p, row, 0, 1, lane);
  threadgroup float* own = kept + simdgroup * tile_floats;
  UNROLL for (uint t = 0; t < 4; t++) {
    keep_sums(own, tile, t, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    finish_sums(b, p, own, 1, row + t * 8, lane, 32);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}
