// Projections of some rows, to some hundreds, by weights in bf16 on compute capability 9.0,
// with the bits of other kernels: the inputs are cut into slices, a chain of products each,
// and the sums of the slices are added in their order. Eight are stream_bf16's, whose warps
// have one each; one or two are gemm_hopper.cu's. wgmma adds up as mma does, whichever
// operand is the weights.
//
// A tile is up to ROWS rows, 64 a warpgroup, by WIDTH columns of sums. Blocks go in clusters
// of two with neighbouring outputs: each loads half of the rows, a box, for both. They stay
// for all their tiles, so that the copies of the next one run under the stores of this one,
// and weights, which never change, are asked for before the kernel ahead has ended. Boxes
// are of rows that are there: what a copy fills with zeros it takes longer for.
#include "gemm_hopper.cuh"

template <u32 ROWS, u32 WIDTH, u32 STAGES, bool GATED> struct Sliced {
  static constexpr u32 groups = ROWS / 64; // warpgroups that multiply
  static constexpr u32 xBytes = ROWS * 128, wBytes = WIDTH * 128; // of a unit: 64 inputs
  static constexpr u32 stage = 2 * (xBytes + wBytes);             // of two of them
  static constexpr u32 outputs = GATED ? WIDTH / 2 : WIDTH;

  const Work &k;
  u32 box;    // rows: a multiple of 8
  u32 slices; // log2 of them
  u32 base, full, empty, rank, first, step, units;

  METHOD bool find(u32 t, Place &p) const { return locate<outputs, COLS>(k, t, rank, p, 2 * box); }

  // Of a stage lie the rows of both units, then the weights of both.
  METHOD u32 rowsAt(u32 at, u32 half) const { return base + at * stage + half * xBytes; }
  METHOD u32 weightsAt(u32 at, u32 half) const { return base + at * stage + 2 * xBytes + half * wBytes; }

  // copyWeights announces the rows, too. A tile that is not there, the neighbour of the last
  // of an odd number, multiplies what was there, and drops it.
  METHOD void copyWeights(const Place &p, u32 at, u32 pair) const {
    const u32 arrived = full + at * 8;
    const bool there = p.col < p.out;
    expect(arrived, 2 * (2 * box * 128 + (there ? wBytes : 0)));
    if (!there) return;
    UNROLL for (u32 half = 0; half < 2; half++) {
      const u32 to = weightsAt(at, half), column = pair * 128 + half * 64;
      copy_box(to, p.w, column, p.col, arrived);
      if (GATED) copy_box(to + wBytes / 2, k.w[1], column, p.col, arrived); // up
    }
  }
  METHOD void copyRows(const Place &p, u32 at, u32 pair) const {
    UNROLL for (u32 half = 0; half < 2; half++)
      copy_box_pair(rowsAt(at, half) + rank * box * 128, k.x, pair * 128 + half * 64, p.row + rank * box, full + at * 8);
  }

  // fill is the thread that copies. The ring is empty at first, so weights need not wait.
  METHOD void fill() const {
    const u32 pairs = (units + 1) / 2;
    Place p;
    u32 at = 0, phase = 0, ahead = 0;
    if (find(first, p)) {
      ahead = pairs < STAGES ? pairs : STAGES;
      for (u32 i = 0; i < ahead; i++) copyWeights(p, i, i);
    }
    dependency_wait();
    for (u32 t = first; find(t, p); t += step)
      for (u32 i = 0; i < pairs; i++) {
        if (ahead > 0) ahead--;
        else {
          wait_phase(empty + at * 8, phase ^ 1);
          copyWeights(p, at, i);
        }
        copyRows(p, at, i);
        if (++at == STAGES) at = 0, phase ^= 1;
      }
  }

  // work is a warpgroup that multiplies 64 rows. A unit starts before the one before it
  // is done.
  METHOD void work() const {
    const u32 group = tid() / 128, lane = tid() % 32;
    u32 at = 0, phase = 0;
    Place p;
    for (u32 t = first; find(t, p); t += step) {
      float sum[WIDTH / 8][4];
      UNROLL for (u32 i = 0; i < WIDTH / 2; i++) sum[i / 4][i % 4] = -0.f; // which leaves the bits of what is added
      u32 i = 0;
#pragma unroll 1
      for (u32 slice = 1; slice <= 1u << slices; slice++) {
        float c[WIDTH / 8][4] = {};
        u32 done = STAGES; // the stage whose last products may not be over: none
#pragma unroll 1
        for (const u32 end = slice * units >> slices; i < end; i++) {
          const u32 half = i % 2;
          if (half == 0) wait_phase(full + at * 8, phase);
          multiply(c, descriptor(rowsAt(at, half) + group * (64 * 128)), descriptor(weightsAt(at, half)));
          products_wait<1>();
          arrive_at(empty + done * 8, lane, lane < 2 && done < STAGES);
          done = STAGES;
          if (half == 1 || i + 1 == units) {
            done = at;
            if (++at == STAGES) at = 0, phase ^= 1;
          }
        }
        products_wait<0>(c);
        arrive_at(empty + done * 8, lane, lane < 2 && done < STAGES);
        UNROLL for (u32 j = 0; j < WIDTH / 8; j++)
          UNROLL for (u32 e = 0; e < 4; e++) sum[j][e] += c[j][e];
      }
      if (t == first) dependency_wait(); // what is stored may still be read
      if constexpr (GATED) activate<WIDTH / 16>(sum, k.gate_bias, k.up_bias, p.col, p.out);
      const u32 end = p.row + 2 * box;
      store<outputs / 8>(sum, p.d, p.row + group * 64 + tid() / 32 % 4 * 16, p.col, end < k.rows ? end : k.rows, p.out);
    }
  }
};

// last_is_alone tells whether a weight has an odd number of tiles.
template <u32 outputs> DEV bool last_is_alone(const Work &k) {
  bool odd = false;
  UNROLL for (u32 i = 0; i < 3; i++) odd |= (k.out[i] + outputs - 1) / outputs % 2 == 1;
  return odd;
}

template <u32 ROWS, u32 WIDTH, u32 STAGES, bool GATED> DEV void multiply_sliced(u8 *dynamic, const Work &k, u32 box, u32 slices) {
  using S = Sliced<ROWS, WIDTH, STAGES, GATED>;
  // The swizzle wants stages on 1024 bytes.
  const u32 base = (shared_address(dynamic) + 1023) / 1024 * 1024, full = base + STAGES * S::stage, empty = full + STAGES * 8;
  const S s{k, box, slices, base, full, empty, cluster_rank(), bid() / 2, gdim() / 2, (k.in + 63) / 64};
  launch_dependents();
  if (tid() == 0) {
    for (u32 i = 0; i < STAGES; i++) {
      barrier_init(full + i * 8, 1);
      barrier_init(empty + i * 8, S::groups * 8); // the warps that multiply, of both blocks
    }
    barriers_made();
    u8 *ring = dynamic + (base - shared_address(dynamic));
    for (u32 i = 0; i < STAGES; i++) { // multiplied, and dropped
      UNROLL for (u32 half = 0; half < 2; half++) allow_unwritten(ring + i * S::stage + half * S::xBytes + 2 * box * 128, S::xBytes - 2 * box * 128);
      if (last_is_alone<S::outputs>(k)) allow_unwritten(ring + i * S::stage + 2 * S::xBytes, 2 * S::wBytes);
    }
  }
  cluster_sync();
  if (tid() / 128 == S::groups) {
    if constexpr (S::groups == 2) fewer_registers<40>();
    if (tid() == S::groups * 128) s.fill();
  } else {
    if constexpr (S::groups == 2) more_registers<232>();
    s.work();
  }
  // No block leaves while the other may still write to its shared memory.
  sync_warp();
  cluster_sync();
}

#define SLICED(ROWS, WIDTH, STAGES)                                                                                                                                                \
  HOPPER_KERNEL(ROWS * 2 + 128)                                                                                                                                                    \
  void sliced_##ROWS##_##WIDTH##_pair(const void *x, const void *w0, const void *w1, const void *w2, float *f0, float *f1, float *f2, bf16 *h0, bf16 *h1,                          \
                                      bf16 *h2, const float *b0, const float *b1, const float *b2, u32 out0, u32 out1, u32 out2, u32 add, u32 rows, u32 in, u32 box, u32 slices) { \
    DYNAMIC_SHARED(sliced_##ROWS##_##WIDTH##_pair, shared);                                                                                                                        \
    const Work k{x, {w0, w1, w2}, {{f0, h0, b0, add & 1}, {f1, h1, b1, add & 2}, {f2, h2, b2, add & 4}}, nullptr, nullptr, {out0, out1, out2}, rows, in};                          \
    multiply_sliced<ROWS, WIDTH, STAGES, false>(shared, k, box, slices);                                                                                                           \
  }                                                                                                                                                                                \
  REGISTER(sliced_##ROWS##_##WIDTH##_pair)
#define SLICED_GATED(ROWS, WIDTH, STAGES)                                                                                                    \
  HOPPER_KERNEL(ROWS * 2 + 128)                                                                                                              \
  void sliced_gated_##ROWS##_##WIDTH##_pair(const void *x, const void *gate, const void *up, float *f32, bf16 *half, const float *gate_bias, \
                                            const float *up_bias, u32 add, u32 rows, u32 out, u32 in, u32 box, u32 slices) {                 \
    DYNAMIC_SHARED(sliced_gated_##ROWS##_##WIDTH##_pair, shared);                                                                            \
    const Work k{x, {gate, up, nullptr}, {{f32, half, nullptr, add}, {}, {}}, gate_bias, up_bias, {out, 0, 0}, rows, in};                    \
    multiply_sliced<ROWS, WIDTH, STAGES, true>(shared, k, box, slices);                                                                      \
  }                                                                                                                                          \
  REGISTER(sliced_gated_##ROWS##_##WIDTH##_pair)

SLICED(64, 32, 8)
SLICED(64, 64, 6)
SLICED(64, 128, 4)
SLICED(128, 32, 5)
SLICED(128, 64, 4)
SLICED(128, 128, 3)
SLICED_GATED(64, 64, 6)
SLICED_GATED(64, 128, 4)
SLICED_GATED(128, 64, 4)
SLICED_GATED(128, 128, 3)
