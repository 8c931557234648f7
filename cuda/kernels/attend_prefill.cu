// Flash attention of prefill passes: causal, over bf16 or int8 keys and values.
// A block takes 128 rows of one query head of one span, against tiles of the 64
// slots of a KV page, with a running maximum and sum. Each of its 4 warps has 32
// rows: a tile's fragments then serve two products each. Of heads of 256, whose sums would
// not fit in registers, it takes 64 rows.
#include "attend.cuh"

// Of a block: the rows, and how many times 16 a warp has.
template <u32 DIM> static constexpr int TILES = DIM > 128 ? 1 : 2;
template <u32 DIM> static constexpr u32 ROWS = WARPS * 16 * TILES<DIM>;

template <u32 DIM, int KV> struct Flash {
  using Raw = Layout<DIM, KV>; // int8 tiles as they are stored, before they are widened
  static constexpr u32 LINE = 2 * DIM + 16;
  static constexpr u32 KEYS = ROWS<DIM> * LINE, VALUES = KEYS + UNIT * LINE, RAW_KEYS = VALUES + UNIT * LINE, RAW_VALUES = RAW_KEYS + Raw::STAGE;
  static constexpr u32 BYTES = KV == BF16 ? RAW_KEYS : RAW_VALUES + Raw::STAGE;
};

// widen_tile rounds a tile of int8 times scale to bf16. What was never written
// becomes 0.
template <u32 DIM> DEV void widen_tile(u8 *to, const u8 *raw, u32 lines) {
  using L = Layout<DIM, INT8>;
  UNROLL for (u32 i = 0; i < UNIT * DIM / 8 / THREADS; i++) {
    const u32 c = i * THREADS + tid(), line = c / (DIM / 8), at = c % (DIM / 8) * 8;
    const u32x2 x = *(const u32x2 *)(raw + line * L::LINE + at);
    const float scale = line < lines ? ((const float *)(raw + L::SCALES))[line * L::GROUPS + at / 64] : 0;
    u32 y[4];
    UNROLL for (int h = 0; h < 2; h++) {
      u32 even, odd;
      widen(h ? x.y : x.x, even, odd);
      y[2 * h] = pack_bf16(low_bf16(even) * scale, low_bf16(odd) * scale);
      y[2 * h + 1] = pack_bf16(high_bf16(even) * scale, high_bf16(odd) * scale);
    }
    *(u32x4 *)(to + line * Flash<DIM, INT8>::LINE + at * 2) = {y[0], y[1], y[2], y[3]};
  }
}

template <u32 DIM, int KV>
DEV void flash(float *out32, u16 *out16, const u16 *q, const float *gates, const Step *step, u32 layer, u32 q_heads, u32 kv_heads, float scale, u8 *shared) {
  using F = Flash<DIM, KV>;
  using L = Layout<DIM, KV>;
  constexpr u32 N = DIM / 8; // tiles of 8 columns of the output
  constexpr int I = TILES<DIM>;
  constexpr u32 ROWS = ::ROWS<DIM>;
  launch_dependents();
  if (bid_z() >= step->spans) return;
  const Span s = step->span[bid_z()];
  const u32 head = bid(), first = (gdim_y() - 1 - bid_y()) * ROWS; // the longest contexts start first
  if (first >= s.rows) return;
  const u32 rows = s.rows - first < ROWS ? s.rows - first : ROWS, width = q_heads * DIM;
  const u32 lane = tid() % 32, warp = tid() / 32;
  View view = {s.base + s.rows - 1, 0, s.window, s.keep, s.slots - s.keep};
  view.held = view.last + 1 < s.slots ? view.last + 1 : s.slots;
  const u32 end = s.window ? view.held : s.base + first + rows, tiles = (end + UNIT - 1) / UNIT;
  const u64 *pages = step->pages + s.pages;
  const u64 keys = (u64)(layer * 2 * kv_heads + head / (q_heads / kv_heads)) * L::TILE, values = keys + (u64)kv_heads * L::TILE;
  const u64 row0 = ((u64)(s.first + first)) * width + head * DIM;
  const u32 stride = gates ? 2 * DIM : DIM;
  q += ((u64)(s.first + first) * q_heads + head) * stride;
  dependency_wait();

  // The pages of this tile and the next; those are read a tile ahead.
  auto page_of = [&](u32 u) { return pages[u < tiles ? u : 0]; };
  u64 here = page_of(0), next = page_of(1);
  auto start = [&](u64 page, u32 u, bool of_values) {
    if (u < tiles)
      copy_tile<DIM, KV>(shared + (KV == BF16 ? (of_values ? F::VALUES : F::KEYS) : of_values ? F::RAW_VALUES : F::RAW_KEYS), page + (of_values ? values : keys), view.held - u * UNIT);
    copy_commit();
  };
  UNROLL for (u32 i = 0; i < ROWS * DIM / 8 / THREADS; i++) {
    const u32 c = i * THREADS + tid(), row = c / (DIM / 8), at = c % (DIM / 8);
    copy_async(shared + row * F::LINE + at * 16, q + (u64)(row < rows ? row : 0) * q_heads * stride + at * 8);
  }
  start(here, 0, false);
  if (KV == INT8) start(here, 0, true);

  float o[I][N][4], m[I][2], l[I][2];
  UNROLL for (int i = 0; i < I; i++) {
    UNROLL for (u32 n = 0; n < N; n++)
      UNROLL for (int j = 0; j < 4; j++) o[i][n][j] = 0;
    UNROLL for (int h = 0; h < 2; h++) m[i][h] = NONE, l[i][h] = 0;
  }
  const u32 index0 = s.base + first + warp * 16 * I + lane / 4; // of the lane's first row; the others are 8, 16, 24 on
  const u8 *a_at = shared + (warp * 16 * I + lane % 16) * F::LINE + lane / 16 * 16;
  const u8 *k_at = shared + F::KEYS + (lane / 16 * 8 + lane % 8) * F::LINE + lane / 8 % 2 * 16;
  const u8 *v_at = shared + F::VALUES + (lane % 16) * F::LINE + lane / 16 * 16;

  for (u32 u = 0; u < tiles; u++) {
    copy_wait<0>();
    sync(); // the tile is there, and nobody reads the one before
    if (KV == BF16) {
      start(here, u, true);
    } else {
      widen_tile<DIM>(shared + F::KEYS, shared + F::RAW_KEYS, view.held - u * UNIT);
      widen_tile<DIM>(shared + F::VALUES, shared + F::RAW_VALUES, view.held - u * UNIT);
      sync();
      start(next, u + 1, false);
      start(next, u + 1, true);
    }
    float p[I][8][4] = {};
    UNROLL for (u32 k = 0; k < DIM / 16; k++) {
      u32 a[I][4];
      UNROLL for (int i = 0; i < I; i++) load_matrix(a[i], a_at + i * 16 * F::LINE + k * 32);
      UNROLL for (int n = 0; n < 8; n += 2) {
        u32 b[4];
        load_matrix(b, k_at + n * 8 * F::LINE + k * 32);
        UNROLL for (int i = 0; i < I; i++) {
          mma_bf16(p[i][n], a[i], {b[0], b[1]});
          mma_bf16(p[i][n + 1], a[i], {b[2], b[3]});
        }
      }
    }
    if (KV == BF16) {
      copy_wait<0>();
      sync(); // the values are there, and nobody reads the keys
      start(next, u + 1, false);
    }
    here = next;
    next = page_of(u + 2);
    if (s.window != 0 || (u + 1) * UNIT > s.base + first + 1) {
      UNROLL for (int n = 0; n < 8; n++)
        UNROLL for (int j = 0; j < 2; j++) {
          const Column c = column_of(view, u * UNIT + n * 8 + lane % 4 * 2 + j);
          UNROLL for (int i = 0; i < I; i++)
            UNROLL for (int h = 0; h < 2; h++)
              if (!sees(index0 + i * 16 + h * 8, c)) p[i][n][2 * h + j] = NONE;
        }
    }
    UNROLL for (int i = 0; i < I; i++)
      UNROLL for (int h = 0; h < 2; h++) {
        float top = p[i][0][2 * h];
        UNROLL for (int n = 0; n < 8; n++) top = __builtin_fmaxf(top, __builtin_fmaxf(p[i][n][2 * h], p[i][n][2 * h + 1]));
        top = __builtin_fmaxf(top, shfl_xor(top, 1));
        top = __builtin_fmaxf(top, shfl_xor(top, 2)) * scale;
        const float before = m[i][h];
        m[i][h] = __builtin_fmaxf(before, top);
        const float base = m[i][h] == NONE ? 0 : m[i][h], shrink = ex2(before - base);
        l[i][h] *= shrink;
        UNROLL for (u32 n = 0; n < N; n++) {
          o[i][n][2 * h] *= shrink;
          o[i][n][2 * h + 1] *= shrink;
        }
        UNROLL for (int n = 0; n < 8; n++)
          UNROLL for (int j = 2 * h; j < 2 * h + 2; j++) {
            p[i][n][j] = ex2(fma(p[i][n][j], scale, -base));
            l[i][h] += p[i][n][j];
          }
      }
    UNROLL for (int k = 0; k < 4; k++) {
      u32 a[I][4];
      UNROLL for (int i = 0; i < I; i++) {
        a[i][0] = pack_bf16(p[i][2 * k][0], p[i][2 * k][1]);
        a[i][1] = pack_bf16(p[i][2 * k][2], p[i][2 * k][3]);
        a[i][2] = pack_bf16(p[i][2 * k + 1][0], p[i][2 * k + 1][1]);
        a[i][3] = pack_bf16(p[i][2 * k + 1][2], p[i][2 * k + 1][3]);
      }
      UNROLL for (u32 n = 0; n < N; n += 2) {
        u32 b[4];
        load_matrix_transposed(b, v_at + k * 16 * F::LINE + n * 16);
        UNROLL for (int i = 0; i < I; i++) {
          mma_bf16(o[i][n], a[i], {b[0], b[1]});
          mma_bf16(o[i][n + 1], a[i], {b[2], b[3]});
        }
      }
    }
  }

  UNROLL for (int i = 0; i < I; i++)
    UNROLL for (int h = 0; h < 2; h++) {
      float sum = l[i][h];
      sum += shfl_xor(sum, 1);
      sum += shfl_xor(sum, 2);
      const u32 row = warp * 16 * I + i * 16 + h * 8 + lane / 4;
      if (row >= rows) continue;
      const float inverse = reciprocal(sum);
      const u64 at = row0 + (u64)row * width + lane % 4 * 2;
      UNROLL for (u32 n = 0; n < N; n++) {
        const f32x2 gate = gate_of_pair(gates, (u64)(s.first + first + row) * q_heads + head, DIM, lane % 4 * 2 + n * 8);
        const f32x2 x = {o[i][n][2 * h] * inverse * gate.x, o[i][n][2 * h + 1] * inverse * gate.y};
        if (out32) *(f32x2 *)(out32 + at + n * 8) = x;
        if (out16) *(u32 *)(out16 + at + n * 8) = pack_bf16(x.x, x.y);
      }
    }
}

// Arguments as of attend.cu. Grid: query heads, 128 or 64 rows each of the longest
// span, spans.
#define FLASH(name, dim, kv)                                                                                                                           \
  KERNEL(THREADS) void name(float *out32, u16 *out16, const u16 *q, const float *gates, const Step *step, u32 layer, u32 q_heads, u32 kv_heads, float scale) {              \
    DYNAMIC_SHARED(name, shared);                                                                                                                     \
    flash<dim, kv>(out32, out16, q, gates, step, layer, q_heads, kv_heads, scale, shared);                                                                   \
  }                                                                                                                                                   \
  REGISTER(name)
FLASH(flash_bf16_64, 64, BF16)
FLASH(flash_bf16_128, 128, BF16)
FLASH(flash_int8_64, 64, INT8)
FLASH(flash_int8_128, 128, INT8)
FLASH(flash_bf16_256, 256, BF16)
FLASH(flash_int8_256, 256, INT8)
