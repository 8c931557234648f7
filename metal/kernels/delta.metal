// Gated DeltaNet (backend.Delta): what a row needs by itself and of the rows just before
// it, then the recurrence, then the norm of what that made and the log. A row's arithmetic
// has one order, however rows are cut into forwards.
#include "types.h.metal"

inline float silu(float v) { return v / (1.0f + exp(min(-v, 80.0f))); } // finite: e⁸⁰ leaves nothing of v

// softplus is ln(1 + e^v). ln(1 + y) = 2 artanh(y / (2 + y)), where y is at most 1: to 1e-9.
inline float softplus(float v) {
  const float y = exp(max(-fabs(v), -80.0f)), s = y / (2.0f + y), square = s * s;
  float sum = 1.0f / 17.0f;
  for (int n = 15; n > 0; n -= 2) sum = fma(sum, square, 1.0f / float(n));
  return fma(2.0f * s, sum, max(v, 0.0f));
}

// A part of key head g lies in the rows of a buffer from first + g · stride on.
struct Part {
  uint first, stride, width;
};

struct DeltaRowsParams {
  uint rows, base, settle;
  uint moved; // rows before base that are copied from where they are read to where they are written
  uint key_heads, value_heads, key_dim, value_dim;
  uint conv, raw_rows;
  float scale, eps; // of queries; under the root
  Part q, k, v, b, a;
};

// A Row is what a convolution reads: of indices below base what was kept, from there on
// the forward's rows.
struct Row {
  device const float* kept; // [raw_rows, channels]
  device const float* now;  // of the row at base
  uint width, index, channels;
};

// mixed is silu of a channel's convolution; at is the channel's place in a forward's row.
// The oldest row comes first, those before the sequence's beginning are 0.
inline float mixed(Row row, device const float* taps, uint channel, uint at, constant DeltaRowsParams& p) {
  float sum = 0.0f;
  for (uint t = 0; t < p.conv; t++) {
    if (row.index + t + 1 < p.conv) continue;
    const uint index = row.index + t + 1 - p.conv;
    const float v = index < p.base ? row.kept[ulong(index % p.raw_rows) * row.channels + channel] : row.now[ulong(index - p.base) * row.width + at];
    sum = fma(v, taps[channel * p.conv + t], sum);
  }
  return silu(sum);
}

// delta_rows makes of each row queries and keys, [rows, key_heads · key_dim], normed,
// values, [rows, value_heads · value_dim], and gates, [rows, 2 · value_heads]: decays,
// then β. Raw rows that later ones need go to after. A simdgroup has a key head's part of a
// row; those of the rows that are moved come first.
kernel void delta_rows(device float* queries [[buffer(0)]], device float* keys [[buffer(1)]], device float* values [[buffer(2)]],
                       device float* gates [[buffer(3)]], device const float* q [[buffer(4)]], device const float* k [[buffer(5)]],
                       device const float* v [[buffer(6)]], device const float* b [[buffer(7)]], device const float* a [[buffer(8)]],
                       device const float* before [[buffer(9)]], device float* after [[buffer(10)]], device const float* taps [[buffer(11)]],
                       device const float* log_decay [[buffer(12)]], device const float* time_step [[buffer(13)]],
                       constant DeltaRowsParams& p [[buffer(14)]], uint threadgroup_index [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint item = threadgroup_index * simdgroups + simdgroup, number = item / p.key_heads, g = item % p.key_heads;
  if (number >= p.moved + p.rows) return;
  const uint group = p.value_heads / p.key_heads, run = group * p.value_dim;
  const uint all_keys = p.key_heads * p.key_dim, all_values = p.value_heads * p.value_dim, channels = 2 * all_keys + all_values;
  const uint q_channel = g * p.key_dim, k_channel = all_keys + q_channel, v_channel = 2 * all_keys + g * run;
  const uint index = p.base + number - p.moved;
  device float* raw = after + ulong(index % p.raw_rows) * channels;
  if (number < p.moved) {
    device const float* from = before + ulong(index % p.raw_rows) * channels;
    for (uint i = lane; i < p.key_dim; i += 32) raw[q_channel + i] = from[q_channel + i], raw[k_channel + i] = from[k_channel + i];
    for (uint i = lane; i < run; i += 32) raw[v_channel + i] = from[v_channel + i];
    return;
  }
  const uint row = number - p.moved;
  const uint q_at = p.q.first + g * p.q.stride, k_at = p.k.first + g * p.k.stride, v_at = p.v.first + g * p.v.stride;
  const bool keep = index + p.conv > p.settle;
  Row of = {before, q, p.q.width, index, channels};
  device float* to = queries + ulong(row) * all_keys + q_channel;
  float sum = 0.0f;
  for (uint i = lane; i < p.key_dim; i += 32) {
    const float x = mixed(of, taps, q_channel + i, q_at + i, p);
    to[i] = x;
    sum = fma(x, x, sum);
    if (keep) raw[q_channel + i] = q[ulong(row) * p.q.width + q_at + i];
  }
  float factor = 1.0f / sqrt(simd_sum(sum) + p.eps) * p.scale;
  for (uint i = lane; i < p.key_dim; i += 32) to[i] *= factor;
  of.now = k, of.width = p.k.width;
  to = keys + ulong(row) * all_keys + q_channel;
  sum = 0.0f;
  for (uint i = lane; i < p.key_dim; i += 32) {
    const float x = mixed(of, taps, k_channel + i, k_at + i, p);
    to[i] = x;
    sum = fma(x, x, sum);
    if (keep) raw[k_channel + i] = k[ulong(row) * p.k.width + k_at + i];
  }
  factor = 1.0f / sqrt(simd_sum(sum) + p.eps);
  for (uint i = lane; i < p.key_dim; i += 32) to[i] *= factor;
  of.now = v, of.width = p.v.width;
  to = values + ulong(row) * all_values + g * run;
  for (uint i = lane; i < run; i += 32) {
    to[i] = mixed(of, taps, v_channel + i, v_at + i, p);
    if (keep) raw[v_channel + i] = v[ulong(row) * p.v.width + v_at + i];
  }
  to = gates + ulong(row) * 2 * p.value_heads + g * group;
  for (uint i = lane; i < group; i += 32) {
    const uint head = g * group + i;
    const float dt = a[ulong(row) * p.a.width + p.a.first + g * p.a.stride + i] + time_step[head];
    const float beta = b[ulong(row) * p.b.width + p.b.first + g * p.b.stride + i];
    to[i] = exp(max(-exp(log_decay[head]) * softplus(dt), -87.0f));
    to[p.value_heads + i] = 1.0f / (1.0f + exp(min(-beta, 80.0f)));
  }
}

struct DeltaColumnsParams {
  uint rows, base, folded, settle;
  uint key_heads, value_heads, key_dim, value_dim, log_rows;
  uint tiled; // head j has key head j % key_heads
  uint fresh; // there is no state yet: it is 0
  uint store; // the state before row settle is written
};

// decayed is an element of the state with a row added: the same operation whether the row
// is the forward's or comes from the log.
inline float decayed(float s, float decay, float key, float delta) { return fma(key, delta, decay * s); }

// delta_columns runs 32 columns of a value head's state, [key_dim, value_dim], over the rows
// of a sequence: rows folded to base come from the log, those before settle are added
// for good, and those after are logged, on a copy that is dropped. Four simdgroups have PER
// rows of the state each, in registers; what is past key_dim is 0 and changes nothing.
// Sums are those of the four, ascending, joined in one order. Keys and queries of a row
// come through threadgroup memory, those of the next while a row is computed.
template <uint PER>
kernel void delta_columns(device float* out [[buffer(0)]], device const float* queries [[buffer(1)]], device const float* keys [[buffer(2)]],
                          device const float* values [[buffer(3)]], device const float* gates [[buffer(4)]],
                          device const float* state [[buffer(5)]], device const float* log_keys [[buffer(6)]],
                          device const float* log_deltas [[buffer(7)]], device const float* log_decays [[buffer(8)]],
                          device float* to_state [[buffer(9)]], device float* to_deltas [[buffer(10)]],
                          constant DeltaColumnsParams& p [[buffer(11)]], uint2 group [[threadgroup_position_in_grid]],
                          uint2 place [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float staged[3][8 * PER]; // by turns: keys, then queries
  threadgroup float parts[4][32], results[4][32];
  const uint head = group.y, column = group.x * 32 + lane, first = simdgroup * PER;
  const uint key_head = p.tiled != 0 ? head % p.key_heads : head / (p.value_heads / p.key_heads);
  const uint all_keys = p.key_heads * p.key_dim, all_values = p.value_heads * p.value_dim;
  const uint key_at = key_head * p.key_dim, value_at = head * p.value_dim + column;
  const bool there = column < p.value_dim;
  const ulong state_at = ulong(head) * p.key_dim * p.value_dim + column;
  float s[PER];
  _Pragma("clang loop unroll(full)") for (uint j = 0; j < PER; j++) {
    const uint i = first + j;
    s[j] = p.fresh == 0 && there && i < p.key_dim ? state[state_at + ulong(i) * p.value_dim] : 0.0f;
  }
  const uint folds = p.base - p.folded, steps = folds + p.rows;
  for (uint step = 0; step <= steps; step++) {
    // This step's keys and queries are staged, and the step before is computed.
    if (step < steps) {
      for (uint i = place.x; i < 4 * PER; i += 128) {
        float key = 0.0f, query = 0.0f;
        if (i < p.key_dim) {
          if (step < folds) {
            key = log_keys[ulong((p.folded + step) % p.log_rows) * all_keys + key_at + i];
          } else {
            key = keys[ulong(step - folds) * all_keys + key_at + i];
            query = queries[ulong(step - folds) * all_keys + key_at + i];
          }
        }
        staged[step % 3][i] = key, staged[step % 3][4 * PER + i] = query;
      }
    }
    if (step == folds + 1) threadgroup_barrier(mem_flags::mem_device); // logged deltas have been read
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (step > folds + 1 && simdgroup == 0 && there) // what the step before the last made
      out[ulong(step - folds - 2) * all_values + value_at] = (results[0][lane] + results[1][lane]) + (results[2][lane] + results[3][lane]);
    if (step == 0) continue;
    const uint now = step - 1;
    threadgroup const float* key = staged[now % 3] + first;
    threadgroup const float* query = key + 4 * PER;
    if (now < folds) {
      const uint slot = (p.folded + now) % p.log_rows;
      const float decay = log_decays[slot * p.value_heads + head], delta = there ? log_deltas[ulong(slot) * all_values + value_at] : 0.0f;
      _Pragma("clang loop unroll(full)") for (uint j = 0; j < PER; j++) s[j] = decayed(s[j], decay, key[j], delta);
      continue;
    }
    const uint row = now - folds, index = p.base + row;
    if (index == p.settle && p.store != 0 && there) {
      _Pragma("clang loop unroll(full)") for (uint j = 0; j < PER; j++)
        if (first + j < p.key_dim) to_state[state_at + ulong(first + j) * p.value_dim] = s[j];
    }
    const float decay = gates[ulong(row) * 2 * p.value_heads + head], beta = gates[(ulong(row) * 2 + 1) * p.value_heads + head];
    const float value = there ? values[ulong(row) * all_values + value_at] : 0.0f;
    float sum = 0.0f;
    _Pragma("clang loop unroll(full)") for (uint j = 0; j < PER; j++) sum = fma(s[j], key[j], sum);
    parts[simdgroup][lane] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = (parts[0][lane] + parts[1][lane]) + (parts[2][lane] + parts[3][lane]);
    const float delta = beta * fma(-decay, sum, value);
    float result = 0.0f;
    _Pragma("clang loop unroll(full)") for (uint j = 0; j < PER; j++) {
      s[j] = decayed(s[j], decay, key[j], delta);
      result = fma(s[j], query[j], result);
    }
    results[simdgroup][lane] = result;
    if (simdgroup == 0 && there && index >= p.settle) to_deltas[ulong(index % p.log_rows) * all_values + value_at] = delta;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup == 0 && there)
    out[ulong(p.rows - 1) * all_values + value_at] = (results[0][lane] + results[1][lane]) + (results[2][lane] + results[3][lane]);
}

#define DELTA_COLUMNS(name, per) template [[host_name("delta_columns_" name)]] kernel decltype(delta_columns<per>) delta_columns<per>;
DELTA_COLUMNS("32", 8)
DELTA_COLUMNS("128", 32)
DELTA_COLUMNS("256", 64)

struct DeltaFinishParams {
  uint rows, base, settle;
  uint key_heads, value_heads, key_dim, value_dim, log_rows;
  float eps;
  Part z;
};

// delta_finish sets dst to the norm of what delta_columns made, [rows, value_heads ·
// value_dim], times silu(z), and logs keys and decays of the rows from settle on. A
// simdgroup has a value head of a row, and a key head where there is one of its number.
template <typename T>
kernel void delta_finish(device T* dst [[buffer(0)]], device const float* made [[buffer(1)]], device const float* z [[buffer(2)]],
                         device const float* norm [[buffer(3)]], device const float* keys [[buffer(4)]],
                         device const float* gates [[buffer(5)]], device float* log_keys [[buffer(6)]], device float* log_decays [[buffer(7)]],
                         constant DeltaFinishParams& p [[buffer(8)]], uint threadgroup_index [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint item = threadgroup_index * simdgroups + simdgroup, row = item / p.value_heads, head = item % p.value_heads;
  if (row >= p.rows) return;
  const uint group = p.value_heads / p.key_heads, index = p.base + row;
  const ulong at = (ulong(row) * p.value_heads + head) * p.value_dim;
  device const float* gate = z + ulong(row) * p.z.width + p.z.first + head / group * p.z.stride + head % group * p.value_dim;
  float sum = 0.0f;
  for (uint i = lane; i < p.value_dim; i += 32) sum = fma(made[at + i], made[at + i], sum);
  const float scale = 1.0f / sqrt(simd_sum(sum) / float(p.value_dim) + p.eps);
  for (uint i = lane; i < p.value_dim; i += 32) dst[at + i] = T(silu(gate[i]) * (made[at + i] * scale * norm[i]));
  if (index < p.settle) return;
  const ulong slot = index % p.log_rows;
  if (lane == 0) log_decays[slot * p.value_heads + head] = gates[ulong(row) * 2 * p.value_heads + head];
  if (head >= p.key_heads) return;
  const uint all_keys = p.key_heads * p.key_dim;
  for (uint i = lane; i < p.key_dim; i += 32)
    log_keys[slot * all_keys + head * p.key_dim + i] = keys[ulong(row) * all_keys + head * p.key_dim + i];
}

#define DELTA_FINISH(name, type) template [[host_name("delta_finish_" name)]] kernel decltype(delta_finish<type>) delta_finish<type>;
DELTA_FINISH("f32", float)
DELTA_FINISH("bf16", bfloat)
