// Projections x·wᵀ by 8×8 matrices, for rows of x in bf16 (X = bfloat) or f32.
//
// A simdgroup's tile is 8J outputs × 8T rows, the product w·xᵀ: w is the left
// operand. A strip is 8 runs of inputs (weights.h.metal); of it, 4 inputs of each run
// at a time, 32 in all, are decoded to f32 and written to threadgroup memory as
// lines, one for each output, and so are those of x, one for each row. Matrices are
// loaded from these lines: nothing depends on which lane holds which element
// of a matrix, which Apple does not document. f32 matrices multiply as fast as 16-bit
// ones on M1 to M4, and are exact, whatever the weights' format.
//
// Windows (outputs × rows): 32 × 8 and 32 × 16, from 17 rows on 16 × 32. The simdgroups of a
// threadgroup take strips in turn, each with lines of its own, and wait for nobody
// until their sums are joined. For 32 inputs a simdgroup moves, in bytes (x by L2, for
// weights in affine4), and computes, in cycles of its 32 lanes:
//
//   tile      device       threadgroup memory   matrices   barriers   multiplies   lines in all
//             w     x      written   read       cycles                a barrier
//   32 × 8    576   512    5120      5120       256        2          8            23040
//   32 × 16   576   1024   6144      6144       512        2          16           27648
//   16 × 32   288   2048   6144      6144       512        2          16           27648
//   prefill   288   1024   4096      8192       1024       2          32           18432
//
// A core's four simdgroups at full speed would thus move 160, 96, 96 and 48 bytes of
// threadgroup memory a cycle. Of M1, 64 and 128 are told: with 64, windows of 8 and of
// 16 rows in affine4 take 160 and 192 cycles a core for their 576 bytes of weights,
// which M1's memory brings in 87; with 128, 80 and 128, the latter for the multiplies.
// 8-bit weights take the memory 175 cycles, bf16 310.
//
// - Windows have barriers of a simdgroup, which order its memory and wait for no other.
// - A second set of lines, written while the first is multiplied, would leave one
//   threadgroup to a core where there are two, and these hide one another's loads.
// - Lines in bf16 are exact for weights in bf16 alone, which gain nothing.
// - x shared by simdgroups of other outputs would save three of four of its writes, an
//   eighth of all bytes at 16 rows, but leave none to split the inputs among, and
//   wait for the slowest twice every 32 inputs; large tiles do that.
// - A tile of 32 × 32 by simdgroups on their own would need 36864 bytes of lines.
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

// Tile is a simdgroup's sums: J times 8 outputs, T times 8 rows.
template <uint J, uint T> struct Tile {
  simdgroup_float8x8 sums[J][T];
};

template <uint J, uint T> inline void clear_tile(thread Tile<J, T>& tile) {
  UNROLL for (uint j = 0; j < J; j++)
    UNROLL for (uint t = 0; t < T; t++) tile.sums[j][t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// A line is 32 inputs of an output or of a row; its 4 floats more spread the eight
// lines of a matrix, and the writes of 32 lanes, over all banks.
constant constexpr uint line_floats = 36;

// lines_barrier is between writing lines and loading matrices from them.
template <uint SHARE> inline void lines_barrier() {
  if (SHARE > 1) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  } else {
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// multiply adds the product of the lines to a tile.
template <uint J, uint T>
inline void multiply(thread Tile<J, T>& tile, threadgroup const float* w_lines, threadgroup const float* x_lines) {
  UNROLL for (uint k = 0; k < 32; k += 8) {
    simdgroup_float8x8 right[T];
    UNROLL for (uint t = 0; t < T; t++) simdgroup_load(right[t], x_lines + t * 8 * line_floats + k, line_floats, ulong2(0, 0), true);
    UNROLL for (uint j = 0; j < J; j++) {
      simdgroup_float8x8 left;
      simdgroup_load(left, w_lines + j * 8 * line_floats + k, line_floats);
      UNROLL for (uint t = 0; t < T; t++) simdgroup_multiply_accumulate(tile.sums[j][t], left, right[t], tile.sums[j][t]);
    }
  }
}

// Run is the rows of a tile that follow one another in x and in dst: from first on, end
// is one past the last of all. Rows past it repeat the last one, and nobody writes them.
struct Run {
  uint first, end;
};
inline uint x_row(Run rows, uint i) { return min(rows.first + i, rows.end - 1); }
inline uint dst_row(Run rows, uint i) { return rows.first + i; }
inline bool has_row(Run rows, uint i) { return rows.first + i < rows.end; }

// tile_product adds w·xᵀ over strips first, first + step, … to a tile of
// rows, R says which. SHARE simdgroups have the same outputs, and write a part
// of their lines each, w_part; so for the rows, x_part. Rows and outputs past the
// end repeat the last ones, and nobody takes their sums. A sum's order is that of the
// inputs in its strips, whatever the tile.
//
// A lane decodes piece lane % 4 of outputs lane / 4 + 8j, and passes on run lane % 8
// of rows lane / 8 + 4i.
template <typename F, typename X, uint J, uint T, uint SHARE, bool wide, typename R>
inline void tile_product(thread Tile<J, T>& tile, thread const Block& b, device const X* x, constant ProjectParams& p, R rows,
                         uint first, uint step, threadgroup float* w_lines, threadgroup float* x_lines, uint w_part, uint x_part,
                         uint lane) {
  constexpr uint count = Inputs<X>::count, OUTPUTS = J / SHARE, ROWS = 2 * T / SHARE;
  const uint strips = (p.in + 8 * F::depth - 1) / (8 * F::depth);
  threadgroup float* own_w = w_lines + (w_part * OUTPUTS * 8 + lane / 4) * line_floats + lane % 4 * 8;
  threadgroup float* own_x = x_lines + (x_part * ROWS * 4 + lane / 8) * line_floats + lane % 8 * 4;
  for (uint strip = first; strip < strips; strip += step) {
    typename F::Piece pieces[OUTPUTS];
    UNROLL for (uint j = 0; j < OUTPUTS; j++) {
      const uint eight = w_part * OUTPUTS + j;
      const bool up = p.gated != 0 && eight >= J / 2;
      const uint o = b.first + (up ? eight - J / 2 : eight) * 8 + lane / 4;
      pieces[j] = F::load(up ? b.up : b.w, min(o, b.out - 1), strip * 4 + lane % 4);
    }
    const uint k = strip * (8 * F::depth) + F::run(lane % 8);
    UNROLL for (uint f = 0; f < F::depth; f += count) {
      Inputs<X> inputs[ROWS];
      UNROLL for (uint i = 0; i < ROWS; i++)
        inputs[i] = Inputs<X>::template load<wide>(x, x_row(rows, (x_part * ROWS + i) * 4 + lane / 8), k + f, p.in);
      UNROLL for (uint q = 0; q < count; q += 4) {
        lines_barrier<SHARE>(); // the lines before have been multiplied
        UNROLL for (uint j = 0; j < OUTPUTS; j++) {
          float4 one, two;
          UNROLL for (uint i = 0; i < 4; i++) {
            const float2 pair = F::decode(pieces[j], f + q + i);
            one[i] = pair.x, two[i] = pair.y;
          }
          threadgroup float4* to = (threadgroup float4*)(own_w + j * 8 * line_floats);
          to[0] = one, to[1] = two;
        }
        UNROLL for (uint i = 0; i < ROWS; i++) {
          float4 v;
          UNROLL for (uint e = 0; e < 4; e++) v[e] = Inputs<X>::at(inputs[i], q + e);
          *(threadgroup float4*)(own_x + i * 4 * line_floats) = v;
        }
        lines_barrier<SHARE>();
        multiply(tile, w_lines, x_lines);
      }
    }
  }
}

// keep_sums writes a tile to threadgroup memory, a line for each row.
template <uint J, uint T> inline void keep_sums(threadgroup float* to, thread Tile<J, T>& tile) {
  UNROLL for (uint t = 0; t < T; t++)
    UNROLL for (uint j = 0; j < J; j++)
      simdgroup_store(tile.sums[j][t], to + t * 8 * line_floats + j * 8, line_floats, ulong2(0, 0), true);
}

// finish_sums writes the rows of a tile of a block, by threads threads of which this is
// number index: a sum of parts sums in their order each, pitch floats from one
// another.
template <uint J, uint T, typename R>
inline void finish_sums(thread const Block& b, constant ProjectParams& p, threadgroup const float* kept, uint parts, uint pitch, R rows,
                        uint index, uint threads) {
  const uint outputs = p.gated != 0 ? 4 * J : 8 * J, bits = ctz(outputs);
  for (uint i = index; i < 8 * T * outputs; i += threads) {
    const uint line = i >> bits, column = i & (outputs - 1);
    if (!has_row(rows, line) || b.first + column >= b.out) continue;
    float sum = 0.0f, up = 0.0f;
    for (uint part = 0; part < parts; part++) {
      threadgroup const float* from = kept + part * pitch + line * line_floats + column;
      sum += from[0];
      if (p.gated != 0) up += from[4 * J];
    }
    finish(b, p, dst_row(rows, line), b.first + column, sum, up);
  }
}

// Where wide is set, rows of x and of floats are whole multiples of 8 and begin
// at multiples of 16 bytes (x) and of 4; kernels for other rows are another
// instance, so that their guards are in nobody else's code.

// project takes 8T rows from row 8T·x on, a threadgroup a block of 8J outputs: its
// simdgroups split the strips among them. How many they are depends on the
// weights' shape alone, so that a row's bits do not depend on other rows.
template <typename F, typename X, uint J, uint T, bool wide>
kernel void project(PROJECT_BUFFERS, threadgroup float* lines [[threadgroup(0)]], uint3 at [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint pitch = (8 * J + 8 * T) * line_floats;
  const Block b = find_block<wide>(at.y, 8 * J, PROJECT_ARGUMENTS);
  const Run rows = {at.x * (8 * T), p.rows};
  threadgroup float* own = lines + simdgroup * pitch;
  Tile<J, T> tile;
  clear_tile(tile);
  tile_product<F, X, J, T, 1, wide>(tile, b, x, p, rows, simdgroup, simdgroups, own, own + 8 * J * line_floats, 0, 0, lane);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  keep_sums(own, tile);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  finish_sums<J, T>(b, p, lines, simdgroups, pitch, rows, simdgroup * 32 + lane, simdgroups * 32);
}

// prefill takes 64 rows × 64 outputs a threadgroup, all inputs: each of its four
// simdgroups a tile of 32 × 32, whose outputs one other has too, and whose rows
// another one.
template <typename F, typename X>
kernel void prefill(PROJECT_BUFFERS, threadgroup float* lines [[threadgroup(0)]], uint3 at [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint half_lines = 32 * line_floats;
  const uint side = simdgroup % 2, below = simdgroup / 2;
  const uint block = at.y * 2 + side;
  const Run rows = {at.x * 64 + below * 32, p.rows};
  const Block b = find_block<true>(min(block, p.end2 - 1), 32, PROJECT_ARGUMENTS);
  Tile<4, 4> tile;
  clear_tile(tile);
  tile_product<F, X, 4, 4, 2, true>(tile, b, x, p, rows, 0, 1, lines + side * half_lines, lines + (2 + below) * half_lines, below, side, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float* own = lines + simdgroup * half_lines;
  keep_sums(own, tile);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (block < p.end2) finish_sums<4, 4>(b, p, own, 1, 0, rows, lane, 32);
}
