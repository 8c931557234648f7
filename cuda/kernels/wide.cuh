// Projections of more than 32 rows by packed weights on compute capability 9.0,
// for passes in which a row's bits may depend on the rows. Weights become bf16 in
// registers, each rounded as pack.cu's dequantise rounds it, and are the A operands
// of chains of wgmma over all inputs: nothing is applied to sums.
//
// A block's warpgroups make 64 outputs of NT·8 rows each, a warp a strip, whose
// weights it copies itself. One more warp fills the ring of inputs, 128 a stage.
// Where the inputs are cut into parts, the blocks of a tile wait for each other,
// and each adds up some of the rows, in the order of the parts.
//
// Of 256 rows, which decode a weight half as often, two blocks that are neighbours share
// the inputs: each copies those of 128 rows to both.
#pragma once
#include "chain.cuh"
#include "rounded.cuh"
#include "strips.cuh"

template <class W, u32 NT> struct Wide {
  static constexpr u32 rowsTile = NT * 8, unitRows = rowsTile * 128; // bytes of 64 inputs
  static constexpr u32 perGranule = W::inputs / 64;
  static constexpr bool shares = NT == 32;
  static constexpr u32 slots = shares ? 3 : 4;              // of a warp's ring of weights, 128 inputs each
  static constexpr u32 line = 20, box = rowsTile * line;    // floats of a row of 16 sums, apart from its neighbours' banks, and of a strip
  static constexpr u32 mostParts = 4;
  static constexpr u32 batch = 4;                           // tiles of 8 rows that are stored at a time

  const Projection &p;
  u32 partsShift;       // log2 of the parts of the inputs
  float *sums;          // of parts: [tiles][parts][strips][NT] of four a lane
  u32 *done;            // parts of a tile that are there, and that have left
  u32 wide, warp, lane; // warpgroups that multiply
  u32 barriers, rows, weights; // shared memory: barriers, the ring of inputs, this warp's ring
  u8 *base;             // of the rings
  const u8 *weightsAt;  // this warp's ring
  u32 pairBytes;        // of 128 inputs of a strip
  u32 depth;            // granules of a strip
  u32 first, last;      // stages of the part

  METHOD u32 full(u32 stage) const { return barriers + stage * 8; }
  METHOD u32 empty(u32 stage) const { return barriers + 64 + stage * 8; }
  METHOD u32 there(u32 slot) const { return barriers + 128 + (warp * slots + slot) * 8; }
  METHOD u32 part() const { return bid_y(); }
  METHOD u32 rowFirst() const { return bid_z() * rowsTile; }

  // fill fills the ring of inputs.
  METHOD void fill() const {
    dependency_wait();
    u32 rank = shares ? cluster_rank() : 0;
    Ring at{p.stages};
    _Pragma("nounroll") for (u32 pair = first; pair < last; pair++) {
      wait_phase(empty(at.stage), at.phase ^ 1);
      if (elected()) {
        expect(full(at.stage), 2 * unitRows);
        UNROLL for (u32 half = 0; half < 2; half++) {
          u32 to = rows + (at.stage * 2 + half) * unitRows, k = pair * 128 + half * 64;
          if constexpr (shares) copy_box_pair(to + rank * (unitRows / 2), p.x, k, rowFirst() + rank * (rowsTile / 2), full(at.stage));
          else copy_box(to, p.x, k, rowFirst(), full(at.stage));
        }
      }
      sync_warp();
      at.next();
    }
  }

  // copyWeights starts the copy of 128 inputs of the strip.
  METHOD void copyWeights(const u8 *strip, u32 pair) const {
    u32 slot = (pair - first) % slots, rest = depth * p.granule - pair * pairBytes;
    copy_bulk(weights + slot * pairBytes, strip + (u64)pair * pairBytes, rest < pairBytes ? rest : pairBytes, there(slot));
  }

  // begin starts the first copies of weights, which never change: they need not
  // wait for the kernel before.
  METHOD void begin(const u8 *strip) const {
    if (elected()) {
      UNROLL for (u32 i = 0; i < slots; i++) barrier_init(there(i), 1);
      barriers_made();
    }
    sync_warp();
    _Pragma("nounroll") for (u32 pair = first; pair < last && pair < first + slots; pair++) copyWeights(strip, pair);
  }

  // work multiplies a strip by the part's inputs, and stores it.
  METHOD void work(const Strip &s, const u8 *strip) const {
    float c[NT][4] = {};
    u32 a[2][4][4];
    Ring at{p.stages}, mine{slots};
    u32 before = 0;
    _Pragma("nounroll") for (u32 pair = first; pair < last; pair++) {
      wait_phase(there(mine.stage), mine.phase);
      wait_phase(full(at.stage), at.phase);
      const u8 *low = weightsAt + mine.stage * pairBytes;
      u32 x = descriptor_low(rows + at.stage * 2 * unitRows);
      rounded<W>(a[0], low, 0, p.shift, lane);
      chain(c, a[0], descriptor_of(x));
      products_wait<1>();
      if constexpr (shares) arrive_at(empty(before), lane, lane < 2 && pair > first);
      else arrive(empty(before), lane == 0 && pair > first);
      rounded<W>(a[1], perGranule == 1 ? low + p.granule : low, perGranule - 1, p.shift, lane);
      if (perGranule == 1 && pair * 2 + 1 >= depth) zero(a[1]); // what was there before
      chain(c, a[1], descriptor_of(x + (unitRows >> 4)));
      if (pair + slots < last) copyWeights(strip, pair + slots);
      products_wait<1>();
      before = at.stage;
      at.next();
      mine.next();
    }
    products_wait<0>(c);
    store(c, s);
  }

  METHOD void sync_all() const { sync_group(15, wide * 128); }

  // meet waits until all parts of the tile are there: all blocks of a launch in
  // parts are at work at once. The last one to leave makes the counter ready for
  // the next launch.
  METHOD void meet() const {
    u32 *count = done + bid_z() * gdim() + bid(), parts = 1 << partsShift;
    sync_all();
    if (tid() == 0) {
      fence();
      atomic_add(count, 1);
      while (load_acquire(count) < parts) {
      }
    }
    sync_all();
    if (tid() == 0 && atomic_add(count, 1) == 2 * parts - 1) *count = 0;
  }

  // exchange gives other parts' rows away, and adds up those of this part in the
  // order of the parts. here is the lane's place in the first 8 rows of the strip.
  METHOD void exchange(float *here) const {
    u32 parts = 1 << partsShift, own = NT >> partsShift;
    u64 size = (u64)wide * 4 * NT * 128; // floats of a part
    float *to = sums + ((u64)(bid_z() * gdim() + bid()) << partsShift) * size + warp * NT * 128 + lane * 4; // of the first part
    UNROLL for (u32 i = 0; i < NT; i++)
      if (i - part() * own >= own) *(f32x4 *)(to + part() * size + i * 128) = *(const f32x4 *)(here + i * 8 * line);
    meet();
    _Pragma("nounroll") for (u32 i = 0; i < own; i += batch) {
      f32x4 v[batch][mostParts];
      const float *parcels = to + (part() * own + i) * 128;
      float *sum = here + (part() * own + i) * 8 * line;
      UNROLL for (u32 j = 0; j < batch; j++)
        UNROLL for (u32 from = 0; from < mostParts; from++)
          if (i + j < own && from < parts && from != part()) v[j][from] = load_l2_x4(parcels + from * size + j * 128);
      UNROLL for (u32 j = 0; j < batch; j++) {
        if (i + j >= own) break;
        f32x4 mine = *(const f32x4 *)(sum + j * 8 * line), all = {-0.f, -0.f, -0.f, -0.f}; // which leaves the bits of what is added
        UNROLL for (u32 from = 0; from < mostParts; from++) {
          f32x4 w = from == part() ? mine : v[j][from];
          if (from < parts) all.x += w.x, all.y += w.y, all.z += w.z, all.w += w.w;
        }
        *(f32x4 *)(sum + j * 8 * line) = all;
      }
    }
  }

  // store stores the part's rows of a strip, of gate and up half of them each, by
  // way of the rings, which nobody reads any more. Numbers of outputs are
  // multiples of 8, so that four lie together.
  METHOD void store(const float (&c)[NT][4], const Strip &s) const {
    u32 own = NT >> partsShift, step = p.gated ? 2 : 1, weight = p.gated ? 0 : s.weight, m = lane % 4 * 4, out = of(p.out, weight);
    u32 tile = part() * own + (p.gated ? warp % 2 : 0), tiles = own / step; // of 8 rows
    float *mine = (float *)base + warp * box, *from = mine - (p.gated ? warp % 2 * box : 0) + lane / 4 * line + m;
    bool there = s.there && s.first + m < out, adds = p.add >> weight & 1;
    u32 row = rowFirst() + tile * 8 + lane / 4;
    u64 at = (u64)row * out + s.first + m;
    float *f = of(p.f32, weight);
    u16 *h = of(p.bf16, weight);
    sync_all();
    UNROLL for (u32 i = 0; i < NT * 4; i++) mine[(i / 4 * 8 + lane % 4 * 2 + i % 2) * line + lane / 4 + i % 4 / 2 * 8] = whole_sum<W>(c[i / 4][i % 4], i % 4 / 2);
    sync_warp();
    dependency_wait();
    f32x4 old[batch];
    auto fetch = [&](u32 first) __attribute__((always_inline)) { // what is added to
      UNROLL for (u32 j = 0; j < batch; j++)
        if (adds && there && first + j < tiles && row + (first + j) * step * 8 < p.rows) old[j] = *(const f32x4 *)(f + at + (u64)(first + j) * step * 8 * out);
    };
    fetch(0);
    f32x4 bias[2] = {};
    UNROLL for (u32 i = 0; i < 2; i++) {
      const float *b = i ? p.bias[1] : of(p.bias, weight);
      if (b && there && (i == 0 || p.gated)) bias[i] = *(const f32x4 *)(b + s.first + m);
    }
    if (!shares && partsShift) exchange(mine + lane / 4 * line + m);
    if (p.gated) sync_all();
    else sync_warp();
    from += tile * 8 * line;
    _Pragma("nounroll") for (u32 i = 0; i < tiles; i += batch) {
      f32x4 v[batch];
      UNROLL for (u32 j = 0; j < batch; j++) {
        v[j] = *(const f32x4 *)(from + (i + j < tiles ? i + j : 0) * step * 8 * line);
        float *e = (float *)&v[j], *b = (float *)bias;
        UNROLL for (u32 k = 0; k < 4; k++) e[k] += b[k];
      }
      if (p.gated) {
        UNROLL for (u32 j = 0; j < batch; j++) {
          f32x4 up = *(const f32x4 *)(from + box + (i + j < tiles ? i + j : 0) * step * 8 * line);
          float *e = (float *)&v[j], *u = (float *)&up, *b = (float *)&bias[1];
          UNROLL for (u32 k = 0; k < 4; k++) e[k] = silu(e[k]) * (u[k] + b[k]);
        }
      }
      if (adds) {
        UNROLL for (u32 j = 0; j < batch; j++) v[j].x += old[j].x, v[j].y += old[j].y, v[j].z += old[j].z, v[j].w += old[j].w;
      }
      fetch(i + batch);
      UNROLL for (u32 j = 0; j < batch; j++) {
        u64 to = at + (u64)(i + j) * step * 8 * out;
        bool yes = there && i + j < tiles && row + (i + j) * step * 8 < p.rows;
        if (f && yes) *(f32x4 *)(f + to) = v[j];
        if (h && yes) *(u32x2 *)(h + to) = u32x2{pack_bf16(v[j].x, v[j].y), pack_bf16(v[j].z, v[j].w)};
      }
    }
  }
};

// wide runs a kernel. Grid: tiles of outputs, parts of the inputs, tiles of rows.
template <class W, u32 NT> DEV void wide(const Projection &p, u32 partsShift, float *sums, u32 *done, u8 *shared) {
  using T = Wide<W, NT>;
  launch_dependents();
  T s{p, partsShift, sums, done, (bdim() - 32) / 128, shfl(tid() / 32, 0), tid() % 32};
  s.depth = (p.in + W::inputs - 1) / W::inputs;
  u32 stages = (s.depth * T::perGranule + 1) / 2;
  s.first = s.part() * stages >> partsShift;
  s.last = (s.part() + 1) * stages >> partsShift;
  s.pairBytes = 2 / T::perGranule * p.granule;
  // Barriers, and then the rings: of inputs, on 1024 bytes, and of weights.
  s.barriers = (shared_address(shared) + 1023) / 1024 * 1024;
  s.rows = s.barriers + 1024;
  s.base = shared + (s.rows - shared_address(shared));
  u32 offset = p.stages * 2 * T::unitRows + s.warp * T::slots * s.pairBytes;
  s.weights = s.rows + offset;
  s.weightsAt = s.base + offset;
  bool fills = s.warp == s.wide * 4, idle = T::shares && s.warp > s.wide * 4;
  Strip strip = stripAt(p, bid() * s.wide * 4 + s.warp);
  // A strip that is not there is multiplied as another, and dropped.
  const u8 *weights = strip.there ? of(p.weights, strip.weight) + (u64)(strip.first / 16) * s.depth * p.granule : p.weights[0];
  if (!fills) {
    if (!idle) s.begin(weights);
  } else {
    if (elected()) {
      prefetch_map(p.x);
      _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) {
        barrier_init(s.full(i), 1);
        barrier_init(s.empty(i), s.wide * (T::shares ? 8 : 4)); // the warps that multiply
      }
      barriers_made();
    }
    sync_warp();
  }
  if constexpr (T::shares) {
    cluster_sync();
    if (fills || idle) {
      fewer_registers<56>();
      if (fills) s.fill();
    } else {
      more_registers<224>();
      s.work(strip, weights);
    }
    // No block leaves while the other may still write to its shared memory.
    sync_warp();
    cluster_sync();
  } else {
    sync();
    if (fills) s.fill();
    else s.work(strip, weights);
  }
}

// The most threads are three warpgroups and the warp that copies.
#define WIDE(name, W, NT, most)                                                                                   \
  HOPPER_KERNEL(most)                                                                                             \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1,          \
            u16 *h2, const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1,              \
            u32 out2, u32 add, u32 gated, const u16 *x, u32 in, u32 rows, u32 granule, u32 shift,                 \
            u32 stages, u32 partsShift, float *sums, u32 *done) {                                                 \
    DYNAMIC_SHARED(name, shared);                                                                                 \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated, \
                 x, in, rows, granule, shift, stages};                                                            \
    wide<W, NT>(p, partsShift, sums, done, shared);                                                               \
  }                                                                                                               \
  REGISTER(name)
#define WIDE_ALL(name, W)   \
  WIDE(name##_8, W, 8, 416) \
  WIDE(name##_16, W, 16, 416)
// Of 256 rows two warpgroups multiply, and one has the warp that copies: setmaxnreg is of a warpgroup.
#define WIDE_PAIR(name, W) WIDE(name##_pair, W, 32, 384)
