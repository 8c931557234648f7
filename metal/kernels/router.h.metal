// Routers: a few outputs of rows in f32, whose sums are to be as exact as f32 allows, since
// a choice hangs on them. A lane sums every 32nd piece of a row of weights, and the lanes'
// sums are joined: chains a 32nd as long as those of matrices.
#include "project.h.metal"

struct RouterParams {
  uint rows, in, group, out;
};

constant constexpr uint router_outputs = 4, router_rows = 4; // of a simdgroup

// dst, [rows, out], is x·wᵀ. Grid: outputs, rows. A row's bits do not depend on others.
template <typename F, bool wide>
kernel void router(device const float* x [[buffer(0)]], device const uchar* data [[buffer(1)]], device const ushort* scales [[buffer(2)]],
                   device const ushort* biases [[buffer(3)]], device float* dst [[buffer(4)]], constant RouterParams& p [[buffer(5)]],
                   uint3 at [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  constexpr uint count = Inputs<float>::count;
  const uint first = (at.x * simdgroups + simdgroup) * router_outputs;
  if (first >= p.out) return;
  const Weights w = Weights{data, scales, biases, p.in, p.group, wide};
  const Run rows = {at.y * router_rows, p.rows};
  float sums[router_outputs][router_rows];
  UNROLL for (uint j = 0; j < router_outputs; j++)
    UNROLL for (uint i = 0; i < router_rows; i++) sums[j][i] = 0.0f;
  const uint pieces = (p.in + 8 * F::depth - 1) / (8 * F::depth) * 4;
  for (uint piece = lane; piece < pieces; piece += 32) {
    typename F::Piece v[router_outputs];
    UNROLL for (uint j = 0; j < router_outputs; j++) v[j] = F::load(w, min(first + j, p.out - 1), piece);
    const uint k0 = piece_start<F>(piece, 0), k1 = piece_start<F>(piece, 1);
    UNROLL for (uint f = 0; f < F::depth; f += count) {
      Inputs<float> x0[router_rows], x1[router_rows];
      UNROLL for (uint i = 0; i < router_rows; i++) {
        x0[i] = Inputs<float>::template load<wide>(x, x_row(rows, i), k0 + f, p.in);
        x1[i] = Inputs<float>::template load<wide>(x, x_row(rows, i), k1 + f, p.in);
      }
      UNROLL for (uint c = 0; c < count; c++)
        UNROLL for (uint j = 0; j < router_outputs; j++) {
          const float2 pair = F::decode(v[j], f + c);
          UNROLL for (uint i = 0; i < router_rows; i++)
            sums[j][i] = fma(pair.y, Inputs<float>::at(x1[i], c), fma(pair.x, Inputs<float>::at(x0[i], c), sums[j][i]));
        }
    }
  }
  UNROLL for (uint j = 0; j < router_outputs; j++)
    UNROLL for (uint i = 0; i < router_rows; i++) {
      const float sum = simd_sum(sums[j][i]);
      if (lane == 0 && has_row(rows, i) && first + j < p.out) dst[ulong(dst_row(rows, i)) * p.out + first + j] = sum;
    }
}

#define ROUTER_KERNEL(name, ...) template [[host_name(name)]] kernel decltype(router<__VA_ARGS__>) router<__VA_ARGS__>;
#define ROUTER(F, format) ROUTER_KERNEL("router_" format, F, true)
#define ROUTER_RAGGED(F, format) ROUTER_KERNEL("router_ragged_" format, F, false)
