// Experts in the exact arithmetic: an output of a pair (row, expert) has the bits of a
// projection by that expert's weights alone. A warp makes 4 of them.
#include "simt.cuh"

// Weights are the addresses of each expert's matrix.
struct Weights { const u64 *data, *scales, *biases; };

// products adds the products of a row of x with 4 outputs of an expert; lane j below 4
// has that of output j.
template <class F> DEV float products(const Weights &w, u32 expert, const float *x, u32 first, u32 out, u32 in, u32 group, u32 kind) {
  const u32 lane = tid() % 32;
  const bool swap = F::whole && lane & 4;
  const u8 *data = (const u8 *)w.data[expert];
  const u16 *scales = group ? (const u16 *)w.scales[expert] : nullptr, *biases = group ? (const u16 *)w.biases[expert] : nullptr;
  Row rows[outputs];
  UNROLL for (u32 j = 0; j < outputs; j++) { // past the end the last output is repeated
    const u64 o = first + j < out ? first + j : out - 1, groups = group ? in / group : 0;
    rows[j] = {data + o * F::bytes(in, kind), scales + o * groups, biases + o * groups, in, group, kind};
  }
  Ahead<F> ahead;
  UNROLL for (int s = 0; s < F::depth; s++)
    if ((lane + s * 32) * 8 < in) UNROLL for (int j = 0; j < outputs; j++) ahead.octets[s][j] = F::load(rows[j], lane + s * 32, swap);
  float sum[tileRows * outputs] = {};
  sum_rows<F, 1>(sum, ahead, rows, x, 1, swap);
  fold<16>(sum);
  return sum[0];
}


// dst[pairs, out] = silu(gate·x) · (up·x), where up is not null, else gate·x; x is [pairs / each, in].
#define EXPERTS(name, F)                                                                                                                            \
  KERNEL(projectWarps * 32) void experts_simt_##name(float *dst, const float *x, const float *routing, const u64 *gate, const u64 *gate_scales,     \
                                                     const u64 *gate_biases, const u64 *up, const u64 *up_scales, const u64 *up_biases, u32 out,    \
                                                     u32 in, u32 group, u32 kind, u32 k, u32 each, const Step *step) {                              \
    launch_dependents();                                                                                                                            \
    dependency_wait();                                                                                                                              \
    const u32 pair = bid(), row = pair / k, lane = tid() % 32, first = (bid_y() * projectWarps + tid() / 32) * outputs;                             \
    if (row >= step->rows || first >= out) return;                                                                                                  \
    const u32 expert = (u32)routing[(u64)row * 2 * k + pair % k];                                                                                   \
    x += (u64)(pair / each) * in;                                                                                                                   \
    float y = products<F>({gate, gate_scales, gate_biases}, expert, x, first, out, in, group, kind);                                                \
    if (up) y = silu_precise(y) * products<F>({up, up_scales, up_biases}, expert, x, first, out, in, group, kind);                                          \
    if (lane < outputs && first + lane < out) dst[(u64)pair * out + first + lane] = y;                                                              \
  }                                                                                                                                                 \
  REGISTER(experts_simt_##name)

EXPERTS(f32, FormatF32)
EXPERTS(f16, FormatF16)
EXPERTS(bf16, FormatBF16)
EXPERTS(odd, FormatOdd)
EXPERTS(affine4, FormatAffine4)
EXPERTS(affine8, FormatAffine8)
EXPERTS(q8_0, FormatQ8_0)
EXPERTS(q4_0, FormatQ4_0)
EXPERTS(q4_k, FormatQ4_K)
EXPERTS(q6_k, FormatQ6_K)
