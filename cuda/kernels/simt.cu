// Projections in the exact arithmetic.
#include "simt.cuh"

// project sums 4 outputs of 8 rows in a warp: lane l takes octets l, l+32, ...
// in this order for every row, then lanes are added in a tree. Weights are
// loaded ahead, the first of them before the kernel before has ended. live is
// how many rows there are (null: all of them).
//
// Blocks that differ in x take other rows of the same outputs: they run at the
// same time, and all but the first find the weights in L2.
//
// Every other four lanes take the second half of an octet first: 8 lanes' 16
// bytes of activations then lie in different banks.
template <class F>
DEV void project(float *dst, const float *x, const u8 *data, const u16 *scales, const u16 *biases, const float *bias, u32 out, u32 in, u32 group, u32 kind, u32 add, u32 rows, const u32 *live) {
  const u32 lane = tid() % 32, o0 = (bid_y() * projectWarps + tid() / 32) * outputs, r0 = (bid_z() * gdim() + bid()) * tileRows;
  const bool swap = F::whole && lane & 4;
  launch_dependents();
  if (o0 >= out) return;
  Row w[outputs];
  UNROLL for (u32 j = 0; j < outputs; j++) { // past the end the last output is repeated
    const u64 o = o0 + j < out ? o0 + j : out - 1, groups = group ? in / group : 0;
    w[j] = {data + o * F::bytes(in, kind), scales + o * groups, biases + o * groups, in, group, kind};
  }
  Ahead<F> ahead;
  UNROLL for (int s = 0; s < F::depth; s++)
    if ((lane + s * 32) * 8 < in) UNROLL for (int j = 0; j < outputs; j++) ahead.octets[s][j] = F::load(w[j], lane + s * 32, swap);
  dependency_wait();
  if (live && *live < rows) rows = *live;
  if (r0 >= rows) return;
  float sum[tileRows * outputs] = {};
  const float *first = x + (u64)r0 * in;
  if (rows - r0 == 1) sum_rows<F, 1>(sum, ahead, w, first, 1, swap);
  else sum_rows<F, tileRows>(sum, ahead, w, first, rows - r0, swap);
  fold<16>(sum);
  const u32 r = r0 + lane / outputs, o = o0 + lane % outputs;
  if (r >= rows || o >= out) return;
  float y = sum[0];
  if (bias) y += bias[o];
  float *to = dst + (u64)r * out + o;
  *to = add ? *to + y : y;
}

#define PROJECT(name, Format) \
  KERNEL(projectWarps * 32) void name(float *dst, const float *x, const u8 *data, const u16 *scales, const u16 *biases, const float *bias, u32 out, u32 in, u32 group, u32 kind, u32 add, u32 rows, const u32 *live) { \
    project<Format>(dst, x, data, scales, biases, bias, out, in, group, kind, add, rows, live); \
  } \
  REGISTER(name)

PROJECT(simt_project_f32, FormatF32)
PROJECT(simt_project_f16, FormatF16)
PROJECT(simt_project_bf16, FormatBF16)
PROJECT(simt_project_odd, FormatOdd)
PROJECT(simt_project_affine4, FormatAffine4)
PROJECT(simt_project_affine8, FormatAffine8)
PROJECT(simt_project_q8_0, FormatQ8_0)
PROJECT(simt_project_q4_0, FormatQ4_0)
PROJECT(simt_project_q4_k, FormatQ4_K)
PROJECT(simt_project_q6_k, FormatQ6_K)
