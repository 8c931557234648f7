// Embedding: rows of a table of any type.
#include "weights.h.metal"

struct EmbedParams {
  uint in, group;
  uint wide; // see Weights
};

// Row r of dst, f32 [rows, in], is row tokens[r] of the table: a threadgroup
// a row, a piece a thread.
template <typename F>
kernel void embed(device float* dst [[buffer(0)]], device const uchar* data [[buffer(1)]], device const ushort* scales [[buffer(2)]],
                  device const ushort* biases [[buffer(3)]], device const uint* tokens [[buffer(4)]],
                  constant EmbedParams& p [[buffer(5)]], uint row [[threadgroup_position_in_grid]],
                  uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
  const Weights w = Weights{data, scales, biases, p.in, p.group, p.wide != 0};
  const uint token = tokens[row];
  device float* to = dst + ulong(row) * p.in;
  for (uint piece = thread_index; piece < pieces_of<F>(p.in); piece += threads) {
    const typename F::Piece v = F::load(w, token, piece);
    const uint a = piece_start<F>(piece, 0), b = piece_start<F>(piece, 1);
    UNROLL for (uint f = 0; f < F::depth; f++) {
      const float2 both = F::decode(v, f);
      if (a + f < p.in) to[a + f] = both.x;
      if (b + f < p.in) to[b + f] = both.y;
    }
  }
}

#define EMBED(name, format)                                                                                                  \
  template [[host_name("embed_" name)]] kernel void embed<format>(device float*, device const uchar*, device const ushort*, \
                                                                  device const ushort*, device const uint*, constant EmbedParams&, uint, uint, uint);
EMBED("f32", F32Rows)
EMBED("f16", F16Rows)
EMBED("bf16", BF16Rows)
EMBED("affine4", Affine4)
EMBED("affine8", Affine8)
EMBED("q8_0", Q8_0)
EMBED("q4_0", Q4_0)
EMBED("q4_k", Q4_K)
EMBED("q6_k", Q6_K)
