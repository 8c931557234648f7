// Prefill attention: spans of many rows. A threadgroup has 64 query vectors
// and takes the context from its beginning.
#include "attend.h.metal"

#define ATTEND_PREFILL(name, q_type, kv_type, operand, dim, wide)                                                             \
  template [[host_name("attend_prefill_" name)]] kernel void attend<q_type, kv_type, operand, dim, false, wide>(              \
      device q_type*, device const q_type*, device const kv_type*, device const kv_type*, device const float*,                \
      device const float*, device float*, device const uint*, constant AttendParams&, threadgroup operand*, uint3, uint, uint, uint);
ATTEND_PREFILL("bf16_bf16_64", bfloat, bfloat, bfloat, 64, false)
ATTEND_PREFILL("bf16_bf16_128", bfloat, bfloat, bfloat, 128, false)
ATTEND_PREFILL("bf16_bf16_256", bfloat, bfloat, bfloat, 256, false)
ATTEND_PREFILL("bf16_int8_64", bfloat, char, bfloat, 64, false)
ATTEND_PREFILL("bf16_int8_128", bfloat, char, bfloat, 128, false)
ATTEND_PREFILL("bf16_int8_256", bfloat, char, bfloat, 256, false)
ATTEND_PREFILL("f32_bf16_64", float, bfloat, float, 64, false)
ATTEND_PREFILL("f32_bf16_128", float, bfloat, float, 128, false)
ATTEND_PREFILL("f32_int8_64", float, char, float, 64, false)
ATTEND_PREFILL("f32_int8_128", float, char, float, 128, false)
ATTEND_PREFILL("f32_f32_64", float, float, float, 64, false)
ATTEND_PREFILL("f32_f32_128", float, float, float, 128, false)
ATTEND_PREFILL("any", Any, Any, float, 128, true)
