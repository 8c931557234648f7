// RotateStore: norm and rotation of query and key heads, and the storing of
// keys and values in their KV pages. A warp takes heads of one row.
#include "rotate.cuh"

// The element types of a KV page, as backend.KVType numbers them.
enum { KV_F32 = 1, KV_BF16 = 2, KV_INT8 = 3 };

static constexpr u32 WARPS = 8;

// A warp takes E heads of a row: of queries, of keys or of values. With two, what it has to find out
// first, a load behind the other, is found out once for both, and their loads are on their way together.
template <int N, u32 E>
DEV void rotate_heads(float *q, const float *k, const float *v, u16 *q16, u32 keep_q, const float *q_norm, const float *k_norm, float eps,
                      const Step *step, const u64 *angles, u32 pairs, u32 layer, u32 q_heads, u32 kv_heads, u32 dim, u32 q_stride, u32 type) {
  launch_dependents();
  const u32 of_q = (q_heads + E - 1) / E, of_kv = (kv_heads + E - 1) / E;
  const u32 item = bid() * WARPS + tid() / 32, row = item / (of_q + 2 * of_kv), part = item % (of_q + 2 * of_kv);
  if (row >= step->rows) return;
  const bool is_q = part < of_q, is_v = part >= of_q + of_kv;
  const u32 h = (part - (is_q ? 0 : is_v ? of_q + of_kv : of_q)) * E, count = (is_q ? q_heads : kv_heads) - h;
  const u32 position = step->positions[row];
  const float *cos = (const float *)angles[position / POSITIONS] + position % POSITIONS * 2 * pairs, *sin = cos + pairs;
  // What the step says was there before its first kernel: these loads, one behind the other, wait for nobody.
  u32 slot = 0;
  u64 page = 0;
  if (!is_q) {
    const Span s = step->span[step->span_of[row]];
    slot = slot_of(s, s.base + row - s.first);
    page = step->pages[s.pages + slot / 64];
  }
  Head<N> x[E];
  UNROLL for (u32 e = 0; e < E; e++) {
    x[e].half = dim / 2;
    x[e].pairs = pairs;
    x[e].lane = tid() % 32;
  }
  sync_warp();
  dependency_wait();
  // One way for all, so that a step goes through few instructions: they come from L2.
  float *const query = q + ((u64)row * q_heads + h) * q_stride;
  const u64 at = ((u64)row * kv_heads + h) * dim;
  const float *const from = is_q ? query : is_v ? v + at : k + at;
  const u32 apart = is_q ? q_stride : dim;
  UNROLL for (u32 e = 0; e < E; e++) load(x[e], from + (E == 1 || e < count ? e : count - 1) * apart);
  if (!is_v) {
    const float *weight = is_q ? q_norm : k_norm;
    UNROLL for (u32 e = 0; e < E; e++) { // past the last one it is done again, and not stored
      if (weight) norm(x[e], weight, eps);
      rotate(x[e], cos, sin);
    }
  }
  if (is_q) {
    u16 *const narrow = q16 + (query - q);
    UNROLL for (u32 e = 0; e < E; e++) {
      if (E > 1 && e >= count) break;
      if (keep_q) store_f32(x[e], query + e * q_stride);
      if (!q16) continue;
      store_bf16(x[e], narrow + e * q_stride);
      if (q_stride != dim) { // the gate, as it is
        load(x[e], query + e * q_stride + dim);
        store_bf16(x[e], narrow + e * q_stride + dim);
      }
    }
    return;
  }
  const u32 groups = (dim + 63) / 64, line = type == KV_F32 ? 4 * dim : type == KV_BF16 ? 2 * dim : dim + 4 * groups;
  const u32 i = slot % 64;
  UNROLL for (u32 e = 0; e < E; e++) {
    if (E > 1 && e >= count) break;
    u8 *tile = (u8 *)page + (u64)((layer * 2 + is_v) * kv_heads + h + e) * 64 * line;
    switch (type) {
    case KV_F32: store_f32(x[e], (float *)tile + i * dim); break;
    case KV_BF16: store_bf16(x[e], (u16 *)tile + i * dim); break;
    default: store_int8(x[e], tile + i * dim, (float *)(tile + 64 * dim) + i * groups);
    }
  }
}

// Heads of q [rows, q_heads·q_stride] are normed, rotated, and written to q16 as bf16 (unless
// null) and back (if keep_q); a head of 2·dim is followed by its gate, which stays. k and v [rows, kv_heads·dim] go to the KV pages
// of the layer. The norms' weights [dim] may be null. angles are the addresses of
// blocks of a table, [POSITIONS, 2·pairs]. rotate_store_odd takes the head dimensions
// that 4 does not divide, and odd numbers of pairs.
#define ROTATE_STORE(name, n, e)                                                                                                                   \
  KERNEL(WARPS * 32) void name(float *q, const float *k, const float *v, u16 *q16, u32 keep_q, const float *q_norm, const float *k_norm, float eps, \
                               const Step *step, const u64 *angles, u32 pairs, u32 layer, u32 q_heads, u32 kv_heads, u32 dim, u32 q_stride, u32 type) { \
    rotate_heads<n, e>(q, k, v, q16, keep_q, q_norm, k_norm, eps, step, angles, pairs, layer, q_heads, kv_heads, dim, q_stride, type);                    \
  }                                                                                                                                                  \
  REGISTER(name)
ROTATE_STORE(rotate_store, 2, 1)
ROTATE_STORE(rotate_store_two, 2, 2)
ROTATE_STORE(rotate_store_odd, 1, 1)
