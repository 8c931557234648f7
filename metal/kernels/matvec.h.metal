// One row of x times a matrix, without 8×8 matrices: a simdgroup takes 4
// outputs (2 of a gate and 2 beside them) over all inputs, a lane a piece of
// each at a time, 16 bytes or 32 of weights, and uses its two runs of x for all
// four. Sums are in another order than project's.
#include "project.h.metal"

template <typename F, typename X>
kernel void matvec(PROJECT_BUFFERS, uint at [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint block = at * simdgroups + simdgroup;
  if (block >= p.end2) return;
  const Block b = find_block<true>(block, 4, PROJECT_ARGUMENTS);
  constexpr uint count = Inputs<X>::count;
  const uint pieces = (p.in + 8 * F::depth - 1) / (8 * F::depth) * 4;
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (uint piece = lane; piece < pieces; piece += 32) {
    typename F::Piece w[4];
    UNROLL for (uint j = 0; j < 4; j++) {
      const bool up = p.gated != 0 && j >= 2;
      w[j] = F::load(up ? b.up : b.w, min(b.first + (up ? j - 2 : j), b.out - 1), piece);
    }
    const uint k0 = piece_start<F>(piece, 0), k1 = piece_start<F>(piece, 1);
    UNROLL for (uint f = 0; f < F::depth; f += count) {
      const Inputs<X> x0 = Inputs<X>::template load<true>(x, 0, k0 + f, p.in), x1 = Inputs<X>::template load<true>(x, 0, k1 + f, p.in);
      UNROLL for (uint i = 0; i < count; i++)
        UNROLL for (uint j = 0; j < 4; j++) {
          const float2 pair = F::decode(w[j], f + i);
          sums[j] = fma(pair.y, Inputs<X>::at(x1, i), fma(pair.x, Inputs<X>::at(x0, i), sums[j]));
        }
    }
  }
  UNROLL for (uint j = 0; j < 4; j++) sums[j] = simd_sum(sums[j]);
  if (lane != 0) return;
  const uint outputs = p.gated != 0 ? 2 : 4;
  UNROLL for (uint j = 0; j < 4; j++)
    if (j < outputs && b.first + j < b.out) finish(b, p, 0, b.first + j, sums[j], sums[j % 2 + 2]);
}

// PROJECT_KERNELS instantiates the kernels of a format for both types of x,
// PROJECT_RAGGED that of rows of floats which are not wide.
#define PROJECT_KERNEL(name, function, ...) template [[host_name(name)]] kernel decltype(function<__VA_ARGS__>) function<__VA_ARGS__>;
#define PROJECT_KERNELS_OF(F, X, suffix)                          \
  PROJECT_KERNEL("project_8_" suffix, project, F, X, 4, 1, true)  \
  PROJECT_KERNEL("project_16_" suffix, project, F, X, 4, 2, true) \
  PROJECT_KERNEL("project_32_" suffix, project, F, X, 2, 4, true) \
  PROJECT_KERNEL("prefill_" suffix, prefill, F, X)                \
  PROJECT_KERNEL("matvec_" suffix, matvec, F, X)
#define PROJECT_KERNELS(F, format)            \
  PROJECT_KERNELS_OF(F, float, format "_f32") \
  PROJECT_KERNELS_OF(F, bfloat, format "_bf16")
#define PROJECT_RAGGED(F, format)                                         \
  PROJECT_KERNEL("ragged_" format "_f32", project, F, float, 2, 4, false) \
  PROJECT_KERNEL("ragged_" format "_bf16", project, F, bfloat, 2, 4, false)
