// Prefill projections: d[rows, out] = x[rows, in] · w[out, in]ᵀ, both bf16 with
// f32 sums, by mma.sync (compute capability 8.0 and later). A block makes one
// tile of rows by outputs; k runs through a ring of shared-memory stages that
// copy_async fills. x is the mma's A, w its B: both lie k-contiguous, as stored.
#include "gemm.cuh"

// Tile is the shape of a block's work: rows by outputs by k, the ring's depth,
// and the part of one of the 8 warps. A gated tile has half its columns from
// each of two weights.
template <int ROWS, int COLS, int K, int STAGES, int WARP_ROWS, int WARP_COLS> struct Tile {
  static constexpr int rows = ROWS, cols = COLS, k = K, stages = STAGES, warp_rows = WARP_ROWS, warp_cols = WARP_COLS;
  static constexpr int chunks = K / 8;            // of 16 bytes a row
  static constexpr int pass = 256 / chunks;       // rows that the block copies at once
  static constexpr int stage = (ROWS + COLS) * K * 2;
  static constexpr int mi = WARP_ROWS / 16, ni = WARP_COLS / 8;
  static_assert(ROWS / WARP_ROWS * (COLS / WARP_COLS) == 8);
  static_assert(ROWS % pass == 0 && COLS % pass == 0);
};

// swizzle places chunk c of row r so that the 8 rows of a load_matrix tile fall
// into different banks.
template <class T> DEV u32 swizzle(u32 r, u32 c) { return (c ^ (r / (8 / T::chunks)) % T::chunks) * 16; }

// A warp's first row and column in the tile.
template <class T> DEV u32 warp_row() { return tid() / 32 % (T::rows / T::warp_rows) * T::warp_rows; }
template <class T> DEV u32 warp_col() { return tid() / 32 / (T::rows / T::warp_rows) * T::warp_cols; }

// product sums one tile. Rows and outputs past the end repeat the last one;
// k past the end is zero.
template <class T, bool gated>
DEV void product(float (&acc)[T::mi][T::ni][4], u8 *shared, const bf16 *x, const bf16 *w, const bf16 *up, u32 row0, u32 out0, u32 rows, u32 out, u32 in) {
  const u32 t = tid(), lane = t % 32;
  constexpr int nx = T::rows / T::pass, nw = T::cols / T::pass;
  // What this thread copies: one chunk of every pass-th row.
  const u32 line = t / T::chunks, chunk = t % T::chunks;
  const bf16 *from_x[nx], *from_w[nw];
  UNROLL for (int j = 0; j < nx; j++) {
    u32 r = row0 + line + j * T::pass;
    from_x[j] = x + (u64)(r < rows ? r : rows - 1) * in + chunk * 8;
  }
  UNROLL for (int j = 0; j < nw; j++) {
    u32 c = line + j * T::pass, o = out0 + c;
    const bf16 *from = w;
    if (gated) { // a warp's columns: half of gate, then the same outputs of up
      constexpr u32 half = T::warp_cols / 2;
      o = out0 + c / T::warp_cols * half + c % half;
      from = c / half % 2 ? up : w;
    }
    from_w[j] = from + (u64)(o < out ? o : out - 1) * in + chunk * 8;
  }
  const u32 to = line * (T::k * 2) + swizzle<T>(line, chunk);
  const u32 steps = (in + T::k - 1) / T::k;
  auto load = [&](u32 step) {
    if (step < steps) {
      u8 *s = shared + step % T::stages * T::stage + to;
      const u32 k = step * T::k, bytes = k + chunk * 8 < in ? 16 : 0, at = bytes ? k : 0;
      UNROLL for (int j = 0; j < nx; j++) copy_async(s + j * T::pass * T::k * 2, from_x[j] - (bytes ? 0 : chunk * 8) + at, bytes);
      UNROLL for (int j = 0; j < nw; j++) copy_async(s + (T::rows + j * T::pass) * T::k * 2, from_w[j] - (bytes ? 0 : chunk * 8) + at, bytes);
    }
    copy_commit();
  };

  // Where this lane reads its rows of the load_matrix tiles, for each k16 step.
  constexpr int halves = T::k / 16;
  const u32 a_row = warp_row<T>() + lane % 16, b_row = warp_col<T>() + lane % 8 + lane / 16 * 8;
  u32 a_at[halves], b_at[halves];
  UNROLL for (int h = 0; h < halves; h++) {
    a_at[h] = a_row * (T::k * 2) + swizzle<T>(a_row, h * 2 + lane / 16);
    b_at[h] = (T::rows + b_row) * (T::k * 2) + swizzle<T>(b_row, h * 2 + lane / 8 % 2);
  }
  const Shared address = shared_at(shared);
  u32 a[2][T::mi][4], b[2][T::ni / 2][4];
  auto fetch = [&](int buffer, u32 stage, int h) {
    UNROLL for (int i = 0; i < T::mi; i++) load_matrix_at(a[buffer][i], address + (stage + a_at[h] + i * 16 * T::k * 2));
    UNROLL for (int j = 0; j < T::ni / 2; j++) load_matrix_at(b[buffer][j], address + (stage + b_at[h] + j * 16 * T::k * 2));
  };

  UNROLL for (int s = 0; s < T::stages - 1; s++) load(s);
  copy_wait<T::stages - 2>();
  sync();
  fetch(0, 0, 0);
  for (u32 step = 0; step < steps; step++) {
    UNROLL for (int h = 0; h < halves; h++) {
      if (h == halves - 1) { // the next step's stage must be there; the stage before this one is free
        copy_wait<T::stages - 2>();
        sync();
        fetch((h + 1) % 2, (step + 1 < steps ? step + 1 : step) % T::stages * T::stage, 0);
      } else {
        fetch((h + 1) % 2, step % T::stages * T::stage, h + 1);
      }
      if (h == 0) load(step + T::stages - 1);
      UNROLL for (int i = 0; i < T::mi; i++) {
        UNROLL for (int j = 0; j < T::ni; j++) {
          const u32 pair[2] = {b[h % 2][j / 2][j % 2 * 2], b[h % 2][j / 2][j % 2 * 2 + 1]};
          mma_bf16(acc[i][j], a[h % 2][i], pair);
        }
      }
    }
  }
}

// One launch multiplies x by up to three weights (out1, out2 may be 0).
template <class T>
DEV void gemm(u8 *shared, const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, Output d0, Output d1, Output d2, u32 out0, u32 out1, u32 out2, u32 rows, u32 in) {
  launch_dependents();
  const u32 c0 = (out0 + T::cols - 1) / T::cols, c1 = (out1 + T::cols - 1) / T::cols, c2 = (out2 + T::cols - 1) / T::cols;
  u32 r, c;
  place<16>(bid(), (rows + T::rows - 1) / T::rows, c0 + c1 + c2, r, c);
  const bf16 *w = w0;
  Output d = d0;
  u32 out = out0;
  if (c >= c0 + c1) c -= c0 + c1, w = w2, d = d2, out = out2;
  else if (c >= c0) c -= c0, w = w1, d = d1, out = out1;
  float acc[T::mi][T::ni][4] = {};
  dependency_wait();
  product<T, false>(acc, shared, x, w, w, r * T::rows, c * T::cols, rows, out, in);
  const u32 row0 = r * T::rows + warp_row<T>(), col0 = c * T::cols + warp_col<T>();
  UNROLL for (int i = 0; i < T::mi; i++) store<T::ni>(acc[i], d, row0 + i * 16, col0, rows, out);
}

// gated: d = silu(x · gateᵀ + bias) * (x · upᵀ + bias).
template <class T>
DEV void gated(u8 *shared, const bf16 *x, const bf16 *gate, const bf16 *up, Output d, const float *gate_bias, const float *up_bias, u32 rows, u32 out, u32 in) {
  launch_dependents();
  u32 r, c;
  place<16>(bid(), (rows + T::rows - 1) / T::rows, (out + T::cols / 2 - 1) / (T::cols / 2), r, c);
  float acc[T::mi][T::ni][4] = {};
  dependency_wait();
  product<T, true>(acc, shared, x, gate, up, r * T::rows, c * (T::cols / 2), rows, out, in);
  const u32 row0 = r * T::rows + warp_row<T>(), col0 = c * (T::cols / 2) + warp_col<T>() / 2;
  UNROLL for (int i = 0; i < T::mi; i++) {
    activate<T::ni / 2>(acc[i], gate_bias, up_bias, col0, out);
    store<T::ni / 2>(acc[i], d, row0 + i * 16, col0, rows, out);
  }
}

// wide: fewest bytes a product. narrow: more blocks where there are few rows.
// deep: whole 128-byte lines, for devices with more than 100 KB a block.
using Wide = Tile<128, 256, 32, 4, 64, 64>;
using Narrow = Tile<128, 128, 32, 4, 64, 32>;
using Deep = Tile<128, 256, 64, 3, 64, 64>;

#define GEMM(name, T)                                                                                                                                      \
  KERNEL(256) void name(const bf16 *x, const bf16 *w0, const bf16 *w1, const bf16 *w2, float *f0, float *f1, float *f2, bf16 *h0, bf16 *h1, bf16 *h2,      \
                        const float *b0, const float *b1, const float *b2, u32 out0, u32 out1, u32 out2, u32 add, u32 rows, u32 in) {                     \
    DYNAMIC_SHARED(name, shared);                                                                                                                          \
    gemm<T>(shared, x, w0, w1, w2, Output{f0, h0, b0, add}, Output{f1, h1, b1, add}, Output{f2, h2, b2, add}, out0, out1, out2, rows, in);                \
  }                                                                                                                                                        \
  REGISTER(name)
#define GATED(name, T)                                                                                                                                     \
  KERNEL(256) void name(const bf16 *x, const bf16 *gate, const bf16 *up, float *f32, bf16 *half, const float *gate_bias, const float *up_bias, u32 rows,  \
                        u32 out, u32 in) {                                                                                                                \
    DYNAMIC_SHARED(name, shared);                                                                                                                          \
    gated<T>(shared, x, gate, up, Output{f32, half, nullptr, 0}, gate_bias, up_bias, rows, out, in);                                                      \
  }                                                                                                                                                        \
  REGISTER(name)

GEMM(gemm_wide, Wide)
GEMM(gemm_narrow, Narrow)
GEMM(gemm_deep, Deep)
GATED(gated_wide, Wide)
GATED(gated_narrow, Narrow)
GATED(gated_deep, Deep)

// gemm_finish adds a bias (or none) to n elements of rows of out, both
// multiples of 8. They are f32, and written in both forms that are given, or
// bf16 where f32 is null.
KERNEL(256) void gemm_finish(float *f32, bf16 *half, const float *bias, u32 out, u32 n) {
  launch_dependents();
  const u32 at = (bid() * 256 + tid()) * 8;
  if (at >= n) return;
  dependency_wait();
  float v[8];
  if (f32) {
    const f32x4 a = *(const f32x4 *)(f32 + at), b = *(const f32x4 *)(f32 + at + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
    const u32x4 a = *(const u32x4 *)(half + at);
    const u32 s[4] = {a.x, a.y, a.z, a.w};
    UNROLL for (int i = 0; i < 4; i++) v[2 * i] = low_bf16(s[i]), v[2 * i + 1] = high_bf16(s[i]);
  }
  if (bias) {
    UNROLL for (int i = 0; i < 8; i++) v[i] += bias[at % out + i];
  }
  if (f32) {
    *(f32x4 *)(f32 + at) = f32x4{v[0], v[1], v[2], v[3]};
    *(f32x4 *)(f32 + at + 4) = f32x4{v[4], v[5], v[6], v[7]};
  }
  if (half) *(u32x4 *)(half + at) = u32x4{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
}
REGISTER(gemm_finish)
