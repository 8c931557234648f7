// Exact attention: f32 fused multiply-adds over keys and values of every type
// and every even head dimension up to 256.
#include "gpu.cuh"

// Stored keys and values: a tile holds 64 vectors of one head. load gives
// elements at to at+3 of a line, at a multiple of 4.
struct StoredF32 {
  DEV u32 tile_bytes(u32 dim, u32) { return 64 * dim * 4; }
  DEV f32x4 load(const u8 *tile, u32 line, u32 dim, u32 at, u32) { return *(const f32x4 *)((const float *)tile + line * dim + at); }
};

struct StoredBF16 {
  DEV u32 tile_bytes(u32 dim, u32) { return 64 * dim * 2; }
  DEV f32x4 load(const u8 *tile, u32 line, u32 dim, u32 at, u32) {
    const u32x2 v = *(const u32x2 *)((const u16 *)tile + line * dim + at);
    return {low_bf16(v.x), high_bf16(v.x), low_bf16(v.y), high_bf16(v.y)};
  }
};

// A line's groups of 64 along dim have a scale each, behind all lines.
DEV float scale_of(const u8 *tile, u32 line, u32 dim, u32 at) { return *(const float *)(tile + 64 * dim + (line * ((dim + 63) / 64) + at / 64) * 4); }

struct StoredInt8 {
  DEV u32 tile_bytes(u32 dim, u32) { return 64 * (dim + (dim + 63) / 64 * 4); }
  DEV f32x4 load(const u8 *tile, u32 line, u32 dim, u32 at, u32) {
    const float s = scale_of(tile, line, dim, at);
    const u32 v = *(const u32 *)(tile + line * dim + at);
    return {(float)(i8)v * s, (float)(i8)(v >> 8) * s, (float)(i8)(v >> 16) * s, (float)(i8)(v >> 24) * s};
  }
};

// StoredOdd is any of them (kind 0, 1, 2) where dim is no multiple of 4; elements past dim are zero.
struct StoredOdd {
  DEV u32 tile_bytes(u32 dim, u32 kind) { return kind == 0 ? StoredF32::tile_bytes(dim, 0) : kind == 1 ? StoredBF16::tile_bytes(dim, 0) : StoredInt8::tile_bytes(dim, 0); }
  DEV f32x4 load(const u8 *tile, u32 line, u32 dim, u32 at, u32 kind) {
    float v[4] = {};
    UNROLL for (u32 i = 0; i < 4; i++) {
      if (at + i >= dim) break;
      const u32 n = line * dim + at + i;
      v[i] = kind == 0 ? ((const float *)tile)[n] : kind == 1 ? low_bf16(((const u16 *)tile)[n]) : (float)((const i8 *)tile)[n] * scale_of(tile, line, dim, at);
    }
    return {v[0], v[1], v[2], v[3]};
  }
};

constexpr u32 attendWarps = 16;
constexpr u32 attendHeads = 4; // query heads of a block
constexpr u32 attendKeys = 32; // indices that a warp takes at once
constexpr u32 mostDim = 256;

struct AttendShared {
  f32x4 queries[attendHeads][mostDim / 4]; // zero past dim
  f32x4 weights[attendWarps][attendKeys];  // of the heads: scores, then probabilities
  u64 places[attendWarps][attendKeys];
  float peak[attendWarps][attendHeads], sum[attendWarps][attendHeads], share[attendWarps][attendHeads];
  f32x4 out[attendWarps][mostDim / 4];
};

DEV f32x4 scaled(f32x4 a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }
DEV f32x4 plus(f32x4 sum, f32x4 a, float b) { return {fma(a.x, b, sum.x), fma(a.y, b, sum.y), fma(a.z, b, sum.z), fma(a.w, b, sum.w)}; }
DEV float dot(f32x4 a, f32x4 b, float sum) { return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum)))); }

// Window tells which indices a row sees, and where they lie.
struct Window {
  u32 index, keep, oldest, slots, rotates;
  const u64 *pages;
  DEV Window make(const Step *step, const Span *span, u32 row) {
    const u32 index = span->base + row - span->first, recent = span->window - span->keep;
    // Besides the first keep indices those from oldest on are seen.
    const u32 oldest = !span->window ? 0 : index >= span->window ? index + 1 - recent : span->keep;
    return {index, span->keep, oldest, span->slots, span->window, step->pages + span->pages};
  }
};
DEV bool sees(const Window &w, u32 i) { return i <= w.index && (i < w.keep || i >= w.oldest); }
// place_of is the address of an index's page, with the slot in the page in its low 6 bits.
DEV u64 place_of(const Window &w, u32 i) {
  const u32 slot = w.rotates && i >= w.keep ? w.keep + (i - w.keep) % (w.slots - w.keep) : i;
  return w.pages[slot / 64] | slot % 64;
}

// attend is causal attention of one row and up to 4 query heads of a KV head.
// Warp w takes the indices from 32·w, 32·(w+16), ... on with an online softmax;
// the warps' sums are joined in order. A row's index fixes all of it.
//
// Heads of q lie q_stride apart: where that is 2·dim, each is followed by a gate, with whose
// sigmoid its sum is multiplied.
//
// In place of what is not there to be loaded something finite is: for an index
// that is not seen the row's own, past dim the first elements.
template <class S>
DEV void attend(AttendShared &s, float *out, const float *q, u32 q_stride, u32 group, u32 kv_heads, u32 dim, float scale, u32 kind, u32 layer, const Step *step) {
  const u32 t = tid(), lane = t % 32, warp = t / 32, row = bid(), kv_head = bid_y(), h0 = bid_z() * attendHeads;
  launch_dependents();
  dependency_wait();
  if (row >= step->rows) return;
  const Window window = Window::make(step, step->span + step->span_of[row], row);
  const u32 heads = group - h0 < attendHeads ? group - h0 : attendHeads;
  const u64 first = ((u64)row * kv_heads + kv_head) * group + h0; // of the query heads
  const u32 runs = (dim + 127) / 128;                             // of 128 elements
  for (u32 i = t; i < attendHeads * runs * 128; i += attendWarps * 32) {
    const u32 h = i / (runs * 128), j = i % (runs * 128);
    ((float *)s.queries[h])[j] = h < heads && j < dim ? q[(first + h) * q_stride + j] * scale : 0;
  }
  sync();

  const u64 keys = ((u64)layer * 2 * kv_heads + kv_head) * S::tile_bytes(dim, kind), values = keys + (u64)kv_heads * S::tile_bytes(dim, kind);
  const u64 own = place_of(window, window.index);
  float peak[attendHeads], sum[attendHeads];
  f32x4 acc[attendHeads][2]; // elements 4·lane on, and 128 on
  UNROLL for (u32 h = 0; h < attendHeads; h++) peak[h] = -__builtin_inff(), sum[h] = 0, acc[h][0] = acc[h][1] = {0, 0, 0, 0};
  const u32 sub = lane / 8, part = lane % 8; // 8 lanes share a key: 4 keys at once
  for (u32 tile = warp * attendKeys; tile <= window.index; tile += attendWarps * attendKeys) {
    if (tile >= window.keep && tile + attendKeys <= window.oldest) continue; // fallen out of the window
    const bool seen = sees(window, tile + lane);
    s.places[warp][lane] = seen ? place_of(window, tile + lane) : own;
    sync_warp();
#pragma unroll 2
    for (u32 k = 0; k < attendKeys; k += 4) {
      const u64 place = s.places[warp][k + sub];
      const u8 *at = (const u8 *)(place & ~63ull) + keys;
      float score[attendHeads] = {};
      for (u32 run = 0; run < runs; run++) {
        f32x4 key[4];
        UNROLL for (u32 c = 0; c < 4; c++) {
          const u32 j = run * 128 + c * 32 + part * 4;
          key[c] = S::load(at, place & 63, dim, j < dim ? j : 0, kind);
        }
        UNROLL for (u32 c = 0; c < 4; c++) UNROLL for (u32 h = 0; h < attendHeads; h++) {
          const f32x4 query = s.queries[h][run * 32 + c * 8 + part];
          score[h] = dot(query, key[c], score[h]);
        }
      }
      // Sums over 8 lanes: lanes 2·h and 2·h+1 of them end up with head h.
      const bool a = lane & 4, b = lane & 2;
      const float x = (a ? score[2] : score[0]) + shfl_xor(a ? score[0] : score[2], 4);
      const float y = (a ? score[3] : score[1]) + shfl_xor(a ? score[1] : score[3], 4);
      float z = (b ? y : x) + shfl_xor(b ? x : y, 2);
      z += shfl_xor(z, 1);
      if (lane % 2 == 0) ((float *)&s.weights[warp][k + sub])[part / 2] = z;
    }
    sync_warp();
    const f32x4 scores = s.weights[warp][lane];
    const float v[attendHeads] = {scores.x, scores.y, scores.z, scores.w};
    float p[attendHeads];
    UNROLL for (u32 h = 0; h < attendHeads; h++) {
      p[h] = 0;
      if (h >= heads) continue;
      const float most = __builtin_fmaxf(peak[h], warp_max(seen ? v[h] : -__builtin_inff()));
      const float decay = exp_precise(peak[h] - most);
      p[h] = seen ? exp_precise(v[h] - most) : 0;
      peak[h] = most;
      sum[h] = sum[h] * decay + warp_sum(p[h]);
      acc[h][0] = scaled(acc[h][0], decay);
      acc[h][1] = scaled(acc[h][1], decay);
    }
    s.weights[warp][lane] = {p[0], p[1], p[2], p[3]};
    sync_warp();
    for (u32 k0 = 0; k0 < attendKeys; k0 += 4) UNROLL for (u32 c = 0; c < 2; c++) {
      if (c >= runs) break;
      const u32 j = lane * 4 + c * 128;
      f32x4 value[4];
      UNROLL for (u32 k = 0; k < 4; k++) {
        const u64 place = s.places[warp][k0 + k];
        value[k] = S::load((const u8 *)(place & ~63ull) + values, place & 63, dim, j < dim ? j : 0, kind);
      }
      UNROLL for (u32 k = 0; k < 4; k++) {
        const f32x4 w = s.weights[warp][k0 + k];
        acc[0][c] = plus(acc[0][c], value[k], w.x);
        acc[1][c] = plus(acc[1][c], value[k], w.y);
        acc[2][c] = plus(acc[2][c], value[k], w.z);
        acc[3][c] = plus(acc[3][c], value[k], w.w);
      }
    }
    sync_warp();
  }

  if (lane == 0) UNROLL for (u32 h = 0; h < attendHeads; h++) s.peak[warp][h] = peak[h], s.sum[warp][h] = sum[h];
  sync();
  if (t < attendWarps * attendHeads) {
    const u32 w = t / attendHeads, h = t % attendHeads;
    float most = s.peak[0][h];
    for (u32 i = 1; i < attendWarps; i++) most = __builtin_fmaxf(most, s.peak[i][h]);
    s.share[w][h] = exp_precise(s.peak[w][h] - most);
  }
  UNROLL for (u32 h = 0; h < attendHeads; h++) {
    if (h >= heads) break;
    s.out[warp][lane] = acc[h][0];
    if (runs > 1) s.out[warp][32 + lane] = acc[h][1];
    sync();
    if (t < dim) {
      float total = 0, y = 0;
#pragma unroll 4
      for (u32 w = 0; w < attendWarps; w++) {
        total = fma(s.share[w][h], s.sum[w][h], total);
        y = fma(s.share[w][h], ((const float *)s.out[w])[t], y);
      }
      y *= reciprocal(total);
      if (q_stride != dim) y *= sigmoid(q[(first + h) * q_stride + dim + t]);
      out[(first + h) * dim + t] = y;
    }
    sync();
  }
}

#define ATTEND(name, Stored) \
  KERNEL(attendWarps * 32) void name(float *out, const float *q, u32 q_stride, u32 group, u32 kv_heads, u32 dim, float scale, u32 kind, u32 layer, const Step *step) { \
    SHARED(name) AttendShared shared; \
    attend<Stored>(shared, out, q, q_stride, group, kv_heads, dim, scale, kind, layer, step); \
  } \
  REGISTER(name)

ATTEND(simt_attend_f32, StoredF32)
ATTEND(simt_attend_bf16, StoredBF16)
ATTEND(simt_attend_int8, StoredInt8)
ATTEND(simt_attend_odd, StoredOdd)
