// Causal attention of a span's rows over the stored keys and values of one
// layer: what attend.metal and attend_prefill.metal have in common.
//
// The query vectors of a KV head (rows × the query heads that share it, row by
// row) stand in blocks of 8, the rows of 8x8 matrices; a simdgroup has a block. Its
// queries and sums stay in matrices; keys, then values, come in tiles through
// threadgroup memory, where all blocks of the threadgroup read them.
//
// Which lane holds which element of a matrix Apple does not document: what lanes
// compute themselves goes through 8 lines of threadgroup memory that the simdgroup
// has of its own. Scores go there, a step of slots at a time, and come back as
// weights; queries and results pass through once. Where a row's maximum rises, its
// sums are multiplied by a diagonal matrix. For a head of 128, bf16 and 32 slots that is
// 3.5 KiB to and from threadgroup memory, where keys and values are 16 KiB to
// each simdgroup, and 16 matrix products beside 128 while maxima rise.
//
// Operands T are the queries' type, and float in the kernel of any types; sums
// are f32. Probabilities are rounded to T before they are summed, so
// that the weights of a row add up to 1.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
#include "pages.h.metal"

#define UNROLL _Pragma("clang loop unroll(full)")

// The score of what a row does not see, and the maximum of no scores. It is
// finite: fast math may assume that there are no infinities.
constant constexpr float none = -1.0e30f;

// Elements along the head dimension that share a scale in int8.
constant constexpr uint scale_group = 64;

struct AttendParams {
  uint base, rows;                    // index of the span's first row; rows
  uint heads, group, dim;             // query heads; those that share a KV head; head dim
  uint q_stride;                      // elements from query head to query head: dim, or 2 · dim with gates
  uint slots, window, keep;           // backend.Layout
  uint page, scale_page;              // elements, and scales, from page to page
  uint blocks;                        // of 8 query vectors in a threadgroup: 1, 2, 4 or 8
  uint parts;                         // of the context; 1 where it is not split
  uint q_type, kv_type;               // for Any
  float scale;                        // of the scores, times log2(e)
};

// Any is an element of a type that only AttendParams tells.
struct Any { uchar byte; };
constant constexpr uint type_f32 = 0, type_f16 = 1, type_bf16 = 2, type_int8 = 3;

inline float element(device const float* p, ulong i, uint) { return p[i]; }
inline float element(device const bfloat* p, ulong i, uint) { return float(p[i]); }
inline float element(device const Any* p, ulong i, uint type) {
  switch (type) {
    case type_f32: return ((device const float*)p)[i];
    case type_f16: return float(((device const half*)p)[i]);
    case type_bf16: return float(((device const bfloat*)p)[i]);
    default: return float(((device const char*)p)[i]);
  }
}

inline void set_pair(device float* p, ulong i, float a, float b, uint) { *(device float2*)(p + i) = float2(a, b); }
inline void set_pair(device bfloat* p, ulong i, float a, float b, uint) { *(device vec<bfloat, 2>*)(p + i) = vec<bfloat, 2>(float2(a, b)); }
inline void set_pair(device Any* p, ulong i, float a, float b, uint type) {
  if (type == type_f32) {
    set_pair((device float*)p, i, a, b, type);
  } else {
    set_pair((device bfloat*)p, i, a, b, type);
  }
}

// gates_of is what elements at and at + 1 of a head's result are multiplied with: the
// sigmoid of the gates that lie behind its query, or 1. The exponent is bounded: fast math
// knows no infinity.
template <typename Q> inline float2 gates_of(device const Q* q, ulong vector, uint dim, uint q_stride, uint at, uint type) {
  if (q_stride == dim) return float2(1.0f);
  const ulong gate = vector * q_stride + dim + at;
  return 1.0f / (1.0f + exp(min(-float2(element(q, gate, type), element(q, gate + 1, type)), 80.0f)));
}

// fetch4 gives elements at to at + 3 of stored vectors; of Any, the first
// count of them, and zeros.
template <typename T> inline vec<T, 4> fetch4(device const T* from, ulong at, uint, device const float*, ulong, uint) {
  return *(device const vec<T, 4>*)(from + at);
}
template <typename T> inline vec<T, 4> fetch4(device const bfloat* from, ulong at, uint, device const float*, ulong, uint) {
  return vec<T, 4>(*(device const vec<bfloat, 4>*)(from + at));
}
template <typename T> inline vec<T, 4> fetch4(device const char* from, ulong at, uint, device const float* scales, ulong scale_at, uint) {
  return vec<T, 4>(float4(*(device const char4*)(from + at)) * scales[scale_at]);
}
template <typename T> inline vec<T, 4> fetch4(device const Any* from, ulong at, uint count, device const float* scales, ulong scale_at, uint type) {
  const float scale = type == type_int8 ? scales[scale_at] : 1.0f;
  vec<T, 4> v;
  for (uint i = 0; i < 4; i++) v[i] = i < count ? element(from, at + i, type) * scale : T(0.0f);
  return v;
}

// Parts of the context are intervals of slots that depend on nothing: 64 slots
// each up to slot 512, from there on a quarter of what lies before the power of
// two below: long contexts have few parts. The four parts from a multiple of 4
// on are of one size.
inline uint part_size(uint part) { return part < 8 ? 64 : 128u << (part - 8) / 4; }
inline uint part_start(uint part) { return part < 8 ? 64 * part : (4 + part % 4) * part_size(part); }

// sees tells whether the row at index sees what is stored at column.
inline bool sees(constant AttendParams& p, uint index, uint column) {
  if (column > index) return false;
  return p.window == 0 || column < p.keep || column + (p.window - p.keep) > index;
}

// column_of is the index stored in a slot that holds one.
inline uint column_of(constant AttendParams& p, uint slot) {
  if (p.window == 0 || slot < p.keep) return slot;
  const uint ring = p.slots - p.keep, last = p.base + p.rows - 1;
  const uint age = (last - p.keep) % ring + ring - (slot - p.keep);
  return last - (age < ring ? age : age - ring);
}

// A simdgroup's own lines, in threadgroup memory: line lane / 4 is of the lane's
// query vector, and the lane has a quarter of its columns. Columns are the slots
// of a step, 16 at least; then come 8 of the diagonal matrix; 4 more floats
// spread the lines over the banks. Elements of 16 bits lie in the first half of
// their columns.
inline constexpr uint own_diagonal(uint step) { return step < 16 ? 16 : step; }
inline constexpr uint own_line(uint step) { return own_diagonal(step) + 12; }

// Joins of a value over the 4 lanes of a line.
inline float row_max(float v) {
  v = max(v, simd_shuffle_xor(v, 1));
  return max(v, simd_shuffle_xor(v, 2));
}
inline float row_sum(float v) {
  v += simd_shuffle_xor(v, 1);
  return v + simd_shuffle_xor(v, 2);
}

// load_tile fills ROWS lines of a tile with elements first to first + D - 1 of
// stored vectors of a KV head. Streams take 1 << shift lines each, from slot +
// stream · size on, which lie in one page: pages has those of all streams. Past the last slot that holds something the line is that
// slot's, past the last element there are others: they count for nothing, but
// zero times what lies there might not be zero. A thread has 4 loads under way:
// threads divides ROWS · D / 16.
template <typename T, typename K, uint D, uint ROWS>
inline void load_tile(threadgroup T* tile, device const K* stored, device const float* scales, constant AttendParams& p, uint head,
                      uint first, uint slot, uint size, uint shift, uint4 pages, uint held, uint thread_index, uint threads) {
  constexpr uint LINE = D + 16 / sizeof(T), QUADS = D / 4;
  const uint groups = (p.dim + scale_group - 1) / scale_group;
  for (uint i = thread_index; i < ROWS * QUADS; i += 4 * threads) {
    vec<T, 4> v[4];
    UNROLL for (uint j = 0; j < 4; j++) {
      const uint line = (i + j * threads) / QUADS, column = first + (i + j * threads) % QUADS * 4;
      const uint stream = line >> shift, from = min(slot + stream * size + (line & ((1u << shift) - 1)), held - 1);
      const uint at = column < p.dim ? column : 0, vector = head * page_slots + from % page_slots;
      const ulong page = pages[stream];
      v[j] = fetch4<T>(stored, page * p.page + (vector * p.dim + at), p.dim - at, scales,
                       page * p.scale_page + (vector * groups + at / scale_group), p.kv_type);
    }
    UNROLL for (uint j = 0; j < 4; j++) {
      *(threadgroup vec<T, 4>*)(tile + (i + j * threads) / QUADS * LINE + (i + j * threads) % QUADS * 4) = v[j];
    }
  }
}

// load_queries sets matrices to elements first to first + D - 1 of the lanes'
// query vectors, zeros past the last element.
template <typename T, typename Q, uint D, uint STEP>
inline void load_queries(thread simdgroup_matrix<T, 8, 8> (&queries)[D / 8], threadgroup float* own, device const Q* q,
                         constant AttendParams& p, ulong vector, uint first, uint lane) {
  constexpr uint LINE = own_line(STEP) * 4 / sizeof(T);
  threadgroup T* lines = (threadgroup T*)own;
  vec<T, 4> held[D / 16];
  UNROLL for (uint i = 0; i < D / 16; i++) {
    const uint at = first + i * 16 + lane % 4 * 4;
    UNROLL for (uint j = 0; j < 4; j++) held[i][j] = at + j < p.dim ? T(element(q, vector * p.q_stride + at + j, p.q_type)) : T(0.0f);
  }
  UNROLL for (uint i = 0; i < D / 16; i++) {
    simdgroup_barrier(mem_flags::mem_threadgroup); // the lines before have been loaded
    *(threadgroup vec<T, 4>*)(lines + lane / 4 * LINE + lane % 4 * 4) = held[i];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(queries[2 * i], lines, LINE);
    simdgroup_load(queries[2 * i + 1], lines + 8, LINE);
  }
}

// Block is what a lane knows of its simdgroup's query vectors.
struct Block {
  uint lowest, highest; // index of the rows of the first and the last vector
  uint index;           // of the row of the lane's vector
};

// Sums are the attention so far: of the lane's vector the maximum of the scores and
// the lane's share of the weights, and the block's weighted values.
template <uint D> struct Sums {
  float most, weight;
  simdgroup_matrix<float, 8, 8> values[D / 8];
};

// take adds STEP slots from slot on, whose scores and values are given.
// Multiplications that an addition follows are written as fma, for every copy of this
// code to round alike.
template <typename T, uint D, uint STEP>
inline void take(thread Sums<D>& sums, thread simdgroup_matrix<float, 8, 8>* scores, threadgroup float* own, threadgroup const T* values,
                 Block block, uint slot, uint held, constant AttendParams& p, uint lane) {
  constexpr uint LINE = D + 16 / sizeof(T), OWN = own_line(STEP), WEIGHTS = OWN * 4 / sizeof(T), EACH = STEP / 4;
  const uint column = lane % 4 * EACH;
  threadgroup float* line = own + lane / 4 * OWN;
  simdgroup_barrier(mem_flags::mem_threadgroup); // the weights before have been loaded
  UNROLL for (uint i = 0; i < STEP / 8; i++) simdgroup_store(scores[i], own + i * 8, OWN);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const bool all_seen = p.window == 0 && slot + STEP <= block.lowest + 1;
  float each[EACH], peak = none;
  UNROLL for (uint j = 0; j < EACH; j++) {
    const uint at = slot + column + j;
    each[j] = line[column + j];
    if (!all_seen && (at >= held || !sees(p, block.index, column_of(p, at)))) each[j] = none;
    peak = max(peak, each[j]);
  }
  peak = row_max(peak);
  // Where a row sees none of the slots its sums are multiplied by 2^0, where
  // it has seen none so far the slots' weights are 0 and not 2^0.
  const float most = peak == none ? sums.most : max(sums.most, peak * p.scale);
  const float shift = most == none ? 0.0f : most, decay = exp2(sums.most - shift);
  const bool same = simd_all(decay == 1.0f);
  simdgroup_barrier(mem_flags::mem_threadgroup); // all scores have been read
  threadgroup T* weights = (threadgroup T*)own + lane / 4 * WEIGHTS + column;
  float sum = 0.0f;
  UNROLL for (uint j = 0; j < EACH; j++) {
    const T weight = T(exp2(fma(each[j], p.scale, -shift)));
    weights[j] = weight;
    sum += float(weight);
  }
  if (!same) {
    UNROLL for (uint j = 0; j < 2; j++) line[own_diagonal(STEP) + lane % 4 * 2 + j] = lane % 4 * 2 + j == lane / 4 ? decay : 0.0f;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (!same) {
    simdgroup_matrix<float, 8, 8> diagonal;
    simdgroup_load(diagonal, own + own_diagonal(STEP), OWN);
    UNROLL for (uint d = 0; d < D / 8; d++) simdgroup_multiply(sums.values[d], diagonal, sums.values[d]);
  }
  UNROLL for (uint i = 0; i < STEP / 8; i++) {
    simdgroup_matrix<T, 8, 8> weight;
    simdgroup_load(weight, (threadgroup const T*)own + i * 8, WEIGHTS);
    UNROLL for (uint d = 0; d < D / 8; d++) {
      simdgroup_matrix<T, 8, 8> value;
      simdgroup_load(value, values + i * 8 * LINE + d * 8, LINE);
      simdgroup_multiply_accumulate(sums.values[d], weight, value, sums.values[d]);
    }
  }
  sums.weight = fma(sums.weight, decay, sum);
  sums.most = most;
}

// attend: out is [rows, heads, dim], q [rows, heads, q_stride]; keys and values are those of one layer in
// page 0, [KV heads, page_slots, dim], their scales [KV heads, page_slots, groups].
//
// SPLIT, the decode kernel: simdgroups without a block of their own take a part of
// the context each, 4 / blocks parts a threadgroup; partial is [rows, heads, parts,
// dim] sums, then [rows, heads, parts] pairs of maximum and weight. Nothing that
// a row's sums are made of depends on other rows: a part's slots are taken in
// steps of a fixed length, and what a row does not see changes none of its bits.
// Otherwise a threadgroup takes the whole context, and out gets the result.
//
// WIDE, for any head dim: scores are summed over slices of D elements, and a
// threadgroup has one slice of the output. Grid: KV heads, (sets of parts ·)
// teams of blocks, slices; the longest come first. A tile has ROWS lines of LINE
// elements; behind it are the simdgroups' own lines.
template <typename Q, typename K, typename T, uint D, bool SPLIT, bool WIDE>
kernel void attend(device Q* out [[buffer(0)]], device const Q* q [[buffer(1)]], device const K* keys [[buffer(2)]],
                   device const K* values [[buffer(3)]], device const float* key_scales [[buffer(4)]],
                   device const float* value_scales [[buffer(5)]], device float* partial [[buffer(6)]],
                   device const uint* table [[buffer(7)]], constant AttendParams& p [[buffer(8)]], threadgroup T* tile [[threadgroup(0)]],
                   uint3 place [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint ROWS = D * sizeof(T) > 256 ? 32 : 64;
  constexpr uint STEP = SPLIT ? ROWS / 4 : 32, LINE = D + 16 / sizeof(T), OWN = own_line(STEP);

  const uint streams = SPLIT && p.blocks < 4 ? 4 / p.blocks : 1, threads = 32 * p.blocks * streams;
  const uint stream = simdgroup / p.blocks, kv_head = place.x;
  const uint vectors = p.rows * p.group, teams = (vectors + 8 * p.blocks - 1) / (8 * p.blocks);
  const uint held = min(p.base + p.rows, p.slots);
  const uint sets = SPLIT ? (p.parts + streams - 1) / streams : 1, item = sets * teams - 1 - place.y;
  const uint part = item / teams * streams, team = item % teams;
  const uint first = (team * p.blocks + simdgroup % p.blocks) * 8, last = min(first + 7, vectors - 1);

  // Lanes past the last vector have one of its row's again, for nothing.
  const uint n = first + lane / 4;
  Block block;
  block.lowest = p.base + min(first, vectors - 1) / p.group;
  block.highest = p.base + last / p.group;
  block.index = p.base + min(n, vectors - 1) / p.group;
  const ulong vector = ulong(block.index - p.base) * p.heads + kv_head * p.group + n % p.group;

  // Slots of the first stream; the others' are size further each.
  const uint start = SPLIT ? part_start(part) : 0, size = SPLIT ? part_size(part) : 0;
  uint end = held;
  if (SPLIT) {
    end = min(held, start + size);
  } else if (p.window == 0) {
    end = p.base + min((team + 1) * p.blocks * 8 - 1, vectors - 1) / p.group + 1;
  }

  Sums<D> sums;
  sums.most = none;
  sums.weight = 0.0f;
  UNROLL for (uint d = 0; d < D / 8; d++) sums.values[d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_matrix<T, 8, 8> queries[D / 8];
  threadgroup float* own = (threadgroup float*)(tile + ROWS * LINE) + simdgroup * (8 * OWN);
  if (!WIDE) load_queries<T, Q, D, STEP>(queries, own, q, p, vector, 0, lane);

  const uint shift = ctz(ROWS / streams), lines = 1u << shift; // of a stream in a tile
  threadgroup const T* streamed = tile + stream * lines * LINE;
  for (uint at = start; at < end; at += lines) {
    const uint slot = at + stream * size;
    // A stream's lines begin at a multiple of their number, which divides a page's.
    uint4 pages;
    UNROLL for (uint i = 0; i < 4; i++) pages[i] = table[min(at + i * size, held - 1) / page_slots];
    // What a slot holds is of the index of that number or of a later one.
    const bool busy = first < vectors && slot < held && slot <= block.highest;
    simdgroup_matrix<float, 8, 8> scores[ROWS / 8];
    UNROLL for (uint i = 0; i < ROWS / 8; i++) scores[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint slice = 0; slice < (WIDE ? p.dim : 1); slice += D) {
      load_tile<T, K, D, ROWS>(tile, keys, key_scales, p, kv_head, slice, at, size, shift, pages, held, thread_index, threads);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (busy) {
        if (WIDE) load_queries<T, Q, D, STEP>(queries, own, q, p, vector, slice, lane);
        UNROLL for (uint i = 0; i < ROWS / 8; i++) {
          if (i * 8 < lines) {
            UNROLL for (uint d = 0; d < D / 8; d++) {
              simdgroup_matrix<T, 8, 8> key;
              simdgroup_load(key, streamed + i * 8 * LINE + d * 8, LINE, ulong2(0, 0), true);
              simdgroup_multiply_accumulate(scores[i], queries[d], key, scores[i]);
            }
          }
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    load_tile<T, K, D, ROWS>(tile, values, value_scales, p, kv_head, place.z * D, at, size, shift, pages, held, thread_index, threads);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (uint i = 0; i < ROWS / STEP; i++) {
      if (busy && i * STEP < lines)
        take<T, D, STEP>(sums, scores + i * STEP / 8, own, streamed + i * STEP * LINE, block, slot + i * STEP, held, p, lane);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  const float weight = row_sum(sums.weight);
  const bool there = n < vectors && part + stream < (SPLIT ? p.parts : 1);
  const float factor = SPLIT ? 1.0f : 1.0f / weight;
  const ulong at_part = vector * p.parts + part + stream;
  UNROLL for (uint i = 0; i < D / 16; i++) {
    simdgroup_barrier(mem_flags::mem_threadgroup); // the sums before have been read
    simdgroup_store(sums.values[2 * i], own, OWN);
    simdgroup_store(sums.values[2 * i + 1], own + 8, OWN);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (uint j = 0; j < 4; j += 2) {
      const uint column = lane % 4 * 4 + j, at = place.z * D + i * 16 + column;
      if (there && at < p.dim) {
        const float a = own[lane / 4 * OWN + column] * factor, b = own[lane / 4 * OWN + column + 1] * factor;
        if (SPLIT) {
          set_pair(partial, at_part * p.dim + at, a, b, type_f32);
        } else {
          const float2 gate = gates_of(q, vector, p.dim, p.q_stride, at, p.q_type);
          set_pair(out, vector * p.dim + at, a * gate.x, b * gate.y, p.q_type);
        }
      }
    }
  }
  if (SPLIT && there && place.z == 0 && lane % 4 == 0) {
    set_pair(partial, ulong(p.rows) * p.heads * p.parts * p.dim + 2 * at_part, sums.most, weight, type_f32);
  }
}
