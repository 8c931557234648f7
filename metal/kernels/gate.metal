// SwiGLU's gate where its two projections have weights of different types and
// could not be one dispatch.
#include "types.h.metal"

struct GateParams {
  uint n;
  uint wide; // n and the places of dst, gate and up are multiples of 4 elements
};

// dst = silu(gate) * up. The exponent is bounded: fast math knows no infinity.
template <typename T>
kernel void gate_rows(device T* dst [[buffer(0)]], device const float* gate [[buffer(1)]], device const float* up [[buffer(2)]],
                      constant GateParams& p [[buffer(3)]], uint index [[thread_position_in_grid]]) {
  const uint i = 4 * index;
  if (i >= p.n) return;
  const bool wide = p.wide != 0;
  const float4 g = load4(gate, i, p.n, wide);
  store4(dst, i, p.n, wide, g / (1.0f + exp(min(-g, 80.0f))) * load4(up, i, p.n, wide));
}

template [[host_name("gate_rows_f32")]] kernel void gate_rows<float>(device float*, device const float*, device const float*, constant GateParams&, uint);
template [[host_name("gate_rows_bf16")]] kernel void gate_rows<bfloat>(device bfloat*, device const float*, device const float*, constant GateParams&, uint);
