// Decode attention: spans of few rows, the context in parts that the second
// dispatch joins.
#include "attend.h.metal"

#define ATTEND(name, q_type, kv_type, operand, dim, wide)                                                                     \
  template [[host_name("attend_" name)]] kernel void attend<q_type, kv_type, operand, dim, true, wide>(                       \
      device q_type*, device const q_type*, device const kv_type*, device const kv_type*, device const float*,                \
      device const float*, device float*, device const uint*, constant AttendParams&, threadgroup operand*, uint3, uint, uint, uint);
ATTEND("bf16_bf16_64", bfloat, bfloat, bfloat, 64, false)
ATTEND("bf16_bf16_128", bfloat, bfloat, bfloat, 128, false)
ATTEND("bf16_bf16_256", bfloat, bfloat, bfloat, 256, false)
ATTEND("bf16_int8_64", bfloat, char, bfloat, 64, false)
ATTEND("bf16_int8_128", bfloat, char, bfloat, 128, false)
ATTEND("bf16_int8_256", bfloat, char, bfloat, 256, false)
ATTEND("f32_bf16_64", float, bfloat, float, 64, false)
ATTEND("f32_bf16_128", float, bfloat, float, 128, false)
ATTEND("f32_int8_64", float, char, float, 64, false)
ATTEND("f32_int8_128", float, char, float, 128, false)
ATTEND("f32_f32_64", float, float, float, 64, false)
ATTEND("f32_f32_128", float, float, float, 128, false)
ATTEND("any", Any, Any, float, 128, true)

struct MergeParams {
  uint vectors, dim, q_stride, parts;
};

// attend_merge joins the parts of each query vector in order, and gates what comes of
// them; a thread has two elements. A part in which a row saw nothing is zero and changes no bit. The
// running maximum keeps fast math from summing in another order.
template <typename Q>
kernel void attend_merge(device Q* out [[buffer(0)]], device const float* partial [[buffer(1)]], device const Q* q [[buffer(2)]],
                         constant MergeParams& p [[buffer(3)]], uint group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                         uint threads [[threads_per_threadgroup]]) {
  const uint pairs = p.dim / 2, i = group * threads + thread_index;
  if (i / pairs >= p.vectors) return;
  const ulong vector = i / pairs, column = i % pairs * 2;
  device const float* sums = partial + vector * p.parts * p.dim + column;
  device const float* marks = partial + ulong(p.vectors) * p.parts * p.dim + vector * p.parts * 2;
  float most = none, weight = 0.0f, a = 0.0f, b = 0.0f;
  _Pragma("clang loop unroll_count(4)") for (uint part = 0; part < p.parts; part++) {
    const float2 mark = *(device const float2*)(marks + 2 * part), sum = *(device const float2*)(sums + ulong(part) * p.dim);
    const float peak = max(most, mark.x), decay = exp2(most - peak), factor = exp2(mark.x - peak);
    most = peak;
    weight = fma(weight, decay, mark.y * factor);
    a = fma(a, decay, sum.x * factor);
    b = fma(b, decay, sum.y * factor);
  }
  const float inverse = 1.0f / weight;
  const float2 gate = gates_of(q, vector, p.dim, p.q_stride, column, 0);
  set_pair(out, vector * p.dim + column, a * inverse * gate.x, b * inverse * gate.y, 0);
}
#define ATTEND_MERGE(name, type) \
  template [[host_name("attend_merge_" name)]] kernel void attend_merge<type>(device type*, device const float*, device const type*, constant MergeParams&, uint, uint, uint);
ATTEND_MERGE("f32", float)
ATTEND_MERGE("bf16", bfloat)
