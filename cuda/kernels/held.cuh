// Projections of up to 16 rows by 4-bit weights that round, on compute capability 9.0, with the bits of
// stream.cuh: the same strips, the same 16 warps over slices of the inputs, the same products and order of
// sums.
//
// What differs from few.cuh is where rows are: a warp has so few inputs that rows of them stay in its
// registers, as operands, all or as many as there is room for: no strip reads them again. A warp's part of a
// strip comes in one copy, or two.
//
// Rows can be f32, and are normed on the way then: one, which is all eight of its tile, or up to eight of so many inputs
// that a warp has those whose squares the same warp of rms_norm adds up.
//
// Rows go 8 a tile, of which there are NT; a warp has U units of 64 inputs, or one less.
#pragma once
#include "finish.cuh"
#include "norm.cuh"

constexpr u32 heldStages = 8; // of a ring, at most
constexpr u32 heldFours = 3; // fours of a row that is normed that a thread keeps
constexpr u32 heldTiles = 9; // of 64 inputs by 8 rows that a warp has registers for

// What a block does with rows before it multiplies them: nothing, or it norms the only one, or all of them.
constexpr u32 normsNone = 0, normsOne = 1, normsAll = 2;

template <class W, u32 NT, u32 U, u32 norms> struct Held {
  using Sums = Finisher<W, NT, 1>;
  static constexpr u32 part = Sums::part, place = Sums::place, half = W::bytes / 2;
  static constexpr u32 tiles = U * NT < heldTiles ? U * NT : heldTiles; // the first ones; the others stay in shared memory
  static_assert(W::inputs == 128);

  const Projection &p;
  StripList strips; // this block's
  u32 warp, lane;
  u32 begin, mine; // units
  u32 full, empty; // as the finishers have them
  float *places;
  u32 slot, ring, barriers, rows; // bytes of a stage; this warp's stages; their barriers; tiles of rows

  // What is copied next. Of the granules that the warp's units lie in, a slot has what is its own: of the
  // first one all or the second half, of the last one its scales, where they are not the warp's own, behind the first half.
  u32 next, left, skip, bytes, scales;
  const u8 *source; // of all warps

  // aim finds the next strip's weights, and how many strips its weight has from there on.
  METHOD void aim() {
    const Strip s = stripAt(p, strips.at(p, next));
    source = of(p.weights, s.weight) + (u64)(s.first / 16) * (p.in / W::inputs * p.granule);
    left = (of(p.out, s.weight) + 15 - s.first) / 16;
  }
  METHOD void copy(u32 stage) {
    if (next >= strips.count) return;
    const u8 *from = source + (p.gated && next % 2 ? p.weights[1] - p.weights[0] : 0) + (begin / 2 * p.granule + skip);
    const u32 to = ring + stage * slot, barrier = barriers + stage * 8;
    copy_bulk_once(to, from, bytes, barrier, bytes + scales);
    if (scales) copy_more_once(to + bytes, from + bytes + half, scales, barrier);
    next++;
    if (p.gated && next % 2) return;
    source += p.in / W::inputs * p.granule;
    if (--left == 0 && next < strips.count) aim();
  }

  // tileAt loads the operands of a tile, which lies in 8 lines whose pieces are permuted by the line.
  METHOD void tileAt(u32 (&b)[2][4], u32 at) const {
    UNROLL for (u32 i = 0; i < 2; i++) load_matrix_at(b[i], at + lane % 8 * 128 + ((i * 4 + lane / 8) ^ lane % 8) * 16);
  }

  // take brings the rows to registers, by way of the last stage, or to where they stay.
  METHOD void take(u32 (&b)[tiles][2][4]) const {
    const u16 *x = p.x + (u64)begin * 64 + lane % 8 * 8;
    u32x4 v[U][NT][2];
    UNROLL for (u32 u = 0; u < U; u++)
      UNROLL for (u32 n = 0; n < NT; n++)
        UNROLL for (u32 i = 0; i < 2; i++) {
          const u32 r = n * 8 + i * 4 + lane / 8; // of rows that are not there the first one
          v[u][n][i] = u + 1 < U || mine == U ? *(const u32x4 *)(x + (u64)(r < p.rows ? r : 0) * p.in + u * 64) : u32x4{};
        }
    const u32 stage = ring + (p.stages - 1) * slot;
    UNROLL for (u32 u = 0; u < U; u++)
      UNROLL for (u32 n = 0; n < NT; n++) {
        const u32 tile = u * NT + n, to = tile < tiles ? stage : rows + (tile - tiles) * 1024;
        UNROLL for (u32 i = 0; i < 2; i++) {
          const u32 r = i * 4 + lane / 8;
          put_x4(to + r * 128 + (lane % 8 ^ r) * 16, v[u][n][i]);
        }
        if (tile >= tiles) continue;
        sync_warp();
        tileAt(b[tile], to);
        sync_warp();
      }
    proxy_fence(); // before weights come there
    sync_warp();
  }

  // takeNormed is take of one row that the block norms, with the bits of rms_norm.
  METHOD void takeNormed(u32 (&b)[tiles][2][4], const f32x4 (&w)[heldFours], u8 *row) const {
    static_assert(NT == 1 && fewWorkers * 32 == normThreads);
    u32x2 *to = (u32x2 *)row;
    norm_row(
        (const f32x4 *)p.x, (const f32x4 *)p.norm, w, warp * 32 + lane, p.in, p.eps, (float *)(row + p.in * 2), []() INLINE { sync_group(1, normThreads); },
        [&](u32 i, const f32x4 &v) INLINE { to[i] = pack_bf16_x4(v); });
    sync_group(1, normThreads);
    UNROLL for (u32 u = 0; u < U; u++) {
      if (u + 1 == U && mine != U) break;
      UNROLL for (u32 i = 0; i < 2; i++) load_matrix_at(b[u][i], shared_address(row) + (begin + u) * 128 + (i * 4 + lane / 8) * 16);
    }
  }

  // halve adds eight sums up over lanes that are m and less apart, in warp_sum's order; a lane has one of them in the end.
  template <u32 n, u32 m> METHOD void halve(float (&sum)[8]) const {
    if constexpr (n == 0) sum[0] += shfl_xor(sum[0], (int)m);
    else
      UNROLL for (u32 i = 0; i < n; i++) sum[i] = (lane & m ? sum[i + n] : sum[i]) + shfl_xor(lane & m ? sum[i] : sum[i + n], (int)m);
    if constexpr (m > 1) halve<n / 2, m / 2>(sum);
  }

  // takeRows is take of rows of 128 inputs a warp that the block norms, with the bits of rms_norm. A lane has four
  // inputs of each; of their squares' sums it adds up a part, by exchanges that halve what is left.
  METHOD void takeRows(u32 (&b)[tiles][2][4], const f32x4 &w, u8 *normed_rows) const {
    constexpr u32 R = 8, each = 32 / R; // rows; lanes that have a row's sum
    f32x4 v[R];
    UNROLL for (u32 r = 0; r < R; r++) v[r] = r < p.rows ? ((const f32x4 *)p.x)[(u64)r * (p.in / 4) + warp * 32 + lane] : f32x4{};
    float sum[R];
    UNROLL for (u32 r = 0; r < R; r++) sum[r] = squares(v[r]);
    halve<R / 2, 16>(sum);
    float *partials = (float *)(normed_rows + R * p.in * 2), *scales = partials + R * fewWorkers;
    if (lane % each == 0) partials[lane / each * fewWorkers + warp] = sum[0];
    sync_group(1, normThreads);
    if (warp < R) {
      const float scale = norm_scale(norm_total(partials + warp * fewWorkers), p.in, p.eps);
      if (lane == 0) scales[warp] = scale;
    }
    sync_group(1, normThreads);
    const u32 to = shared_address(normed_rows) + warp * (U * 1024); // the warp's tiles, as take has them
    UNROLL for (u32 r = 0; r < R; r++) put_x2(to + lane / 16 * 1024 + r * 128 + (lane % 16 / 2 ^ r) * 16 + lane % 2 * 8, pack_bf16_x4(normed(v[r], scales[r], w)));
    sync_warp();
    UNROLL for (u32 tile = 0; tile < tiles; tile++) tileAt(b[tile], to + tile * 1024);
  }

  METHOD void work(u8 *row) {
    const u32 odd = begin % 2, cut = (begin + mine) % 2, granules = (begin + mine + 1) / 2 - begin / 2;
    skip = odd * half, scales = cut ? p.granule - W::bytes : 0, bytes = granules * p.granule - skip - (cut ? half + scales : 0);
    if (elected()) {
      _Pragma("nounroll") for (u32 i = 0; i < p.stages; i++) barrier_init(barriers + i * 8, 1);
      barriers_made();
    }
    sync_warp();
    next = 0;
    if (strips.count > 0) aim();
    // Weights never change: these need not wait for the kernel before.
    _Pragma("nounroll") for (u32 i = 0; i + 1 < p.stages; i++) copy(i);
    u32 b[tiles][2][4];
    if constexpr (norms != normsNone) {
      f32x4 w[heldFours];
      norm_weights(w, (const f32x4 *)p.norm, warp * 32 + lane, p.in);
      copy(p.stages - 1);
      dependency_wait();
      if constexpr (norms == normsAll) takeRows(b, w[0], row);
      else takeNormed(b, w, row);
    } else {
      dependency_wait();
      take(b);
      copy(p.stages - 1);
    }
    // Where numbers and scales of the warp's even and odd units are in a slot, those of the first granule.
    // Behind half a granule scales come sooner.
    const u32 apart = (64 / W::fold >> p.shift) * 64, numbers = ring + lane * 16, words = ring + W::bytes + lane / 4 * 8 - skip;
    const u32 number0 = numbers, number1 = numbers + (odd ? p.granule - half : half);
    const u32 word0 = words + odd * apart, word1 = words + (odd ? p.granule : apart);
    const bool whole = mine == U;
    const u32 to = shared_address(places + warp * part) + lane * 16;
    Ring at{p.stages};
    u32 turn = 0, phase = 1; // of the place's being empty: at first it is
    _Pragma("nounroll") for (u32 strip = 0; strip < strips.count; strip++) {
      float total[NT][4] = {};
      wait_phase(barriers + at.stage * 8, at.phase);
      u32 granule = at.stage * slot;
      UNROLL for (u32 u = 0; u < U; u++) {
        if (u + 1 == U && !whole) break;
        const bool last = cut && u + 1 == mine;
        const typename W::Numbers numbers{get_x4(granule + (u % 2 ? number1 : number0))};
        const u32 words = granule + (u % 2 ? word1 : word0) - (last ? half : 0);
        TinyScales of;
        u32 more[NT][2][4];
        UNROLL for (u32 n = 0; n < NT; n++)
          if (u * NT + n >= tiles) tileAt(more[n], rows + (u * NT + n - tiles) * 1024);
        UNROLL for (u32 k = 0; k < 4; k++) {
          if (k * 16 % W::fold == 0) of.set(get_x2(words + (k * 16 / W::fold >> p.shift) * 64));
          u32 w[4];
          W::tiny(w, numbers, k);
          of.apply(w);
          UNROLL for (u32 n = 0; n < NT; n++) {
            const u32(&x)[4] = u * NT + n < tiles ? b[u * NT + n < tiles ? u * NT + n : 0][k / 2] : more[n][k / 2];
            mma_bf16(total[n], w, {x[k % 2 * 2], x[k % 2 * 2 + 1]});
          }
        }
        if (u % 2) granule += p.granule;
      }
      sync_warp();
      copy(at.stage);
      at.next();
      wait_phase(empty + turn * 8, phase);
      UNROLL for (u32 n = 0; n < NT; n++) {
        const float(&of)[4] = total[n];
        const float sum[4] = {whole_sum<W>(of[0], 0), whole_sum<W>(of[1], 0), whole_sum<W>(of[2], 1), whole_sum<W>(of[3], 1)};
        put_at(to + (turn * place + n * fewPart) * 4, sum);
      }
      sync_warp();
      arrive(full + turn * 8, lane == 0);
      if (++turn == fewPlaces) turn = 0, phase ^= 1;
    }
  }
};

// The first blocks, more of them, have a strip more than the others, or a gate's and an up's.
template <class W, u32 NT, u32 U, u32 norms> DEV void held(const Projection &p, u32 more, u32 slot, u8 *shared) {
  using H = Held<W, NT, U, norms>;
  launch_dependents();
  const u32 lane = tid() % 32, warp = shfl(tid() / 32, 0), each = p.gated ? 2 : 1;
  const StripList strips{(bid() * (p.strips / each) + (bid() < more ? bid() : more)) * each, (p.strips / each + (bid() < more)) * each, 1};
  // Rings, places, rows that stay in shared memory, barriers, a row that is normed and its sums.
  float *places = (float *)(shared + fewWorkers * p.stages * slot);
  const u32 rows = shared_address(places) + fewPlaces * H::place * 4, kept = (NT * U - H::tiles) * 1024, full = rows + fewWorkers * kept, empty = full + fewPlaces * 8, barriers = empty + fewPlaces * 8;
  if (tid() < 32) {
    if (lane < fewPlaces) {
      barrier_init(full + lane * 8, fewWorkers);
      barrier_init(empty + lane * 8, fewFinishers);
    }
    barriers_made();
  }
  sync();
  constexpr bool many = NT * U >= 8; // rows take more registers than a warp has
  if (warp < fewWorkers) {
    if constexpr (many) more_registers<112>();
    const u32 units = p.in / 64, begin = warp * units / fewWorkers;
    H s{p, strips, warp, lane, begin, (warp + 1) * units / fewWorkers - begin, full, empty, places, slot};
    s.ring = shared_address(shared) + warp * p.stages * slot, s.barriers = barriers + warp * heldStages * 8, s.rows = rows + warp * kept;
    s.work(shared + (barriers - shared_address(shared)) + fewWorkers * heldStages * 8);
  } else {
    if constexpr (many) fewer_registers<32>();
    Finisher<W, NT, 1>{p, strips, lane, 0, places, full, empty}.finish();
  }
}

#define HELD_KERNEL(name, W, NT, U, norms)                                                                                \
  HOPPER_KERNEL((fewWorkers + fewFinishers) * 32)                                                                         \
  void name(const u8 *w0, const u8 *w1, const u8 *w2, float *f0, float *f1, float *f2, u16 *h0, u16 *h1, u16 *h2,         \
            const float *bias0, const float *bias1, const float *bias2, u32 out0, u32 out1, u32 out2, u32 add, u32 gated, \
            const u16 *x, u32 in, u32 rows, u32 granule, u32 shift, u32 stages, u32 strips, u32 more, u32 slot,           \
            const float *norm, float eps) {                                                                               \
    DYNAMIC_SHARED(name, shared);                                                                                         \
    Projection p{{w0, w1, w2}, {f0, f1, f2}, {h0, h1, h2}, {bias0, bias1, bias2}, {out0, out1, out2}, add, gated,         \
                 x, in, rows, granule, shift, stages, strips, 1, norm, eps};                                              \
    held<W, NT, U, norms>(p, more, slot, shared);                                                                         \
  }                                                                                                                       \
  REGISTER(name)
#define HELD(name, W, U)                        \
  HELD_KERNEL(name##_1_##U, W, 1, U, normsNone) \
  HELD_KERNEL(name##_1_##U##_normed, W, 1, U, normsOne)
#define HELD_ALL(name, W)                         \
  HELD(name, W, 2)                                \
  HELD_KERNEL(name##_1_2_rows, W, 1, 2, normsAll) \
  HELD(name, W, 3)                                \
  HELD(name, W, 4)                                \
  HELD(name, W, 5)                                \
  HELD(name, W, 6)                                \
  HELD(name, W, 8)                                \
  HELD_KERNEL(name##_2_2, W, 2, 2, normsNone)     \
  HELD_KERNEL(name##_2_3, W, 2, 3, normsNone)     \
  HELD_KERNEL(name##_2_4, W, 2, 4, normsNone)     \
  HELD_KERNEL(name##_2_5, W, 2, 5, normsNone)     \
  HELD_KERNEL(name##_2_6, W, 2, 6, normsNone)
