// RMSNorm, a threadgroup a row, and conversion of elements.
#include "types.h.metal"

struct NormParams {
  uint width;
  float eps;
  uint wide; // rows of dst, x and w are whole runs of 4 elements at such places
};

// norm_row sets dst = x / sqrt(mean(x²) + eps) · w. A thread's first 4 runs of
// 4 elements stay in registers between the sum and the product: rows of up to
// 8192 elements of 512 threads.
template <typename T>
inline void norm_row(device T* dst, device const float* x, device const float* w, constant NormParams& p, threadgroup float* partial,
                     uint thread_index, uint threads, uint lane, uint simdgroup, uint simdgroups) {
  constexpr uint held = 4;
  const uint width = p.width, runs = (width + 3) / 4;
  const bool wide = p.wide != 0;
  float4 v[held];
  float sum = 0.0f;
  #pragma unroll
  for (uint j = 0; j < held; j++) {
    const uint i = thread_index + j * threads;
    if (i < runs) {
      v[j] = load4(x, 4 * i, width, wide);
      sum += dot(v[j], v[j]);
    }
  }
  for (uint i = thread_index + held * threads; i < runs; i += threads) {
    const float4 a = load4(x, 4 * i, width, wide);
    sum += dot(a, a);
  }
  sum = threadgroup_sum(sum, partial, lane, simdgroup, simdgroups);
  const float scale = 1.0f / sqrt(sum / float(width) + p.eps);
  #pragma unroll
  for (uint j = 0; j < held; j++) {
    const uint i = thread_index + j * threads;
    if (i < runs) store4(dst, 4 * i, width, wide, v[j] * scale * load4(w, 4 * i, width, wide));
  }
  for (uint i = thread_index + held * threads; i < runs; i += threads)
    store4(dst, 4 * i, width, wide, load4(x, 4 * i, width, wide) * scale * load4(w, 4 * i, width, wide));
}

// Row r of dst is the norm of row r of x.
template <typename T>
kernel void rms_norm(device T* dst [[buffer(0)]], device const float* x [[buffer(1)]], device const float* w [[buffer(2)]],
                     constant NormParams& p [[buffer(3)]], uint row [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  norm_row(dst + ulong(row) * p.width, x + ulong(row) * p.width, w, p, partial, thread_index, threads, lane, simdgroup, simdgroups);
}

// Row r of dst is the norm of row want[r] of x.
template <typename T>
kernel void rms_norm_wanted(device T* dst [[buffer(0)]], device const float* x [[buffer(1)]], device const float* w [[buffer(2)]],
                            device const uint* want [[buffer(3)]], constant NormParams& p [[buffer(4)]],
                            uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                            uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  norm_row(dst + ulong(row) * p.width, x + ulong(want[row]) * p.width, w, p, partial, thread_index, threads, lane, simdgroup, simdgroups);
}

#define NORM(name, type)                                                                                                             \
  template [[host_name("rms_norm_" name)]] kernel void rms_norm<type>(device type*, device const float*, device const float*,         \
                                                                      constant NormParams&, uint, uint, uint, uint, uint, uint);      \
  template [[host_name("rms_norm_wanted_" name)]] kernel void rms_norm_wanted<type>(                                                   \
      device type*, device const float*, device const float*, device const uint*, constant NormParams&, uint, uint, uint, uint, uint, uint);
NORM("f32", float)
NORM("bf16", bfloat)

struct ColumnsParams {
  uint width, first, part;
  uint wide; // rows of both, and the columns, are whole runs of 4 elements at such places
};

// Columns first to first + part - 1 of row r of dst are row r of src: a threadgroup a row.
template <typename T>
kernel void put_columns(device T* dst [[buffer(0)]], device const float* src [[buffer(1)]], constant ColumnsParams& p [[buffer(2)]],
                        uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                        uint threads [[threads_per_threadgroup]]) {
  device T* to = dst + ulong(row) * p.width + p.first;
  device const float* from = src + ulong(row) * p.part;
  for (uint i = thread_index; i < (p.part + 3) / 4; i += threads)
    store4(to, 4 * i, p.part, p.wide != 0, load4(from, 4 * i, p.part, p.wide != 0));
}

template [[host_name("put_columns_f32")]] kernel void put_columns<float>(device float*, device const float*, constant ColumnsParams&, uint, uint, uint);
template [[host_name("put_columns_bf16")]] kernel void put_columns<bfloat>(device bfloat*, device const float*, constant ColumnsParams&, uint, uint, uint);

struct ConvertParams {
  uint n;
  uint wide;
};

// dst = src, rounded or widened, 4 elements a thread.
template <typename D, typename S>
kernel void convert(device D* dst [[buffer(0)]], device const S* src [[buffer(1)]], constant ConvertParams& p [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
  // A last run that is not whole takes the path of single elements.
  if (4 * i < p.n) {
    const bool wide = p.wide != 0 && 4 * i + 4 <= p.n;
    store4(dst, 4 * i, p.n, wide, load4(src, 4 * i, p.n, wide));
  }
}

template [[host_name("convert_bf16_f32")]] kernel void convert<bfloat, float>(device bfloat*, device const float*, constant ConvertParams&, uint);
template [[host_name("convert_f32_bf16")]] kernel void convert<float, bfloat>(device float*, device const bfloat*, constant ConvertParams&, uint);
