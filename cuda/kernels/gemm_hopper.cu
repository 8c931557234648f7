// Prefill projections on compute capability 9.0: gemm.cu's products by wgmma.
// Tensor maps (the host's cuTensorMapEncodeTiled) let one thread copy whole
// tiles into swizzled shared memory while two warpgroups multiply 64 rows each.
// Blocks stay for all their tiles, so that the copies of the next tile run
// under the stores of this one. The kernels that end in _pair run in clusters
// of two blocks (enum Way).
#include "gemm_hopper.cuh"

// exchange adds up the two blocks' sums of a tile: a block ends with those of
// the warpgroup of its rank, and gives the other's away through box.
template <int n> DEV void exchange(float (&c)[n][4], u32 box, u32 there, u32 taken, u32 rank, u32 phase) {
  const u32 at = box + tid() % 128 * 16;
  if (tid() / 128 != rank) {
    wait_with(taken, phase ^ 1);
    UNROLL for (int j = 0; j < n; j++) put_into(at + j * 2048, 1 - rank, c[j]);
    arrive_with(there, 1 - rank);
  } else {
    wait_with(there, phase);
    UNROLL for (int j = 0; j < n; j++) {
      float v[4];
      get(v, at + j * 2048);
      UNROLL for (int e = 0; e < 4; e++) c[j][e] += v[e];
    }
    arrive_with(taken, 1 - rank);
  }
}

// multiply_tiles makes a block's tiles: 128 rows by WIDTH columns of sums. Gated tiles
// have WIDTH/2 outputs: those of gate, then the same of up. A stage starts
// before the one before it is done.
template <u32 WIDTH, u32 STAGES, Way WAY, bool GATED> DEV void multiply_tiles(u8 *dynamic, const Work &k) {
  constexpr u32 x_bytes = 128 * 128, w_bytes = WIDTH * 128, stage = x_bytes + w_bytes, outputs = GATED ? WIDTH / 2 : WIDTH;
  constexpr u32 blocks = WAY == ALONE ? 1 : 2;           // of a cluster
  constexpr u32 readers = WAY == ROWS || WAY == COLS ? 2 : 1; // blocks of a shared tile
  static_assert(WIDTH == 256 ? WAY != COLS : WIDTH == 128 && WAY != ROWS);
  static_assert(!GATED || (WAY != SPLIT && (WIDTH == 256 || WAY == COLS)));
  // The swizzle wants stages on 1024 bytes.
  const u32 base = (shared_address(dynamic) + 1023) / 1024 * 1024, box = base + STAGES * stage;
  const u32 full = box + (WAY == SPLIT ? WIDTH * 64 * 4 : 0), empty = full + STAGES * 8, there = empty + STAGES * 8, taken = there + 8;
  const u32 rank = WAY == ALONE ? 0 : cluster_rank(), first = bid() / blocks, step = gdim() / blocks;
  const u32 group = tid() / 128, steps = (k.in + 63) / 64;
  const u32 from = WAY == SPLIT ? rank * (steps / 2) : 0, to = WAY == SPLIT && rank == 0 ? steps / 2 : steps;
  launch_dependents();
  if (tid() == 0) {
    for (u32 s = 0; s < STAGES; s++) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, 8 * readers); // the warps that multiply
    }
    if (WAY == SPLIT) barrier_init(there, 128), barrier_init(taken, 128);
    barriers_made();
  }
  if (WAY == ALONE) sync();
  else cluster_sync();
  dependency_wait();
  u32 at = 0, phase = 0, tile_phase = 0; // stage of the ring, and the parities of its round and of the tile
  Place p;
  if (group == 2) { // copies
    fewer_registers<40>();
    if (tid() == 256) {
      for (u32 t = first; locate<outputs, WAY>(k, t, rank, p); t += step) {
        // Half of the weights' tile: the other half of its outputs, or up.
        const void *second = GATED ? k.w[1] : p.w;
        const u32 second_col = GATED ? p.col : p.col + 128;
        for (u32 i = from; i < to; i++) {
          const u32 x = base + at * stage, w = x + x_bytes, arrived = full + at * 8, column = i * 64;
          wait_phase(empty + at * 8, phase ^ 1);
          expect(arrived, stage);
          if (WAY == COLS) copy_box_pair(x + rank * (x_bytes / 2), k.x, column, p.row + rank * 64, arrived);
          else copy_box(x, k.x, column, p.row, arrived);
          if (WAY == ROWS) {
            copy_box_pair(w + rank * (w_bytes / 2), rank ? second : p.w, column, rank ? second_col : p.col, arrived);
          } else {
            copy_box(w, p.w, column, p.col, arrived);
            if (WIDTH == 256 || GATED) copy_box(w + w_bytes / 2, second, column, second_col, arrived);
          }
          if (++at == STAGES) at = 0, phase ^= 1;
        }
      }
    }
  } else {
    more_registers<232>();
    const u32 lane = tid() % 32;
    auto free = [&](u32 s) {
      if (readers == 2) arrive_at(empty + s * 8, lane, lane < 2);
      else arrive(empty + s * 8, lane == 0);
    };
    for (u32 t = first; locate<outputs, WAY>(k, t, rank, p); t += step) {
      float c[WIDTH / 8][4] = {};
      u32 before = 0;
      for (u32 i = from; i < to; i++) {
        const u32 x = base + at * stage;
        wait_phase(full + at * 8, phase);
        multiply(c, descriptor(x + group * (x_bytes / 2)), descriptor(x + x_bytes));
        products_wait<1>();
        if (i > from) free(before);
        before = at;
        if (++at == STAGES) at = 0, phase ^= 1;
      }
      products_wait<0>(c);
      free(before);
      if constexpr (WAY == SPLIT) {
        exchange(c, box, there, taken, rank, tile_phase);
        tile_phase ^= 1;
      }
      const u32 row = p.row + group * 64 + tid() / 32 % 4 * 16;
      if constexpr (GATED) activate<WIDTH / 16>(c, k.gate_bias, k.up_bias, p.col, p.out);
      if (WAY != SPLIT || group == rank) store<outputs / 8>(c, p.d, row, p.col, k.rows, p.out);
    }
  }
  // No block leaves while the other may still write to its shared memory.
  if (WAY != ALONE) {
    sync_warp();
    cluster_sync();
  }
}

#define GEMM(name, WIDTH, STAGES, WAY)                                                                                                                       \
  HOPPER_KERNEL(384)                                                                                                                                         \
  void name(const void *x, const void *w0, const void *w1, const void *w2, float *f0, float *f1, float *f2, bf16 *h0, bf16 *h1, bf16 *h2, const float *b0,   \
            const float *b1, const float *b2, u32 out0, u32 out1, u32 out2, u32 add, u32 rows, u32 in) {                                                     \
    DYNAMIC_SHARED(name, shared);                                                                                                                            \
    multiply_tiles<WIDTH, STAGES, WAY, false>(                                                                                                               \
        shared, Work{x, {w0, w1, w2}, {{f0, h0, b0, add}, {f1, h1, b1, add}, {f2, h2, b2, add}}, nullptr, nullptr, {out0, out1, out2}, rows, in});          \
  }                                                                                                                                                          \
  REGISTER(name)
#define GATED(name, WIDTH, STAGES, WAY)                                                                                                                      \
  HOPPER_KERNEL(384)                                                                                                                                         \
  void name(const void *x, const void *gate, const void *up, float *f32, bf16 *half, const float *gate_bias, const float *up_bias, u32 rows, u32 out,        \
            u32 in) {                                                                                                                                        \
    DYNAMIC_SHARED(name, shared);                                                                                                                            \
    multiply_tiles<WIDTH, STAGES, WAY, true>(                                                                                                                \
        shared, Work{x, {gate, up, nullptr}, {{f32, half, nullptr, 0}, {}, {}}, gate_bias, up_bias, {out, 0, 0}, rows, in});                                 \
  }                                                                                                                                                          \
  REGISTER(name)

GEMM(gemm_alone, 256, 4, ALONE)
GEMM(gemm_wide_pair, 256, 4, ROWS)
GEMM(gemm_narrow_pair, 128, 6, COLS)
GEMM(gemm_split_pair, 128, 6, SPLIT)
GATED(gated_alone, 256, 4, ALONE)
GATED(gated_wide_pair, 256, 4, ROWS)
GATED(gated_narrow_pair, 128, 6, COLS)
